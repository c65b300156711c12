/* Header values of a download: its name (RFC 6266, RFC 5987) and dates (RFC 9110 5.6.7). Pure. */
#pragma once
#include <stdint.h>

struct buf;

/* attachment; filename="..." and, when the name is not plain ASCII, filename*=UTF-8''... as well.
 * name may hold any bytes. -1: out is full. */
int disposition_format(const char *name, struct buf *out);

enum { HTTP_DATE_TEXT = 32 };
/* Sun, 06 Nov 1994 08:49:37 GMT; "" for years that cannot be written. */
void http_date_format(int64_t sec, char out[HTTP_DATE_TEXT]);
/* -1 when it is not in that form. */
int http_date_parse(const char *s, int64_t *sec);
