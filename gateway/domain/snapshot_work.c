/* The work behind snapshots: captures in threads of their own, and the pass that finishes what was
 * cut off. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/jobs.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/snapshots_internal.h"
#include "gateway/store/sandbox_store.h"
#include "gateway/store/snapshot_store.h"

#include <errno.h>

enum {
    PASS_RETRY_MS = 2000, /* while something is left undone, e.g. the engine is away */
    PASS_IDLE_MS = 60000, /* else: an independent look */
    MARK_MAX_MS =
        60000, /* how long after the start a capture of an earlier process is waited for */
};

struct task {
    struct snapshots *s;
    char id[RUNTIME_ID];
    bool again;
};

/* ---- places ---- */

int snapshots_reserve(struct snapshots *s, const char *id, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    if (json_object_get(s->under_way, id))
        return err_set(e, ERRC_CONFLICT, "snapshot %s is under way", id);
    if (s->stopping || json_object_size(s->under_way) >= SNAPSHOTS_WAITING_MAX) {
        (void)err_set(e, ERRC_BUSY, "%d snapshots wait already; try again shortly",
                      SNAPSHOTS_WAITING_MAX);
        if (e)
            e->retry_after_s = 1;
        return -1;
    }
    return json_object_set_new(s->under_way, id, json_true()) < 0 ? err_nomem(e) : 0;
}

void snapshots_release(struct snapshots *s, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    (void)json_object_del(s->under_way, id);
    (void)pthread_cond_broadcast(&s->changed);
}

static bool is_stopping(struct snapshots *s)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);

    return s->stopping;
}

bool snapshots_wait_idle(struct snapshots *s, int ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&s->guard);
    const int64_t until = clock_mono_ms() + ms;

    while (json_object_size(s->under_way))
        if (!thread_wait_until(&s->changed, &s->guard, until))
            return false;
    return true;
}

/* ---- one capture ---- */

/* Marks the source. ERRC_NOT_FOUND or ERRC_CONFLICT when it can no longer be captured. One that was
 * paused since the request was accepted still can. */
static int begin(struct snapshots *s, const struct snapshot *snap, struct err *e)
{
    struct lifecycle *lc = s->lc;
    AUTO_KEYED struct keyed_lock *held = lifecycle_take(lc, snap->sandbox_id, s->cfg.timeout_ms, e);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held || sandbox_store_get(lc->db, snap->sandbox_id, &sb, e) < 0)
        return -1;
    if (sb.state != SANDBOX_RUNNING && sb.state != SANDBOX_PAUSED)
        return err_set(e, ERRC_CONFLICT, "sandbox %s is %s", sb.id,
                       sandbox_state_to_string(sb.state));
    return captures_begin(lc->captures, sb.id) < 0 ? err_nomem(e) : 0;
}

/* What waited for the end of the capture, or was passed over, comes now. */
static void end(struct snapshots *s, const char *sandbox_id)
{
    captures_end(s->lc->captures, sandbox_id);
    if (s->lc->expiry)
        expiry_hurry(s->lc->expiry);
    /* whoever has it already, or the next sweep, sees to it as well */
    (void)lifecycle_try_settle(s->lc, sandbox_id, &(struct err){ 0 });
}

static int succeed(struct snapshots *s, struct snapshot *snap, struct err *e)
{
    snapshot_set_state(snap, SNAPSHOT_READY, "snapshot_runtime_ready", "Snapshot is ready.",
                       s->lc->clock->wall_ms());
    if (snapshot_store_transition(s->lc->db, snap, SNAPSHOT_CREATING, e) < 0)
        return -1;
    (void)fault_point("snapshot.confirmed");
    log_info("snapshot ready", LOG_S("id", snap->id), LOG_N("bytes", snap->size_bytes));
    return 0;
}

static int fail(struct snapshots *s, struct snapshot *snap, const char *reason,
                const struct err *why, struct err *e)
{
    struct err left = { 0 };

    log_warn("snapshot failed", LOG_S("id", snap->id), LOG_S("error", why->msg));
    /* a capture that came too late may have left an image; if it cannot be removed now, the
     * deletion of the row does it */
    (void)runtime_snapshot_remove(s->lc->rt, snap->id, &left);
    snapshot_set_state(snap, SNAPSHOT_FAILED, reason, why->msg, s->lc->clock->wall_ms());
    return snapshot_store_transition(s->lc->db, snap, SNAPSHOT_CREATING, e);
}

static const char *reason_of(const struct err *why, bool again)
{
    bool ended = why->code == ERRC_NOT_FOUND || why->code == ERRC_CONFLICT;

    if (why->code == ERRC_TIMEOUT)
        return "snapshot_runtime_timeout";
    return ended && again ? "snapshot_recovery_missing_image" : "snapshot_runtime_failed";
}

/* -1: the row is still Creating, the pass looks at it again. */
static int capture(struct snapshots *s, const char *id, bool again, struct err *e)
{
    struct snapshot snap;
    struct err why = { 0 };
    int rc;

    if (snapshot_store_get(s->lc->db, id, &snap, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (snap.state != SNAPSHOT_CREATING)
        return 0;
    if (begin(s, &snap, &why) < 0) {
        if (why.code == ERRC_NOT_FOUND || why.code == ERRC_CONFLICT) {
            (void)err_wrap(&why, "the source ended before its files were captured");
            return fail(s, &snap, reason_of(&why, again), &why, e);
        }
        *e = why;
        return -1;
    }
    rc = runtime_snapshot_make(s->lc->rt, snap.sandbox_id, id, s->cfg.timeout_ms, &snap.size_bytes,
                               &why);
    (void)fault_point("snapshot.made");
    end(s, snap.sandbox_id);
    if (rc == 0)
        return succeed(s, &snap, e);
    if (why.code == ERRC_BUSY) { /* the engine is away: it is asked again when it is back */
        *e = why;
        return -1;
    }
    return fail(s, &snap, reason_of(&why, again), &why, e);
}

static void run(void *arg)
{
    AUTO_FREE struct task *t = arg;
    struct err e = { 0 };
    int rc = 0;

    if (!is_stopping(t->s))
        rc = capture(t->s, t->id, t->again, &e);
    snapshots_release(t->s, t->id);
    if (rc == 0)
        return;
    log_warn("snapshot not captured yet", LOG_S("id", t->id), LOG_S("error", e.msg));
    worker_kick(&t->s->worker);
}

void snapshots_post(struct snapshots *s, const char *id, bool again)
{
    struct task *t = calloc(1, sizeof(*t));

    if (t) {
        *t = (struct task){ .s = s, .again = again };
        (void)snprintf(t->id, sizeof(t->id), "%s", id);
        if (jobs_post(s->jobs, run, t, NULL) == 0)
            return;
    }
    free(t);
    snapshots_release(s, id);
    worker_kick(&s->worker);
}

/* ---- captures of an earlier process ---- */

/* The engine may still be at work on them. Their sources are marked before anybody else looks at
 * them, until the pass has found out. */
static int mark_sources(struct snapshots *s, struct err *e)
{
    struct snapshot_refs refs;
    struct snapshot snap;
    size_t i;
    int rc = 0;

    if (snapshot_store_unfinished(s->lc->db, &refs, e) < 0)
        return -1;
    for (i = 0; i < refs.len && rc == 0; i++) {
        if (refs.items[i].state != SNAPSHOT_CREATING ||
            snapshot_store_get(s->lc->db, refs.items[i].id, &snap, NULL) < 0)
            continue;
        if (captures_begin(s->lc->captures, snap.sandbox_id) < 0 ||
            json_object_set_new(s->marked, snap.sandbox_id, json_true()) < 0)
            rc = err_nomem(e);
    }
    free(refs.items);
    return rc;
}

static void unmark(struct snapshots *s, const char *sandbox_id)
{
    if (json_object_get(s->marked, sandbox_id))
        captures_end(s->lc->captures, sandbox_id);
    (void)json_object_del(s->marked, sandbox_id);
}

static void unmark_all(struct snapshots *s)
{
    const char *id;
    json_t *v;
    void *next;

    json_object_foreach_safe(s->marked, next, id, v) {
        unmark(s, id);
    }
}

/* 0: the engine is no longer at work on a capture of that source, and its mark is gone. -1 with
 * ERRC_BUSY: it is, since it keeps frozen what runs according to the record. */
static int wait_for_earlier(struct snapshots *s, const char *sandbox_id, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct runtime_status st = { 0 };

    if (!json_object_get(s->marked, sandbox_id))
        return 0;
    if (clock_mono_ms() - s->started_mono_ms < MARK_MAX_MS &&
        sandbox_store_get(s->lc->db, sandbox_id, &sb, NULL) == 0 && sb.state == SANDBOX_RUNNING) {
        if (runtime_status(s->lc->rt, sandbox_id, &st, e) < 0 && e->code != ERRC_NOT_FOUND)
            return -1;
        if (st.state == RUNTIME_PAUSED)
            return err_set(e, ERRC_BUSY, "the engine still captures sandbox %s", sandbox_id);
    }
    unmark(s, sandbox_id);
    return 0;
}

/* ---- the pass ---- */

/* Its image is there: the process died, or the engine's answer was lost, before that was written
 * down. */
static int recovered(struct snapshots *s, struct snapshot *snap, struct err *e)
{
    /* keeps the image and does what was left to do; its source need not be there any more */
    if (runtime_snapshot_make(s->lc->rt, snap->sandbox_id, snap->id, s->cfg.timeout_ms,
                              &snap->size_bytes, e) < 0 &&
        e->code == ERRC_BUSY)
        return -1;
    snapshot_set_state(snap, SNAPSHOT_READY, "snapshot_recovery_ready",
                       "Snapshot is ready; the server was restarted while it was taken.",
                       s->lc->clock->wall_ms());
    if (snapshot_store_transition(s->lc->db, snap, SNAPSHOT_CREATING, e) == 0)
        return 0;
    return e->code == ERRC_CONFLICT ? 0 : -1; /* its capture came to an end meanwhile */
}

/* A row in SNAPSHOT_CREATING that nobody works on; its place is reserved. 1: it is handed to a thread,
 * with its place. */
static int resume(struct snapshots *s, const char *id, struct err *e)
{
    struct snapshot snap;

    if (snapshot_store_get(s->lc->db, id, &snap, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (snap.state != SNAPSHOT_CREATING)
        return 0; /* finished since it was listed; it may be deleted at any time */
    if (wait_for_earlier(s, snap.sandbox_id, e) < 0)
        return -1;
    if (runtime_snapshot_get(s->lc->rt, id, e) == 0)
        return recovered(s, &snap, e);
    if (e->code != ERRC_NOT_FOUND)
        return -1;
    snapshots_post(s, id, true);
    return 1;
}

static int recover(struct snapshots *s, const char *id, struct err *e)
{
    int rc;

    if (snapshots_reserve(s, id, e) < 0)
        return e->code == ERRC_CONFLICT ? 0 : -1; /* it is under way */
    rc = resume(s, id, e);
    if (rc <= 0)
        snapshots_release(s, id);
    return rc < 0 ? -1 : 0;
}

int snapshots_pass(struct snapshots *s, struct err *e)
{
    struct snapshot_refs refs;
    struct err why = { 0 };
    int left = 0;
    size_t i;
    int rc;

    if (snapshot_store_unfinished(s->lc->db, &refs, e) < 0)
        return -1;
    for (i = 0; i < refs.len; i++) {
        const char *id = refs.items[i].id;

        rc = refs.items[i].state == SNAPSHOT_CREATING ? recover(s, id, &why)
                                                      : snapshots_finish_delete(s, id, &why);
        if (rc == 0)
            continue;
        left++;
        if (e)
            *e = why;
    }
    free(refs.items);
    return left;
}

static int64_t look(void *arg)
{
    struct snapshots *s = arg;
    struct err e = { 0 };
    int left = snapshots_pass(s, &e);

    if (left && !s->failing)
        log_warn("snapshots are left unfinished; retrying", LOG_N("count", left),
                 LOG_S("error", e.msg));
    s->failing = left != 0;
    return left ? PASS_RETRY_MS : PASS_IDLE_MS;
}

/* ---- the whole ---- */

struct snapshots *snapshots_new(struct lifecycle *lc, const struct snapshots_config *cfg,
                                struct err *e)
{
    struct snapshots *s = calloc(1, sizeof(*s));

    if (!s) {
        (void)err_nomem(e);
        return NULL;
    }
    s->lc = lc;
    s->cfg = *cfg;
    (void)pthread_mutex_init(&s->guard, NULL);
    thread_cond_init(&s->changed);
    worker_init(&s->worker, look, s);
    s->started_mono_ms = clock_mono_ms();
    s->under_way = json_object();
    s->marked = json_object();
    if (!s->under_way || !s->marked)
        (void)err_nomem(e);
    else if (mark_sources(s, e) == 0)
        s->jobs = jobs_new(cfg->workers, SNAPSHOTS_WAITING_MAX, e);
    if (!s->jobs) {
        snapshots_free(s);
        return NULL;
    }
    return s;
}

int snapshots_start(struct snapshots *s, struct err *e)
{
    return worker_start(&s->worker, e);
}

void snapshots_free(struct snapshots *s)
{
    if (!s)
        return;
    (void)pthread_mutex_lock(&s->guard);
    s->stopping = true;
    (void)pthread_mutex_unlock(&s->guard);
    worker_stop(&s->worker);
    jobs_free(s->jobs);
    unmark_all(s);
    json_decref(s->marked);
    json_decref(s->under_way);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->guard);
    free(s);
}
