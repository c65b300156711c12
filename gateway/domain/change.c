/* What changes a sandbox in its life: pause and resume, its expiry, its metadata. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metadata.h"
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
    return change_freeze(lc, id, &lifecycle_pausing, e);
}

int lifecycle_resume(struct lifecycle *lc, const char *id, struct err *e)
{
    return change_freeze(lc, id, &lifecycle_resuming, e);
}

int lifecycle_renew(struct lifecycle *lc, const char *id, int64_t expires_ms, struct err *e)
{
    static const char code[] = "DOCKER::INVALID_EXPIRATION";
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held)
        return err_nomem(e);
    if (lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    if (sb.state == SANDBOX_STOPPING)
        return lifecycle_not_found(lc, id, e);
    if (!sb.expires_ms)
        return err_api(e, ERRC_CONFLICT, code,
                       "Sandbox %s was created without a timeout and cannot be renewed.", id);
    if (expires_ms <= lc->clock->wall_ms())
        return err_api(e, ERRC_INVALID, code, "expiresAt: must be in the future");
    if (sandbox_store_set_expiry(lc->db, id, expires_ms, e) < 0)
        return -1;
    if (lc->expiry)
        expiry_set(lc->expiry, id, expires_ms);
    return 0;
}

int lifecycle_renew_by_access(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t at;

    if (!held)
        return err_nomem(e);
    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    at = lc->clock->wall_ms() + sb.renew_s * 1000;
    if (sb.state != SANDBOX_RUNNING || !sb.renew_s || !sb.expires_ms || sb.expires_ms >= at)
        return 0;
    return sandbox_store_set_expiry(lc->db, id, at, e); /* later: no timer has to hear of it */
}

static int merge_metadata(const char *old, const json_t *patch, char **out, struct err *e)
{
    json_t *merged = json_loads(old, 0, NULL);
    const char *key;
    json_t *v;
    int rc = 0;

    json_object_foreach((json_t *)patch, key, v) {
        rc = json_is_null(v) ? (json_object_del(merged, key), 0) : json_object_set(merged, key, v);
        if (rc < 0)
            break;
    }
    *out = rc == 0 ? json_dumps(merged, JSON_COMPACT) : NULL;
    json_decref(merged);
    return *out ? 0 : err_nomem(e);
}

int lifecycle_patch_metadata(struct lifecycle *lc, const char *id, const json_t *patch,
                             struct sandbox *out, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    AUTO_FREE char *merged = NULL;

    if (metadata_check(patch, e) < 0)
        return -1;

    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    if (!held)
        return err_nomem(e);
    if (lifecycle_get(lc, id, &sb, e) < 0 || merge_metadata(sb.metadata, patch, &merged, e) < 0 ||
        sandbox_store_set_metadata(lc->db, id, merged, e) < 0)
        return -1;
    free(sb.metadata);
    sb.metadata = TAKE_PTR(merged);
    *out = sb;
    sb = (struct sandbox){ 0 };
    return 0;
}
