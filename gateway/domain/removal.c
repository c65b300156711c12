/* How a sandbox goes: deleted, expired, finished after a restart. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metrics.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>

int lifecycle_finish_removal(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    struct sandbox_end end = {
        .state = SANDBOX_TERMINATED,
        .ended_ms = lc->clock->wall_ms(),
        .exit_code = sb->exit_code,
    };

    if (runtime_remove(lc->rt, sb->id, e) < 0) {
        if (!e->api_code)
            e->api_code = "DOCKER::SANDBOX_DELETE_FAILED";
        return err_wrap(e, "Sandbox %s could not be removed yet; it will be retried", sb->id);
    }
    (void)fault_point("delete.removed");
    (void)snprintf(end.reason, sizeof(end.reason), "%s", sb->reason);
    (void)snprintf(end.message, sizeof(end.message), "%s", sb->message);
    if (lifecycle_bury(lc, sb->id, &end, e) < 0)
        return -1;
    (void)fault_point("delete.confirmed");
    log_info("sandbox ended", LOG_S("id", sb->id), LOG_S("reason", sb->reason));
    return 0;
}

/* Writes the intent to remove, then removes. Caller holds the id's lock. */
static int end_sandbox(struct lifecycle *lc, struct sandbox *sb, const char *reason,
                       const char *message, struct err *e)
{
    enum sandbox_state from = sb->state;

    if (from != SANDBOX_STOPPING) {
        sandbox_set_state(sb, SANDBOX_STOPPING, reason, message, lc->clock->wall_ms());
        if (lifecycle_transition(lc, sb, from, e) < 0)
            return -1;
    }
    (void)fault_point("delete.intent");
    return lifecycle_finish_removal(lc, sb, e);
}

static int delete_now(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held)
        return err_nomem(e);
    if (lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    return end_sandbox(lc, &sb, "DELETED", "Deleted by request.", e);
}

int lifecycle_delete(struct lifecycle *lc, const char *id, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_DELETE, delete_now(lc, id, e), e);
}

int lifecycle_expire(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held)
        return err_nomem(e);
    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (!sb.expires_ms || sb.expires_ms > lc->clock->wall_ms())
        return 0; /* renewed meanwhile */
    if (metrics_done(lc->metrics, METRICS_EXPIRE,
                     end_sandbox(lc, &sb, "EXPIRED", "The sandbox reached its expiry time.", e),
                     e) < 0)
        return -1;
    metrics_expired(lc->metrics, lc->clock->wall_ms() - sb.expires_ms);
    return 0;
}
