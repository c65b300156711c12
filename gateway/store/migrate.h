/* Numbered, immutable, forward-only migrations, compiled into the binary from migrations/ (design
 * decision 5). Before each of them a copy of an existing database is kept beside it. */
#pragma once

struct err;
struct sqlite3;

struct migration {
    int number; /* 1, 2, ... without gaps: becomes PRAGMA user_version */
    const char *name;
    const char *sql;
};

extern const struct migration migrations[];
extern const unsigned migrations_len;

/* Brings the database at path (already open as db) up to date. -1: err set, and the database is
 * at the last migration that succeeded. A database newer than this program is refused. */
int migrate(struct sqlite3 *db, const char *path, struct err *e);
