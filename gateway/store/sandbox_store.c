#include "gateway/store/sandbox_store.h"

#include "common/base/err.h"
#include "common/base/rand.h"
#include "gateway/store/db.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "id, state, reason, message, transition_ms, created_ms, expires_ms, image, entrypoint,"        \
    " metadata, extensions, platform_os, platform_arch, token, address, agent_port,"               \
    " host_address, host_port, renew_s, secure_token, login_ports"

enum column {
    COL_ID,
    COL_STATE,
    COL_REASON,
    COL_MESSAGE,
    COL_TRANSITION,
    COL_CREATED,
    COL_EXPIRES,
    COL_IMAGE,
    COL_ENTRYPOINT,
    COL_METADATA,
    COL_EXTENSIONS,
    COL_OS,
    COL_ARCH,
    COL_TOKEN,
    COL_ADDRESS,
    COL_AGENT_PORT,
    COL_HOST_ADDRESS,
    COL_HOST_PORT,
    COL_RENEW,
    COL_SECURE,
    COL_LOGIN,
    COL_MAX_,
};

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
    int state;
    const struct sandbox_end *end;
    struct sandbox_end *end_out;
    struct sandbox_page *page;
    struct sandbox_ids *ids;
    char *value;
    size_t value_size;
};

static int bind_text(struct db_conn *c, sqlite3_stmt *st, int at, const char *s, struct err *e)
{
    if (sqlite3_bind_text(st, at, s ? s : "", -1, SQLITE_STATIC) != SQLITE_OK)
        return db_fail(c, e, "bind text");
    return 0;
}

static int bind_num(struct db_conn *c, sqlite3_stmt *st, int at, int64_t n, struct err *e)
{
    if (sqlite3_bind_int64(st, at, n) != SQLITE_OK)
        return db_fail(c, e, "bind number");
    return 0;
}

static int no_row(const char *id, struct err *e)
{
    return err_set(e, ERRC_NOT_FOUND, "sandbox %s not found", id);
}

/* ---- rows to records ---- */

static const char *text_of(sqlite3_stmt *st, int col)
{
    const char *s = (const char *)sqlite3_column_text(st, col);

    return s ? s : ""; /* columns are NOT NULL: only when memory is out */
}

static void copy_text(sqlite3_stmt *st, int col, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", text_of(st, col));
}

static int row_to_sandbox(sqlite3_stmt *st, struct sandbox *sb, struct err *e)
{
    int state = sandbox_state_parse(text_of(st, COL_STATE));

    *sb = (struct sandbox){ 0 };
    copy_text(st, COL_ID, sb->id, sizeof(sb->id));
    sb->state = state < 0 ? SANDBOX_FAILED : (enum sandbox_state)state;
    copy_text(st, COL_REASON, sb->reason, sizeof(sb->reason));
    copy_text(st, COL_MESSAGE, sb->message, sizeof(sb->message));
    sb->transition_ms = sqlite3_column_int64(st, COL_TRANSITION);
    sb->created_ms = sqlite3_column_int64(st, COL_CREATED);
    sb->expires_ms = sqlite3_column_int64(st, COL_EXPIRES);
    copy_text(st, COL_OS, sb->platform_os, sizeof(sb->platform_os));
    copy_text(st, COL_ARCH, sb->platform_arch, sizeof(sb->platform_arch));
    copy_text(st, COL_TOKEN, sb->token, sizeof(sb->token));
    copy_text(st, COL_ADDRESS, sb->place.address, sizeof(sb->place.address));
    copy_text(st, COL_HOST_ADDRESS, sb->place.host_address, sizeof(sb->place.host_address));
    sb->place.agent_port = (uint16_t)sqlite3_column_int(st, COL_AGENT_PORT);
    sb->place.host_port = (uint16_t)sqlite3_column_int(st, COL_HOST_PORT);
    copy_text(st, COL_SECURE, sb->secure_token, sizeof(sb->secure_token));
    copy_text(st, COL_LOGIN, sb->login_ports, sizeof(sb->login_ports));
    sb->renew_s = sqlite3_column_int64(st, COL_RENEW);
    sb->image = strdup(text_of(st, COL_IMAGE));
    sb->entrypoint = strdup(text_of(st, COL_ENTRYPOINT));
    sb->metadata = strdup(text_of(st, COL_METADATA));
    sb->extensions = strdup(text_of(st, COL_EXTENSIONS));
    if (sb->image && sb->entrypoint && sb->metadata && sb->extensions)
        return 0;
    sandbox_done(sb);
    return err_nomem(e);
}

/* ---- one record ---- */

static int insert_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "INSERT INTO sandboxes (" COLUMNS ") VALUES"
                              " (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    const struct sandbox *sb = ((struct call *)arg)->sb;
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
        [COL_ADDRESS] = sb->place.address,
        [COL_HOST_ADDRESS] = sb->place.host_address,
    };
    const int64_t nums[COL_MAX_] = {
        [COL_TRANSITION] = sb->transition_ms,  [COL_CREATED] = sb->created_ms,
        [COL_EXPIRES] = sb->expires_ms,        [COL_AGENT_PORT] = sb->place.agent_port,
        [COL_HOST_PORT] = sb->place.host_port, [COL_RENEW] = sb->renew_s,
    };
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int col;
    int rc;

    if (!st)
        return -1;
    for (col = 0; col < COL_MAX_; col++) {
        rc = texts[col] ? bind_text(c, st, col + 1, texts[col], e)
                        : bind_num(c, st, col + 1, nums[col], e);
        if (rc < 0)
            return -1;
    }
    rc = sqlite3_step(st);
    if (rc == SQLITE_CONSTRAINT)
        return err_set(e, ERRC_CONFLICT, "sandbox %s exists already", sb->id);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "insert sandbox");
}

int sandbox_store_insert(struct db *db, const struct sandbox *sb, struct err *e)
{
    struct call call = { .sb = sb };

    return db_write(db, insert_fn, &call, e);
}

static int get_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT " COLUMNS " FROM sandboxes WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        return row_to_sandbox(st, call->out, e);
    case SQLITE_DONE:
        return no_row(call->id, e);
    default:
        return db_fail(c, e, "read sandbox");
    }
}

int sandbox_store_get(struct db *db, const char *id, struct sandbox *out, struct err *e)
{
    struct call call = { .id = id, .out = out };

    return db_read(db, get_fn, &call, e);
}

/* After an UPDATE that touched nothing: is the row gone, or in another state? */
static int why_unchanged(struct db_conn *c, const char *id, struct err *e)
{
    static const char sql[] = "SELECT state FROM sandboxes WHERE id = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        return err_set(e, ERRC_CONFLICT, "sandbox %s is %s", id, text_of(st, 0));
    case SQLITE_DONE:
        return no_row(id, e);
    default:
        return db_fail(c, e, "read sandbox state");
    }
}

static int transition_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET state = ?, reason = ?, message = ?,"
                              " transition_ms = ? WHERE id = ? AND state = ?";
    struct call *call = arg;
    const struct sandbox *sb = call->sb;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, sandbox_state_to_string(sb->state), e) < 0 ||
        bind_text(c, st, 2, sb->reason, e) < 0 || bind_text(c, st, 3, sb->message, e) < 0 ||
        bind_num(c, st, 4, sb->transition_ms, e) < 0 || bind_text(c, st, 5, sb->id, e) < 0 ||
        bind_text(c, st, 6, sandbox_state_to_string(call->from), e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? 0 : why_unchanged(c, sb->id, e);
}

int sandbox_store_transition(struct db *db, const struct sandbox *sb, enum sandbox_state from,
                             struct err *e)
{
    struct call call = { .sb = sb, .from = from };

    return db_write(db, transition_fn, &call, e);
}

static int started_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET address = ?, agent_port = ?,"
                              " host_address = ?, host_port = ? WHERE id = ?";
    struct call *call = arg;
    const struct sandbox *sb = call->sb;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, sb->place.address, e) < 0 ||
        bind_num(c, st, 2, sb->place.agent_port, e) < 0 ||
        bind_text(c, st, 3, sb->place.host_address, e) < 0 ||
        bind_num(c, st, 4, sb->place.host_port, e) < 0 || bind_text(c, st, 5, sb->id, e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    return transition_fn(c, arg, e);
}

int sandbox_store_started(struct db *db, const struct sandbox *sb, struct err *e)
{
    struct call call = { .sb = sb, .from = SANDBOX_PENDING };

    return db_write(db, started_fn, &call, e);
}

static int expiry_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET expires_ms = ? WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_num(c, st, 1, call->num, e) < 0 || bind_text(c, st, 2, call->id, e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? 0 : no_row(call->id, e);
}

int sandbox_store_set_expiry(struct db *db, const char *id, int64_t expires_ms, struct err *e)
{
    struct call call = { .id = id, .num = expires_ms };

    return db_write(db, expiry_fn, &call, e);
}

static int metadata_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "UPDATE sandboxes SET metadata = ? WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, call->text, e) < 0 || bind_text(c, st, 2, call->id, e) < 0 ||
        db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) ? 0 : no_row(call->id, e);
}

int sandbox_store_set_metadata(struct db *db, const char *id, const char *json, struct err *e)
{
    struct call call = { .id = id, .text = json };

    return db_write(db, metadata_fn, &call, e);
}

/* ---- the end ---- */

static int remember_end(struct db_conn *c, const struct call *call, struct err *e)
{
    static const char sql[] = "INSERT OR REPLACE INTO ended (id, ended_ms, reason, message)"
                              " VALUES (?,?,?,?)";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, call->id, e) < 0 ||
        bind_num(c, st, 2, call->end->ended_ms, e) < 0 ||
        bind_text(c, st, 3, call->end->reason, e) < 0 ||
        bind_text(c, st, 4, call->end->message, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

static int remove_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM sandboxes WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, call->id, e) < 0 || db_exec(c, st, e) < 0)
        return -1;
    return db_changes(c) && call->end ? remember_end(c, call, e) : 0;
}

int sandbox_store_remove(struct db *db, const char *id, const struct sandbox_end *end,
                         struct err *e)
{
    struct call call = { .id = id, .end = end };

    return db_write(db, remove_fn, &call, e);
}

static int ended_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT ended_ms, reason, message FROM ended WHERE id = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, call->id, e) < 0)
        return -1;
    switch (sqlite3_step(st)) {
    case SQLITE_ROW:
        call->end_out->ended_ms = sqlite3_column_int64(st, 0);
        copy_text(st, 1, call->end_out->reason, sizeof(call->end_out->reason));
        copy_text(st, 2, call->end_out->message, sizeof(call->end_out->message));
        return 0;
    case SQLITE_DONE:
        return no_row(call->id, e);
    default:
        return db_fail(c, e, "read end of sandbox");
    }
}

int sandbox_store_ended(struct db *db, const char *id, struct sandbox_end *out, struct err *e)
{
    struct call call = { .id = id, .end_out = out };

    return db_read(db, ended_fn, &call, e);
}

static int forget_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "DELETE FROM ended WHERE ended_ms < ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_num(c, st, 1, call->num, e) < 0)
        return -1;
    return db_exec(c, st, e);
}

int sandbox_store_forget_ended(struct db *db, int64_t before_ms, struct err *e)
{
    struct call call = { .num = before_ms };

    return db_write(db, forget_fn, &call, e);
}

/* ---- lists ---- */

/* ?1: JSON array of states or null; ?2: JSON object of metadata that must match, or null */
#define MATCHES                                                                                    \
    " FROM sandboxes WHERE (?1 IS NULL OR EXISTS"                                                  \
    " (SELECT 1 FROM json_each(?1) s WHERE sandboxes.state = s.value))"                            \
    " AND (?2 IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(?2) f WHERE NOT EXISTS"               \
    " (SELECT 1 FROM json_each(sandboxes.metadata) m"                                              \
    "  WHERE m.key = f.key AND m.value = f.value)))"

static int bind_filters(struct db_conn *c, sqlite3_stmt *st, const struct call *call, struct err *e)
{
    if (call->text && bind_text(c, st, 1, call->text, e) < 0)
        return -1;
    return call->text2 ? bind_text(c, st, 2, call->text2, e) : 0;
}

static int count_matches(struct db_conn *c, const struct call *call, int64_t *total, struct err *e)
{
    static const char sql[] = "SELECT count(*)" MATCHES;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_filters(c, st, call, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "count sandboxes");
    *total = sqlite3_column_int64(st, 0);
    return 0;
}

static int list_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS MATCHES " ORDER BY created_ms DESC, seq DESC LIMIT ?3 OFFSET ?4";
    struct call *call = arg;
    struct sandbox_page *p = call->page;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);
    int rc;

    if (!st || count_matches(c, call, &p->total, e) < 0 || bind_filters(c, st, call, e) < 0 ||
        bind_num(c, st, 3, call->num, e) < 0 || bind_num(c, st, 4, call->num2, e) < 0)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && p->len < (size_t)call->num) {
        if (row_to_sandbox(st, &p->items[p->len], e) < 0)
            return -1;
        p->len++;
    }
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list sandboxes");
}

int sandbox_store_list(struct db *db, const char *states, const char *metadata, int64_t offset,
                       int64_t limit, struct sandbox_page *out, struct err *e)
{
    struct sandbox_page page = { .items = calloc((size_t)limit, sizeof(struct sandbox)) };
    struct call call = {
        .text = states, .text2 = metadata, .num = limit, .num2 = offset, .page = &page
    };

    if (!page.items)
        return err_nomem(e);
    if (db_read(db, list_fn, &call, e) < 0) {
        sandbox_page_done(&page);
        return -1;
    }
    *out = page;
    return 0;
}

static int add_id(struct sandbox_ids *ids, const char *id)
{
    char(*grown)[RUNTIME_ID];

    if ((ids->len & (ids->len - 1)) == 0) { /* full at each power of two */
        grown = realloc(ids->ids, (ids->len ? ids->len * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -1;
        ids->ids = grown;
    }
    (void)snprintf(ids->ids[ids->len++], RUNTIME_ID, "%s", id);
    return 0;
}

static int collect_ids(struct db_conn *c, sqlite3_stmt *st, struct sandbox_ids *ids, struct err *e)
{
    int rc;

    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        if (add_id(ids, text_of(st, 0)) < 0)
            return err_nomem(e);
    return rc == SQLITE_DONE ? 0 : db_fail(c, e, "list sandbox ids");
}

static int ids_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT id FROM sandboxes WHERE ?1 = '' OR state = ?1";
    struct call *call = arg;
    const char *state =
        call->state < 0 ? "" : sandbox_state_to_string((enum sandbox_state)call->state);
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_text(c, st, 1, state, e) < 0)
        return -1;
    return collect_ids(c, st, call->ids, e);
}

/* Runs fn, which fills call->ids; hands them over or frees them. */
static int read_ids(struct db *db, db_fn fn, struct call *call, struct sandbox_ids *out,
                    struct err *e)
{
    struct sandbox_ids ids = { 0 };

    call->ids = &ids;
    if (db_read(db, fn, call, e) < 0) {
        free(ids.ids);
        return -1;
    }
    *out = ids;
    return 0;
}

int sandbox_store_ids(struct db *db, int state, struct sandbox_ids *out, struct err *e)
{
    struct call call = { .state = state };

    return read_ids(db, ids_fn, &call, out, e);
}

static int next_expiry(struct db_conn *c, int64_t after_ms, int64_t *out, struct err *e)
{
    static const char sql[] =
        "SELECT ifnull(min(expires_ms), 0) FROM sandboxes WHERE expires_ms > ?1 AND expires_ms > 0";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_num(c, st, 1, after_ms, e) < 0)
        return -1;
    if (sqlite3_step(st) != SQLITE_ROW)
        return db_fail(c, e, "read next expiry");
    *out = sqlite3_column_int64(st, 0);
    return 0;
}

static int due_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT id FROM sandboxes WHERE expires_ms > 0 AND expires_ms <= ?1"
                              " AND state <> 'Pending' ORDER BY expires_ms LIMIT ?2";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || bind_num(c, st, 1, call->num, e) < 0 || bind_num(c, st, 2, call->num2, e) < 0 ||
        collect_ids(c, st, call->ids, e) < 0)
        return -1;
    return next_expiry(c, call->num, &call->num, e);
}

int sandbox_store_due(struct db *db, int64_t now_ms, size_t max, struct sandbox_ids *out,
                      int64_t *next_ms, struct err *e)
{
    struct call call = { .num = now_ms, .num2 = (int64_t)max };

    if (read_ids(db, due_fn, &call, out, e) < 0)
        return -1;
    *next_ms = call.num;
    return 0;
}

/* ---- meta ---- */

/* The value under call->text, made from call->text2 when there is none. */
static int meta_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char make[] = "INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)";
    static const char read[] = "SELECT value FROM meta WHERE key = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *ins = db_stmt(c, make, e);
    AUTO_STMT sqlite3_stmt *sel = db_stmt(c, read, e);

    if (!ins || !sel || bind_text(c, ins, 1, call->text, e) < 0 ||
        bind_text(c, ins, 2, call->text2, e) < 0 || db_exec(c, ins, e) < 0 ||
        bind_text(c, sel, 1, call->text, e) < 0)
        return -1;
    if (sqlite3_step(sel) != SQLITE_ROW)
        return db_fail(c, e, "read from meta");
    copy_text(sel, 0, call->value, call->value_size);
    return 0;
}

int sandbox_store_instance(struct db *db, char out[RUNTIME_ID], struct err *e)
{
    char fresh[RAND_UUID_TEXT];
    struct call call = {
        .text = "instance", .text2 = fresh, .value = out, .value_size = RUNTIME_ID
    };

    rand_uuid4(fresh);
    return db_write(db, meta_fn, &call, e);
}

int sandbox_store_secret(struct db *db, const char *name, char out[SANDBOX_TOKEN], struct err *e)
{
    char fresh[RAND_SECRET_TEXT];
    struct call call = { .text = name, .text2 = fresh, .value = out, .value_size = SANDBOX_TOKEN };

    rand_hex(fresh, RAND_SECRET_BYTES);
    return db_write(db, meta_fn, &call, e);
}
