#include "common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The bounded message is meant to be cut. */
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wformat-truncation"

static void put(struct err *e, enum errc code, int sys, const char *api_code, const char *fmt,
                va_list ap) __attribute__((format(printf, 5, 0)));
static void put(struct err *e, enum errc code, int sys, const char *api_code, const char *fmt,
                va_list ap)
{
    e->code = code;
    e->sys = sys;
    e->api_code = api_code;
    e->retry_after_s = 0;
    (void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
}

int err_set(struct err *e, enum errc code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    put(e, code, 0, NULL, fmt, ap);
    va_end(ap);
    return -1;
}

int err_api(struct err *e, enum errc code, const char *api_code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    put(e, code, 0, api_code, fmt, ap);
    va_end(ap);
    return -1;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    va_list ap;
    enum errc code = errnum == ENOMEM ? ERRC_NOMEM : errnum == ENOENT ? ERRC_NOT_FOUND : ERRC_SYS;
    size_t used;
    char text[128];

    if (!e)
        return -1;
    va_start(ap, fmt);
    put(e, code, errnum, NULL, fmt, ap);
    va_end(ap);
    used = strlen(e->msg);
    /* the GNU variant: returns the text, which may be a static string instead of the buffer */
    (void)snprintf(e->msg + used, sizeof(e->msg) - used, ": %s",
                   strerror_r(errnum, text, sizeof(text)));
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    va_list ap;
    char old[sizeof(e->msg)];
    size_t used;

    if (!e)
        return -1;
    memcpy(old, e->msg, sizeof(old));
    va_start(ap, fmt);
    (void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    used = strlen(e->msg);
    (void)snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", old);
    return -1;
}

int err_nomem(struct err *e)
{
    return err_set(e, ERRC_NOMEM, "out of memory");
}
