/* Splits a command line into words as a POSIX shell does, without expanding anything: blanks separate,
 * quotes and '\' take their special meaning away. Pure. */
#pragma once
#include <jansson.h>

struct err;

/* An array of strings. NULL: ERRC_INVALID says what is wrong with text (a quote that is not closed, a
 * '\' at its end, no word at all), or ERRC_NOMEM. */
json_t *words_split(const char *text, struct err *e);
