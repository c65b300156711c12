#include "gateway/domain/lifecycle.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/captures.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/places.h"
#include "gateway/domain/teller.h"
#include "gateway/store/sandbox_store.h"

/* ---- reading ---- */

int lifecycle_not_found(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    char when[CLOCK_TEXT];

    if (sandbox_store_find(lc->db, id, &sb, NULL) < 0 || !sb.ended_ms)
        return err_api(e, ERRC_NOT_FOUND, LIFECYCLE_NOT_FOUND, "Sandbox %s not found.", id);
    clock_format_ms(sb.ended_ms, when);
    return err_api(e, ERRC_NOT_FOUND, LIFECYCLE_NOT_FOUND,
                   "Sandbox %s not found: it ended at %s (%s: %s).", id, when, sb.reason,
                   sb.message);
}

int lifecycle_get(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e)
{
    struct err why = { 0 };

    if (sandbox_store_get(lc->db, id, out, &why) == 0)
        return 0;
    if (why.code == ERRC_NOT_FOUND)
        return lifecycle_not_found(lc, id, e);
    *e = why;
    e->api_code = "DOCKER::SANDBOX_QUERY_FAILED";
    return -1;
}

int lifecycle_find(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e)
{
    if (sandbox_store_find(lc->db, id, out, e) == 0)
        return 0;
    e->api_code = e->code == ERRC_NOT_FOUND ? LIFECYCLE_NOT_FOUND : "DOCKER::SANDBOX_QUERY_FAILED";
    return -1;
}

int lifecycle_list(struct lifecycle *lc, const struct sandbox_query *q, struct sandbox_page *out,
                   struct err *e)
{
    return sandbox_store_list(lc->db, q, out, e);
}

/* ---- locks ---- */

struct keyed_lock *lifecycle_try(struct lifecycle *lc, const char *id)
{
    struct keyed_lock *held = keyed_lock_try(lc->locks, id);

    if (!held || !captures_has(lc->captures, id))
        return held;
    keyed_lock_release(held);
    return NULL;
}

struct keyed_lock *lifecycle_take(struct lifecycle *lc, const char *id, int wait_ms, struct err *e)
{
    int64_t until = clock_mono_ms() + wait_ms;
    struct keyed_lock *held;
    int64_t left;

    do {
        held = keyed_lock_take(lc->locks, id);
        if (!held) {
            (void)err_nomem(e);
            return NULL;
        }
        if (!captures_has(lc->captures, id))
            return held;
        keyed_lock_release(held);
        left = until - clock_mono_ms();
    } while (left > 0 && captures_wait(lc->captures, id, (int)left));
    (void)err_set(e, ERRC_BUSY, "a snapshot of sandbox %s is being taken; try again shortly", id);
    if (e)
        e->retry_after_s = 1;
    return NULL;
}

/* ---- store and places in step ---- */

void lifecycle_show(struct lifecycle *lc, const struct sandbox *sb)
{
    if (lc->places && places_put(lc->places, sb, NULL) < 0)
        log_warn("out of memory: sandbox is not reachable by proxy", LOG_S("id", sb->id));
    if (lc->expiry && sb->expires_ms)
        expiry_hint(lc->expiry, sb->id, sb->expires_ms);
}

int lifecycle_transition(struct lifecycle *lc, const struct sandbox *sb, enum sandbox_state from,
                         struct err *e)
{
    if (sandbox_store_transition(lc->db, sb, from, e) < 0)
        return -1;
    lifecycle_show(lc, sb);
    if (from == SANDBOX_PAUSED && sb->state == SANDBOX_RUNNING)
        teller_want(lc->teller, sb->id); /* it may have been renewed meanwhile */
    return 0;
}

int lifecycle_bury(struct lifecycle *lc, const char *id, const struct sandbox_end *end,
                   struct err *e)
{
    if (lc->places)
        places_drop(lc->places, id);
    if (sandbox_store_end(lc->db, id, end, e) < 0)
        return -1;
    if (lc->expiry)
        expiry_drop(lc->expiry, id);
    return 0;
}

int lifecycle_load_places(struct lifecycle *lc, struct err *e)
{
    struct sandbox_ids ids = { 0 };
    struct sandbox sb;
    size_t i;

    if (sandbox_store_ids(lc->db, -1, &ids, e) < 0)
        return -1;
    for (i = 0; i < ids.len; i++)
        if (sandbox_store_get(lc->db, ids.ids[i], &sb, NULL) == 0) {
            lifecycle_show(lc, &sb);
            teller_want(lc->teller,
                        ids.ids[i]); /* an earlier process may have died before it did */
            sandbox_done(&sb);
        }
    free(ids.ids);
    return 0;
}
