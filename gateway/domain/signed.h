/* Signed, expiring routes to one port of one sandbox: /signed/{id}/{port}/{expires}/{signature}.
 * Pure. expires is in epoch seconds, base 36; the signature the first 128 bits of HMAC-SHA-256
 * (RFC 2104) in hex, over "v1\nsigned\n{id}\n{port}\n{expires}\n", with a key that the database
 * keeps. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIGNED_KEY_TEXT = 65, /* the key: 64 hex digits */
    SIGNED_SIG_TEXT = 33, /* 32 hex digits */
    SIGNED_EXP_TEXT = 14, /* 13 base 36 digits hold any int64_t */
};

/* Writes expires in base 36 and the signature. */
void signed_make(const char *key, const char *id, uint16_t port, int64_t expires_s,
                 char exp[SIGNED_EXP_TEXT], char sig[SIGNED_SIG_TEXT]);
/* Is the signature right, and now_s before the expiry it names? exp and sig as received. */
bool signed_check(const char *key, const char *id, uint16_t port, const char *exp, const char *sig,
                  int64_t now_s);
