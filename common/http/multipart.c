#include "common/http/multipart.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum state {
    STATE_PREAMBLE, /* before the first boundary: dropped */
    STATE_AFTER,    /* behind a boundary: its kind is open */
    STATE_HEADERS,
    STATE_DATA,
    STATE_EPILOGUE, /* behind the closing boundary: dropped */
};

struct multipart {
    const struct multipart_ops *ops;
    void *arg;
    enum state state;
    size_t parts;
    size_t max_parts;
    size_t matched; /* bytes of delim seen at the end of what was pushed */
    size_t delim_len;
    char delim[MULTIPART_BOUNDARY_MAX + 5]; /* "\r\n--" and the boundary */
    struct buf head;                        /* of the part under way, or what follows a boundary */
};

/* ---- header fields ---- */

/* Copies the value at p, quoted or not, into out and returns the position behind it; NULL when it
 * is broken or does not fit. */
static const char *read_value(const char *p, char *out, size_t max)
{
    size_t n = 0;

    if (*p != '"') {
        n = strcspn(p, ";");
        if (n >= max)
            return NULL;
        memcpy(out, p, n);
        p += n;
        while (n && (out[n - 1] == ' ' || out[n - 1] == '\t'))
            n--;
        out[n] = '\0';
        return p;
    }
    for (p++; *p && *p != '"'; p++) {
        if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        if (n + 1 >= max)
            return NULL;
        out[n++] = *p;
    }
    out[n] = '\0';
    return *p ? p + 1 : NULL;
}

/* Finds parameter `name` in "value; other=x; name=\"y;z\"". 1: out is its value; 0: it is not
 * there; -1: it is broken, or longer than fits. */
static int parameter(const char *field, const char *name, char *out, size_t max)
{
    const char *p = field + strcspn(field, ";");
    size_t len = strlen(name);
    bool mine;

    while (*p == ';') {
        p++;
        p += strspn(p, " \t");
        mine = strncasecmp(p, name, len) == 0 && p[len] == '=';
        p += strcspn(p, "=;");
        if (*p != '=')
            continue;
        p = read_value(p + 1, out, max);
        if (mine || !p)
            return p ? 1 : -1;
        p += strcspn(p, ";");
    }
    return 0;
}

/* The value of a field among CRLF-terminated lines, or NULL. Terminates it in place. */
static char *field_value(char *head, const char *name)
{
    size_t len = strlen(name);
    char *p = head;
    char *end;

    while ((end = strstr(p, "\r\n"))) {
        if (strncasecmp(p, name, len) == 0 && p[len] == ':') {
            *end = '\0';
            p += len + 1;
            return p + strspn(p, " \t");
        }
        p = end + 2;
    }
    return NULL;
}

static int begin_part(struct multipart *m, struct err *e)
{
    AUTO_FREE char *value = malloc(MULTIPART_HEADERS_MAX);
    AUTO_FREE char *filename = malloc(MULTIPART_HEADERS_MAX);
    AUTO_FREE char *type = strdup(m->head.data);
    struct multipart_part part = { .name = "" };
    const char *disposition;

    if (!value || !filename || !type)
        return err_nomem(e);
    part.content_type = field_value(type, "Content-Type");
    disposition = field_value(m->head.data, "Content-Disposition");
    if (disposition) {
        int named = parameter(disposition, "name", value, MULTIPART_HEADERS_MAX);

        if (named < 0 || (named && strlen(value) >= MULTIPART_NAME_MAX))
            return err_set(e, ERRC_INVALID, "multipart: the name of part %zu is broken or too long",
                           m->parts);
        part.name = named ? value : "";
        if (parameter(disposition, "filename", filename, MULTIPART_HEADERS_MAX) == 1)
            part.filename = filename;
    }
    return m->ops->part(m->arg, &part, e);
}

/* ---- the parser ---- */

struct multipart *multipart_new(const char *content_type, size_t max_parts,
                                const struct multipart_ops *ops, void *arg, struct err *e)
{
    static const char type[] = "multipart/form-data";
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct multipart *m;

    if (!content_type || strncasecmp(content_type, type, sizeof(type) - 1) != 0 ||
        parameter(content_type, "boundary", boundary, sizeof(boundary)) != 1 || !boundary[0] ||
        strpbrk(boundary, "\r\n")) {
        (void)err_set(e, ERRC_INVALID, "the body must be multipart/form-data with a boundary");
        return NULL;
    }
    m = calloc(1, sizeof(*m));
    if (!m) {
        (void)err_nomem(e);
        return NULL;
    }
    m->ops = ops;
    m->arg = arg;
    m->max_parts = max_parts;
    m->head = BUF_INIT(MULTIPART_HEADERS_MAX);
    memcpy(m->delim, "\r\n--", 4);
    memcpy(m->delim + 4, boundary, strlen(boundary) + 1);
    m->delim_len = 4 + strlen(boundary);
    m->matched = 2; /* the first boundary needs no line break before it */
    return m;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    buf_free(&m->head);
    free(m);
}

static int pass_on(struct multipart *m, const char *data, size_t len, struct err *e)
{
    return m->state == STATE_DATA && len ? m->ops->data(m->arg, data, len, e) : 0;
}

/* Content up to the next boundary; *used tells how much of data that was. The delimiter's first
 * byte occurs nowhere else in it, so after a match that failed only the byte at hand can begin a
 * new one. */
static int take_content(struct multipart *m, const char *data, size_t len, size_t *used,
                        struct err *e)
{
    size_t carried = m->matched; /* bytes of the open match that came in earlier pieces */
    const char *cr;
    size_t i = 0;

    while (i < len && m->matched < m->delim_len) {
        if (data[i] == m->delim[m->matched]) {
            m->matched++;
            i++;
        } else if (m->matched) {
            if (pass_on(m, m->delim, carried, e) < 0) /* they were content */
                return -1;
            carried = 0;
            m->matched = 0;
        } else {
            cr = memchr(data + i, '\r', len - i);
            i = cr ? (size_t)(cr - data) : len;
        }
    }
    *used = i;
    if (pass_on(m, data, i - (m->matched - carried), e) < 0)
        return -1;
    if (m->matched < m->delim_len)
        return 0;
    m->matched = 0;
    if (m->state == STATE_DATA && m->ops->end(m->arg, e) < 0)
        return -1;
    m->state = STATE_AFTER;
    buf_clear(&m->head);
    return 0;
}

/* "--" closes the body; a line break, blanks before it, begins a part. */
static int take_after(struct multipart *m, char c, struct err *e)
{
    struct buf *b = &m->head;

    if (buf_append(b, &c, 1) < 0 || b->len > 64)
        return err_set(e, ERRC_INVALID, "multipart: a boundary is followed by garbage");
    if (b->len == 2 && memcmp(b->data, "--", 2) == 0) {
        m->state = STATE_EPILOGUE;
        return 0;
    }
    if (b->len >= 2 && memcmp(b->data + b->len - 2, "\r\n", 2) == 0) {
        if (strspn(b->data, " \t") != b->len - 2)
            return err_set(e, ERRC_INVALID, "multipart: a boundary is followed by garbage");
        if (++m->parts > m->max_parts)
            return err_set(e, ERRC_INVALID, "multipart: more than %zu parts", m->max_parts);
        m->state = STATE_HEADERS;
        buf_clear(b);
        return 0;
    }
    if (b->data[0] != '-' && c != ' ' && c != '\t' && c != '\r')
        return err_set(e, ERRC_INVALID, "multipart: a boundary is followed by garbage");
    return 0;
}

static int take_header(struct multipart *m, char c, struct err *e)
{
    struct buf *b = &m->head;

    if (!c || buf_append(b, &c, 1) < 0)
        return err_set(e, ERRC_INVALID,
                       "multipart: the headers of part %zu are broken or larger "
                       "than %d bytes",
                       m->parts, MULTIPART_HEADERS_MAX);
    if (c != '\n' || b->len < 2 || b->data[b->len - 2] != '\r')
        return 0;
    if (b->len > 2 && (b->len < 4 || memcmp(b->data + b->len - 4, "\r\n\r\n", 4) != 0))
        return 0;
    m->state = STATE_DATA;
    m->matched = 0;
    return begin_part(m, e);
}

int multipart_push(struct multipart *m, const char *data, size_t len, struct err *e)
{
    size_t used;
    int rc;

    while (len) {
        used = 1;
        switch (m->state) {
        case STATE_PREAMBLE:
        case STATE_DATA:
            rc = take_content(m, data, len, &used, e);
            break;
        case STATE_AFTER:
            rc = take_after(m, *data, e);
            break;
        case STATE_HEADERS:
            rc = take_header(m, *data, e);
            break;
        default:
            return 0;
        }
        if (rc < 0)
            return -1;
        data += used;
        len -= used;
    }
    return 0;
}

int multipart_finish(const struct multipart *m, struct err *e)
{
    if (m->state == STATE_EPILOGUE)
        return 0;
    return err_set(e, ERRC_INVALID, "multipart: the body ends before its closing boundary");
}
