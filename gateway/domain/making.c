#include "gateway/domain/making.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "gateway/domain/claim.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/resources.h"
#include "gateway/domain/teller.h"
#include "gateway/domain/volumes.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <string.h>

enum {
    PULL_SLICE_MS = 1000,
    PROGRESS_MS = 1000,
    LAST_LINES = 100, /* of its output that are kept, within SANDBOX_LOGS_MAX */
};

/* ---- what is made ---- */

static int copy_text(const char *s, char **out, struct err *e)
{
    *out = s ? strdup(s) : NULL;
    return s && !*out ? err_nomem(e) : 0;
}

static int fill_texts(const struct create_req *rq, struct sandbox *sb, struct err *e)
{
    sb->image = strdup(rq->image ? rq->image : "");
    sb->entrypoint = json_dumps(rq->entrypoint, JSON_COMPACT);
    sb->metadata = rq->metadata ? json_dumps(rq->metadata, JSON_COMPACT) : strdup("{}");
    sb->extensions = rq->extensions ? json_dumps(rq->extensions, JSON_COMPACT) : strdup("{}");
    (void)snprintf(sb->snapshot_id, sizeof(sb->snapshot_id), "%s",
                   rq->snapshot_id ? rq->snapshot_id : "");
    (void)snprintf(sb->platform_os, sizeof(sb->platform_os), "%s",
                   rq->platform_os ? rq->platform_os : "");
    (void)snprintf(sb->platform_arch, sizeof(sb->platform_arch), "%s",
                   rq->platform_arch ? rq->platform_arch : "");
    memcpy(sb->login_ports, rq->login_ports, sizeof(sb->login_ports));
    if (!sb->image || !sb->entrypoint || !sb->metadata || !sb->extensions)
        return err_nomem(e);
    return 0;
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
    if (rq->secure_access)
        rand_hex(sb->secure_token, RAND_SECRET_BYTES);
    return fill_texts(rq, sb, e);
}

static void fill_spec(struct making *m, const struct resources *res)
{
    const struct sandbox *sb = &m->sb;

    m->spec = (struct runtime_spec){
        .id = sb->id,
        .image = { .ref = *sb->image ? sb->image : NULL,
                   .snapshot_id = *sb->snapshot_id ? sb->snapshot_id : NULL,
                   .registry_user = m->registry_user,
                   .registry_password = m->registry_password,
                   .platform_os = *sb->platform_os ? sb->platform_os : NULL,
                   .platform_arch = *sb->platform_arch ? sb->platform_arch : NULL },
        .memory_bytes = res->memory_bytes,
        .nano_cpus = res->nano_cpus,
        .disk_bytes = res->disk_bytes,
        .gpus = res->gpus,
        .claim_sha256 = m->claim_sha256,
        .isolation = m->isolation,
    };
}

static int fill(struct making *m, const struct create_req *rq, const struct resources *res,
                struct err *e)
{
    char secret[RAND_SECRET_TEXT];

    m->timeout_s = rq->timeout_s;
    m->isolation = rq->isolation;
    m->hooked = rq->pre_start_s > 0;
    m->claim_ms = m->lc->ready_timeout_ms;
    if (m->hooked)
        m->claim_ms += (int)rq->pre_start_s * 1000 + AGENT_PRE_START_MORE_MS;
    rand_hex(secret, RAND_SECRET_BYTES);
    sha256_hex(secret, strlen(secret), m->claim_sha256);
    if (fill_record(m->lc, rq, &m->sb, e) < 0 ||
        copy_text(rq->registry_user, &m->registry_user, e) < 0 ||
        copy_text(rq->registry_password, &m->registry_password, e) < 0 ||
        claim_make(m->lc, rq, res, secret, m->sb.token, &m->claim, e) < 0 ||
        volumes_plan(m->lc->volumes, &rq->volumes, m->sb.id, &m->plan, e) < 0)
        return -1;
    fill_spec(m, res);
    return 0;
}

struct making *making_new(struct lifecycle *lc, const struct create_req *rq,
                          const struct resources *res, struct err *e)
{
    struct making *m = calloc(1, sizeof(*m));

    if (!m) {
        (void)err_nomem(e);
        return NULL;
    }
    m->lc = lc;
    m->began_us = metrics_now_us();
    if (fill(m, rq, res, e) < 0) {
        making_free(m);
        return NULL;
    }
    return m;
}

void making_free(struct making *m)
{
    if (!m)
        return;
    if (m->registry_password)
        explicit_bzero(m->registry_password, strlen(m->registry_password));
    free(m->registry_password);
    free(m->registry_user);
    json_decref(m->claim);
    volume_plan_free(m->plan);
    sandbox_done(&m->sb);
    free(m);
}

/* ---- while others may touch the record ---- */

static int deleted(const struct making *m, struct err *e)
{
    return err_api(e, ERRC_CONFLICT, "DOCKER::SANDBOX_START_FAILED",
                   "Sandbox %s was deleted while it was being made.", m->sb.id);
}

/* 0: the record is Pending, *now is it (the caller owns it); -1 when it was deleted. */
static int still_wanted(const struct making *m, struct sandbox *now, struct err *e)
{
    if (sandbox_store_get(m->lc->db, m->sb.id, now, e) < 0)
        return e->code == ERRC_NOT_FOUND ? deleted(m, e) : -1;
    if (now->state == SANDBOX_PENDING)
        return 0;
    sandbox_done(now);
    return deleted(m, e);
}

static bool stopping(const struct making *m)
{
    return m->lc->creates && creates_stopping(m->lc->creates);
}

static int interrupted(struct err *e)
{
    (void)err_set(e, ERRC_BUSY, "the server was stopped while it made the sandbox; try again");
    e->retry_after_s = CREATES_RETRY_S;
    return -1;
}

/* ---- steps ---- */

/* The first time; what the agent has to find is known only then. */
static int bring_up_volumes(struct making *m, struct err *e)
{
    if (volumes_bring_up(m->plan, e) < 0)
        return -1;
    m->spec.n_mounts = volume_plan_mounts(m->plan, &m->spec.mounts);
    if (json_object_set_new(m->claim, "mounts", volume_plan_identities(m->plan)) < 0)
        return err_nomem(e);
    return 0;
}

int making_start(struct making *m, struct err *e)
{
    int64_t began = metrics_now_us();

    if (bring_up_volumes(m, e) < 0)
        return -1;
    m->held = true;
    m->no_image = false;
    if (runtime_start_held(m->lc->rt, &m->spec, &m->sb.place, e) == 0) {
        metrics_phase(m->lc->metrics, METRICS_START, began);
        (void)fault_point("create.held");
        return 0;
    }
    m->no_image = e->code == ERRC_NOT_FOUND;
    m->held = !m->no_image;
    return -1;
}

/* Not more often than once in PROGRESS_MS: every one is a commit. */
static void tell_progress(struct making *m, const char *progress)
{
    int64_t now = m->lc->clock->mono_ms();
    char text[SANDBOX_MESSAGE];

    if (m->told_mono_ms && now - m->told_mono_ms < PROGRESS_MS)
        return;
    (void)snprintf(text, sizeof(text), "Pulling image %.200s%s%.200s", m->sb.image,
                   *progress ? ": " : ".", progress);
    if (strcmp(text, m->sb.message) == 0)
        return;
    (void)snprintf(m->sb.reason, sizeof(m->sb.reason), "IMAGE_PULLING");
    (void)snprintf(m->sb.message, sizeof(m->sb.message), "%s", text);
    (void)sandbox_store_progress(m->lc->db, m->sb.id, m->sb.reason, text, NULL);
    m->told_mono_ms = now ? now : 1;
}

/* One slice. 1: not there yet; 0: it is. */
static int pull_slice(struct making *m, struct err *e)
{
    AUTO_SANDBOX struct sandbox now = { 0 };
    char progress[RUNTIME_TEXT] = "";
    int rc = runtime_pull(m->lc->rt, &m->spec.image, PULL_SLICE_MS, progress, e);

    if (rc <= 0)
        return rc;
    if (stopping(m))
        return interrupted(e);
    if (still_wanted(m, &now, e) < 0)
        return -1;
    tell_progress(m, progress);
    return 1;
}

static int start_again(struct making *m, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(m->lc->locks, m->sb.id);
    AUTO_SANDBOX struct sandbox now = { 0 };

    if (!held)
        return err_nomem(e);
    if (still_wanted(m, &now, e) < 0)
        return -1;
    if (making_start(m, e) == 0)
        return 0;
    if (!m->no_image)
        return -1;
    m->pulling = true;
    return err_api(e, ERRC_INTERNAL, "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
                   "image %.200s was removed from the engine as soon as it had been pulled",
                   m->sb.image);
}

int making_pull(struct making *m, struct err *e)
{
    int64_t began = metrics_now_us();
    int rc;

    tell_progress(m, "");
    m->pulling = true;
    do
        rc = pull_slice(m, e);
    while (rc > 0);
    if (rc < 0)
        return -1;
    m->pulling = false;
    metrics_phase(m->lc->metrics, METRICS_PULL, began);
    (void)fault_point("create.pulled");
    return start_again(m, e);
}

/* What took its time does not count: the sandbox lives as long as it was asked for. Only when
 * nobody renewed it meanwhile. Caller holds the id's lock. */
static int refresh(struct making *m, struct err *e)
{
    AUTO_SANDBOX struct sandbox now = { 0 };
    int64_t at = m->lc->clock->wall_ms() + m->timeout_s * 1000;

    if (m->sb.expires_ms &&
        sandbox_store_renew_from(m->lc->db, m->sb.id, m->sb.expires_ms, at, e) == 0)
        m->sb.expires_ms = at;
    if (still_wanted(m, &now, e) < 0)
        return -1;
    m->sb.expires_ms = now.expires_ms;
    return 0;
}

static int confirm(struct making *m, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(m->lc->locks, m->sb.id);
    struct lifecycle *lc = m->lc;

    if (!held)
        return err_nomem(e);
    if (m->apart && refresh(m, e) < 0)
        return -1;
    sandbox_set_state(&m->sb, SANDBOX_RUNNING, "CONTAINER_RUNNING",
                      "Sandbox container started successfully.", lc->clock->wall_ms());
    if (sandbox_store_started(lc->db, &m->sb, e) < 0)
        return e->code == ERRC_NOT_FOUND || e->code == ERRC_CONFLICT ? deleted(m, e) : -1;
    lifecycle_show(lc, &m->sb);
    if (m->apart)
        teller_want(lc->teller, m->sb.id); /* the claim had another one */
    (void)fault_point("create.confirmed");
    return 0;
}

/* The agent ends the sandbox when nobody else does: common/agent/wire.h. */
static int tell_deadline(struct making *m, struct err *e)
{
    if (!m->sb.expires_ms)
        return 0;
    if (json_object_set_new(m->claim, "deadline", json_integer(m->sb.expires_ms)) < 0 ||
        json_object_set_new(m->claim, "now", json_integer(m->lc->clock->wall_ms())) < 0)
        return err_nomem(e);
    return 0;
}

int making_finish(struct making *m, struct err *e)
{
    struct lifecycle *lc = m->lc;
    int64_t began = metrics_now_us();

    if (m->hooked && m->creation && !creates_may_take_long(lc->creates, m->creation))
        return interrupted(e);
    if (m->hooked) /* if it cannot be told, it runs all the same */
        (void)sandbox_store_progress(lc->db, m->sb.id, "PRE_START", "The preStart hook runs.",
                                     NULL);
    if (tell_deadline(m, e) < 0)
        return -1;
    m->claimed = true;
    if (runtime_claim(lc->rt, m->sb.id, &m->sb.place, m->claim, m->claim_ms, e) < 0)
        return stopping(m) && m->hooked ? interrupted(e) : -1;
    metrics_phase(lc->metrics, METRICS_CLAIM, began);
    (void)fault_point("create.claimed");
    if (confirm(m, e) < 0)
        return -1;
    metrics_phase(lc->metrics, METRICS_TOTAL, m->began_us);
    log_info("sandbox created", LOG_S("id", m->sb.id), LOG_S("image", m->sb.image));
    return 0;
}

/* ---- when it failed ---- */

static const char *reason_of(const struct making *m)
{
    if (stopping(m))
        return "CREATE_INTERRUPTED";
    return m->pulling ? "IMAGE_PULL_FAILED" : "CREATE_FAILED";
}

/* What hook and entrypoint had to say. */
static void keep_output(struct making *m, struct buf *out)
{
    const struct runtime_log_query q = { .tail = LAST_LINES };
    bool cut;

    if (m->claimed && runtime_logs(m->lc->rt, m->sb.id, &q, out, &cut, NULL) < 0)
        buf_clear(out); /* the error itself is on record */
}

static int end_it(struct making *m, const struct err *why, struct err *e)
{
    AUTO_BUF struct buf output = BUF_INIT(SANDBOX_LOGS_MAX);
    struct sandbox_end end = {
        .state = SANDBOX_FAILED,
        .ended_ms = m->lc->clock->wall_ms(),
        .exit_code = SANDBOX_NO_EXIT_CODE,
    };

    keep_output(m, &output);
    if (m->held && runtime_remove(m->lc->rt, m->sb.id, e) < 0)
        return -1;
    volumes_undo(m->lc->volumes, m->plan, m->sb.id);
    end.logs = output.len ? output.data : NULL;
    (void)snprintf(end.reason, sizeof(end.reason), "%s", reason_of(m));
    (void)snprintf(end.message, sizeof(end.message), "%s", why->msg);
    return lifecycle_bury(m->lc, m->sb.id, &end, e);
}

void making_undo(struct making *m, struct err *why)
{
    AUTO_KEYED struct keyed_lock *held = keyed_lock_take(m->lc->locks, m->sb.id);
    AUTO_SANDBOX struct sandbox now = { 0 };
    struct err e = { 0 };

    if (held && still_wanted(m, &now, &e) < 0 && e.code == ERRC_CONFLICT) {
        *why = e; /* who deleted it removes the container; here for what came after that */
        if (m->held && runtime_remove(m->lc->rt, m->sb.id, &e) < 0)
            log_warn("deleted sandbox not removed yet", LOG_S("id", m->sb.id),
                     LOG_S("error", e.msg));
        volumes_undo(m->lc->volumes, m->plan, m->sb.id);
        return;
    }
    log_warn("create failed", LOG_S("id", m->sb.id), LOG_S("error", why->msg));
    if (end_it(m, why, &e) == 0)
        return;
    log_warn("create could not be undone yet", LOG_S("id", m->sb.id), LOG_S("error", e.msg));
    (void)idempotency_store_release(m->lc->db, m->sb.id, NULL);
    sandbox_set_state(&m->sb, SANDBOX_STOPPING, reason_of(m), why->msg, m->lc->clock->wall_ms());
    (void)lifecycle_transition(m->lc, &m->sb, SANDBOX_PENDING, NULL);
}
