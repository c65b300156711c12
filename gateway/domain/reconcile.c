#include "gateway/domain/reconcile.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/crew.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/places.h"
#include "gateway/domain/volumes.h"
#include "gateway/domain/worker.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

#include <string.h>

enum {
    RETRY_MS = 1000,
    SETTLERS = 8, /* sandboxes that are settled side by side */
    SETTLE_IDS_MAX = 1 << 17,
    SETTLE_BUSY_MS = 200, /* somebody else is changing the sandbox */
    SETTLE_TRIES = 10,    /* then the next sweep is soon enough */
    OVERDUE_MS = 2000,    /* later than this the expiry thread did not do its work */
    OVERDUE_BATCH = 1000,
};

struct reconcile {
    struct lifecycle *lc;
    struct reconcile_config cfg;
    struct worker worker;
    struct crew *settlers; /* NULL: not started; the sweep settles by itself */
    json_t *strays;        /* id → mono ms when a container without a record was first seen */
    bool failing;          /* the last sweep failed: the failure is logged once */
};

/* States in which record and container agree without a closer look. */
static bool agrees(enum sandbox_state record, enum runtime_state container)
{
    switch (record) {
    case SANDBOX_RUNNING:
        return container == RUNTIME_RUNNING;
    case SANDBOX_PAUSED:
        return container == RUNTIME_PAUSED;
    case SANDBOX_TERMINATED:
    case SANDBOX_FAILED:
        return container == RUNTIME_ENDED;
    default:
        return false;
    }
}

/* ---- settling ---- */

/* Of the crew. */
static int64_t settle_one(void *arg, const char *id, unsigned tries)
{
    struct reconcile *r = arg;
    struct err e = { 0 };
    int rc = lifecycle_try_settle(r->lc, id, &e);

    if (rc > 0)
        return tries < SETTLE_TRIES ? SETTLE_BUSY_MS : CREW_DONE;
    if (rc < 0)
        log_warn("sandbox could not be reconciled", LOG_S("id", id), LOG_S("error", e.msg));
    return CREW_DONE;
}

/* A removal may take as long as its grace: it has threads of its own. */
static void settle(struct reconcile *r, const char *id, enum sandbox_state state)
{
    struct err e;

    if (state == SANDBOX_STOPPING && r->lc->expiry)
        expiry_remove(r->lc->expiry, id);
    else if (!r->settlers)
        (void)settle_one(r, id, SETTLE_TRIES);
    else if (crew_want(r->settlers, id, 0, &e) < 0)
        log_warn("sandbox could not be reconciled", LOG_S("id", id), LOG_S("error", e.msg));
}

/* ---- what is overdue ---- */

static int sweep_overdue(struct reconcile *r, struct err *e)
{
    struct sandbox_ids due = { 0 };
    int64_t next;
    size_t i;

    if (!r->lc->expiry)
        return 0;
    if (sandbox_store_due(r->lc->db, r->lc->clock->wall_ms() - OVERDUE_MS, OVERDUE_BATCH, &due,
                          &next, e) < 0)
        return -1;
    for (i = 0; i < due.len; i++)
        expiry_remove(r->lc->expiry, due.ids[i]);
    free(due.ids);
    return 0;
}

/* ---- what differs ---- */

/* Its address changed under it. Without places nothing is known about where it was. */
static bool has_moved(const struct reconcile *r, const struct runtime_status *st)
{
    struct place was;

    return r->lc->places && st->place.address[0] && places_get(r->lc->places, st->id, &was) &&
           (strcmp(was.at.address, st->place.address) != 0 ||
            was.at.host_port != st->place.host_port);
}

static bool fits(const struct reconcile *r, enum sandbox_state state,
                 const struct runtime_status *st)
{
    return st && agrees(state, st->state) && !has_moved(r, st);
}

/* Every record of one state against the containers. Known ids are taken out of `unclaimed`. */
static int sweep_state(struct reconcile *r, enum sandbox_state state,
                       const struct runtime_list *list, json_t *places, json_t *unclaimed,
                       struct err *e)
{
    struct sandbox_ids rows = { 0 };
    const json_t *at;
    size_t i;

    if (sandbox_store_ids(r->lc->db, (int)state, &rows, e) < 0)
        return -1;
    for (i = 0; i < rows.len; i++) {
        at = json_object_get(places, rows.ids[i]);
        (void)json_object_del(unclaimed, rows.ids[i]);
        if (!fits(r, state, at ? &list->items[json_integer_value(at)] : NULL))
            settle(r, rows.ids[i], state);
    }
    free(rows.ids);
    return 0;
}

/* A container of ours that no record knows: frozen at first sight, removed later. */
static void quarantine(struct reconcile *r, const char *id)
{
    json_t *since = json_object_get(r->strays, id);
    int64_t now = r->lc->clock->mono_ms();
    struct err e = { 0 };

    if (!since) {
        log_error("container without a record: frozen; it will be removed", LOG_S("id", id),
                  LOG_N("after_s", r->cfg.quarantine_ms / 1000));
        (void)json_object_set_new(r->strays, id, json_integer(now));
        (void)runtime_pause(r->lc->rt, id, NULL);
        return;
    }
    if (now - json_integer_value(since) < r->cfg.quarantine_ms)
        return;
    if (runtime_remove(r->lc->rt, id, &e) < 0) {
        log_warn("container without a record not removed", LOG_S("id", id), LOG_S("error", e.msg));
        return;
    }
    log_error("container without a record removed", LOG_S("id", id));
}

/* A start that was given up, or a removal, came to another end in the engine than here. One that had
 * vanished without our doing is nothing to be removed in a hurry. */
static void look_at_leftover(struct reconcile *r, const struct sandbox *sb)
{
    struct runtime_status st;
    struct err e = { 0 };

    if (runtime_status(r->lc->rt, sb->id, &st, &e) < 0 && e.code == ERRC_NOT_FOUND)
        return; /* it ended after the look at the engine */
    if (strcmp(sb->reason, LIFECYCLE_VANISHED) == 0)
        quarantine(r, sb->id);
    else if (runtime_remove(r->lc->rt, sb->id, &e) < 0)
        log_warn("container of a sandbox that ended not removed yet", LOG_S("id", sb->id),
                 LOG_S("error", e.msg));
    else
        log_warn("container of a sandbox that ended removed", LOG_S("id", sb->id));
}

/* No record of a sandbox that exists claims the container. */
static void look_closer(struct reconcile *r, const char *id)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err e = { 0 };

    if (sandbox_store_find(r->lc->db, id, &sb, &e) < 0) {
        if (e.code == ERRC_NOT_FOUND)
            quarantine(r, id);
    } else if (sb.ended_ms) { /* else its record came into being since the look */
        look_at_leftover(r, &sb);
    }
}

/* Those that are gone. */
static void forget_strays(struct reconcile *r, json_t *unclaimed)
{
    const char *id;
    json_t *v;
    void *next;

    json_object_foreach_safe(r->strays, next, id, v) {
        if (!json_object_get(unclaimed, id))
            (void)json_object_del(r->strays, id);
    }
}

/* id → where in the list. */
static json_t *index_of(const struct runtime_list *list)
{
    json_t *map = json_object();
    size_t i;

    for (i = 0; map && i < list->len; i++)
        (void)json_object_set_new(map, list->items[i].id, json_integer((json_int_t)i));
    return map;
}

static int sweep(struct reconcile *r, const struct runtime_list *list, struct err *e)
{
    json_t *containers = index_of(list);
    json_t *unclaimed = json_copy(containers);
    const char *id;
    json_t *v;
    int state;
    int rc = containers && unclaimed ? 0 : err_nomem(e);

    for (state = 0; state < SANDBOX_STATE_MAX_ && rc == 0; state++)
        rc = sweep_state(r, (enum sandbox_state)state, list, containers, unclaimed, e);
    if (rc == 0) {
        forget_strays(r, unclaimed);
        json_object_foreach(unclaimed, id, v) {
            look_closer(r, id);
        }
    }
    json_decref(containers);
    json_decref(unclaimed);
    return rc;
}

int reconcile_once(struct reconcile *r, struct err *e)
{
    struct runtime_list list = { 0 };
    int rc;

    if (sweep_overdue(r, e) < 0 || runtime_prepare(r->lc->rt, e) < 0 ||
        runtime_list(r->lc->rt, &list, e) < 0)
        return -1;
    rc = sweep(r, &list, e);
    runtime_list_free(&list);
    if (rc == 0)
        volumes_sweep(r->lc->volumes);
    if (rc == 0)
        rc = sandbox_store_forget_ended(r->lc->db, r->lc->clock->wall_ms() - r->cfg.ended_keep_ms,
                                        e);
    if (rc == 0)
        rc =
            idempotency_store_forget(r->lc->db, r->lc->clock->wall_ms() - LIFECYCLE_KEY_KEEP_MS, e);
    return rc;
}

static int64_t look(void *arg)
{
    struct reconcile *r = arg;
    struct err e = { 0 };

    if (reconcile_once(r, &e) < 0) {
        if (!r->failing)
            log_error("cannot compare sandboxes with the engine; retrying", LOG_S("error", e.msg));
        r->failing = true;
        return RETRY_MS;
    }
    if (r->failing) {
        log_info("the engine answers again");
        if (r->lc->expiry)
            expiry_hurry(r->lc->expiry);
    }
    r->failing = false;
    return r->cfg.interval_ms;
}

struct reconcile *reconcile_new(struct lifecycle *lc, const struct reconcile_config *cfg,
                                struct err *e)
{
    struct reconcile *r = calloc(1, sizeof(*r));

    if (r)
        r->strays = json_object();
    if (!r || !r->strays) {
        free(r);
        (void)err_nomem(e);
        return NULL;
    }
    r->lc = lc;
    r->cfg = *cfg;
    worker_init(&r->worker, look, r);
    return r;
}

int reconcile_start(struct reconcile *r, struct err *e)
{
    r->settlers = crew_new(SETTLERS, SETTLE_IDS_MAX, settle_one, r, e);
    return r->settlers ? worker_start(&r->worker, e) : -1;
}

void reconcile_kick(struct reconcile *r)
{
    worker_kick(&r->worker);
}

void reconcile_free(struct reconcile *r)
{
    if (!r)
        return;
    worker_stop(&r->worker);
    crew_free(r->settlers);
    json_decref(r->strays);
    free(r);
}
