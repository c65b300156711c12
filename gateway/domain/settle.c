/* Brings a record in line with what the runtime says about the sandbox now. */
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>

static int gone(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    struct sandbox_end end = {
        .state = SANDBOX_TERMINATED,
        .ended_ms = lc->clock->wall_ms(),
        .exit_code = sb->exit_code,
    };

    (void)snprintf(end.reason, sizeof(end.reason), "CONTAINER_REMOVED");
    (void)snprintf(end.message, sizeof(end.message),
                   "The container was removed from outside of this server.");
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
    sb->exit_code = st->exit_code;
    log_info("sandbox exited", LOG_S("id", sb->id), LOG_N("status", st->exit_code));
    return lifecycle_transition(lc, sb, from, e);
}

static int follow(struct lifecycle *lc, struct sandbox *sb, const struct freeze *f, struct err *e)
{
    sandbox_set_state(sb, f->to, f->reason, f->message, lc->clock->wall_ms());
    return lifecycle_transition(lc, sb, f->from, e);
}

/* While its files are captured it is not looked at. */
static int passed_over(const struct err *e)
{
    return e->code == ERRC_BUSY ? 0 : -1;
}

int lifecycle_settle(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_take(lc, id, 0, e);
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct runtime_status st;

    if (!held)
        return passed_over(e);
    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (sb.state == SANDBOX_STOPPING)
        return lifecycle_finish_removal(lc, &sb, e);
    if (sb.state == SANDBOX_PENDING) { /* its create died with an earlier process */
        if (sb.created_ms >= lc->started_ms)
            return 0;
        log_warn("undoing a create that was cut off", LOG_S("id", id));
        if (runtime_remove(lc->rt, id, e) < 0)
            return -1;
        return undone(lc, id, e);
    }
    if (runtime_status(lc->rt, id, &st, e) < 0)
        return e->code == ERRC_NOT_FOUND ? gone(lc, &sb, e) : -1;
    if (st.state == RUNTIME_ENDED)
        return ended(lc, &sb, &st, e);
    if (st.state == RUNTIME_PAUSED && sb.state == SANDBOX_RUNNING)
        return follow(lc, &sb, &lifecycle_pausing, e);
    if (st.state == RUNTIME_RUNNING && sb.state == SANDBOX_PAUSED)
        return follow(lc, &sb, &lifecycle_resuming, e);
    return 0;
}
