/* UTF-8 (RFC 3629) over bytes that come from programs and file systems. */
#pragma once
#include <stddef.h>

struct buf;

/* Length of the longest prefix that is valid UTF-8. */
size_t utf8_valid_len(const char *s, size_t len);
/* Appends s with every byte that is not part of valid UTF-8 replaced by U+FFFD.
 * -1 when out is full. */
int utf8_repair(const char *s, size_t len, struct buf *out);
/* How many bytes at the end of s (0..3) begin a character that a later read could complete. */
size_t utf8_incomplete_tail(const char *s, size_t len);
