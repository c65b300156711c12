#include "gateway/store/sandbox_store.h"

#include "common/base/err.h"
#include "gateway/store/db.h"
#include "gateway/store/event_store.h"
#include "gateway/store/idempotency_store.h"
#include "gateway/store/row.h"
#include "gateway/store/snapshot_store.h"
#include "gateway/store/volume_store.h"

#include <stdlib.h>
#include <string.h>

/* Ended records that are removed in one change, with their events and output: some 20 ms. After a day
 * without a sweep there may be a million. */
enum { FORGET_BATCH = 500 };

/* What a call hands to its db_fn. */
struct call {
    const struct sandbox *sb;
    struct sandbox *out;
    const char *id;
    const char *text;
    const char *text2;
    int64_t num;
    int64_t num2;
    enum sandbox_state from;
    const struct sandbox_end *end;
    const struct runtime_place *place;
    char *value;
};

static int no_row(const char *id, struct err *e)
{
    return err_set(e, ERRC_NOT_FOUND, "sandbox %s not found", id);
}

/* ---- one record ---- */

/* The record's state as an event. */
static int add_state(struct db_conn *c, const struct sandbox *sb, struct err *e)
{
    struct event ev = { .at_ms = sb->transition_ms, .source = EVENT_LIFECYCLE };

    (void)snprintf(ev.type, sizeof(ev.type), "%s", sandbox_state_to_string(sb->state));
    (void)snprintf(ev.reason, sizeof(ev.reason), "%s", sb->reason);
    (void)snprintf(ev.message, sizeof(ev.message), "%s", sb->message);
    return event_add(c, sb->id, &ev, e);
}

/* Of the ways in which a constraint can fail. */
static bool is_duplicate(sqlite3_stmt *st)
{
    int rc = sqlite3_extended_errcode(sqlite3_db_handle(st));

    return rc == SQLITE_CONSTRAINT_PRIMARYKEY || rc == SQLITE_CONSTRAINT_UNIQUE;
}

int sandbox_add(struct db_conn *c, const struct sandbox *sb, struct err *e)
{
    static const char sql[] = "INSERT INTO sandboxes (" SANDBOX_COLUMNS ") VALUES"
                              " (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    const char *texts[COL_MAX_] = {
        [COL_ID] = sb->id,
        [COL_STATE] = sandbox_state_to_string(sb->state),
        [COL_REASON] = sb->reason,
        [COL_MESSAGE] = sb->message,
        [COL_IMAGE] = sb->image,
        [COL_ENTRYPOINT] = sb->entrypoint,
        [COL_METADATA] = sb->metadata,
        [COL_EXTENSIONS] = sb->extensions,
        [COL_OS] = sb->platform_os,
        [COL_ARCH] = sb->platform_arch,
        [COL_TOKEN] = sb->token,
        [COL_SECURE] = sb->secure_token,
        [COL_LOGIN] = sb->login_ports,
        [COL_SNAPSHOT] = sb->snapshot_id,
        [COL_ADDRESS] = sb->place.address,
        [COL_HOST_ADDRESS] = sb->place.host_address,
    };
    const int64_t nums[COL_MAX_] = {
        [COL_TRANSITION] = sb->transition_ms,
        [COL_CREATED] = sb->created_ms,
        [COL_EXPIRES] = sb->expires_ms,
        [COL_AGENT_PORT] = sb->place.agent_port,
        [COL_HOST_PORT] = sb->place.host_port,
        [COL_RENEW] = sb->renew_s,
        [COL_ENDED] = sb->ended_ms,
        [COL_EXIT_CODE] = sb->exit_code,
    };
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int col;
    int rc;

    if (!st || (sb->snapshot_id[0] && snapshot_store_usable(c, sb->snapshot_id, e) < 0))
        return -1;
    for (col = 0; col < COL_MAX_; col++) {
        rc = texts[col] ? row_bind_text(c, st, col + 1, texts[col], e)
                        : row_bind_num(c, st, col + 1, nums[col], e);
        if (rc < 0)
            return -1;
    }
    rc = sqlite3_step(st);
    if (rc == SQLITE_CONSTRAINT && is_duplicate(st))
        return err_set(e, ERRC_CONFLICT, "sandbox %s exists already", sb->id);
    return rc == SQLITE_DONE ? add_state(c, sb, e) : db_fail(c, e, "insert sandbox");
}

static int insert_fn(struct db_conn *c, void *arg, struct err *e)
{
    return sandbox_add(c, ((struct call *)arg)->sb, e);
}

int sandbox_store_insert(struct db *db, const struct sandbox *sb, struct err *e)
{
    struct call call = { .sb = sb };

    return db_write(db, insert_fn, &call, e);
}

static int find_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        return row_read_sandbox(st, call->out, e);
    case SQLITE_DONE:
        return no_row(call->id, e);
    default:
        return db_fail(c, e, "read sandbox");
    }
}

int sandbox_store_find(struct db *db, const char *id, struct sandbox *out, struct err *e)
{
    struct call call = { .id = id, .out = out };

    return db_read(db, find_fn, &call, e);
}

int sandbox_store_get(struct db *db, const char *id, struct sandbox *out, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (sandbox_store_find(db, id, &sb, e) < 0)
        return -1;
    if (sb.ended_ms)
        return no_row(id, e);
    *out = sb;
    sb = (struct sandbox){ 0 };
    return 0;
}

/* After an UPDATE that touched nothing: is the row gone, or in another state? */
static int why_unchanged(struct db_conn *c, const char *id, struct err *e)
{
    static const char sql[] = "SELECT state FROM sandboxes WHERE id = ? AND ended_ms = 0";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        return err_set(e, ERRC_CONFLICT, "sandbox %s is %s", id, row_text(st, 0));
    case SQLITE_DONE:
        return no_row(id, e);
    default:
        return db_fail(c, e, "read sandbox state");
    }
}

static int transition_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET state = ?, reason = ?, message = ?,"
                              " transition_ms = ?, exit_code = ?"
                              " WHERE id = ? AND state = ? AND ended_ms = 0"
                              " AND (?8 = 0 OR (expires_ms > 0 AND expires_ms <= ?8))";
    struct call *call = arg;
    const struct sandbox *sb = call->sb;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, sandbox_state_to_string(sb->state), e) < 0 ||
        row_bind_text(c, st, 2, sb->reason, e) < 0 || row_bind_text(c, st, 3, sb->message, e) < 0 ||
        row_bind_num(c, st, 4, sb->transition_ms, e) < 0 ||
        row_bind_num(c, st, 5, sb->exit_code, e) < 0 || row_bind_text(c, st, 6, sb->id, e) < 0 ||
        row_bind_text(c, st, 7, sandbox_state_to_string(call->from), e) < 0 ||
        row_bind_num(c, st, 8, call->num, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? add_state(c, sb, e) : why_unchanged(c, sb->id, e);
}

int sandbox_store_transition(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                             struct err *e)
{
    struct call call = { .sb = sb, .from = from };

    return db_write(db, transition_fn, &call, e);
}

static int place_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET address = ?, agent_port = ?,"
                              " host_address = ?, host_port = ? WHERE id = ? AND ended_ms = 0";
    const struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->place->address, e) < 0 ||
        row_bind_num(c, st, 2, call->place->agent_port, e) < 0 ||
        row_bind_text(c, st, 3, call->place->host_address, e) < 0 ||
        row_bind_num(c, st, 4, call->place->host_port, e) < 0 ||
        row_bind_text(c, st, 5, call->id, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

int sandbox_store_moved(struct db *db, const char *id, const struct runtime_place *place,
                        struct err *e)
{
    struct call call = { .id = id, .place = place };

    return db_write(db, place_fn, &call, e);
}

static int started_fn(struct db_conn *c, void *arg, struct err *e)
{
    if (place_fn(c, arg, e) < 0 || transition_fn(c, arg, e) < 0)
        return -1;
    return volume_keep(c, ((struct call *)arg)->id, e);
}

int sandbox_store_started(struct db *db, const struct sandbox *sb, struct err *e)
{
    struct call call = { .sb = sb, .from = SANDBOX_PENDING, .id = sb->id, .place = &sb->place };

    return db_write(db, started_fn, &call, e);
}

static int progress_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET reason = ?, message = ?"
                              " WHERE id = ? AND state = 'Pending' AND ended_ms = 0";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->text, e) < 0 ||
        row_bind_text(c, st, 2, call->text2, e) < 0 || row_bind_text(c, st, 3, call->id, e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? 0 : no_row(call->id, e);
}

int sandbox_store_progress(struct db *db, const char *id, const char *reason, const char *message,
                           struct err *e)
{
    struct call call = { .id = id, .text = reason, .text2 = message };

    return db_write(db, progress_fn, &call, e);
}

static int renew_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET expires_ms = ?1 WHERE id = ?2 AND ended_ms = 0"
                              " AND state <> 'Stopping' AND expires_ms > 0"
                              " AND (?3 = 0 OR expires_ms = ?3)";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_num(c, st, 1, call->num, e) < 0 ||
        row_bind_text(c, st, 2, call->id, e) < 0 || row_bind_num(c, st, 3, call->num2, e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? 0 : no_row(call->id, e);
}

int sandbox_store_renew(struct db *db, const char *id, int64_t expires_ms, struct err *e)
{
    return sandbox_store_renew_from(db, id, 0, expires_ms, e);
}

int sandbox_store_renew_from(struct db *db, const char *id, int64_t from_ms, int64_t expires_ms,
                             struct err *e)
{
    struct call call = { .id = id, .num = expires_ms, .num2 = from_ms };

    return db_write(db, renew_fn, &call, e);
}

int sandbox_store_expire(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                         int64_t now_ms, struct err *e)
{
    struct call call = { .sb = sb, .from = from, .num = now_ms };

    return db_write(db, transition_fn, &call, e);
}

static int count_metadata(struct db_conn *c, const struct call *call, struct err *e)
{
    static const char sql[] = "SELECT count(*) FROM sandboxes s, json_each(s.metadata)"
                              " WHERE s.id = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count metadata");
    if (sqlite3_column_int64(st, 0) > call->num)
        return err_set(e, ERRC_INVALID,
                       "metadata: would have more than %lld entries; delete some first",
                       (long long)call->num);
    return 0;
}

static int metadata_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET metadata = json_patch(metadata, ?)"
                              " WHERE id = ? AND ended_ms = 0";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->text, e) < 0 ||
        row_bind_text(c, st, 2, call->id, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    if (!db_changes(c))
        return no_row(call->id, e);
    return count_metadata(c, call, e) < 0 ? -1 : find_fn(c, call, e);
}

int sandbox_store_patch_metadata(struct db *db, const char *id, const char *patch, int max,
                                 struct sandbox *out, struct err *e)
{
    struct sandbox made = { 0 };
    struct call call = { .id = id, .text = patch, .num = max, .out = &made };

    if (db_write(db, metadata_fn, &call, e) < 0) {
        sandbox_done(&made); /* read, but its commit failed */
        return -1;
    }
    *out = made;
    return 0;
}

/* ---- the end ---- */

static int drop_relays(struct db_conn *c, const char *id, struct err *e)
{
    static const char sql[] = "DELETE FROM relays WHERE sandbox_id = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_text(c, st, 1, id, e) < 0 ? -1 : db_exec(c, st, e);
}

static int add_end(struct db_conn *c, const struct call *call, struct err *e)
{
    struct event ev = { .at_ms = call->end->ended_ms, .source = EVENT_LIFECYCLE };

    (void)snprintf(ev.type, sizeof(ev.type), "%s", sandbox_state_to_string(call->end->state));
    (void)snprintf(ev.reason, sizeof(ev.reason), "%s", call->end->reason);
    (void)snprintf(ev.message, sizeof(ev.message), "%s", call->end->message);
    return event_add(c, call->id, &ev, e);
}

/* A create that failed: its key is free for another try. */
static int free_key(struct db_conn *c, const struct call *call, struct err *e)
{
    static const char sql[] = "SELECT 1 FROM sandboxes WHERE id = ? AND state = 'Pending'"
                              " AND ended_ms = 0";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        return idempotency_release(c, call->id, e);
    case SQLITE_DONE:
        return 0;
    default:
        return db_fail(c, e, "read sandbox state");
    }
}

static int end_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] =
        "UPDATE sandboxes SET state = ?, reason = ?, message = ?, transition_ms = ?5,"
        " ended_ms = ?5, exit_code = ?4, logs = ?6, token = '', secure_token = '', address = '',"
        " host_address = '', host_port = 0 WHERE id = ?7 AND ended_ms = 0";
    const struct call *call = arg;
    const struct sandbox_end *end = call->end;

    if (end->state == SANDBOX_FAILED && free_key(c, call, e) < 0)
        return -1;

    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    if (!st || row_bind_text(c, st, 1, sandbox_state_to_string(end->state), e) < 0 ||
        row_bind_text(c, st, 2, end->reason, e) < 0 ||
        row_bind_text(c, st, 3, end->message, e) < 0 ||
        row_bind_num(c, st, 4, end->exit_code, e) < 0 ||
        row_bind_num(c, st, 5, end->ended_ms, e) < 0 || row_bind_text(c, st, 6, end->logs, e) < 0 ||
        row_bind_text(c, st, 7, call->id, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    if (!db_changes(c))
        return 0;
    return add_end(c, call, e) < 0 ? -1 : drop_relays(c, call->id, e);
}

int sandbox_store_end(struct db *db, const char *id, const struct sandbox_end *end, struct err *e)
{
    struct call call = { .id = id, .end = end };

    return db_write(db, end_fn, &call, e);
}

static int remove_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM sandboxes WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return !st || row_bind_text(c, st, 1, call->id, e) < 0 ? -1 : db_exec(c, st, e);
}

int sandbox_store_remove(struct db *db, const char *id, struct err *e)
{
    struct call call = { .id = id };

    return db_write(db, remove_fn, &call, e);
}

static int logs_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT logs FROM sandboxes WHERE id = ? AND ended_ms > 0";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        call->value = strdup(row_text(st, 0));
        return call->value ? 0 : err_nomem(e);
    case SQLITE_DONE:
        return no_row(call->id, e);
    default:
        return db_fail(c, e, "read output of an ended sandbox");
    }
}

int sandbox_store_logs(struct db *db, const char *id, char **out, struct err *e)
{
    struct call call = { .id = id };

    if (db_read(db, logs_fn, &call, e) < 0)
        return -1;
    *out = call.value;
    return 0;
}

static int forget_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM sandboxes WHERE seq IN (SELECT seq FROM sandboxes"
                              " WHERE ended_ms > 0 AND ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || row_bind_num(c, st, 1, call->num, e) < 0 ||
        row_bind_num(c, st, 2, FORGET_BATCH, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    call->num2 = db_changes(c);
    return 0;
}

int sandbox_store_forget_ended(struct db *db, int64_t before_ms, struct err *e)
{
    struct call call = { .num = before_ms };

    do /* other changes get in between */
        if (db_write(db, forget_fn, &call, e) < 0)
            return -1;
    while (call.num2 == FORGET_BATCH);
    return 0;
}
