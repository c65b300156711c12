#include "common/base/rand.h"

#include <errno.h>
#include <sha2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void rand_bytes(void *out, size_t len)
{
    char *p = out;
    ssize_t n;

    while (len > 0) {
        n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            abort(); /* no entropy source: nothing secret may be made */
        p += n;
        len -= (size_t)n;
    }
}

void hex_encode(const unsigned char *in, size_t len, char *out)
{
    static const char digit[] = "0123456789abcdef";
    size_t i;

    for (i = 0; i < len; i++) {
        out[2 * i] = digit[in[i] >> 4];
        out[2 * i + 1] = digit[in[i] & 15];
    }
    out[2 * len] = '\0';
}

void rand_hex(char *out, size_t bytes)
{
    unsigned char raw[64];
    size_t n;

    *out = '\0';
    for (; bytes > 0; bytes -= n, out += 2 * n) {
        n = bytes < sizeof(raw) ? bytes : sizeof(raw);
        rand_bytes(raw, n);
        hex_encode(raw, n, out);
    }
}

void rand_uuid4(char out[RAND_UUID_TEXT])
{
    unsigned char raw[16];
    char hex[33];

    rand_bytes(raw, sizeof(raw));
    raw[6] = (unsigned char)((raw[6] & 0x0f) | 0x40); /* RFC 9562 5.4: version 4 */
    raw[8] = (unsigned char)((raw[8] & 0x3f) | 0x80); /* variant 10 */
    hex_encode(raw, sizeof(raw), hex);
    memcpy(out, hex, 8);
    memcpy(out + 9, hex + 8, 4);
    memcpy(out + 14, hex + 12, 4);
    memcpy(out + 19, hex + 16, 4);
    memcpy(out + 24, hex + 20, 12);
    out[8] = out[13] = out[18] = out[23] = '-';
    out[36] = '\0';
}

void sha256_hex(const void *data, size_t len, char out[RAND_SECRET_TEXT])
{
    unsigned char raw[SHA256_DIGEST_LENGTH];
    SHA2_CTX ctx;

    SHA256Init(&ctx);
    SHA256Update(&ctx, data, len);
    SHA256Final(raw, &ctx);
    hex_encode(raw, sizeof(raw), out);
}

int secret_equal(const char *a, const char *b)
{
    size_t la = strlen(a);
    size_t lb = strlen(b);
    volatile unsigned char diff = (unsigned char)(la != lb);
    size_t i;

    for (i = 0; i < la; i++)
        diff = (unsigned char)(diff | (a[i] ^ (i < lb ? b[i] : 0)));
    return diff == 0;
}
