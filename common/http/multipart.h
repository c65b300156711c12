/* multipart/form-data (RFC 7578 over RFC 2046) as an incremental push parser: bytes go in as they
 * arrive, in pieces of any size, parts come out through callbacks. Pure: no sockets, no HTTP
 * server. Holds the headers of one part at the most; what a part contains is passed on as it is
 * read. */
#pragma once
#include <stddef.h>

struct err;
struct multipart;

enum {
    MULTIPART_BOUNDARY_MAX = 200, /* bytes; RFC 2046 allows 70 */
    MULTIPART_HEADERS_MAX = 16 * 1024,
    MULTIPART_NAME_MAX = 256,
};

struct multipart_part {
    const char *name;         /* of the form field; "" when there is none */
    const char *filename;     /* NULL when there is none */
    const char *content_type; /* NULL when there is none */
};

/* Each returns 0, or -1 with err set: then multipart_push does, too, and must not be called
 * again. */
struct multipart_ops {
    int (*part)(void *arg, const struct multipart_part *p, struct err *e); /* p only until it
                                                                            * returns */
    int (*data)(void *arg, const char *data, size_t len, struct err *e);
    int (*end)(void *arg, struct err *e); /* of the part */
};

/* content_type: the request's header, with the boundary. max_parts: one more is an error.
 * NULL: it is no multipart/form-data (ERRC_INVALID), or out of memory. */
struct multipart *multipart_new(const char *content_type, size_t max_parts,
                                const struct multipart_ops *ops, void *arg, struct err *e);
int multipart_push(struct multipart *m, const char *data, size_t len, struct err *e);
/* After the last byte. -1: the closing boundary has not been seen. */
int multipart_finish(const struct multipart *m, struct err *e);
void multipart_free(struct multipart *m);
