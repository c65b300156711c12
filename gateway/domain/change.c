/* What changes a sandbox in its life: pause and resume, its expiry, its metadata. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/teller.h"
#include "gateway/store/sandbox_store.h"

#include <stdlib.h>

const struct freeze lifecycle_pausing = { SANDBOX_RUNNING,
                                          SANDBOX_PAUSED,
                                          runtime_pause,
                                          "DOCKER::SANDBOX_NOT_RUNNING",
                                          "DOCKER::SANDBOX_PAUSE_FAILED",
                                          "CONTAINER_PAUSED",
                                          "Sandbox container is paused." };
const struct freeze lifecycle_resuming = { SANDBOX_PAUSED,
                                           SANDBOX_RUNNING,
                                           runtime_resume,
                                           "DOCKER::SANDBOX_NOT_PAUSED",
                                           "DOCKER::SANDBOX_RESUME_FAILED",
                                           "CONTAINER_RUNNING",
                                           "Sandbox container is running." };

static int change_freeze(struct lifecycle *lc, const char *id, const struct freeze *f,
                         struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_take(lc, id, lc->capture_wait_ms, e);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held || lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    if (sb.state != f->from)
        return err_api(e, ERRC_CONFLICT, f->wrong_state, "Sandbox %s is %s, not %s.", id,
                       sandbox_state_to_string(sb.state), sandbox_state_to_string(f->from));
    if (f->act(lc->rt, id, e) < 0) {
        if (!e->api_code)
            e->api_code = e->code == ERRC_NOT_FOUND ? LIFECYCLE_NOT_FOUND : f->failed;
        return -1;
    }
    sandbox_set_state(&sb, f->to, f->reason, f->message, lc->clock->wall_ms());
    return lifecycle_transition(lc, &sb, f->from, e);
}

int lifecycle_pause(struct lifecycle *lc, const char *id, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_PAUSE, change_freeze(lc, id, &lifecycle_pausing, e),
                        e);
}

int lifecycle_resume(struct lifecycle *lc, const char *id, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_RESUME, change_freeze(lc, id, &lifecycle_resuming, e),
                        e);
}

/* Takes no lock: the id's may be held for as long as the engine takes, and the store decides. */
static int renew_now(struct lifecycle *lc, const char *id, int64_t expires_ms, struct err *e)
{
    static const char code[] = "DOCKER::INVALID_EXPIRATION";
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err why = { 0 };

    if (lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    if (!sb.expires_ms)
        return err_api(e, ERRC_CONFLICT, code,
                       "Sandbox %s was created without a timeout and cannot be renewed.", id);
    if (expires_ms <= lc->clock->wall_ms())
        return err_api(e, ERRC_INVALID, code, "expiresAt: must be in the future");
    if (sandbox_store_renew(lc->db, id, expires_ms, &why) < 0) {
        if (why.code == ERRC_NOT_FOUND) /* its end was quicker */
            return lifecycle_not_found(lc, id, e);
        *e = why;
        return -1;
    }
    if (lc->expiry)
        expiry_hint(lc->expiry, id, expires_ms);
    teller_want(lc->teller, id);
    return 0;
}

int lifecycle_renew(struct lifecycle *lc, const char *id, int64_t expires_ms, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_RENEW, renew_now(lc, id, expires_ms, e), e);
}

int lifecycle_renew_by_access(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t at;

    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    at = lc->clock->wall_ms() + sb.renew_s * 1000;
    if (sb.state != SANDBOX_RUNNING || !sb.renew_s || !sb.expires_ms || sb.expires_ms >= at)
        return 0;
    /* later: no timer has to hear of it; by somebody else meanwhile: good as well */
    if (sandbox_store_renew_from(lc->db, id, sb.expires_ms, at, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    teller_want(lc->teller, id);
    return 0;
}

static int patch_now(struct lifecycle *lc, const char *id, const json_t *patch, struct sandbox *out,
                     struct err *e)
{
    AUTO_FREE char *text = NULL;
    struct err why = { 0 };

    if (metadata_check_patch(patch, e) < 0)
        return -1;
    text = json_dumps(patch, JSON_COMPACT);
    if (!text)
        return err_nomem(e);
    if (sandbox_store_patch_metadata(lc->db, id, text, METADATA_MAX, out, &why) == 0)
        return 0;
    if (why.code == ERRC_NOT_FOUND)
        return lifecycle_not_found(lc, id, e);
    if (e)
        *e = why;
    return -1;
}

int lifecycle_patch_metadata(struct lifecycle *lc, const char *id, const json_t *patch,
                             struct sandbox *out, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_PATCH, patch_now(lc, id, patch, out, e), e);
}
