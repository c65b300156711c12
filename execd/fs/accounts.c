#include "execd/fs/accounts.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/num.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

enum { FIELDS = 7, READ_BLOCK = 8192 };

/* One line cut into its fields, none of which is terminated. */
struct line {
    const char *at[FIELDS];
    size_t len[FIELDS];
    unsigned n;
};

/* Cuts the line at p; returns where the next one begins, NULL at the end of the text. */
static const char *next_line(const char *p, struct line *out)
{
    size_t left;
    size_t len;

    if (!*p)
        return NULL;
    left = strcspn(p, "\n");
    for (out->n = 0; out->n < FIELDS; out->n++) {
        const char *colon = memchr(p, ':', left);

        len = colon ? (size_t)(colon - p) : left;
        out->at[out->n] = p;
        out->len[out->n] = len;
        p += len + (colon != NULL);
        left -= len + (colon != NULL);
        if (!colon) {
            out->n++;
            break;
        }
    }
    p += left;
    return p + (*p == '\n');
}

static bool field_is(const struct line *l, unsigned i, const char *text)
{
    return i < l->n && strlen(text) == l->len[i] && memcmp(l->at[i], text, l->len[i]) == 0;
}

static void field_copy(const struct line *l, unsigned i, char out[ACCOUNT_TEXT])
{
    size_t len = i < l->n ? l->len[i] : 0;

    if (len >= ACCOUNT_TEXT)
        len = 0; /* a name that long cannot be one */
    if (len)
        memcpy(out, l->at[i], len);
    out[len] = '\0';
}

static bool field_id(const struct line *l, unsigned i, int64_t *out)
{
    char text[ACCOUNT_TEXT];

    field_copy(l, i, text);
    return num_parse_i64(text, 0, UINT32_MAX - 1, out) == 0;
}

int accounts_find(const char *passwd, const char *name, uid_t uid, struct account *out)
{
    const char *p = passwd;
    struct line l;
    int64_t id;
    int64_t gid;

    while ((p = next_line(p, &l))) {
        if (!l.len[0] || !field_id(&l, 2, &id) || !field_id(&l, 3, &gid))
            continue;
        if (name ? !field_is(&l, 0, name) : (uid_t)id != uid)
            continue;
        out->uid = (uid_t)id;
        out->gid = (gid_t)gid;
        field_copy(&l, 0, out->name);
        field_copy(&l, 5, out->home);
        return 1;
    }
    return 0;
}

int groups_find(const char *group, const char *name, gid_t *out)
{
    const char *p = group;
    struct line l;
    int64_t id;

    while ((p = next_line(p, &l)))
        if (field_is(&l, 0, name) && field_id(&l, 2, &id)) {
            *out = (gid_t)id;
            return 1;
        }
    return 0;
}

int groups_name(const char *group, gid_t gid, char out[ACCOUNT_TEXT])
{
    const char *p = group;
    struct line l;
    int64_t id;

    while ((p = next_line(p, &l)))
        if (l.len[0] && field_id(&l, 2, &id) && (gid_t)id == gid) {
            field_copy(&l, 0, out);
            return out[0] != '\0';
        }
    return 0;
}

/* name is an item of the comma-separated list in field i. */
static bool lists(const struct line *l, unsigned i, const char *name)
{
    size_t want = strlen(name);
    const char *p = i < l->n ? l->at[i] : "";
    size_t left = i < l->n ? l->len[i] : 0;
    size_t len;

    while (left) {
        const char *comma = memchr(p, ',', left);

        len = comma ? (size_t)(comma - p) : left;
        if (len == want && memcmp(p, name, len) == 0)
            return true;
        len += comma != NULL;
        p += len;
        left -= len;
    }
    return false;
}

size_t groups_of(const char *group, const char *name, gid_t *out, size_t max)
{
    const char *p = group;
    size_t n = 0;
    struct line l;
    int64_t id;

    while (n < max && (p = next_line(p, &l)))
        if (field_id(&l, 2, &id) && lists(&l, 3, name))
            out[n++] = (gid_t)id;
    return n;
}

static ssize_t read_block(int fd, struct buf *text)
{
    char *at = buf_reserve(text, READ_BLOCK);
    ssize_t n;

    if (!at) {
        errno = ENOMEM;
        return -1;
    }
    n = read(fd, at, READ_BLOCK);
    if (n > 0)
        text->len += (size_t)n;
    text->data[text->len] = '\0';
    return n;
}

int accounts_load(const char *path, char **out, struct err *e)
{
    AUTO_BUF struct buf text = BUF_INIT(ACCOUNTS_FILE_MAX + READ_BLOCK);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? 0 : 1;

    if (fd < 0 && errno != ENOENT)
        return err_sys(e, errno, "cannot read %s", path);
    while (n > 0 && text.len < ACCOUNTS_FILE_MAX)
        n = read_block(fd, &text);
    if (n < 0)
        return err_sys(e, errno, "cannot read %s", path);
    *out = buf_take(&text);
    return *out ? 0 : err_nomem(e);
}

char *accounts_read(const char *path)
{
    char *text = NULL;
    struct err e;

    if (accounts_load(path, &text, &e) == 0)
        return text;
    return e.code == ERRC_NOMEM ? NULL : strdup("");
}

int identity_look_up(uid_t uid, int has_gid, gid_t gid, struct identity *out, struct err *e)
{
    AUTO_FREE char *passwd = NULL;
    AUTO_FREE char *group = NULL;
    bool listed;

    if (accounts_load("/etc/passwd", &passwd, e) < 0 || accounts_load("/etc/group", &group, e) < 0)
        return -1;
    out->uid = uid;
    out->n_groups = 0;
    listed = accounts_find(passwd, NULL, uid, &out->account);
    if (listed)
        out->n_groups = groups_of(group, out->account.name, out->groups, ACCOUNT_GROUPS_MAX);
    else
        out->account = (struct account){ .uid = uid };
    out->gid = has_gid ? gid : listed ? out->account.gid : (gid_t)uid;
    return 0;
}
