#include "execd/fs/perms.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/fs/accounts.h"

#include <errno.h>
#include <sys/stat.h>

int perms_mode(int64_t digits, mode_t *out)
{
    mode_t mode = 0;
    unsigned shift;

    if (digits < 0)
        return -1;
    for (shift = 0; digits; digits /= 10, shift += 3) {
        if (digits % 10 > 7)
            return -1;
        if (shift < 9)
            mode |= (mode_t)(digits % 10) << shift;
    }
    *out = mode;
    return 0;
}

int64_t perms_digits(mode_t mode)
{
    return (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7);
}

static int find_owner(const char *name, struct perms *out, struct err *e)
{
    AUTO_FREE char *text = accounts_read("/etc/passwd");
    struct account a;

    if (!text)
        return err_nomem(e);
    if (!accounts_find(text, name, 0, &a))
        return err_set(e, ERRC_INVALID, "owner: no account %.80s in this sandbox", name);
    out->has_uid = true;
    out->uid = a.uid;
    return 0;
}

static int find_group(const char *name, struct perms *out, struct err *e)
{
    AUTO_FREE char *text = accounts_read("/etc/group");

    if (!text)
        return err_nomem(e);
    if (!groups_find(text, name, &out->gid))
        return err_set(e, ERRC_INVALID, "group: no group %.80s in this sandbox", name);
    out->has_gid = true;
    return 0;
}

int perms_resolve(int64_t digits, const char *owner, const char *group, struct perms *out,
                  struct err *e)
{
    *out = (struct perms){ 0 };
    if (perms_mode(digits, &out->mode) < 0)
        return err_set(e, ERRC_INTERNAL, "mode: must be octal digits such as 644");
    out->has_mode = digits != 0;
    if (owner && *owner && find_owner(owner, out, e) < 0)
        return -1;
    return group && *group ? find_group(group, out, e) : 0;
}

int perms_apply_fd(int fd, const struct perms *p, struct err *e)
{
    if ((p->has_uid || p->has_gid) &&
        fchown(fd, p->has_uid ? p->uid : (uid_t)-1, p->has_gid ? p->gid : (gid_t)-1) < 0)
        return err_sys(e, errno, "cannot change owner");
    if (p->has_mode && fchmod(fd, p->mode) < 0)
        return err_sys(e, errno, "cannot change mode");
    return 0;
}

int perms_apply(const char *path, const struct perms *p, struct err *e)
{
    if ((p->has_uid || p->has_gid) &&
        chown(path, p->has_uid ? p->uid : (uid_t)-1, p->has_gid ? p->gid : (gid_t)-1) < 0)
        return err_sys(e, errno, "cannot change owner of %.300s", path);
    if (p->has_mode && chmod(path, p->mode) < 0)
        return err_sys(e, errno, "cannot change mode of %.300s", path);
    return 0;
}
