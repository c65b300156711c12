#include "gateway/domain/volumes.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/pins.h"
#include "gateway/store/sandbox_store.h"
#include "gateway/store/volume_store.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INSPECT_FAILED "VOLUME::PVC_INSPECT_FAILED"

struct volumes {
    struct volumes_config cfg;
    struct host_roots *roots;
    struct keyed_locks *names; /* from the look at a named volume to the end of its making */
    pthread_mutex_t guard;     /* guards uses */
    json_t *uses;              /* named volume → sandbox being created → its mounts of it */
    bool told_no_pins;         /* guarded, too */
};

struct item {
    const struct volume_req *v; /* borrowed: not for what happens after bring_up */
    struct volume_paths paths;
    char source[HOST_PATH];    /* a path of the host or a volume's name */
    bool named;                /* what source is */
    bool identified;           /* place tells what the agent has to find */
    char used[RUNTIME_VOLUME]; /* counted in volumes.uses; "": none */
    struct host_place place;   /* its fd keeps the inode from being given away meanwhile */
};

struct volume_plan {
    struct volumes *vs;
    char id[RUNTIME_ID];
    struct runtime_mount *mounts; /* one per item */
    bool up;                      /* bring_up has run */
    bool pinned;                  /* some of them are held in place */
    size_t len;
    struct item items[];
};

int volumes_new(const struct volumes_config *cfg, struct volumes **out, struct err *e)
{
    struct volumes *vs = calloc(1, sizeof(*vs));

    if (!vs)
        return err_nomem(e);
    (void)pthread_mutex_init(&vs->guard, NULL);
    vs->cfg = *cfg;
    vs->names = keyed_locks_new();
    vs->uses = json_object();
    if (!vs->names || !vs->uses) {
        volumes_free(vs);
        return err_nomem(e);
    }
    if (host_roots_new(cfg->allowed_host_paths, cfg->secrets, cfg->n_secrets, &vs->roots, e) < 0) {
        volumes_free(vs);
        return -1;
    }
    if (cfg->pins)
        pins_clear(cfg->pins);
    *out = vs;
    return 0;
}

void volumes_free(struct volumes *vs)
{
    if (!vs)
        return;
    if (vs->cfg.pins)
        (void)rmdir(vs->cfg.pins); /* no create runs any more */
    host_roots_free(vs->roots);
    keyed_locks_free(vs->names);
    json_decref(vs->uses);
    (void)pthread_mutex_destroy(&vs->guard);
    free(vs);
}

/* ---- creates under way ---- */

/* The engine knows a use only once there is a container. */
static int add_use(struct volume_plan *p, struct item *it, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->vs->guard);
    json_t *users = json_object_get(p->vs->uses, it->v->claim);
    json_int_t n = json_integer_value(json_object_get(users, p->id));

    if (!users) {
        users = json_object();
        if (json_object_set_new(p->vs->uses, it->v->claim, users) < 0)
            return err_nomem(e);
    }
    if (json_object_set_new(users, p->id, json_integer(n + 1)) < 0)
        return err_nomem(e);
    (void)snprintf(it->used, sizeof(it->used), "%s", it->v->claim);
    return 0;
}

static void drop_use(struct volume_plan *p, struct item *it)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->vs->guard);
    json_t *users = json_object_get(p->vs->uses, it->used);
    json_t *count = json_object_get(users, p->id);

    (void)json_integer_set(count, json_integer_value(count) - 1);
    if (json_integer_value(count) < 1)
        (void)json_object_del(users, p->id);
    if (json_object_size(users) == 0)
        (void)json_object_del(p->vs->uses, it->used);
    it->used[0] = '\0';
}

/* By another sandbox than id. */
static bool about_to_be_used(struct volumes *vs, const char *name, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&vs->guard);
    json_t *users = json_object_get(vs->uses, name);

    return json_object_size(users) > (json_object_get(users, id) ? 1U : 0U);
}

static void give_up_uses(struct volume_plan *p)
{
    size_t i;

    for (i = 0; i < p->len; i++) {
        if (p->items[i].used[0])
            drop_use(p, &p->items[i]);
    }
}

void volume_plan_free(struct volume_plan *p)
{
    size_t i;

    if (!p)
        return;
    give_up_uses(p);
    if (p->pinned)
        pins_drop(p->vs->cfg.pins, p->id);
    for (i = 0; i < p->len; i++)
        host_place_done(&p->items[i].place);
    free(p->mounts);
    free(p);
}

/* ---- directories of the host ---- */

/* What a bucket's mount point holds belongs to one sandbox. */
static int refuse_buckets(const struct volumes *vs, const struct item *it, struct err *e)
{
    const char *all = vs->cfg.ossfs.all;
    AUTO_FREE char *real = all ? realpath(all, NULL) : NULL;
    bool above = it->place.fd >= 0 && real && host_path_within(it->place.path, real);

    if (!real || (!above && !host_path_within(real, it->place.path)))
        return 0;
    return err_api(e, ERRC_INVALID, "VOLUME::HOST_PATH_NOT_ALLOWED",
                   "volume '%s': host path %.200s holds buckets of sandboxes "
                   "(storage.ossfs_mount_root)",
                   it->v->name, it->place.path);
}

static int open_host(struct volume_plan *p, struct item *it, bool make, struct err *e)
{
    host_place_done(&it->place);
    if (host_roots_open(p->vs->roots, it->v->host_path, it->paths.sub, make, &it->place, e) < 0)
        return err_wrap(e, "volume '%s'", it->v->name);
    return refuse_buckets(p->vs, it, e);
}

/* ---- named volumes ---- */

static int no_look(const struct item *it, struct err *e)
{
    if (e && !e->api_code) {
        e->api_code = INSPECT_FAILED;
        if (e->code != ERRC_NOMEM && e->code != ERRC_BUSY)
            e->code = ERRC_INTERNAL;
    }
    return err_wrap(e, "volume '%s': named volume %.253s", it->v->name, it->v->claim);
}

/* 1: *out filled; 0: there is none. */
static int look(struct volumes *vs, const struct item *it, struct runtime_volume *out,
                struct err *e)
{
    struct err why = { 0 };

    if (runtime_volume_get(vs->cfg.rt, it->v->claim, out, &why) == 0)
        return 1;
    if (why.code == ERRC_NOT_FOUND)
        return 0;
    if (e)
        *e = why;
    return no_look(it, e);
}

static int check_volume(const struct item *it, const struct runtime_volume *vol, struct err *e)
{
    if (vol->internal)
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_PVC_NAME",
                       "volume '%s': pvc.claimName %s belongs to the server itself", it->v->name,
                       it->v->claim);
    if (it->paths.sub[0] && (strcmp(vol->driver, "local") != 0 || !vol->path[0]))
        return err_api(e, ERRC_INVALID, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER",
                       "volume '%s': subPath needs a named volume of driver local, %s has driver "
                       "'%s'",
                       it->v->name, it->v->claim, vol->driver);
    return 0;
}

static int not_there(const struct item *it, struct err *e)
{
    return err_api(e, ERRC_INVALID, "VOLUME::PVC_NOT_FOUND",
                   "volume '%s': there is no named volume %s; set pvc.createIfNotExists",
                   it->v->name, it->v->claim);
}

static int plan_named(struct volume_plan *p, struct item *it, struct err *e)
{
    struct runtime_volume vol;
    int rc = look(p->vs, it, &vol, e);

    if (rc < 0)
        return -1;
    if (rc == 1)
        return check_volume(it, &vol, e);
    return it->v->create ? 0 : not_there(it, e);
}

/* Goes with the sandbox only if all who mention it say so. */
static bool to_keep(const struct volume_plan *p, const char *claim)
{
    size_t i;

    for (i = 0; i < p->len; i++) {
        const struct volume_req *v = p->items[i].v;

        if (v->backend == VOLUME_NAMED && strcmp(v->claim, claim) == 0 && !v->delete_with_sandbox)
            return true;
    }
    return false;
}

/* Intent, volume, look. Somebody else may have been quicker outside of this server: then it is not
 * ours to remove. Caller holds the name. */
static int make_volume(struct volume_plan *p, struct item *it, struct runtime_volume *vol,
                       struct err *e)
{
    struct volume_row row = { .keep = to_keep(p, it->v->claim) };
    int rc;

    (void)snprintf(row.name, sizeof(row.name), "%s", it->v->claim);
    (void)snprintf(row.sandbox_id, sizeof(row.sandbox_id), "%s", p->id);
    if (volume_store_put(p->vs->cfg.db, &row, e) < 0)
        return -1;
    (void)fault_point("volumes.intent");
    if (runtime_volume_make(p->vs->cfg.rt, row.name, p->id, e) < 0)
        return no_look(it, e); /* it may exist all the same: undo and the sweep look */
    (void)fault_point("volumes.made");
    rc = look(p->vs, it, vol, e);
    if (rc == 0)
        return err_api(e, ERRC_INTERNAL, INSPECT_FAILED,
                       "volume '%s': named volume %s was removed while it was made", it->v->name,
                       it->v->claim);
    if (rc > 0 && strcmp(vol->made_for, p->id) != 0)
        rc = volume_store_drop(p->vs->cfg.db, row.name, p->id, e) < 0 ? -1 : 1;
    return rc < 0 ? -1 : 0;
}

/* The name is counted as used before the look: nobody removes the volume in between. */
static int hold_volume(struct volume_plan *p, struct item *it, struct runtime_volume *vol,
                       struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(p->vs->names, it->v->claim);
    int rc;

    if (!held)
        return err_nomem(e);
    if (add_use(p, it, e) < 0)
        return -1;
    rc = look(p->vs, it, vol, e);
    if (rc == 0 && it->v->create)
        return make_volume(p, it, vol, e);
    if (rc == 0)
        return not_there(it, e);
    return rc < 0 ? -1 : 0;
}

/* A part of a named volume is mounted as a directory of the host. */
static int open_part(struct item *it, const struct runtime_volume *vol, struct err *e)
{
    if (host_path_beneath(vol->path, it->paths.sub, true, &it->place, e) == 0)
        return 0;
    if (!e)
        return -1;
    switch (e->code) {
    case ERRC_FORBIDDEN:
    case ERRC_NOT_FOUND:
        e->code = ERRC_INVALID;
        e->api_code = "VOLUME::INVALID_SUB_PATH";
        break;
    case ERRC_UNSUPPORTED:
        e->code = ERRC_INVALID;
        e->api_code = "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER";
        break;
    default:
        e->code = ERRC_INTERNAL;
        e->api_code = "VOLUME::HOST_PATH_CREATE_FAILED";
    }
    return err_wrap(e, "volume '%s': subPath of named volume %.253s", it->v->name, it->v->claim);
}

static int bring_up_named(struct volume_plan *p, struct item *it, struct err *e)
{
    struct runtime_volume vol = { 0 };

    if (hold_volume(p, it, &vol, e) < 0 || check_volume(it, &vol, e) < 0)
        return -1;
    it->named = !it->paths.sub[0];
    return it->named ? 0 : open_part(it, &vol, e);
}

/* ---- buckets ---- */

static int bring_up_bucket(struct volume_plan *p, struct item *it, struct err *e)
{
    struct stat st;

    if (ossfs_mount(&p->vs->cfg.ossfs, p->id, it->v, it->paths.sub, it->source, e) < 0)
        return -1;
    (void)fault_point("volumes.mounted");
    if (stat(it->source, &st) < 0) {
        (void)err_sys(e, errno, "volume '%s': look at its mount", it->v->name);
        if (e) {
            e->code = ERRC_INTERNAL;
            e->api_code = "VOLUME::OSSFS_MOUNT_FAILED";
        }
        return -1;
    }
    it->place.dev = st.st_dev;
    it->place.ino = st.st_ino;
    it->identified = true;
    return 0;
}

/* ---- a create ---- */

static int plan_one(struct volume_plan *p, struct item *it, struct err *e)
{
    if (volume_rules_paths(it->v, &it->paths, e) < 0)
        return -1;
    switch (it->v->backend) {
    case VOLUME_HOST:
        return open_host(p, it, false, e);
    case VOLUME_NAMED:
        return plan_named(p, it, e);
    case VOLUME_OSSFS:
        break;
    }
    return ossfs_check(&p->vs->cfg.ossfs, it->v, e);
}

int volumes_plan(struct volumes *vs, const struct volume_list *list, const char *sandbox_id,
                 struct volume_plan **out, struct err *e)
{
    AUTO_VOLUME_PLAN struct volume_plan *p = NULL;
    size_t i;

    if (!list->len)
        return 0;
    if (!vs)
        return err_api(e, ERRC_INVALID, "VOLUME::UNSUPPORTED_BACKEND",
                       "volumes: not supported by this server");
    if (volume_rules_check(list, e) < 0)
        return -1;
    p = calloc(1, sizeof(*p) + list->len * sizeof(p->items[0]));
    if (!p)
        return err_nomem(e);
    p->vs = vs;
    (void)snprintf(p->id, sizeof(p->id), "%s", sandbox_id);
    p->mounts = calloc(list->len, sizeof(*p->mounts));
    if (!p->mounts)
        return err_nomem(e);
    for (i = 0; i < list->len; i++) {
        p->items[i].v = &list->items[i];
        p->items[i].place.fd = -1;
        p->len++;
        if (plan_one(p, &p->items[i], e) < 0)
            return -1;
    }
    *out = TAKE_PTR(p);
    return 0;
}

static void tell_no_pins(struct volumes *vs)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&vs->guard);

    if (!vs->told_no_pins)
        log_warn("the server may not mount (it has no CAP_SYS_ADMIN): that nobody replaces a "
                 "directory while the engine mounts it is left to the agent's check");
    vs->told_no_pins = true;
}

/* What was checked is what the engine mounts, whoever moves things meanwhile. */
static int hold_place(struct volume_plan *p, struct item *it, struct err *e)
{
    const char *root = p->vs->cfg.pins;
    int rc;

    memcpy(it->source, it->place.path, sizeof(it->source));
    it->identified = true;
    if (!root)
        return 0;
    p->pinned = true;
    rc = pins_add(root, p->id, (size_t)(it - p->items), it->place.fd, it->source, e);
    if (rc == 0 &&
        it->v->backend == VOLUME_NAMED) /* every client may have one; host paths are listed */
        return err_api(e, ERRC_INVALID, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER",
                       "volume '%s': subPath of a named volume needs a server that may mount "
                       "(CAP_SYS_ADMIN); mount the whole volume",
                       it->v->name);
    if (rc == 0)
        tell_no_pins(p->vs);
    if (rc >= 0)
        return 0;
    if (e && e->code != ERRC_NOMEM)
        e->code = ERRC_INTERNAL;
    if (e)
        e->api_code = "VOLUME::HOST_PATH_CREATE_FAILED";
    return err_wrap(e, "volume '%s': hold its directory in place", it->v->name);
}

static int bring_up_one(struct volume_plan *p, struct item *it, struct err *e)
{
    switch (it->v->backend) {
    case VOLUME_HOST:
        if (open_host(p, it, true, e) < 0)
            return -1;
        break;
    case VOLUME_NAMED:
        if (bring_up_named(p, it, e) < 0)
            return -1;
        break;
    case VOLUME_OSSFS:
        return bring_up_bucket(p, it, e);
    }
    if (!it->named)
        return hold_place(p, it, e);
    (void)snprintf(it->source, sizeof(it->source), "%s", it->v->claim);
    return 0;
}

int volumes_bring_up(struct volume_plan *p, struct err *e)
{
    size_t i;

    for (i = 0; p && !p->up && i < p->len; i++) {
        struct item *it = &p->items[i];

        if (bring_up_one(p, it, e) < 0)
            return -1;
        p->mounts[i] = (struct runtime_mount){
            .named = it->named,
            .source = it->source,
            .target = it->paths.target,
            .read_only = it->v->read_only,
        };
    }
    if (p)
        p->up = true;
    return 0;
}

size_t volume_plan_mounts(const struct volume_plan *p, const struct runtime_mount **out)
{
    *out = p ? p->mounts : NULL;
    return p ? p->len : 0;
}

json_t *volume_plan_identities(const struct volume_plan *p)
{
    json_t *list = json_array();
    char dev[24];
    char ino[24];
    size_t i;

    for (i = 0; list && p && i < p->len; i++) {
        const struct item *it = &p->items[i];

        if (!it->identified)
            continue;
        (void)snprintf(dev, sizeof(dev), "%ju", (uintmax_t)it->place.dev);
        (void)snprintf(ino, sizeof(ino), "%ju", (uintmax_t)it->place.ino);
        if (json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "path", it->paths.target,
                                                  "dev", dev, "ino", ino)) < 0) {
            json_decref(list); /* an identity that is left out would be one that is not checked */
            return NULL;
        }
    }
    return list;
}

/* ---- afterwards ---- */

/* 0: the row is done with. 1: in use, it stays. */
static int settle_row(struct volumes *vs, const struct volume_row *row, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(vs->names, row->name);
    struct err why = { .code = ERRC_CONFLICT };
    int rc = -1;

    if (!held)
        return err_nomem(e);
    if (!about_to_be_used(vs, row->name, row->sandbox_id))
        rc = runtime_volume_remove(vs->cfg.rt, row->name, row->sandbox_id, &why);
    if (rc < 0 && why.code != ERRC_CONFLICT) {
        *e = why;
        return -1;
    }
    if (rc < 0 && !row->keep)
        return 1;
    /* one that was to be kept, of a create that failed, has found another use: it stays */
    if (rc == 0)
        log_info("named volume removed", LOG_S("volume", row->name), LOG_S("id", row->sandbox_id));
    return volume_store_drop(vs->cfg.db, row->name, row->sandbox_id, e);
}

static void settle_rows(struct volumes *vs, struct volume_rows *rows, bool tell)
{
    struct err e = { 0 };
    size_t i;

    for (i = 0; i < rows->len; i++) {
        const struct volume_row *row = &rows->items[i];
        int rc = settle_row(vs, row, &e);

        if (rc < 0)
            log_warn("named volume not removed yet", LOG_S("volume", row->name),
                     LOG_S("id", row->sandbox_id), LOG_S("error", e.msg));
        else if (rc == 1 && tell)
            log_info("named volume is in use, it is removed later", LOG_S("volume", row->name),
                     LOG_S("id", row->sandbox_id));
    }
    free(rows->items);
}

void volumes_release(struct volumes *vs, const char *sandbox_id)
{
    struct volume_rows rows = { 0 };
    struct err e = { 0 };

    if (!vs)
        return;
    if (volume_store_of(vs->cfg.db, sandbox_id, &rows, &e) < 0)
        log_warn("named volumes not removed yet", LOG_S("id", sandbox_id), LOG_S("error", e.msg));
    settle_rows(vs, &rows, true);
    if (vs->cfg.ossfs.root && ossfs_release(&vs->cfg.ossfs, sandbox_id, &e) < 0)
        log_warn("buckets not unmounted yet", LOG_S("id", sandbox_id), LOG_S("error", e.msg));
}

void volumes_undo(struct volumes *vs, struct volume_plan *p, const char *sandbox_id)
{
    if (p)
        give_up_uses(p);
    volumes_release(vs, sandbox_id);
}

static void sweep_buckets(struct volumes *vs)
{
    json_t *names = ossfs_sandboxes(&vs->cfg.ossfs);
    struct err e = { 0 };
    json_t *name;
    size_t i;

    json_array_foreach(names, i, name) {
        AUTO_SANDBOX struct sandbox sb = { 0 };
        const char *id = json_string_value(name);

        if (!id || sandbox_store_get(vs->cfg.db, id, &sb, &e) == 0 || e.code != ERRC_NOT_FOUND)
            continue; /* it exists, or the store cannot tell */
        if (ossfs_release(&vs->cfg.ossfs, id, &e) < 0)
            log_warn("buckets not unmounted yet", LOG_S("id", id), LOG_S("error", e.msg));
    }
    json_decref(names);
}

void volumes_sweep(struct volumes *vs)
{
    struct volume_rows rows = { 0 };
    struct err e = { 0 };

    if (!vs)
        return;
    if (volume_store_left(vs->cfg.db, &rows, &e) < 0)
        log_warn("left volumes cannot be listed", LOG_S("error", e.msg));
    settle_rows(vs, &rows, false);
    if (vs->cfg.ossfs.root)
        sweep_buckets(vs);
}
