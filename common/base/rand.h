/* Random identifiers and secrets from the kernel (getrandom(2)). */
#pragma once
#include <stddef.h>

enum {
    RAND_UUID_TEXT = 37,    /* 36 characters and the terminator */
    RAND_SECRET_BYTES = 32, /* 256 bits */
    RAND_SECRET_TEXT = 65,  /* hex */
};

void rand_bytes(void *out, size_t len); /* never fails: the process ends when the kernel cannot */
void rand_hex(char *out, size_t bytes); /* writes 2*bytes lower-case digits and a terminator */
void rand_uuid4(char out[RAND_UUID_TEXT]);
/* Lower-case hex of bytes; out holds 2*len+1. */
void hex_encode(const unsigned char *in, size_t len, char *out);
/* SHA-256 (FIPS 180-4) of data as 64 hex digits; out holds RAND_SECRET_TEXT bytes. */
void sha256_hex(const void *data, size_t len, char out[RAND_SECRET_TEXT]);
/* Equality in a time that does not depend on where the strings differ. */
int secret_equal(const char *a, const char *b);
