/* Parts of a program's output, which may be any bytes. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Where the last n lines begin; a last line need not end. */
const char *lines_last(const char *text, size_t len, int n);
/* Where the lines of since_ms (wall) and later begin, when lines begin with their time (RFC 3339) and a
 * space; lines without one belong to the one before. All of text when since_ms is 0 or its first line
 * has no time. text ends at its NUL. */
const char *lines_since(const char *text, int64_t since_ms);
