#include "gateway/store/row.h"

#include "common/base/err.h"
#include "gateway/store/db.h"

#include <stdlib.h>
#include <string.h>

int row_bind_text(struct db_conn *c, sqlite3_stmt *st, int at, const char *s, struct err *e)
{
    if (sqlite3_bind_text(st, at, s ? s : "", -1, SQLITE_STATIC) != SQLITE_OK)
        return db_fail(c, e, "bind text");
    return 0;
}

int row_bind_num(struct db_conn *c, sqlite3_stmt *st, int at, int64_t n, struct err *e)
{
    if (sqlite3_bind_int64(st, at, n) != SQLITE_OK)
        return db_fail(c, e, "bind number");
    return 0;
}

const char *row_text(sqlite3_stmt *st, int col)
{
    const char *s = (const char *)sqlite3_column_text(st, col);

    return s ? s : ""; /* columns are NOT NULL: only when memory is out */
}

/* Cut at size; not by snprintf, which was a tenth of the time of a list. */
static void copy_text(sqlite3_stmt *st, int col, char *out, size_t size)
{
    const char *s = row_text(st, col);
    size_t len = strnlen(s, size - 1);

    memcpy(out, s, len);
    out[len] = '\0';
}

int row_read_sandbox(sqlite3_stmt *st, struct sandbox *sb, struct err *e)
{
    int state = sandbox_state_parse(row_text(st, COL_STATE));

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
    copy_text(st, COL_SNAPSHOT, sb->snapshot_id, sizeof(sb->snapshot_id));
    sb->renew_s = sqlite3_column_int64(st, COL_RENEW);
    sb->ended_ms = sqlite3_column_int64(st, COL_ENDED);
    sb->exit_code = sqlite3_column_int(st, COL_EXIT_CODE);
    sb->image = strdup(row_text(st, COL_IMAGE));
    sb->entrypoint = strdup(row_text(st, COL_ENTRYPOINT));
    sb->metadata = strdup(row_text(st, COL_METADATA));
    sb->extensions = strdup(row_text(st, COL_EXTENSIONS));
    if (sb->image && sb->entrypoint && sb->metadata && sb->extensions)
        return 0;
    sandbox_done(sb);
    return err_nomem(e);
}
