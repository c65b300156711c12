/* From what a client asks for (contract/execd.md 13, newest.md 3.3) to a cage that can be built: checks of
 * paths, the allow-list, identity, environment. Looks at the file system; makes only mount points of the
 * workspace that are missing. */
#pragma once
#include "common/base/arena.h"
#include "execd/fs/accounts.h"
#include "execd/fs/env.h"
#include "execd/isolated/cage.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

enum {
    PLAN_MOUNTS_MAX = 16,
    PLAN_BINDS_MAX = 16,
    PLAN_KEYS_MAX = 256,
    PLAN_IDLE_MAX = 30 * 24 * 3600, /* seconds */
};

struct plan_mount {
    const char *path;
    enum cage_mode mode; /* CAGE_SCRATCH: an overlay with persist false */
};

struct plan_bind {
    const char *source;
    const char *dest;
    bool read_only;
};

struct plan_req {
    struct plan_mount mounts[PLAN_MOUNTS_MAX];
    size_t n_mounts;
    const char *extra_writable[PLAN_BINDS_MAX];
    size_t n_extra;
    struct plan_bind binds[PLAN_BINDS_MAX];
    size_t n_binds;
    const char *const *keys; /* of the environment; a "*" at one end of a key stands for anything */
    size_t n_keys;
    bool keys_allow; /* only these are passed on; else all but these */
    bool balanced;   /* the profile; else strict */
    bool own_net;
    bool userns;
    bool has_uid;
    bool has_gid;
    uid_t uid;
    gid_t gid;
};

struct plan {
    struct arena arena; /* what cage points to */
    struct cage cage;   /* without dir, report, parent and program */
    struct env env;
    struct identity id; /* as whom files are written: outside of a user namespace */
    bool has_id;        /* it is not the agent's own */
    bool background;    /* the first mount keeps what is written */
};

/* base: what every command starts from. -1: ERRC_INVALID with the code of the contract, or memory is out;
 * out is empty. */
int plan_make(const struct plan_req *rq, const struct env *base, struct plan *out, struct err *e);
void plan_free(struct plan *p);

/* Pure, for tests. */
bool plan_key_matches(const char *pattern, const char *name);
bool plan_path_clean(const char *path);
