/* How a sandbox goes: deleted, expired, finished after a restart. First the intent (SANDBOX_STOPPING,
 * with the words of the end), then the runtime: stop, last output, remove; then the record of the
 * end. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/fault.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/metrics.h"
#include "gateway/domain/volumes.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>
#include <string.h>

enum {
    LAST_LINES = 100, /* of its output that are kept, within SANDBOX_LOGS_MAX */
    LAST_STEPS = 8,   /* events that tell where a sandbox came from */
};

#define REASON_EXPIRED "EXPIRED"
#define REASON_DELETED "DELETED"

/* ---- words ---- */

static bool is_over(enum sandbox_state s)
{
    return s == SANDBOX_TERMINATED || s == SANDBOX_FAILED;
}

/* "<message> It had ended at <time> (<reason>: <message>)": the end of one that was over before. */
static void add_earlier(char out[SANDBOX_MESSAGE], const char *message, const struct sandbox *was)
{
    char when[CLOCK_TEXT];
    char text[2 * SANDBOX_MESSAGE];

    clock_format_ms(was->transition_ms, when);
    (void)snprintf(text, sizeof(text), "%.300s It had ended at %s (%s: %s)", message, when,
                   was->reason, was->message);
    (void)snprintf(out, SANDBOX_MESSAGE, "%.*s", SANDBOX_MESSAGE - 1, text);
}

void lifecycle_begin_end(struct lifecycle *lc, const struct sandbox *sb, const char *reason,
                         const char *message, struct sandbox_end *end)
{
    *end = (struct sandbox_end){ .state = sb->exit_code > 0 ? SANDBOX_FAILED : SANDBOX_TERMINATED,
                                 .ended_ms = lc->clock->wall_ms(),
                                 .exit_code = sb->exit_code };
    if (sb->state == SANDBOX_FAILED)
        end->state = SANDBOX_FAILED;
    (void)snprintf(end->reason, sizeof(end->reason), "%s", reason);
    if (is_over(sb->state))
        add_earlier(end->message, message, sb);
    else
        (void)snprintf(end->message, sizeof(end->message), "%s", message);
}

/* The state before SANDBOX_STOPPING, where the exit code does not tell: nothing leads out of
 * SANDBOX_FAILED but the end. */
static bool had_failed(struct lifecycle *lc, const char *id)
{
    AUTO_EVENTS struct event_list steps = { 0 };
    size_t i;

    if (event_store_list(lc->db, id, EVENT_LIFECYCLE, LAST_STEPS, &steps, NULL) < 0)
        return false;
    for (i = 0; i < steps.len; i++)
        if (sandbox_state_parse(steps.items[i].type) == SANDBOX_FAILED)
            return true;
    return false;
}

static bool is_graceful(const struct sandbox *sb)
{
    return strcmp(sb->reason, REASON_EXPIRED) == 0 || strcmp(sb->reason, REASON_DELETED) == 0;
}

/* ---- what it leaves ---- */

/* It had ended by itself before the removal was asked for, but nobody had noticed yet. */
static void note_own_end(struct lifecycle *lc, const struct sandbox *sb,
                         const struct runtime_status *st, struct sandbox_end *end)
{
    struct sandbox was = { .state = SANDBOX_RUNNING };

    if (sb->exit_code != SANDBOX_NO_EXIT_CODE || !st->ended_ms || st->ended_ms > sb->transition_ms)
        return; /* known already, or it is our own doing */
    (void)snprintf(was.id, sizeof(was.id), "%s", sb->id);
    lifecycle_own_end(lc, st, &was);
    end->exit_code = was.exit_code;
    end->state = was.state;
    add_earlier(end->message, sb->message, &was);
}

/* Without a grace it is left to the removal to kill it. False when there is nothing to read any more,
 * or the runtime fails. */
static bool stop(struct lifecycle *lc, const struct sandbox *sb, struct sandbox_end *end)
{
    struct runtime_status st = { .state = RUNTIME_UNKNOWN };
    struct err e = { 0 };

    if (runtime_status(lc->rt, sb->id, &st, &e) < 0 && e.code == ERRC_NOT_FOUND)
        return false;
    if (st.state == RUNTIME_ENDED) {
        note_own_end(lc, sb, &st, end);
        return true;
    }
    if (!lc->stop_grace_ms || !is_graceful(sb))
        return true;
    if (runtime_stop(lc->rt, sb->id, lc->stop_grace_ms, &e) < 0 && e.code != ERRC_UNSUPPORTED) {
        log_warn("sandbox could not be stopped in good order", LOG_S("id", sb->id),
                 LOG_S("error", e.msg));
        return false;
    }
    (void)fault_point("delete.stopped");
    return true;
}

static void keep_output(struct lifecycle *lc, const char *id, struct buf *out)
{
    const struct runtime_log_query q = { .tail = LAST_LINES, .timestamps = true };
    struct err e = { 0 };
    bool cut = false;
    size_t i;

    if (runtime_logs(lc->rt, id, &q, out, &cut, &e) == 0) {
        for (i = 0; i < out->len; i++)
            if (!out->data[i])
                out->data[i] = '?'; /* the record holds a text without NUL */
        return;
    }
    if (e.code == ERRC_UNSUPPORTED)
        return;
    log_warn("the last output of a sandbox could not be read", LOG_S("id", id),
             LOG_S("error", e.msg));
    buf_clear(out);
}

/* ---- steps ---- */

static int finish_removal(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    AUTO_BUF struct buf output = BUF_INIT(SANDBOX_LOGS_MAX);
    struct sandbox_end end;

    lifecycle_begin_end(lc, sb, sb->reason, sb->message, &end);
    if (!is_graceful(sb) || /* a create that could not be undone at once */
        (sb->exit_code == SANDBOX_NO_EXIT_CODE && had_failed(lc, sb->id)))
        end.state = SANDBOX_FAILED;
    if (stop(lc, sb, &end))
        keep_output(lc, sb->id, &output);
    if (runtime_remove(lc->rt, sb->id, e) < 0) {
        if (e) { /* never a status that makes clients ask again: the removal goes on by itself */
            e->code = ERRC_INTERNAL;
            e->api_code = "DOCKER::SANDBOX_DELETE_FAILED";
        }
        return err_wrap(e, "Sandbox %s could not be removed yet; it will be retried", sb->id);
    }
    (void)fault_point("delete.removed");
    volumes_release(lc->volumes, sb->id);
    end.logs = output.len ? output.data : NULL;
    end.ended_ms = lc->clock->wall_ms();
    if (lifecycle_bury(lc, sb->id, &end, e) < 0)
        return -1;
    (void)fault_point("delete.confirmed");
    log_info("sandbox ended", LOG_S("id", sb->id), LOG_S("reason", sb->reason));
    return 0;
}

int lifecycle_finish_removal(struct lifecycle *lc, const struct sandbox *sb, struct err *e)
{
    int rc = finish_removal(lc, sb, e);

    if (strcmp(sb->reason, REASON_EXPIRED) != 0)
        return rc;
    if (rc == 0)
        metrics_expired(lc->metrics, lc->clock->wall_ms() - sb->expires_ms);
    return metrics_done(lc->metrics, METRICS_EXPIRE, rc, e);
}

/* Writes the intent to remove, then removes. due: only if its time has come, ERRC_CONFLICT when it was
 * renewed. Caller holds the id's lock. */
static int end_sandbox(struct lifecycle *lc, struct sandbox *sb, const char *reason,
                       const char *message, bool due, struct err *e)
{
    enum sandbox_state from = sb->state;
    struct sandbox_end end;
    int rc;

    if (from != SANDBOX_STOPPING) {
        lifecycle_begin_end(lc, sb, reason, message, &end);
        sandbox_set_state(sb, SANDBOX_STOPPING, end.reason, end.message, end.ended_ms);
        rc = due ? sandbox_store_expire(lc->db, sb, from, end.ended_ms, e)
                 : sandbox_store_transition(lc->db, sb, from, e);
        if (rc < 0)
            return -1;
        lifecycle_show(lc, sb);
    }
    (void)fault_point("delete.intent");
    return lifecycle_finish_removal(lc, sb, e);
}

/* ---- by request ---- */

/* Waits for the id; -1 with not found when somebody is removing it already: that may take as long as
 * its grace. */
static struct keyed_lock *take_for_delete(struct lifecycle *lc, const char *id, struct err *e)
{
    struct keyed_lock *held = lifecycle_try(lc, id);
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (held)
        return held;
    if (sandbox_store_get(lc->db, id, &sb, NULL) == 0 && sb.state == SANDBOX_STOPPING) {
        (void)err_api(e, ERRC_NOT_FOUND, LIFECYCLE_NOT_FOUND,
                      "Sandbox %s not found: it is being removed (%s: %s)", id, sb.reason,
                      sb.message);
        return NULL;
    }
    return lifecycle_take(lc, id, lc->capture_wait_ms, e);
}

static int delete_now(struct lifecycle *lc, const char *id, const char *by, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = take_for_delete(lc, id, e);
    AUTO_SANDBOX struct sandbox sb = { 0 };
    char message[SANDBOX_MESSAGE];

    if (!held || lifecycle_get(lc, id, &sb, e) < 0)
        return -1;
    (void)snprintf(message, sizeof(message), "Deleted by %s.", by ? by : "request");
    return end_sandbox(lc, &sb, REASON_DELETED, message, false, e);
}

int lifecycle_delete(struct lifecycle *lc, const char *id, const char *by, struct err *e)
{
    return metrics_done(lc->metrics, METRICS_DELETE, delete_now(lc, id, by, e), e);
}

/* ---- by time ---- */

static int expire(struct lifecycle *lc, const char *id, int64_t *next_ms, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err why = { 0 };

    *next_ms = 0;
    if (sandbox_store_get(lc->db, id, &sb, e) < 0)
        return e->code == ERRC_NOT_FOUND ? 0 : -1;
    if (sb.state == SANDBOX_STOPPING)
        return lifecycle_finish_removal(lc, &sb, e);
    if (sb.state == SANDBOX_PENDING)
        return 0; /* its time begins when it is usable; then it is shown to the expiry again */
    *next_ms = sb.expires_ms;
    if (!sb.expires_ms || sb.expires_ms > lc->clock->wall_ms())
        return 0; /* renewed meanwhile */
    *next_ms = 0;
    if (end_sandbox(lc, &sb, REASON_EXPIRED, "The sandbox reached its expiry time.", true, &why) ==
        0)
        return 0;
    if (why.code == ERRC_CONFLICT) { /* renewed at the last moment: look again */
        *next_ms = lc->clock->wall_ms();
        return 0;
    }
    if (e)
        *e = why;
    return -1;
}

int lifecycle_expire(struct lifecycle *lc, const char *id, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_take(lc, id, lc->capture_wait_ms, e);
    int64_t next;

    return held ? expire(lc, id, &next, e) : -1;
}

int lifecycle_try_expire(struct lifecycle *lc, const char *id, int64_t *next_ms, struct err *e)
{
    AUTO_KEYED struct keyed_lock *held = lifecycle_try(lc, id);

    return held ? expire(lc, id, next_ms, e) : 1;
}
