/* Strict number parsing: the whole string, decimal, no sign unless allowed, no blanks. */
#pragma once
#include <stdint.h>

/* 0, or -1 when s is not a decimal integer within [min, max]. A leading '-' is accepted when
 * min < 0; '+', blanks and an empty string never are. */
int num_parse_i64(const char *s, int64_t min, int64_t max, int64_t *out);
/* A finite decimal number such as 0.5, -2 or 1e1; neither '+' in front nor blanks. */
int num_parse_double(const char *s, double *out);
