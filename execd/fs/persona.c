#include "execd/fs/persona.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/fs/accounts.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library's functions of these names change every thread of the process. */
static int set_uid(uid_t uid)
{
    return (int)syscall(SYS_setresuid, (uid_t)-1, uid, (uid_t)-1);
}

static int set_gid(gid_t gid)
{
    return (int)syscall(SYS_setresgid, (gid_t)-1, gid, (gid_t)-1);
}

static int set_groups(size_t n, const gid_t *groups)
{
    return (int)syscall(SYS_setgroups, n, groups);
}

enum caps_call { CAPS_GET, CAPS_SET };

/* Reads the effective set of this thread, or makes it what caps says. */
static int effective(enum caps_call call, unsigned caps[2])
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    if (call == CAPS_GET) {
        caps[0] = data[0].effective;
        caps[1] = data[1].effective;
        return 0;
    }
    if (data[0].effective == caps[0] && data[1].effective == caps[1])
        return 0;
    data[0].effective = caps[0];
    data[1].effective = caps[1];
    return (int)syscall(SYS_capset, &head, data);
}

static int remember(struct persona *old)
{
    int n = getgroups(0, NULL);

    *old = (struct persona){ .uid = geteuid(), .gid = getegid() };
    if (n < 0 || effective(CAPS_GET, old->caps) < 0)
        return -1;
    old->groups = calloc((size_t)n + 1, sizeof(*old->groups));
    if (!old->groups)
        return -1;
    old->n_groups = getgroups(n, old->groups);
    return old->n_groups < 0 ? -1 : 0;
}

/* Every group of a that is not gid is in b. */
static bool covers(const gid_t *a, size_t n_a, const gid_t *b, size_t n_b, gid_t gid)
{
    size_t i;
    size_t k;

    for (i = 0; i < n_a; i++) {
        for (k = 0; k < n_b && b[k] != a[i]; k++)
            ;
        if (k == n_b && a[i] != gid)
            return false;
    }
    return true;
}

/* An agent that is the account already needs no privilege to be it. */
static bool same_groups(const struct persona *old, const struct identity *id)
{
    size_t n = (size_t)old->n_groups;

    return covers(old->groups, n, id->groups, id->n_groups, id->gid) &&
           covers(id->groups, id->n_groups, old->groups, n, id->gid);
}

static int become(struct persona *old, const struct identity *id)
{
    unsigned none[2] = { 0, 0 };

    if (!same_groups(old, id)) {
        if (set_groups(id->n_groups, id->groups) < 0)
            return -1;
        old->regrouped = true;
    }
    if (getegid() != id->gid && set_gid(id->gid) < 0)
        return -1;
    if (geteuid() != id->uid && set_uid(id->uid) < 0)
        return -1;
    return id->uid ? effective(CAPS_SET, none) : 0;
}

int persona_enter(struct persona *old, const struct identity *id, struct err *e)
{
    int failed;

    if (remember(old) < 0) {
        failed = errno;
        free(old->groups);
        *old = (struct persona){ 0 };
        return err_sys(e, failed, "look at the agent's own identity");
    }
    old->switched = true;
    if (become(old, id) == 0)
        return 0;
    failed = errno;
    persona_leave(old);
    (void)err_sys(e, failed, "the agent cannot work as uid %u, gid %u", id->uid, id->gid);
    e->code = ERRC_BUSY;
    e->api_code = "FILESYSTEM_IDENTITY_UNAVAILABLE";
    return -1;
}

void persona_leave(struct persona *old)
{
    if (!old->switched)
        return;
    if ((geteuid() != old->uid && set_uid(old->uid) < 0) || effective(CAPS_SET, old->caps) < 0 ||
        (getegid() != old->gid && set_gid(old->gid) < 0) ||
        (old->regrouped && set_groups((size_t)old->n_groups, old->groups) < 0)) {
        log_error("a thread cannot become the agent again");
        abort();
    }
    free(old->groups);
    *old = (struct persona){ 0 };
}
