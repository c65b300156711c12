#include "gateway/runtime/docker/tar.h"

#include "common/base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 512, NAME = 100, PREFIX = 155, SIZE_DIGITS = 11 };

struct header {
    char name[NAME];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[SIZE_DIGITS + 1];
    char mtime[12];
    char sum[8];
    char type;
    char link[100];
    char magic[6];
    char version[2];
    char user[32];
    char group[32];
    char major[8];
    char minor[8];
    char prefix[PREFIX];
    char pad[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "ustar header");

static unsigned checksum(const struct header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    const size_t from = offsetof(struct header, sum);
    unsigned sum = 0;
    size_t i;

    for (i = 0; i < BLOCK; i++)
        sum += i >= from && i < from + sizeof(h->sum) ? ' ' : p[i];
    return sum;
}

/* Splits path into prefix and name at a slash when it is too long for name alone. */
static int put_path(struct header *h, const char *path, bool dir)
{
    char full[NAME + PREFIX + 2];
    int n = snprintf(full, sizeof(full), "%s%s", path, dir ? "/" : "");
    size_t len = (size_t)n;
    size_t at;

    if (n <= 0 || len >= sizeof(full) || path[0] == '/')
        return -1;
    if (len <= NAME) {
        memcpy(h->name, full, len);
        return 0;
    }
    for (at = len - NAME - 1; at < len - 1 && full[at] != '/';)
        at++;
    if (at >= len - 1 || at > PREFIX || at == 0)
        return -1;
    memcpy(h->prefix, full, at);
    memcpy(h->name, full + at + 1, len - at - 1);
    return 0;
}

static int put_header(struct buf *out, const char *path, unsigned mode, char type, size_t size)
{
    struct header h = { .type = type, .magic = "ustar", .version = { '0', '0' } };

    if ((uint64_t)size >= 1ULL << (3 * SIZE_DIGITS) || put_path(&h, path, type == '5') < 0)
        return -1;
    (void)snprintf(h.mode, sizeof(h.mode), "%07o", mode & 07777);
    memcpy(h.uid, "0000000", 8);
    memcpy(h.gid, "0000000", 8);
    (void)snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)size);
    memcpy(h.mtime, "00000000000", 12);
    (void)snprintf(h.sum, sizeof(h.sum), "%06o", checksum(&h) & 0777777);
    h.sum[7] = ' ';
    return buf_append(out, &h, sizeof(h));
}

static int pad(struct buf *out, size_t len)
{
    static const char zero[BLOCK];
    size_t over = len % BLOCK;

    return over ? buf_append(out, zero, BLOCK - over) : 0;
}

int tar_add_dir(struct buf *out, const char *path, unsigned mode)
{
    return put_header(out, path, mode, '5', 0);
}

int tar_add_file(struct buf *out, const char *path, unsigned mode, const void *data, size_t len)
{
    size_t before = out->len;

    if (put_header(out, path, mode, '0', len) == 0 && buf_append(out, data, len) == 0 &&
        pad(out, len) == 0)
        return 0;
    out->len = before; /* an entry is whole or absent */
    if (out->data)
        out->data[before] = '\0';
    return -1;
}

int tar_finish(struct buf *out)
{
    static const char zero[2 * BLOCK];

    return buf_append(out, zero, sizeof(zero));
}

/* ---- reading ---- */

/* Octal, NUL- or blank-terminated; -1 for anything else. */
static int64_t octal(const char *s, size_t len)
{
    int64_t v = 0;
    size_t i = 0;
    size_t digits = 0;

    while (i < len && s[i] == ' ')
        i++;
    for (; i < len && s[i] >= '0' && s[i] <= '7'; i++, digits++)
        v = v * 8 + (s[i] - '0');
    if (!digits || (i < len && s[i] != ' ' && s[i] != '\0'))
        return -1;
    return v;
}

static bool is_zero(const struct header *h)
{
    static const char zero[BLOCK];

    return memcmp(h, zero, BLOCK) == 0;
}

static void take_name(const struct header *h, struct tar_entry *out)
{
    size_t plen = memcmp(h->magic, "ustar", 5) == 0 && h->magic[5] == '\0'
                      ? strnlen(h->prefix, sizeof(h->prefix))
                      : 0;
    size_t nlen = strnlen(h->name, sizeof(h->name));
    size_t at = plen;

    memcpy(out->name, h->prefix, plen);
    if (plen)
        out->name[at++] = '/';
    memcpy(out->name + at, h->name, nlen);
    out->name[at + nlen] = '\0';
}

int tar_next(const char *archive, size_t len, size_t *pos, struct tar_entry *out)
{
    struct header h;
    int64_t size;
    size_t padded;

    for (;;) {
        if (*pos == len)
            return 0; /* the two zero blocks are often left off */
        if (len - *pos < BLOCK)
            return -1;
        memcpy(&h, archive + *pos, BLOCK);
        if (is_zero(&h))
            return 0;
        size = octal(h.size, sizeof(h.size));
        if (size < 0 || octal(h.sum, sizeof(h.sum)) != (int64_t)checksum(&h) ||
            (uint64_t)size > len - *pos - BLOCK)
            return -1;
        padded = ((size_t)size + BLOCK - 1) / BLOCK * BLOCK;
        if (padded > len - *pos - BLOCK)
            return -1;
        out->data = archive + *pos + BLOCK;
        *pos += BLOCK + padded;
        if (h.type != 'x' && h.type != 'g' && h.type != 'L' && h.type != 'K')
            break;
    }
    take_name(&h, out);
    out->type = h.type ? h.type : '0';
    out->len = (size_t)size;
    return 1;
}
