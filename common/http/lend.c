#include "common/http/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct lent *lent_new(struct http_server *s, char name[HTTP_NAME_MAX])
{
    struct lent *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    (void)snprintf(l->name, sizeof(l->name), "%" PRIu64, ++s->names);
    memcpy(name, l->name, HTTP_NAME_MAX);
    l->file.fd = -1;
    l->next = s->lent;
    s->lent = l;
    return l;
}

int lend_file(struct http_server *s, const struct peer *p, const struct http_file *file,
              char name[HTTP_NAME_MAX])
{
    struct lent *l = lent_new(s, name);

    if (!l)
        return -1;
    l->peer = p;
    l->file = *file;
    return 0;
}

int http_server_lend(struct http_server *s, const struct http_source *src, char name[HTTP_NAME_MAX])
{
    struct lent *l = lent_new(s, name);

    if (!l)
        return -1;
    l->source = *src;
    return 0;
}

static struct lent *take(struct http_server *s, const char *name, size_t len, bool file)
{
    struct lent **at;
    struct lent *l;

    for (at = &s->lent; (l = *at); at = &l->next) {
        if (strlen(l->name) != len || memcmp(l->name, name, len) != 0 || (l->file.fd >= 0) != file)
            continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

int http_server_take_file(struct http_server *s, const char *name, size_t len,
                          struct http_file *out)
{
    struct lent *l = take(s, name, len, true);

    if (!l)
        return -1;
    *out = l->file;
    free(l);
    return 0;
}

struct lent *lend_take_source(struct http_server *s, const char *name)
{
    return take(s, name, strlen(name), false);
}

void lend_free(struct lent *l)
{
    if (!l)
        return;
    if (l->file.fd >= 0)
        (void)close(l->file.fd);
    else
        l->source.close(l->source.arg);
    free(l);
}

void http_server_take_back(struct http_server *s, const char *name)
{
    lend_free(lend_take_source(s, name));
}

void lend_drop(struct http_server *s, const struct peer *p)
{
    struct lent **at = &s->lent;
    struct lent *l;

    while ((l = *at)) {
        if (p && (l->file.fd < 0 || l->peer != p)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        lend_free(l);
    }
}
