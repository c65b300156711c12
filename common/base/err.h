/* Errors as values on the caller's stack: no heap, set once where the failure is seen, given
 * context on the way up with err_wrap, turned into HTTP in common/http/error.c only.
 * Every fallible function takes `struct err *e` last and returns 0 or -1 (or a count >= 0). */
#pragma once
#include <errno.h>

enum errc {
    ERRC_NONE,
    ERRC_INVALID,      /* the request is wrong: 400 */
    ERRC_UNAUTHORIZED, /* 401 */
    ERRC_FORBIDDEN,    /* 403 */
    ERRC_NOT_FOUND,    /* 404 */
    ERRC_METHOD,       /* 405 */
    ERRC_CONFLICT,     /* 409 */
    ERRC_GONE,         /* it was there and is not kept any longer: 410 */
    ERRC_TOO_LARGE,    /* 413 */
    ERRC_URI_LONG,     /* 414 */
    ERRC_RANGE,        /* 416 */
    ERRC_UPGRADE,      /* another protocol has to be spoken here: 426 */
    ERRC_LIMIT,        /* the caller has as many as it may: 429 */
    ERRC_INTERNAL,     /* 500 */
    ERRC_NOMEM,        /* 500 */
    ERRC_SYS,          /* a system call failed: 500 */
    ERRC_UNSUPPORTED,  /* this backend cannot: 501 */
    ERRC_BAD_GATEWAY,  /* 502 */
    ERRC_BUSY,         /* 503, with Retry-After */
    ERRC_TIMEOUT,      /* 504 */
    ERRC_MAX_
};

struct err {
    enum errc code;
    int sys;              /* errno, SQLite result or CURLcode; 0 when none */
    const char *api_code; /* static string for the client's "code"; NULL: the table's default */
    int retry_after_s;    /* > 0: value of Retry-After */
    char msg[512];        /* may be truncated, always terminated */
};

/* Each returns -1, so a failure is one line. e may be NULL (the caller does not care). */
int err_set(struct err *e, enum errc code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As err_set, with the code that the API contract names for this failure. */
int err_api(struct err *e, enum errc code, const char *api_code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "<text>: <strerror(errnum)>"; ENOMEM becomes ERRC_NOMEM, ENOENT ERRC_NOT_FOUND. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Prefixes "<text>: " and keeps the codes. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int err_nomem(struct err *e);
