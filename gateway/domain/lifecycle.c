#include "gateway/domain/lifecycle.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/places.h"
#include "gateway/domain/resources.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <string.h>

static const char code_not_found[] = "DOCKER::SANDBOX_NOT_FOUND";

/* ---- reading ---- */

static int not_found(struct lifecycle *lc, const char *id, struct err *e)
{
    struct sandbox_end end;
    char when[CLOCK_TEXT];

    if (sandbox_store_ended(lc->db, id, &end, NULL) < 0)
        return err_api(e, ERRC_NOT_FOUND, code_not_found, "Sandbox %s not found.", id);
    clock_format_ms(end.ended_ms, when);
    return err_api(e, ERRC_NOT_FOUND, code_not_found,
                   "Sandbox %s not found: it ended at %s (%s: %s).", id, when, end.reason,
                   end.message);
}

int lifecycle_get(struct lifecycle *lc, const char *id, struct sandbox *out, struct err *e)
{
    struct err why = { 0 };

    if (sandbox_store_get(lc->db, id, out, &why) == 0)
        return 0;
    if (why.code == ERRC_NOT_FOUND)
        return not_found(lc, id, e);
    *e = why;
    e->api_code = "DOCKER::SANDBOX_QUERY_FAILED";
    return -1;
}

int lifecycle_list(struct lifecycle *lc, const char *states, const char *metadata, int64_t offset,
                   int64_t limit, struct sandbox_page *out, struct err *e)
{
    return sandbox_store_list(lc->db, states, metadata, offset, limit, out, e);
}

/* ---- store and places in step ---- */

/* Out of memory leaves the place unknown: requests to it fail, nothing else. */
static void show(struct lifecycle *lc, const struct sandbox *sb)
{
    if (lc->places && places_put(lc->places, sb, NULL) < 0)
        log_warn("out of memory: sandbox is not reachable by proxy", LOG_S("id", sb->id));
}

static int transition(struct lifecycle *lc, const struct sandbox *sb, enum sandbox_state from,
                      struct err *e)
{
    if (sandbox_store_transition(lc->db, sb, from, e) < 0)
        return -1;
    show(lc, sb);
    return 0;
}

static int forget(struct lifecycle *lc, const char *id, const struct sandbox_end *end,
                  struct err *e)
{
    if (lc->places)
        places_drop(lc->places, id);
    return sandbox_store_remove(lc->db, id, end, e);
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
            show(lc, &sb);
            sandbox_done(&sb);
        }
    free(ids.ids);
    return 0;
}

/* ---- the end ---- */

/* Steps 2 and 3 of a removal whose intent is in the store. Caller holds the id's lock. */
static int finish_removal(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    struct sandbox_end end = { .ended_ms = lc->clock->wall_ms() };

    if (runtime_remove(lc->rt, sb->id, e) < 0) {
        if (!e->api_code)
            e->api_code = "DOCKER::SANDBOX_DELETE_FAILED";
        return err_wrap(e, "Sandbox %s could not be removed yet; it will be retried", sb->id);
    }
    (void)fault_point("delete.removed");
    (void)snprintf(end.reason, sizeof(end.reason), "%s", sb->reason);
    (void)snprintf(end.message, sizeof(end.message), "%s", sb->message);
    if (forget(lc, sb->id, &end, e) < 0)
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
        if (transition(lc, sb, from, e) < 0)
            return -1;
    }
    (void)fault_point("delete.intent");
    return finish_removal(lc, sb, e);
}

int lifecycle_delete(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held)
        return err_nomem(e);
    if (lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    return end_sandbox(lc, &sb, "DELETED", "Deleted by request.", e);
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
    return end_sandbox(lc, &sb, "EXPIRED", "The sandbox reached its expiry time.", e);
}

/* ---- create ---- */

static json_t *env_of(const struct create_req *rq)
{
    json_t *env = json_object();
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)rq->env, key, v) {
        if (json_is_string(v)) /* null means: leave it out */
            (void)json_object_set(env, key, v);
    }
    return env;
}

static json_t *claim_of(const struct lifecycle *lc, const struct create_req *rq, const char *secret,
                        const char *token)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:O, s:o}", "secret", secret, "token", token,
                     "lineEndings", lc->line_endings, "closedPorts", rq->secure_access,
                     "entrypoint", rq->entrypoint, "env", env_of(rq));
}

static int fill_record(struct lifecycle *lc, const struct create_req *rq, struct sandbox *sb,
                       struct err *e)
{
    int64_t now = lc->clock->wall_ms();

    rand_uuid4(sb->id);
    rand_hex(sb->token, RAND_SECRET_BYTES);
    sandbox_set_state(sb, SANDBOX_PENDING, "CONTAINER_STARTING", "Sandbox container is starting.",
                      now);
    sb->created_ms = now;
    sb->expires_ms = rq->timeout_s ? now + rq->timeout_s * 1000 : 0;
    sb->renew_s = rq->renew_s;
    memcpy(sb->login_ports, rq->login_ports, sizeof(sb->login_ports));
    if (rq->secure_access)
        rand_hex(sb->secure_token, RAND_SECRET_BYTES);
    sb->image = strdup(rq->image);
    sb->entrypoint = json_dumps(rq->entrypoint, JSON_COMPACT);
    sb->metadata = rq->metadata ? json_dumps(rq->metadata, JSON_COMPACT) : strdup("{}");
    sb->extensions = rq->extensions ? json_dumps(rq->extensions, JSON_COMPACT) : strdup("{}");
    (void)snprintf(sb->platform_os, sizeof(sb->platform_os), "%s",
                   rq->platform_os ? rq->platform_os : "");
    (void)snprintf(sb->platform_arch, sizeof(sb->platform_arch), "%s",
                   rq->platform_arch ? rq->platform_arch : "");
    if (!sb->image || !sb->entrypoint || !sb->metadata || !sb->extensions)
        return err_nomem(e);
    return 0;
}

/* The outside steps: a held container, claimed. The record is Pending meanwhile. */
static int bring_up(struct lifecycle *lc, const struct create_req *rq, const struct resources *res,
                    struct sandbox *sb, struct err *e)
{
    char secret[RAND_SECRET_TEXT];
    char hash[RAND_SECRET_TEXT];
    struct runtime_spec spec = {
        .id = sb->id,
        .image = rq->image,
        .registry_user = rq->registry_user,
        .registry_password = rq->registry_password,
        .platform_os = rq->platform_os,
        .platform_arch = rq->platform_arch,
        .memory_bytes = res->memory_bytes,
        .nano_cpus = res->nano_cpus,
        .claim_sha256 = hash,
    };
    json_t *claim;
    int rc;

    rand_hex(secret, RAND_SECRET_BYTES);
    sha256_hex(secret, strlen(secret), hash);
    if (runtime_start_held(lc->rt, &spec, &sb->place, e) < 0)
        return -1;
    (void)fault_point("create.held");
    claim = claim_of(lc, rq, secret, sb->token);
    if (!claim)
        return err_nomem(e);
    rc = runtime_claim(lc->rt, sb->id, &sb->place, claim, lc->ready_timeout_ms, e);
    json_decref(claim);
    (void)fault_point("create.claimed");
    return rc;
}

static int confirm(struct lifecycle *lc, struct sandbox *sb, struct err *e)
{
    sandbox_set_state(sb, SANDBOX_RUNNING, "CONTAINER_RUNNING",
                      "Sandbox container started successfully.", lc->clock->wall_ms());
    if (sandbox_store_started(lc->db, sb, e) < 0)
        return -1;
    show(lc, sb);
    (void)fault_point("create.confirmed");
    return 0;
}

/* A create that failed leaves nothing. When the engine does not let us, the intent to remove
 * stays and the sweep carries it out. */
static void undo(struct lifecycle *lc, struct sandbox *sb, const struct err *why)
{
    struct err e = { 0 };

    log_warn("create failed", LOG_S("id", sb->id), LOG_S("error", why->msg));
    if (runtime_remove(lc->rt, sb->id, &e) == 0 && forget(lc, sb->id, NULL, &e) == 0)
        return;
    log_warn("create could not be undone yet", LOG_S("id", sb->id), LOG_S("error", e.msg));
    sandbox_set_state(sb, SANDBOX_STOPPING, "CREATE_FAILED", why->msg, lc->clock->wall_ms());
    (void)transition(lc, sb, SANDBOX_PENDING, NULL);
}

static int check_request(struct lifecycle *lc, const struct create_req *rq, struct resources *res,
                         struct err *e)
{
    if (metadata_check(rq->metadata, e) < 0)
        return -1;
    if (lc->max_timeout_s && rq->timeout_s > lc->max_timeout_s)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "timeout: %lld s is more than this server allows (%lld s)",
                       (long long)rq->timeout_s, (long long)lc->max_timeout_s);
    return resources_parse(rq->resources, res, e);
}

int lifecycle_create(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                     struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct resources res;

    if (check_request(lc, rq, &res, e) < 0 || fill_record(lc, rq, &sb, e) < 0)
        return -1;

    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, sb.id);
    if (!held)
        return err_nomem(e);
    if (sandbox_store_insert(lc->db, &sb, e) < 0)
        return -1;
    show(lc, &sb); /* requests by proxy wait for it */
    (void)fault_point("create.intent");
    if (bring_up(lc, rq, &res, &sb, e) < 0 || confirm(lc, &sb, e) < 0) {
        undo(lc, &sb, e);
        return -1;
    }
    if (sb.expires_ms && lc->expiry)
        expiry_kick(lc->expiry);
    log_info("sandbox created", LOG_S("id", sb.id), LOG_S("image", sb.image));
    *out = sb;
    sb = (struct sandbox){ 0 };
    return 0;
}

/* ---- changes ---- */

/* Pause and resume: the same steps with other words. */
struct freeze {
    enum sandbox_state from;
    enum sandbox_state to;
    int (*act)(struct runtime *rt, const char *id, struct err *e);
    const char *wrong_state;
    const char *failed;
    const char *reason;
    const char *message;
};

static const struct freeze freeze_pause = { SANDBOX_RUNNING,
                                            SANDBOX_PAUSED,
                                            runtime_pause,
                                            "DOCKER::SANDBOX_NOT_RUNNING",
                                            "DOCKER::SANDBOX_PAUSE_FAILED",
                                            "CONTAINER_PAUSED",
                                            "Sandbox container is paused." };
static const struct freeze freeze_resume = { SANDBOX_PAUSED,
                                             SANDBOX_RUNNING,
                                             runtime_resume,
                                             "DOCKER::SANDBOX_NOT_PAUSED",
                                             "DOCKER::SANDBOX_RESUME_FAILED",
                                             "CONTAINER_RUNNING",
                                             "Sandbox container is running." };

static int change_freeze(struct lifecycle *lc, const char *id, const struct freeze *f,
                         struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (!held)
        return err_nomem(e);
    if (lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    if (sb.state != f->from)
        return err_api(e, ERRC_CONFLICT, f->wrong_state, "Sandbox %s is %s, not %s.", id,
                       sandbox_state_to_string(sb.state), sandbox_state_to_string(f->from));
    if (f->act(lc->rt, id, e) < 0) {
        if (!e->api_code)
            e->api_code = e->code == ERRC_NOT_FOUND ? code_not_found : f->failed;
        return -1;
    }
    sandbox_set_state(&sb, f->to, f->reason, f->message, lc->clock->wall_ms());
    return transition(lc, &sb, f->from, e);
}

int lifecycle_pause(struct lifecycle *lc, const char *id, struct err *e)
{
    return change_freeze(lc, id, &freeze_pause, e);
}

int lifecycle_resume(struct lifecycle *lc, const char *id, struct err *e)
{
    return change_freeze(lc, id, &freeze_resume, e);
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
        return not_found(lc, id, e);
    if (!sb.expires_ms)
        return err_api(e, ERRC_CONFLICT, code,
                       "Sandbox %s was created without a timeout and cannot be renewed.", id);
    if (expires_ms <= lc->clock->wall_ms())
        return err_api(e, ERRC_INVALID, code, "expiresAt: must be in the future");
    if (sandbox_store_set_expiry(lc->db, id, expires_ms, e) < 0)
        return -1;
    if (lc->expiry)
        expiry_kick(lc->expiry);
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

/* ---- reconciliation of one record ---- */

static int gone(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    struct sandbox_end end = { .ended_ms = lc->clock->wall_ms() };

    (void)snprintf(end.reason, sizeof(end.reason), "CONTAINER_REMOVED");
    (void)snprintf(end.message, sizeof(end.message),
                   "The container was removed from outside of this server.");
    log_warn("sandbox lost its container", LOG_S("id", sb->id));
    return forget(lc, sb->id, &end, e);
}

static int ended(struct lifecycle *lc, struct sandbox *sb, const struct runtime_status *st,
                 struct err *e)
{
    enum sandbox_state from = sb->state;
    char message[SANDBOX_MESSAGE];

    if (from == SANDBOX_TERMINATED || from == SANDBOX_FAILED)
        return 0;
    (void)snprintf(message, sizeof(message), "Sandbox container exited with code %d.%s",
                   st->exit_code, st->oom_killed ? " It ran out of memory." : "");
    if (st->exit_code == 0)
        sandbox_set_state(sb, SANDBOX_TERMINATED, "CONTAINER_EXITED",
                          "Sandbox container exited successfully.", st->ended_ms);
    else
        sandbox_set_state(sb, SANDBOX_FAILED,
                          st->oom_killed ? "OOM_KILLED" : "CONTAINER_EXITED_ERROR", message,
                          st->ended_ms);
    log_info("sandbox exited", LOG_S("id", sb->id), LOG_N("status", st->exit_code));
    return transition(lc, sb, from, e);
}

static int follow(struct lifecycle *lc, struct sandbox *sb, const struct freeze *f, struct err *e)
{
    sandbox_set_state(sb, f->to, f->reason, f->message, lc->clock->wall_ms());
    return transition(lc, sb, f->from, e);
}

int lifecycle_settle(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct runtime_status st;

    if (!held)
        return err_nomem(e);
    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (sb.state == SANDBOX_STOPPING)
        return finish_removal(lc, &sb, e);
    if (sb.state == SANDBOX_PENDING) { /* its create died with an earlier process */
        if (sb.created_ms >= lc->started_ms)
            return 0;
        log_warn("undoing a create that was cut off", LOG_S("id", id));
        if (runtime_remove(lc->rt, id, e) < 0)
            return -1;
        return forget(lc, id, NULL, e);
    }
    if (runtime_status(lc->rt, id, &st, e) < 0)
        return e->code == ERRC_NOT_FOUND ? gone(lc, &sb, e) : -1;
    if (st.state == RUNTIME_ENDED)
        return ended(lc, &sb, &st, e);
    if (st.state == RUNTIME_PAUSED && sb.state == SANDBOX_RUNNING)
        return follow(lc, &sb, &freeze_pause, e);
    if (st.state == RUNTIME_RUNNING && sb.state == SANDBOX_PAUSED)
        return follow(lc, &sb, &freeze_resume, e);
    return 0;
}
