/* Brings a record in line with what the runtime says about the sandbox now. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/creates.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_KILLED = 128 + 9 };

#define REASON_EXITED "CONTAINER_EXITED_ERROR"

/* ---- ends ---- */

/* The engine's flag is not to be relied on alone (it is that of one cgroup), and a process of the
 * sandbox that ran out of memory long ago does not explain an orderly end. */
static bool is_out_of_memory(struct lifecycle *lc, const char *id, const struct runtime_status *st)
{
    AUTO_EVENTS struct event_list news = { 0 };
    size_t i;

    if (st->exit_code != EXIT_KILLED)
        return false;
    if (st->oom_killed)
        return true;
    if (event_store_list(lc->db, id, EVENT_RUNTIME, EVENTS_PER_SANDBOX, &news, NULL) < 0)
        return false;
    for (i = 0; i < news.len; i++)
        if (strcmp(news.items[i].type, LIFECYCLE_NEWS_OOM) == 0)
            return true;
    return false;
}

void lifecycle_own_end(struct lifecycle *lc, const struct runtime_status *st, struct sandbox *sb)
{
    bool oom = is_out_of_memory(lc, sb->id, st);
    int64_t at = st->ended_ms ? st->ended_ms : lc->clock->wall_ms();
    char message[SANDBOX_MESSAGE];

    (void)snprintf(message, sizeof(message), "Sandbox container exited with code %d.%s",
                   st->exit_code, oom ? " It ran out of memory." : "");
    if (st->exit_code == 0)
        sandbox_set_state(sb, SANDBOX_TERMINATED, "CONTAINER_EXITED",
                          "Sandbox container exited successfully.", at);
    else
        sandbox_set_state(sb, SANDBOX_FAILED, oom ? "OOMKilled" : REASON_EXITED, message, at);
    sb->exit_code = st->exit_code;
}

static int gone(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    struct sandbox_end end;

    lifecycle_begin_end(lc, sb, LIFECYCLE_VANISHED,
                        "The container was removed from outside of this server.", &end);
    log_warn("sandbox lost its container", LOG_S("id", sb->id));
    return lifecycle_bury(lc, sb->id, &end, e);
}

static int undone(struct lifecycle *lc, const char *id, struct err *e)
{
    struct sandbox_end end = {
        .state = SANDBOX_FAILED,
        .ended_ms = lc->clock->wall_ms(),
        .exit_code = SANDBOX_NO_EXIT_CODE,
    };

    (void)snprintf(end.reason, sizeof(end.reason), "CREATE_INTERRUPTED");
    (void)snprintf(end.message, sizeof(end.message),
                   "The server was restarted while it made the sandbox.");
    return lifecycle_bury(lc, id, &end, e);
}

static bool is_over(const struct sandbox *sb)
{
    return sb->state == SANDBOX_TERMINATED || sb->state == SANDBOX_FAILED;
}

/* The news that memory had run out may come after that of the end. */
static bool is_late_oom(struct lifecycle *lc, const struct sandbox *sb,
                        const struct runtime_status *st)
{
    return strcmp(sb->reason, REASON_EXITED) == 0 && is_out_of_memory(lc, sb->id, st);
}

static int ended(struct lifecycle *lc, struct sandbox *sb, const struct runtime_status *st,
                 struct err *e)
{
    enum sandbox_state from = sb->state;

    if (is_over(sb) && !is_late_oom(lc, sb, st))
        return 0;
    lifecycle_own_end(lc, st, sb);
    log_info("sandbox exited", LOG_S("id", sb->id), LOG_N("status", st->exit_code));
    return lifecycle_transition(lc, sb, from, e);
}

/* Somebody started the container again. Its agent is a new one that waits for a claim whose secret
 * nobody has: token, environment and entrypoint are lost, so it stays over. */
static int restarted(struct lifecycle *lc, struct sandbox *sb, const struct runtime_status *st,
                     struct err *e)
{
    enum sandbox_state from = sb->state;

    log_warn("a sandbox that had ended was started again from outside; it is stopped",
             LOG_S("id", sb->id));
    if (!is_over(sb)) {
        sb->exit_code = EXIT_KILLED; /* its own is lost; this is what the stop below leaves */
        sandbox_set_state(sb, SANDBOX_FAILED, "CONTAINER_RESTARTED",
                          "The container was restarted from outside of this server: what ran in it "
                          "has ended.",
                          st->ended_ms ? st->ended_ms : lc->clock->wall_ms());
        if (lifecycle_transition(lc, sb, from, e) < 0)
            return -1;
    }
    return runtime_stop(lc->rt, sb->id, 0, e);
}

/* ---- what lives ---- */

static int follow(struct lifecycle *lc, struct sandbox *sb, const struct freeze *f, struct err *e)
{
    sandbox_set_state(sb, f->to, f->reason, f->message, lc->clock->wall_ms());
    return lifecycle_transition(lc, sb, f->from, e);
}

static bool is_same_place(const struct runtime_place *a, const struct runtime_place *b)
{
    return a->agent_port == b->agent_port && a->host_port == b->host_port &&
           strcmp(a->address, b->address) == 0 && strcmp(a->host_address, b->host_address) == 0;
}

/* Without an address (off its network) it stays where it was: nothing better is known. */
static int moved(struct lifecycle *lc, struct sandbox *sb, const struct runtime_place *to,
                 struct err *e)
{
    if (!to->address[0] || is_same_place(&sb->place, to))
        return 0;
    log_info("sandbox has a new address", LOG_S("id", sb->id), LOG_S("address", to->address),
             LOG_N("port", to->host_port));
    if (sandbox_store_moved(lc->db, sb->id, to, e) < 0)
        return -1;
    sb->place = *to;
    lifecycle_show(lc, sb);
    return 0;
}

static int alive(struct lifecycle *lc, struct sandbox *sb, const struct runtime_status *st,
                 struct err *e)
{
    int rc = 0;

    if (is_over(sb) || st->ended_ms)
        return restarted(lc, sb, st, e);
    if (st->state == RUNTIME_PAUSED && sb->state == SANDBOX_RUNNING)
        rc = follow(lc, sb, &lifecycle_pausing, e);
    else if (st->state == RUNTIME_RUNNING && sb->state == SANDBOX_PAUSED)
        rc = follow(lc, sb, &lifecycle_resuming, e);
    return rc < 0 ? -1 : moved(lc, sb, &st->place, e);
}

/* ---- settling ---- */

/* Somebody makes it, or its create died: with an earlier process, or for want of a store. */
static int pending(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    if (lc->creates ? creates_has(lc->creates, sb->id) : sb->created_ms >= lc->started_ms)
        return 0;
    log_warn("undoing a create that was cut off", LOG_S("id", sb->id));
    return runtime_remove(lc->rt, sb->id, e) < 0 ? -1 : undone(lc, sb->id, e);
}

static int settle(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct runtime_status st;

    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (sb.state == SANDBOX_STOPPING)
        return lifecycle_finish_removal(lc, &sb, e);
    if (sb.state == SANDBOX_PENDING)
        return pending(lc, &sb, e);
    if (runtime_status(lc->rt, id, &st, e) < 0)
        return e->code == ERRC_NOT_FOUND ? gone(lc, &sb, e) : -1;
    if (st.state == RUNTIME_ENDED)
        return ended(lc, &sb, &st, e);
    if (st.state == RUNTIME_RUNNING || st.state == RUNTIME_PAUSED)
        return alive(lc, &sb, &st, e);
    return 0;
}

int lifecycle_settle(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_take(lc, id, lc->capture_wait_ms, e);

    return held ? settle(lc, id, e) : -1;
}

int lifecycle_try_settle(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_try(lc, id);

    return held ? settle(lc, id, e) : 1;
}
