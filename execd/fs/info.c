#include "execd/fs/info.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "execd/fs/accounts.h"
#include "execd/fs/perms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int names_read(struct names *n, struct err *e)
{
    n->passwd = accounts_read("/etc/passwd");
    n->group = accounts_read("/etc/group");
    return n->passwd && n->group ? 0 : err_nomem(e);
}

void names_free(struct names *n)
{
    free(n->passwd);
    free(n->group);
    *n = (struct names){ 0 };
}

static const char *type_of(mode_t mode)
{
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "directory";
    return S_ISLNK(mode) ? "symlink" : "other";
}

static json_t *owner_of(uid_t uid, const struct names *n)
{
    struct account a;
    char text[16];

    if (accounts_find(n->passwd, NULL, uid, &a) && a.name[0])
        return jx_bytes(a.name, strlen(a.name));
    (void)snprintf(text, sizeof(text), "%u", uid);
    return json_string(text);
}

static json_t *group_of(gid_t gid, const struct names *n)
{
    char name[ACCOUNT_TEXT];

    if (!groups_name(n->group, gid, name))
        (void)snprintf(name, sizeof(name), "%u", gid);
    return jx_bytes(name, strlen(name));
}

json_t *info_of(const char *path, const struct stat *st, const struct names *n)
{
    char modified[CLOCK_TEXT];
    char created[CLOCK_TEXT];

    clock_format_ts(st->st_mtim.tv_sec, st->st_mtim.tv_nsec, modified);
    clock_format_ts(st->st_ctim.tv_sec, st->st_ctim.tv_nsec, created);
    return json_pack("{s:o, s:s, s:I, s:s, s:s, s:o, s:o, s:I}", "path",
                     jx_bytes(path, strlen(path)), "type", type_of(st->st_mode), "size",
                     (json_int_t)st->st_size, "modified_at", modified, "created_at", created,
                     "owner", owner_of(st->st_uid, n), "group", group_of(st->st_gid, n), "mode",
                     (json_int_t)perms_digits(st->st_mode));
}
