/* How a sandbox comes into being: checks, the intent, and who does the rest. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/claim.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/making.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/places.h"
#include "gateway/domain/platform.h"
#include "gateway/domain/resources.h"
#include "gateway/domain/snapshots.h"
#include "gateway/domain/volumes.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

#include <string.h>

#define SB_INVALID "SANDBOX::INVALID_PARAMETER"
#define KEY_CONFLICT "GENERAL::IDEMPOTENCY_CONFLICT"

enum { KEY_TRIES = 3 }; /* a key can become free between two looks at it */

static const int64_t wall_max_ms = 253402300799000; /* the last second of the year 9999 */

/* ---- checks: nothing is made before all of them passed (contract 3.2) ---- */

static int check_timeout(const struct lifecycle *lc, const struct create_req *rq, struct err *e)
{
    if (rq->timeout_s > (wall_max_ms - lc->clock->wall_ms()) / 1000)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "timeout: %lld s end after the year 9999; leave it out for a sandbox that "
                       "never expires",
                       (long long)rq->timeout_s);
    if (lc->max_timeout_s && rq->timeout_s > lc->max_timeout_s)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "timeout: %lld s is more than this server allows (%lld s)",
                       (long long)rq->timeout_s, (long long)lc->max_timeout_s);
    return 0;
}

/* os and arch in canonical form, NULL: not looked at yet. */
static int check_snapshot(struct lifecycle *lc, const struct create_req *rq, const char *os,
                          const char *arch, struct err *e)
{
    return rq->snapshot_id ? snapshots_check_restore(lc, rq->snapshot_id, os, arch, e) : 0;
}

/* rq is made canonical on the way. */
static int check(struct lifecycle *lc, struct create_req *rq, struct resources *res, struct err *e)
{
    if (rq->timeout_unsaid)
        rq->timeout_s = lc->default_timeout_s;
    if (check_snapshot(lc, rq, NULL, NULL, e) < 0 || metadata_check(rq->metadata, e) < 0 ||
        platform_check(&rq->platform_os, &rq->platform_arch, e) < 0 ||
        check_snapshot(lc, rq, rq->platform_os, rq->platform_arch, e) < 0 ||
        check_timeout(lc, rq, e) < 0 || resources_parse(rq->resources, res, e) < 0)
        return -1;
    if (claim_check_env(rq->env, e) < 0)
        return -1;
    /* what takes long for certain is refused before anything is made */
    if (lc->creates && (rq->pre_start_s || creates_stopping(lc->creates)))
        return creates_may_go_on(lc->creates, e);
    return 0;
}

/* ---- the steps, in the request's thread or apart from it ---- */

/* Takes m over. *made is the record when it is usable, unless made is NULL. */
static int complete(struct making *m, bool pull, struct sandbox *made, struct err *e)
{
    struct creates *cs = m->lc->creates;
    struct creation *c = m->creation;
    int rc = pull ? making_pull(m, e) : 0;

    if (rc == 0)
        rc = making_finish(m, e);
    if (rc < 0)
        making_undo(m, e);
    if (c)
        creates_end(cs, c, rc < 0 ? e : NULL);
    if (rc == 0 && made) {
        *made = m->sb;
        m->sb = (struct sandbox){ 0 };
    }
    making_free(m);
    return rc;
}

static void pull_and_complete(void *arg)
{
    struct err e = { 0 };

    (void)complete(arg, true, NULL, &e);
}

static void just_complete(void *arg)
{
    struct err e = { 0 };

    (void)complete(arg, false, NULL, &e);
}

/* The record of id as it is now, after the create was waited for: usable, under way or failed. */
static int answer(struct lifecycle *lc, struct creation *c, const char *id, struct sandbox *out,
                  struct err *e)
{
    int rc = creates_wait(lc->creates, c, lc->create_wait_ms, e);

    if (rc >= 0 && lifecycle_get(lc, id, out, e) == 0)
        return 0;
    /* it may have failed between the two looks */
    return rc < 0 ? -1 : (creates_wait(lc->creates, c, 0, e), -1);
}

/* Nothing was made: the record was too early. */
static int take_back(struct making *m, struct err *why)
{
    struct lifecycle *lc = m->lc;

    if (m->held) {
        making_undo(m, why);
    } else {
        if (lc->places)
            places_drop(lc->places, m->sb.id);
        if (lc->expiry)
            expiry_drop(lc->expiry, m->sb.id);
        volumes_undo(lc->volumes, m->plan, m->sb.id);
        if (idempotency_store_release(lc->db, m->sb.id, NULL) < 0 ||
            sandbox_store_remove(lc->db, m->sb.id, NULL) < 0)
            making_undo(m, why);
    }
    creates_end(lc->creates, m->creation, why);
    making_free(m);
    return -1;
}

/* Takes m over: the rest happens in a thread of its own, the request waits for a while. */
static int go_on_apart(struct making *m, bool pull, struct sandbox *out, struct err *e)
{
    struct lifecycle *lc = m->lc;
    struct creation *c = creates_ref(lc->creates, m->creation);
    char id[RUNTIME_ID];
    int rc;

    memcpy(id, m->sb.id, sizeof(id));
    m->apart = true;
    if (creates_go_on(lc->creates, c, pull ? pull_and_complete : just_complete, m, e) < 0)
        rc = take_back(m, e);
    else
        rc = answer(lc, c, id, out, e);
    creates_unref(lc->creates, c);
    return rc;
}

/* ---- the intent ---- */

static int insert(struct making *m, const struct create_req *rq, struct idempotency *first,
                  struct err *e)
{
    if (rq->key)
        return idempotency_store_insert(m->lc->db, rq->key, rq->body_sha256, &m->sb, first, e);
    return sandbox_store_insert(m->lc->db, &m->sb, e);
}

/* Writes the intent and makes the first step; m->sb.id is locked meanwhile. 1: another create has
 * the key. -1: nothing was written. Else 0, and *why tells how the step went. */
static int begin(struct making *m, const struct create_req *rq, struct idempotency *first,
                 struct err *why, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(m->lc->locks, m->sb.id);
    int rc;

    if (!held)
        return err_nomem(e);
    rc = insert(m, rq, first, e);
    if (rc != 0)
        return rc;
    metrics_phase(m->lc->metrics, METRICS_STORE, m->began_us);
    lifecycle_show(m->lc, &m->sb); /* requests by proxy wait for it */
    (void)fault_point("create.intent");
    if (making_start(m, why) == 0)
        why->code = ERRC_NONE;
    return 0;
}

/* Takes m over, whose record is in the store. */
static int carry_on(struct making *m, const struct err *started, struct sandbox *out, struct err *e)
{
    bool pull = m->no_image;

    if (started->code != ERRC_NONE && !pull) {
        *e = *started;
        making_undo(m, e);
        if (m->sb.snapshot_id[0])
            snapshots_restore_failed(m->lc, m->sb.snapshot_id);
        if (m->creation)
            creates_end(m->lc->creates, m->creation, e);
        making_free(m);
        return -1;
    }
    if (m->creation && (pull || m->hooked))
        return go_on_apart(m, pull, out, e);
    return complete(m, pull, out, e);
}

/* 1: another create has the key. */
static int create(struct lifecycle *lc, const struct create_req *rq, const struct resources *res,
                  struct idempotency *first, struct sandbox *out, struct err *e)
{
    struct making *m = making_new(lc, rq, res, e);
    struct err started = { 0 };
    int rc;

    if (!m)
        return -1;
    if (lc->creates) {
        m->creation = creates_begin(lc->creates, m->sb.id);
        if (!m->creation) {
            making_free(m);
            return err_nomem(e);
        }
    }
    rc = begin(m, rq, first, &started, e);
    if (rc == 0)
        return carry_on(m, &started, out, e);
    if (m->creation)
        creates_end(lc->creates, m->creation, rc < 0 ? e : NULL);
    making_free(m);
    return rc;
}

/* ---- keys ---- */

static int key_is_spent(const char *id, const char *what, struct err *e)
{
    return err_api(e, ERRC_CONFLICT, KEY_CONFLICT,
                   "Idempotency-Key: its sandbox %s %s; a new sandbox needs a new key", id, what);
}

/* Waits for the create of id. One that nobody makes any more was an earlier process's: it is undone,
 * since the client may be quicker than the sweep. */
static int wait_for_first(struct lifecycle *lc, const char *id, struct err *e)
{
    struct creation *c = lc->creates ? creates_find(lc->creates, id) : NULL;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int rc;

    if (c) {
        rc = creates_wait(lc->creates, c, lc->create_wait_ms, e);
        creates_unref(lc->creates, c);
        return rc < 0 ? -1 : 0;
    }
    if (lc->creates && sandbox_store_get(lc->db, id, &sb, NULL) == 0 && sb.state == SANDBOX_PENDING)
        return lifecycle_settle(lc, id, e);
    return 0;
}

/* The sandbox that the key made. 1: it failed meanwhile and the key is free again. */
static int recall(struct lifecycle *lc, const struct create_req *rq,
                  const struct idempotency *first, struct sandbox *out, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    const char *id = first->sandbox_id;
    struct idempotency again;
    int rc;

    if (strcmp(first->body_sha256, rq->body_sha256) != 0)
        return err_api(e, ERRC_CONFLICT, KEY_CONFLICT,
                       "Idempotency-Key: it was used for a request with another body (sandbox %s); "
                       "use a new key",
                       id);
    if (wait_for_first(lc, id, e) < 0)
        return -1;
    if (sandbox_store_find(lc->db, id, &sb, e) < 0 && e->code != ERRC_NOT_FOUND)
        return -1;
    if (sb.image && !sb.ended_ms && sb.state != SANDBOX_STOPPING) {
        *out = sb;
        sb = (struct sandbox){ 0 };
        return 0;
    }
    rc = idempotency_store_get(lc->db, rq->key, &again, e);
    if (rc < 0)
        return -1;
    if (rc == 0 || strcmp(again.sandbox_id, id) != 0)
        return 1;
    return key_is_spent(id, sb.image && !sb.ended_ms ? "is being removed" : "has ended", e);
}

static int create_once(struct lifecycle *lc, struct create_req *rq, struct sandbox *out,
                       struct err *e)
{
    struct idempotency first;
    struct resources res;
    int tries;
    int rc;

    for (tries = 0; tries < KEY_TRIES; tries++) {
        rc = idempotency_store_get(lc->db, rq->key, &first, e);
        if (rc == 0) {
            if (check(lc, rq, &res, e) < 0)
                return -1;
            rc = create(lc, rq, &res, &first, out, e);
        }
        if (rc == 1)
            rc = recall(lc, rq, &first, out, e);
        if (rc != 1)
            return rc;
    }
    return err_api(e, ERRC_CONFLICT, KEY_CONFLICT,
                   "Idempotency-Key: other requests with this key keep failing; try again");
}

static int create_any(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                      struct err *e)
{
    struct create_req canonical = *rq;
    struct resources res;

    if (rq->key)
        return create_once(lc, &canonical, out, e);
    if (check(lc, &canonical, &res, e) < 0)
        return -1;
    return create(lc, &canonical, &res, NULL, out, e);
}

int lifecycle_create(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                     struct err *e)
{
    int rc = create_any(lc, rq, out, e);

    if (rc == 0 && out->state == SANDBOX_PENDING)
        metrics_count(lc->metrics, METRICS_CREATE, METRICS_PENDING);
    else
        (void)metrics_done(lc->metrics, METRICS_CREATE, rc, e);
    return rc;
}

/* ---- the end of the server ---- */

/* Its claim breaks off, and its thread undoes it. */
static void cut_off(void *arg, const char *id)
{
    struct lifecycle *lc = arg;
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    struct err e = { 0 };

    if (held && runtime_remove(lc->rt, id, &e) < 0)
        log_warn("create not cut off", LOG_S("id", id), LOG_S("error", e.msg));
}

void lifecycle_stop(struct lifecycle *lc)
{
    if (lc->creates)
        creates_stop(lc->creates, cut_off, lc);
}
