#include "gateway/domain/reconcile.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/volumes.h"
#include "gateway/domain/worker.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

enum { RETRY_MS = 1000 };

struct reconcile {
    struct lifecycle *lc;
    struct reconcile_config cfg;
    struct worker worker;
    json_t *strays; /* id → wall ms when a container without a record was first seen */
    bool failing;   /* the last sweep failed: the failure is logged once */
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

/* Every record of one state against the containers. Known ids are taken out of `unclaimed`. */
static int sweep_state(struct reconcile *r, enum sandbox_state state, json_t *containers,
                       json_t *unclaimed, struct err *e)
{
    struct sandbox_ids rows = { 0 };
    struct err one;
    json_t *seen;
    size_t i;

    if (sandbox_store_ids(r->lc->db, (int)state, &rows, e) < 0)
        return -1;
    for (i = 0; i < rows.len; i++) {
        seen = json_object_get(containers, rows.ids[i]);
        (void)json_object_del(unclaimed, rows.ids[i]);
        if (seen && agrees(state, (enum runtime_state)json_integer_value(seen)))
            continue;
        if (lifecycle_settle(r->lc, rows.ids[i], &one) < 0)
            log_warn("sandbox could not be reconciled", LOG_S("id", rows.ids[i]),
                     LOG_S("error", one.msg));
    }
    free(rows.ids);
    return 0;
}

/* A container of ours that no record knows: frozen at first sight, removed later. */
static void quarantine(struct reconcile *r, const char *id, int64_t now)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    json_t *since = json_object_get(r->strays, id);
    struct err e = { 0 };

    if (sandbox_store_get(r->lc->db, id, &sb, &e) == 0 || e.code != ERRC_NOT_FOUND)
        return; /* a record came into being since the look, or the store cannot tell */
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
    (void)json_object_del(r->strays, id);
}

static json_t *index_of(const struct runtime_list *list)
{
    json_t *map = json_object();
    size_t i;

    for (i = 0; map && i < list->len; i++)
        (void)json_object_set_new(map, list->items[i].id, json_integer(list->items[i].state));
    return map;
}

static int sweep(struct reconcile *r, const struct runtime_list *list, struct err *e)
{
    json_t *containers = index_of(list);
    json_t *unclaimed = json_copy(containers);
    const char *id;
    json_t *v;
    void *next;
    int state;
    int rc = containers && unclaimed ? 0 : err_nomem(e);

    for (state = 0; state < SANDBOX_STATE_MAX_ && rc == 0; state++)
        rc = sweep_state(r, (enum sandbox_state)state, containers, unclaimed, e);
    if (rc == 0) {
        json_object_foreach_safe(unclaimed, next, id, v) {
            quarantine(r, id, r->lc->clock->wall_ms());
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

    if (runtime_prepare(r->lc->rt, e) < 0 || runtime_list(r->lc->rt, &list, e) < 0)
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
    if (r->failing)
        log_info("the engine answers again");
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
    return worker_start(&r->worker, e);
}

void reconcile_free(struct reconcile *r)
{
    if (!r)
        return;
    worker_stop(&r->worker);
    json_decref(r->strays);
    free(r);
}
