#include "common/base/log.h"

#include "common/base/buf.h"
#include "common/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LOG_LINE_MAX = 16384 };

static atomic_int threshold = LOG_INFO;

static const char *const names[] = { "debug", "info", "warn", "error", "off" };

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

int log_level_parse(const char *s)
{
    int i;

    for (i = LOG_DEBUG; i <= LOG_OFF; i++)
        if (strcasecmp(s, names[i]) == 0)
            return i;
    if (strcasecmp(s, "warning") == 0)
        return LOG_WARN;
    if (strcasecmp(s, "critical") == 0)
        return LOG_ERROR;
    return -1;
}

/* A log line must come out even when memory is short or the text is not UTF-8, so it has its own
 * tiny writer: everything but plain ASCII becomes an escape of that byte. */
static int put_text(struct buf *b, const char *s)
{
    size_t n;
    int rc = buf_puts(b, "\"");

    for (n = 0; s[n] && n < LOG_VALUE_MAX; n++) {
        unsigned char c = (unsigned char)s[n];

        if (c == '"' || c == '\\')
            rc |= buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            rc |= buf_printf(b, "\\u%04x", c);
        else
            rc |= buf_append(b, &s[n], 1);
    }
    rc |= buf_puts(b, "\"");
    return rc;
}

static int put_field(struct buf *b, const struct log_field *f)
{
    if (buf_puts(b, ",") < 0 || put_text(b, f->key) < 0 || buf_puts(b, ":") < 0)
        return -1;
    return f->text ? put_text(b, f->text) : buf_printf(b, "%" PRId64, f->num);
}

static void write_all(const char *p, size_t len)
{
    ssize_t n;

    while (len > 0) {
        n = write(STDERR_FILENO, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere to report it */
        p += n;
        len -= (size_t)n;
    }
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields)
{
    AUTO_BUF struct buf b = BUF_INIT(LOG_LINE_MAX);
    char now[CLOCK_TEXT];
    int saved = errno;
    size_t whole;

    if ((int)level < atomic_load(&threshold))
        return;
    clock_format_ms(clock_wall_ms(), now);
    (void)buf_printf(&b, "{\"time\":\"%s\",\"level\":\"%s\",\"msg\":", now, names[level]);
    (void)put_text(&b, msg);
    for (; fields->key; fields++) {
        whole = b.len;
        if (put_field(&b, fields) < 0) { /* a line that is full ends with its last whole field */
            b.len = whole;
            break;
        }
    }
    b.max += 2;
    if (buf_puts(&b, "}\n") == 0)
        write_all(b.data, b.len);
    errno = saved;
}
