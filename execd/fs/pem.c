#include "execd/fs/pem.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MARK "-----BEGIN "
#define BEGIN "-----BEGIN CERTIFICATE-----"
#define END "-----END CERTIFICATE-----"

enum { LINE = 64, DIGITS_PER_GROUP = 4, BYTES_PER_GROUP = 3, HEAD_MAX = 9, SEQUENCE = 0x30 };

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Copies base64 without blanks. The digits, padding included; 0: it is not base64. */
static size_t squeeze(const char *s, size_t len, char *out)
{
    size_t n = 0;
    size_t pad = 0;
    size_t i;

    for (i = 0; i < len; i++) {
        if (blank(s[i]))
            continue;
        if (s[i] == '=')
            pad++;
        else if (digit(s[i]) < 0 || pad)
            return 0;
        out[n++] = s[i];
    }
    return n % DIGITS_PER_GROUP || pad >= BYTES_PER_GROUP || n == pad ? 0 : n;
}

/* The first bytes of what n digits stand for. */
static size_t head(const char *digits, size_t n, unsigned char out[HEAD_MAX])
{
    size_t len = 0;
    size_t i;

    for (i = 0; i + DIGITS_PER_GROUP <= n && len < HEAD_MAX; i += DIGITS_PER_GROUP) {
        uint32_t group = 0;
        size_t k;

        for (k = 0; k < DIGITS_PER_GROUP; k++)
            group = group << 6 | (digit(digits[i + k]) < 0 ? 0 : (uint32_t)digit(digits[i + k]));
        out[len++] = (unsigned char)(group >> 16);
        out[len++] = (unsigned char)(group >> 8);
        out[len++] = (unsigned char)group;
    }
    return len;
}

/* DER: a sequence as long as the whole, whose first member is a sequence. */
static bool is_certificate(const char *digits, size_t n)
{
    unsigned char h[HEAD_MAX];
    size_t total = n / DIGITS_PER_GROUP * BYTES_PER_GROUP;
    size_t more; /* bytes of the length behind its first */
    size_t len = 0;
    size_t i;

    if (head(digits, n, h) < HEAD_MAX || h[0] != SEQUENCE || h[1] <= 0x80 || h[1] > 0x84)
        return false;
    more = h[1] & 0x7f;
    for (i = 0; i < more; i++)
        len = len << 8 | h[2 + i];
    total -= (size_t)(digits[n - 1] == '=') + (size_t)(digits[n - 2] == '=');
    return h[2 + more] == SEQUENCE && len + 2 + more == total;
}

static int append(struct buf *out, const char *digits, size_t n)
{
    size_t i;

    if (buf_puts(out, BEGIN "\n") < 0)
        return -1;
    for (i = 0; i < n; i += LINE)
        if (buf_printf(out, "%.*s\n", (int)(n - i < LINE ? n - i : LINE), digits + i) < 0)
            return -1;
    return buf_puts(out, END "\n");
}

/* One certificate whose BEGIN is at text. The place behind its END, or NULL. */
static const char *one(const char *text, int number, char *digits, struct buf *out, struct err *e)
{
    const char *body = text + sizeof(BEGIN) - 1;
    const char *end;
    size_t n;

    if (strncmp(text, BEGIN, sizeof(BEGIN) - 1) != 0) {
        (void)err_set(e, ERRC_INVALID, "has a block that is not \"CERTIFICATE\"; leave it out");
        return NULL;
    }
    end = strstr(body, END);
    if (!end) {
        (void)err_set(e, ERRC_INVALID, "certificate %d has no line " END, number);
        return NULL;
    }
    n = squeeze(body, (size_t)(end - body), digits);
    if (!n || !is_certificate(digits, n)) {
        (void)err_set(e, ERRC_INVALID, "certificate %d is broken: it must be base64 of DER",
                      number);
        return NULL;
    }
    if (append(out, digits, n) < 0) {
        (void)err_nomem(e);
        return NULL;
    }
    return end + sizeof(END) - 1;
}

int pem_certificates(const char *text, struct buf *out, struct err *e)
{
    AUTO_FREE char *digits = malloc(strlen(text) + 1);
    int n = 0;

    if (!digits)
        return err_nomem(e);
    if (strlen(text) > PEM_TEXT_MAX)
        return err_set(e, ERRC_INVALID, "longer than %d bytes", PEM_TEXT_MAX);
    for (text = strstr(text, MARK); text; text = strstr(text, MARK)) {
        if (n == PEM_CERTIFICATES_MAX)
            return err_set(e, ERRC_INVALID, "more than %d certificates", PEM_CERTIFICATES_MAX);
        text = one(text, ++n, digits, out, e);
        if (!text)
            return -1;
    }
    return n ? n : err_set(e, ERRC_INVALID, "no line " BEGIN);
}
