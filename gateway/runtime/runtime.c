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
