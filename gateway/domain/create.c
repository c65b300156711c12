/* How a sandbox comes into being. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "gateway/domain/expiry.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metadata.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/places.h"
#include "gateway/domain/resources.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <string.h>

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
    sb->exit_code = SANDBOX_NO_EXIT_CODE;
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

/* An image that is not there is pulled, then the start is repeated. */
static int start_held(struct lifecycle *lc, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e)
{
    int64_t began = metrics_now_us();
    char progress[RUNTIME_TEXT];
    struct err why = { 0 };
    int rc;

    if (runtime_start_held(lc->rt, spec, place, &why) == 0)
        return 0;
    if (why.code != ERRC_NOT_FOUND) {
        *e = why;
        return -1;
    }
    do
        rc = runtime_pull(lc->rt, &spec->image, 1000, progress, e);
    while (rc > 0);
    metrics_phase(lc->metrics, METRICS_PULL, began);
    (void)fault_point("create.pulled");
    return rc < 0 ? -1 : runtime_start_held(lc->rt, spec, place, e);
}

/* The outside steps: a held container, claimed. The record is Pending meanwhile. */
static int bring_up(struct lifecycle *lc, const struct create_req *rq, const struct resources *res,
                    struct sandbox *sb, struct err *e)
{
    char secret[RAND_SECRET_TEXT];
    char hash[RAND_SECRET_TEXT];
    struct runtime_spec spec = {
        .id = sb->id,
        .image = { .ref = rq->image,
                   .registry_user = rq->registry_user,
                   .registry_password = rq->registry_password,
                   .platform_os = rq->platform_os,
                   .platform_arch = rq->platform_arch },
        .memory_bytes = res->memory_bytes,
        .nano_cpus = res->nano_cpus,
        .claim_sha256 = hash,
    };
    int64_t began = metrics_now_us();
    json_t *claim;
    int rc;

    rand_hex(secret, RAND_SECRET_BYTES);
    sha256_hex(secret, strlen(secret), hash);
    if (start_held(lc, &spec, &sb->place, e) < 0)
        return -1;
    metrics_phase(lc->metrics, METRICS_START, began);
    (void)fault_point("create.held");
    began = metrics_now_us();
    claim = claim_of(lc, rq, secret, sb->token);
    if (!claim)
        return err_nomem(e);
    rc = runtime_claim(lc->rt, sb->id, &sb->place, claim, lc->ready_timeout_ms, e);
    json_decref(claim);
    if (rc == 0)
        metrics_phase(lc->metrics, METRICS_CLAIM, began);
    (void)fault_point("create.claimed");
    return rc;
}

static int confirm(struct lifecycle *lc, struct sandbox *sb, struct err *e)
{
    sandbox_set_state(sb, SANDBOX_RUNNING, "CONTAINER_RUNNING",
                      "Sandbox container started successfully.", lc->clock->wall_ms());
    if (sandbox_store_started(lc->db, sb, e) < 0)
        return -1;
    lifecycle_show(lc, sb);
    (void)fault_point("create.confirmed");
    return 0;
}

static int drop(struct lifecycle *lc, const char *id, struct err *e)
{
    if (lc->places)
        places_drop(lc->places, id);
    return sandbox_store_remove(lc->db, id, e);
}

/* A create that failed leaves nothing. When the engine does not let us, the intent to remove
 * stays and the sweep carries it out. */
static void undo(struct lifecycle *lc, struct sandbox *sb, const struct err *why)
{
    struct err e = { 0 };

    log_warn("create failed", LOG_S("id", sb->id), LOG_S("error", why->msg));
    if (runtime_remove(lc->rt, sb->id, &e) == 0 && drop(lc, sb->id, &e) == 0)
        return;
    log_warn("create could not be undone yet", LOG_S("id", sb->id), LOG_S("error", e.msg));
    sandbox_set_state(sb, SANDBOX_STOPPING, "CREATE_FAILED", why->msg, lc->clock->wall_ms());
    (void)lifecycle_transition(lc, sb, SANDBOX_PENDING, NULL);
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

static int create_now(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                      struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    int64_t began = metrics_now_us();
    struct resources res;

    if (check_request(lc, rq, &res, e) < 0 || fill_record(lc, rq, &sb, e) < 0)
        return -1;

    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(lc->locks, sb.id);
    if (!held)
        return err_nomem(e);
    if (sandbox_store_insert(lc->db, &sb, e) < 0)
        return -1;
    metrics_phase(lc->metrics, METRICS_STORE, began);
    lifecycle_show(lc, &sb); /* requests by proxy wait for it */
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

int lifecycle_create(struct lifecycle *lc, const struct create_req *rq, struct sandbox *out,
                     struct err *e)
{
    int64_t began = metrics_now_us();
    int rc = create_now(lc, rq, out, e);

    if (rc == 0)
        metrics_phase(lc->metrics, METRICS_TOTAL, began);
    return metrics_done(lc->metrics, METRICS_CREATE, rc, e);
}
