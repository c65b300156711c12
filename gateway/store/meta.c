#include "common/base/err.h"
#include "common/base/rand.h"
#include "gateway/store/db.h"
#include "gateway/store/row.h"
#include "gateway/store/sandbox_store.h"

#include <stdio.h>

/* What a call hands to its db_fn. */
struct call {
    const char *text;
    const char *text2;
    char *value;
    size_t value_size;
};

/* The value under call->text, made from call->text2 when there is none. */
static int meta_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char make[] = "INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)";
    static const char read[] = "SELECT value FROM meta WHERE key = ?";
    struct call *call = arg;
    AUTO_STMT sqlite3_stmt *ins = db_stmt(c, make, e);
    AUTO_STMT sqlite3_stmt *sel = db_stmt(c, read, e);

    if (!ins || !sel || row_bind_text(c, ins, 1, call->text, e) < 0 ||
        row_bind_text(c, ins, 2, call->text2, e) < 0 || db_exec(c, ins, e) < 0 ||
        row_bind_text(c, sel, 1, call->text, e) < 0)
        return -1;
    if (sqlite3_step(sel) != SQLITE_ROW)
        return db_fail(c, e, "read from meta");
    (void)snprintf(call->value, call->value_size, "%s", row_text(sel, 0));
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
