#include "gateway/domain/snapshots.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/snapshots_internal.h"
#include "gateway/store/snapshot_store.h"

#include <string.h>
#include <time.h>

static int not_found(const char *id, struct err *e)
{
    return err_api(e, ERRC_NOT_FOUND, "SNAPSHOT::NOT_FOUND", "Snapshot %s not found.", id);
}

/* ---- create ---- */

static int check_source(const struct snapshots *s, const struct sandbox *sb, struct err *e)
{
    if (sb->state == SANDBOX_RUNNING || (sb->state == SANDBOX_PAUSED && s->cfg.allow_paused))
        return 0;
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::INVALID_SOURCE_STATE",
                   "Sandbox %s is %s; snapshots are taken of Running ones%s.", sb->id,
                   sandbox_state_to_string(sb->state),
                   sb->state == SANDBOX_PAUSED ? " (snapshots.allow_paused also of Paused ones)"
                                               : "");
}

static int check_runtime(const struct snapshots *s, struct err *e)
{
    if (s->cfg.refusal)
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::UNSUPPORTED_RUNTIME", "%s", s->cfg.refusal);
    if (s->lc->rt->ops->snapshot_make)
        return 0;
    return err_api(e, ERRC_UNSUPPORTED, "SNAPSHOT::NOT_IMPLEMENTED",
                   "the runtime %s cannot take snapshots", s->lc->rt->ops->name);
}

static void fill(const struct snapshots *s, const struct sandbox *sb, const char *name,
                 struct snapshot *snap)
{
    int64_t now = s->lc->clock->wall_ms();

    *snap = (struct snapshot){ .created_ms = now };
    rand_uuid4(snap->id);
    memcpy(snap->sandbox_id, sb->id, sizeof(snap->sandbox_id));
    (void)snprintf(snap->name, sizeof(snap->name), "%s", name ? name : "");
    snapshot_set_state(snap, SNAPSHOT_CREATING, "snapshot_accepted", "Snapshot creation accepted.",
                       now);
    memcpy(snap->platform_os, sb->platform_os, sizeof(snap->platform_os));
    memcpy(snap->platform_arch, sb->platform_arch, sizeof(snap->platform_arch));
}

int snapshots_create(struct snapshots *s, const char *sandbox_id, const char *name,
                     struct snapshot *out, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct snapshot snap;

    if (lifecycle_get(s->lc, sandbox_id, &sb, e) < 0 || check_runtime(s, e) < 0 ||
        check_source(s, &sb, e) < 0)
        return -1;
    fill(s, &sb, name, &snap);
    if (snapshots_reserve(s, snap.id, e) < 0)
        return -1;
    if (snapshot_store_insert(s->lc->db, &snap, s->cfg.max, e) < 0) {
        snapshots_release(s, snap.id);
        return -1;
    }
    (void)fault_point("snapshot.intent");
    log_info("snapshot accepted", LOG_S("id", snap.id), LOG_S("sandbox", snap.sandbox_id));
    snapshots_post(s, snap.id, false);
    *out = snap;
    return 0;
}

/* ---- reading ---- */

int snapshots_get(struct snapshots *s, const char *id, struct snapshot *out, struct err *e)
{
    struct err why = { 0 };

    if (snapshot_store_get(s->lc->db, id, out, &why) == 0)
        return 0;
    if (why.code == ERRC_NOT_FOUND)
        return not_found(id, e);
    if (e)
        *e = why;
    return -1;
}

int snapshots_list(struct snapshots *s, const struct snapshot_query *q, struct snapshot_page *out,
                   struct err *e)
{
    return snapshot_store_list(s->lc->db, q, out, e);
}

/* ---- delete ---- */

/* One delete of a snapshot at a time; the prefix keeps it apart from sandboxes' keys. */
static struct keyed_lock *take(struct snapshots *s, const char *id)
{
    char key[sizeof("snapshot:") + RUNTIME_ID];

    (void)snprintf(key, sizeof(key), "snapshot:%.*s", RUNTIME_ID - 1, id);
    return keyed_lock_take(s->lc->locks, key);
}

static int why_not(const struct snapshot *before, int64_t users, struct err *e)
{
    if (before->state == SNAPSHOT_CREATING)
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::INVALID_STATE",
                       "Snapshot %s is being created; delete it when it is Ready or Failed.",
                       before->id);
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::DELETE_CONFLICT",
                   "Snapshot %s is in use by %lld sandbox%s made from it; delete %s first.",
                   before->id, (long long)users, users == 1 ? "" : "es",
                   users == 1 ? "it" : "them");
}

/* The engine will not let the image go: somebody else's container uses it. */
static int put_back(struct snapshots *s, const struct snapshot *before, struct err *e)
{
    struct snapshot snap = *before;
    int64_t now = s->lc->clock->wall_ms();

    if (before->state == SNAPSHOT_DELETING) /* what is in use is whole */
        snapshot_set_state(&snap, SNAPSHOT_READY, "snapshot_delete_conflict",
                           "A container uses the image; the snapshot was not deleted.", now);
    else
        snapshot_set_state(&snap, before->state, before->reason, before->message, now);
    if (snapshot_store_transition(s->lc->db, &snap, SNAPSHOT_DELETING, e) < 0)
        return -1;
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::DELETE_CONFLICT",
                   "The image of snapshot %s is in use by a container; remove that first.",
                   before->id);
}

static int delete_failed(struct snapshots *s, const char *id, struct err *e)
{
    worker_kick(&s->worker);
    e->code = ERRC_INTERNAL; /* whatever the engine said: the contract has 500 here */
    e->api_code = "DOCKER::SNAPSHOT_IMAGE_REMOVE_FAILED";
    e->retry_after_s = 0;
    log_warn("snapshot not removed yet", LOG_S("id", id), LOG_S("error", e->msg));
    return err_wrap(e, "Snapshot %s could not be removed yet; it will be retried", id);
}

/* Image, then row. Caller holds the snapshot's lock. */
static int remove_both(struct snapshots *s, const char *id, struct err *e)
{
    if (runtime_snapshot_remove(s->lc->rt, id, e) < 0)
        return -1;
    (void)fault_point("snapshot.image_removed");
    if (snapshot_store_remove(s->lc->db, id, e) < 0)
        return -1;
    (void)fault_point("snapshot.deleted");
    log_info("snapshot deleted", LOG_S("id", id));
    return 0;
}

int snapshots_delete(struct snapshots *s, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = take(s, id);
    struct snapshot before;
    struct snapshot snap;
    struct err why = { 0 };
    int64_t users;
    int rc;

    if (!held)
        return err_nomem(e);
    if (snapshots_get(s, id, &snap, e) < 0)
        return -1;
    snapshot_set_state(&snap, SNAPSHOT_DELETING, "snapshot_delete_requested",
                       "Snapshot deletion requested.", s->lc->clock->wall_ms());
    rc = snapshot_store_begin_delete(s->lc->db, &snap, &before, &users, e);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return why_not(&before, users, e);
    (void)fault_point("snapshot.delete_intent");
    if (remove_both(s, id, &why) == 0)
        return 0;
    rc = why.code == ERRC_CONFLICT ? put_back(s, &before, &why) : delete_failed(s, id, &why);
    if (e)
        *e = why;
    return rc;
}

int snapshots_finish_delete(struct snapshots *s, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = take(s, id);
    struct snapshot snap;

    if (!held)
        return err_nomem(e);
    if (snapshot_store_get(s->lc->db, id, &snap, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    return snap.state == SNAPSHOT_DELETING ? remove_both(s, id, e) : 0;
}

/* ---- restore ---- */

static int check_platform(const struct snapshot *snap, const char *os, const char *arch,
                          struct err *e)
{
    if (!os || !snap->platform_os[0] ||
        (strcmp(os, snap->platform_os) == 0 && strcmp(arch, snap->platform_arch) == 0))
        return 0;
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG",
                   "platform: snapshot %s was taken on %s/%s, not %s/%s", snap->id,
                   snap->platform_os, snap->platform_arch, os, arch);
}

int snapshots_check_restore(struct lifecycle *lc, const char *id, const char *platform_os,
                            const char *platform_arch, struct err *e)
{
    struct snapshot snap;
    struct err why = { 0 };

    if (snapshot_store_get(lc->db, id, &snap, &why) < 0) {
        if (why.code == ERRC_NOT_FOUND)
            return not_found(id, e);
        if (e)
            *e = why;
        return -1;
    }
    if (snap.state != SNAPSHOT_READY)
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::NOT_READY",
                       "Snapshot %s is %s (%s); sandboxes are made from Ready ones.", id,
                       snapshot_state_to_string(snap.state), snap.reason);
    return check_platform(&snap, platform_os, platform_arch, e);
}

void snapshots_restore_failed(struct lifecycle *lc, const char *id)
{
    struct snapshot snap;
    struct err e = { 0 };

    if (runtime_snapshot_get(lc->rt, id, &e) == 0 || e.code != ERRC_NOT_FOUND ||
        snapshot_store_get(lc->db, id, &snap, NULL) < 0)
        return;
    snapshot_set_state(&snap, SNAPSHOT_FAILED, "snapshot_image_missing",
                       "The image of the snapshot was removed from outside of this server.",
                       lc->clock->wall_ms());
    if (snapshot_store_transition(lc->db, &snap, SNAPSHOT_READY, NULL) == 0)
        log_warn("snapshot lost its image", LOG_S("id", id));
}
