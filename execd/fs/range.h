/* The Range header of a download (RFC 9110 14). Pure. */
#pragma once
#include <stdint.h>

enum range {
    RANGE_OK,
    RANGE_BROKEN, /* not a byte range */
    RANGE_BEYOND, /* begins behind the end */
};

/* Of several ranges the first counts. RANGE_OK: off and len lie within size. */
enum range range_parse(const char *s, uint64_t size, uint64_t *off, uint64_t *len);
