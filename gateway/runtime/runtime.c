#include "gateway/runtime/runtime.h"

#include "common/base/err.h"

#include <stdlib.h>

static int unsupported(const struct runtime *rt, const char *verb, struct err *e)
{
    return err_set(e, ERRC_UNSUPPORTED, "the %s runtime cannot %s a sandbox", rt->ops->name, verb);
}

int runtime_prepare(struct runtime *rt, struct err *e)
{
    return rt->ops->prepare ? rt->ops->prepare(rt, e) : 0;
}

int runtime_start_held(struct runtime *rt, const struct runtime_spec *spec,
                       struct runtime_place *place, struct err *e)
{
    if (!rt->ops->start_held)
        return unsupported(rt, "start", e);
    return rt->ops->start_held(rt, spec, place, e);
}

int runtime_claim(struct runtime *rt, const char *id, const struct runtime_place *place,
                  const json_t *claim, int deadline_ms, struct err *e)
{
    if (!rt->ops->claim)
        return unsupported(rt, "claim", e);
    return rt->ops->claim(rt, id, place, claim, deadline_ms, e);
}

int runtime_tell_deadline(struct runtime *rt, const struct runtime_place *place, const char *token,
                          int64_t deadline_ms, int64_t now_ms, int timeout_ms, struct err *e)
{
    if (!rt->ops->tell_deadline)
        return unsupported(rt, "tell deadline", e);
    return rt->ops->tell_deadline(rt, place, token, deadline_ms, now_ms, timeout_ms, e);
}

int runtime_pull(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                 char progress[RUNTIME_TEXT], struct err *e)
{
    if (!rt->ops->pull)
        return err_set(e, ERRC_UNSUPPORTED, "the %s runtime cannot pull images", rt->ops->name);
    return rt->ops->pull(rt, image, wait_ms, progress, e);
}

int runtime_stop(struct runtime *rt, const char *id, int grace_ms, struct err *e)
{
    if (!rt->ops->stop)
        return unsupported(rt, "stop", e);
    return rt->ops->stop(rt, id, grace_ms, e);
}

int runtime_remove(struct runtime *rt, const char *id, struct err *e)
{
    if (!rt->ops->remove)
        return unsupported(rt, "remove", e);
    return rt->ops->remove(rt, id, e);
}

int runtime_pause(struct runtime *rt, const char *id, struct err *e)
{
    if (!rt->ops->pause)
        return unsupported(rt, "pause", e);
    return rt->ops->pause(rt, id, e);
}

int runtime_resume(struct runtime *rt, const char *id, struct err *e)
{
    if (!rt->ops->resume)
        return unsupported(rt, "resume", e);
    return rt->ops->resume(rt, id, e);
}

int runtime_status(struct runtime *rt, const char *id, struct runtime_status *out, struct err *e)
{
    if (!rt->ops->status)
        return unsupported(rt, "inspect", e);
    return rt->ops->status(rt, id, out, e);
}

int runtime_list(struct runtime *rt, struct runtime_list *out, struct err *e)
{
    if (!rt->ops->list)
        return unsupported(rt, "list", e);
    return rt->ops->list(rt, out, e);
}

int runtime_watch(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e)
{
    if (!rt->ops->watch)
        return err_set(e, ERRC_UNSUPPORTED, "the %s runtime has no events", rt->ops->name);
    return rt->ops->watch(rt, fn, arg, e);
}

void runtime_unwatch(struct runtime *rt)
{
    if (rt->ops->unwatch)
        rt->ops->unwatch(rt);
}

int runtime_logs(struct runtime *rt, const char *id, const struct runtime_log_query *q,
                 struct buf *out, bool *cut, struct err *e)
{
    if (!rt->ops->logs)
        return unsupported(rt, "read the output of", e);
    return rt->ops->logs(rt, id, q, out, cut, e);
}

int runtime_describe(struct runtime *rt, const char *id, struct buf *out, struct err *e)
{
    if (!rt->ops->describe)
        return unsupported(rt, "describe", e);
    return rt->ops->describe(rt, id, out, e);
}

static int no_volumes(const struct runtime *rt, struct err *e)
{
    return err_api(e, ERRC_INVALID, "VOLUME::UNSUPPORTED_BACKEND",
                   "the %s runtime has no named volumes", rt->ops->name);
}

int runtime_volume_get(struct runtime *rt, const char *name, struct runtime_volume *out,
                       struct err *e)
{
    return rt->ops->volume_get ? rt->ops->volume_get(rt, name, out, e) : no_volumes(rt, e);
}

int runtime_volume_make(struct runtime *rt, const char *name, const char *sandbox_id, struct err *e)
{
    return rt->ops->volume_make ? rt->ops->volume_make(rt, name, sandbox_id, e) : no_volumes(rt, e);
}

int runtime_volume_remove(struct runtime *rt, const char *name, const char *sandbox_id,
                          struct err *e)
{
    return rt->ops->volume_remove ? rt->ops->volume_remove(rt, name, sandbox_id, e)
                                  : no_volumes(rt, e);
}

static int no_snapshots(const struct runtime *rt, struct err *e)
{
    return err_api(e, ERRC_CONFLICT, "SNAPSHOT::UNSUPPORTED_RUNTIME",
                   "the %s runtime has no snapshots", rt->ops->name);
}

int runtime_snapshot_make(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                          int timeout_ms, int64_t *size_bytes, struct err *e)
{
    if (!rt->ops->snapshot_make)
        return no_snapshots(rt, e);
    return rt->ops->snapshot_make(rt, sandbox_id, snapshot_id, timeout_ms, size_bytes, e);
}

int runtime_snapshot_get(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    return rt->ops->snapshot_get ? rt->ops->snapshot_get(rt, snapshot_id, e) : no_snapshots(rt, e);
}

int runtime_snapshot_remove(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    return rt->ops->snapshot_remove ? rt->ops->snapshot_remove(rt, snapshot_id, e)
                                    : no_snapshots(rt, e);
}

void runtime_metrics(struct runtime *rt, struct buf *out)
{
    if (rt->ops->metrics)
        rt->ops->metrics(rt, out);
}

bool runtime_is_sandbox_address(struct runtime *rt, const char *addr)
{
    return rt->ops->is_sandbox_address && rt->ops->is_sandbox_address(rt, addr);
}

void runtime_close(struct runtime *rt)
{
    if (rt && rt->ops->close)
        rt->ops->close(rt);
}

void runtime_list_free(struct runtime_list *l)
{
    free(l->items);
    *l = (struct runtime_list){ 0 };
}
