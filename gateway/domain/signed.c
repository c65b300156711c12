#include "gateway/domain/signed.h"

#include "common/base/rand.h"

#include <sha2.h>
#include <stdio.h>
#include <string.h>

/* RFC 2104 over SHA-256; libmd has the hash only. key_len <= SHA256_BLOCK_LENGTH. */
static void hmac(const char *key, size_t key_len, const char *text, size_t len,
                 unsigned char out[SHA256_DIGEST_LENGTH])
{
    unsigned char pad[SHA256_BLOCK_LENGTH] = { 0 };
    SHA2_CTX ctx;
    size_t i;

    memcpy(pad, key, key_len);
    for (i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36;
    SHA256Init(&ctx);
    SHA256Update(&ctx, pad, sizeof(pad));
    SHA256Update(&ctx, (const uint8_t *)text, len);
    SHA256Final(out, &ctx);
    for (i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36 ^ 0x5c;
    SHA256Init(&ctx);
    SHA256Update(&ctx, pad, sizeof(pad));
    SHA256Update(&ctx, out, SHA256_DIGEST_LENGTH);
    SHA256Final(out, &ctx);
}

static void sign(const char *key, const char *id, uint16_t port, const char *exp,
                 char sig[SIGNED_SIG_TEXT])
{
    unsigned char raw[SHA256_DIGEST_LENGTH];
    size_t key_len = strlen(key);
    char text[256];
    int n = snprintf(text, sizeof(text), "v1\nsigned\n%s\n%u\n%s\n", id, port, exp);

    if (key_len > SHA256_BLOCK_LENGTH)
        key_len = SHA256_BLOCK_LENGTH;
    hmac(key, key_len, text, n > 0 ? (size_t)n : 0, raw);
    hex_encode(raw, (SIGNED_SIG_TEXT - 1) / 2, sig);
}

static void to_base36(int64_t v, char out[SIGNED_EXP_TEXT])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char rev[SIGNED_EXP_TEXT];
    size_t n = 0;
    size_t i;

    do {
        rev[n++] = digits[v % 36];
        v /= 36;
    } while (v > 0 && n < sizeof(rev) - 1);
    for (i = 0; i < n; i++)
        out[i] = rev[n - 1 - i];
    out[n] = '\0';
}

/* One spelling per number: lower case, no leading zero. */
static bool from_base36(const char *s, int64_t *out)
{
    int64_t v = 0;
    int d;

    if (!*s || (*s == '0' && s[1]))
        return false;
    for (; *s; s++) {
        if (*s >= '0' && *s <= '9')
            d = *s - '0';
        else if (*s >= 'a' && *s <= 'z')
            d = *s - 'a' + 10;
        else
            return false;
        if (v > (INT64_MAX - d) / 36)
            return false;
        v = v * 36 + d;
    }
    *out = v;
    return true;
}

void signed_make(const char *key, const char *id, uint16_t port, int64_t expires_s,
                 char exp[SIGNED_EXP_TEXT], char sig[SIGNED_SIG_TEXT])
{
    to_base36(expires_s, exp);
    sign(key, id, port, exp, sig);
}

bool signed_check(const char *key, const char *id, uint16_t port, const char *exp, const char *sig,
                  int64_t now_s)
{
    char want[SIGNED_SIG_TEXT];
    int64_t at;

    if (!from_base36(exp, &at))
        return false;
    sign(key, id, port, exp, want);
    return secret_equal(want, sig) && now_s < at;
}
