/* The SQLite database: one writer thread that commits in groups, a few read connections, a cache
 * of statements per connection. Safe from any thread but an I/O thread: both calls below block
 * (fsync, locks). Only gateway/store includes sqlite3.h.
 *
 * Durability (design decision 5): WAL, synchronous=FULL; db_write returns after the commit that
 * holds its change has reached the disk. Changes that arrive while a commit runs share the next
 * one. */
#pragma once

struct db;
struct db_conn;
struct err;
struct sqlite3_stmt;

/* A change or a query. Runs with the connection to itself. -1 with err undoes what it wrote. */
typedef int (*db_fn)(struct db_conn *c, void *arg, struct err *e);

/* path ":memory:" gives a private database without files. A second program on the same file is
 * refused (lock on path.lock). 0: *out open and migrated. */
int db_open(const char *path, struct db **out, struct err *e);
void db_close(struct db *db); /* waits for running calls; takes NULL */

int db_write(struct db *db, db_fn fn, void *arg, struct err *e);
int db_read(struct db *db, db_fn fn, void *arg, struct err *e);

/* ---- inside a db_fn ---- */

/* The prepared statement of sql, a string constant (the cache compares addresses), reset. It
 * stays owned by the cache; give it back with AUTO_STMT. NULL: err set. */
struct sqlite3_stmt *db_stmt(struct db_conn *c, const char *sql, struct err *e);
void db_stmt_done(struct sqlite3_stmt **st); /* resets and clears; takes NULL */
#define AUTO_STMT __attribute__((cleanup(db_stmt_done)))
/* -1, err = "<what>: <SQLite's text>". */
int db_fail(struct db_conn *c, struct err *e, const char *what);
/* Steps a statement that returns no rows. */
int db_exec(struct db_conn *c, struct sqlite3_stmt *st, struct err *e);
int db_changes(struct db_conn *c); /* rows changed by the last statement */
