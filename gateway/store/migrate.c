#include "gateway/store/migrate.h"

#include "common/base/err.h"
#include "common/base/log.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(sqlite3 *db, struct err *e, const char *what)
{
    (void)err_set(e, ERRC_INTERNAL, "%s: %s", what, sqlite3_errmsg(db));
    if (e)
        e->sys = sqlite3_extended_errcode(db);
    return -1;
}

static int user_version(sqlite3 *db, int *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = -1;

    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        *out = sqlite3_column_int(st, 0);
        rc = 0;
    }
    (void)sqlite3_finalize(st);
    return rc < 0 ? fail(db, e, "read schema version") : 0;
}

/* A copy that was cut short by a crash is written anew. */
static int keep_copy(sqlite3 *db, const char *path, int number, struct err *e)
{
    char *copy = sqlite3_mprintf("%s.before-%04d", path, number);
    char *sql = copy ? sqlite3_mprintf("VACUUM INTO %Q", copy) : NULL;
    int rc = 0;

    if (!sql) {
        rc = err_nomem(e);
    } else {
        (void)unlink(copy);
        if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            rc = fail(db, e, "copy database before a migration");
    }
    sqlite3_free(sql);
    sqlite3_free(copy);
    return rc;
}

static int apply(sqlite3 *db, const struct migration *m, struct err *e)
{
    char version[64];

    (void)snprintf(version, sizeof(version), "PRAGMA user_version = %d", m->number);
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail(db, e, "begin migration");
    if (sqlite3_exec(db, m->sql, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, version, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        (void)fail(db, e, m->name);
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return -1;
    }
    log_info("database migrated", LOG_S("migration", m->name));
    return 0;
}

int migrate(sqlite3 *db, const char *path, struct err *e)
{
    int version = 0;
    unsigned i;

    if (user_version(db, &version, e) < 0)
        return -1;
    if (version > (int)migrations_len)
        return err_set(e, ERRC_INTERNAL,
                       "database %s has schema version %d, newer than this program's %u; "
                       "use the newer program",
                       path, version, migrations_len);
    for (i = (unsigned)version; i < migrations_len; i++) {
        if (version > 0 && keep_copy(db, path, migrations[i].number, e) < 0)
            return -1;
        if (apply(db, &migrations[i], e) < 0)
            return -1;
    }
    return 0;
}
