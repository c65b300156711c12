#include "gateway/store/db.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/thread.h"
#include "gateway/store/migrate.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { DB_STMTS = 96, DB_READERS = 4, DB_GROUP = 128, DB_BUSY_MS = 5000 };

struct db_conn {
    sqlite3 *sq;
    pthread_mutex_t guard; /* held while a db_fn runs on it */
    struct {
        const char *sql;
        sqlite3_stmt *st;
    } cache[DB_STMTS];
};

/* A change that waits for its commit, on the stack of the caller of db_write. */
struct change {
    db_fn fn;
    void *arg;
    struct err *e;
    int rc;
    bool done;
    struct change *next;
};

struct db {
    struct db_conn writer;
    struct db_conn readers[DB_READERS];
    unsigned n_readers; /* 0 for :memory:, which one connection alone can see */
    int lock_fd;
    pthread_t thread;
    bool started;
    pthread_mutex_t guard; /* guards the three below; never held together with a conn's guard */
    pthread_cond_t some;
    pthread_cond_t committed;
    struct change *head;
    struct change **tail;
    bool stopping;
};

int db_fail(struct db_conn *c, struct err *e, const char *what)
{
    int rc = sqlite3_extended_errcode(c->sq);

    (void)err_set(e, rc == SQLITE_NOMEM ? ERRC_NOMEM : ERRC_INTERNAL, "%s: %s", what,
                  sqlite3_errmsg(c->sq));
    if (e)
        e->sys = rc;
    return -1;
}

struct sqlite3_stmt *db_stmt(struct db_conn *c, const char *sql, struct err *e)
{
    unsigned i;

    for (i = 0; i < DB_STMTS && c->cache[i].sql; i++)
        if (c->cache[i].sql == sql)
            return c->cache[i].st;
    if (i == DB_STMTS) {
        (void)err_set(e, ERRC_INTERNAL, "statement cache is full");
        return NULL;
    }
    if (sqlite3_prepare_v3(c->sq, sql, -1, SQLITE_PREPARE_PERSISTENT, &c->cache[i].st, NULL) !=
        SQLITE_OK) {
        (void)db_fail(c, e, sql);
        return NULL;
    }
    c->cache[i].sql = sql;
    return c->cache[i].st;
}

void db_stmt_done(struct sqlite3_stmt **st)
{
    if (!*st)
        return;
    (void)sqlite3_reset(*st); /* repeats the error of the last step, already reported */
    (void)sqlite3_clear_bindings(*st);
}

int db_exec(struct db_conn *c, struct sqlite3_stmt *st, struct err *e)
{
    if (sqlite3_step(st) != SQLITE_DONE)
        return db_fail(c, e, "write to the database");
    return 0;
}

int db_changes(struct db_conn *c)
{
    return sqlite3_changes(c->sq);
}

/* ---- the writer ---- */

static int run_sql(struct db_conn *c, const char *sql, struct err *e)
{
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    return st ? db_exec(c, st, e) : -1;
}

/* A failed change is undone alone; the others of its group go on. */
static int run_change(struct db_conn *c, struct change *ch)
{
    if (run_sql(c, "SAVEPOINT change", ch->e) < 0)
        return -1;
    if (ch->fn(c, ch->arg, ch->e) < 0) {
        (void)run_sql(c, "ROLLBACK TO change", NULL);
        (void)run_sql(c, "RELEASE change", NULL);
        return -1;
    }
    return run_sql(c, "RELEASE change", ch->e);
}

/* SQLite may give the transaction up with a change that fails for want of memory or disk: then what came
 * before is undone, and what comes after must not make a transaction of its own. */
static int run_changes(struct db_conn *c, struct change *group, struct err *e)
{
    struct change *ch;

    for (ch = group; ch; ch = ch->next) {
        ch->rc = run_change(c, ch);
        if (!sqlite3_get_autocommit(c->sq))
            continue;
        if (ch->rc == 0 || !ch->e)
            return err_set(e, ERRC_INTERNAL, "the database gave a transaction up");
        *e = *ch->e;
        return -1;
    }
    return 0;
}

static void run_group(struct db_conn *c, struct change *group)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&c->guard);
    struct err e;
    struct change *ch;
    int rc = run_sql(c, "BEGIN IMMEDIATE", &e);

    if (rc == 0)
        rc = run_changes(c, group, &e);
    if (rc == 0) {
        rc = run_sql(c, "COMMIT", &e);
        if (rc < 0)
            (void)run_sql(c, "ROLLBACK", NULL);
    }
    for (ch = group; ch && rc < 0; ch = ch->next) {
        ch->rc = -1;
        if (ch->e)
            *ch->e = e;
    }
}

/* Takes up to DB_GROUP waiting changes; NULL when the database is being closed. */
static struct change *take_group(struct db *db)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&db->guard);
    struct change *group;
    struct change *last;
    unsigned n = 1;

    while (!db->head && !db->stopping)
        (void)pthread_cond_wait(&db->some, &db->guard);
    group = last = db->head;
    if (!group)
        return NULL;
    for (; last->next && n < DB_GROUP; n++)
        last = last->next;
    db->head = last->next;
    if (!db->head)
        db->tail = &db->head;
    last->next = NULL;
    return group;
}

static void *writer_main(void *arg)
{
    struct db *db = arg;
    struct change *group;
    struct change *next;

    while ((group = take_group(db))) {
        run_group(&db->writer, group);

        AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&db->guard);
        for (; group; group = next) {
            next = group->next; /* the waiter's stack frame goes once done is seen */
            group->done = true;
        }
        (void)pthread_cond_broadcast(&db->committed);
    }
    return NULL;
}

int db_write(struct db *db, db_fn fn, void *arg, struct err *e)
{
    struct change ch = { .fn = fn, .arg = arg, .e = e };
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&db->guard);

    *db->tail = &ch;
    db->tail = &ch.next;
    (void)pthread_cond_signal(&db->some);
    while (!ch.done)
        (void)pthread_cond_wait(&db->committed, &db->guard);
    return ch.rc;
}

int db_read(struct db *db, db_fn fn, void *arg, struct err *e)
{
    unsigned i;
    int rc;

    if (!db->n_readers)
        return db_write(db, fn, arg, e);
    for (i = 0; i < db->n_readers; i++)
        if (pthread_mutex_trylock(&db->readers[i].guard) == 0)
            break;
    if (i == db->n_readers) { /* all busy: queue behind the first */
        i = 0;
        (void)pthread_mutex_lock(&db->readers[0].guard);
    }
    rc = fn(&db->readers[i], arg, e);
    (void)pthread_mutex_unlock(&db->readers[i].guard);
    return rc;
}

/* ---- open and close ---- */

static int open_conn(struct db_conn *c, const char *path, int flags, struct err *e)
{
    static const char pragmas[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                                  "PRAGMA foreign_keys = ON;";

    (void)pthread_mutex_init(&c->guard, NULL);
    if (sqlite3_open_v2(path, &c->sq, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        if (!c->sq)
            return err_nomem(e);
        (void)db_fail(c, e, "open database");
        return err_wrap(e, "%s", path);
    }
    (void)sqlite3_busy_timeout(c->sq, DB_BUSY_MS);
    if (sqlite3_exec(c->sq, pragmas, NULL, NULL, NULL) != SQLITE_OK) {
        (void)db_fail(c, e, "set up database");
        return err_wrap(e, "%s", path);
    }
    return 0;
}

static void close_conn(struct db_conn *c)
{
    unsigned i;

    for (i = 0; i < DB_STMTS; i++)
        (void)sqlite3_finalize(c->cache[i].st);
    (void)sqlite3_close(c->sq);
    (void)pthread_mutex_destroy(&c->guard);
}

/* One gateway per database: two of them would fight over timers and containers. */
static int lock_file(struct db *db, const char *path, struct err *e)
{
    char name[4096];

    if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name))
        return err_set(e, ERRC_INVALID, "database path is too long");
    db->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (db->lock_fd < 0)
        return err_sys(e, errno, "open %s", name);
    if (flock(db->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, ERRC_CONFLICT,
                       "database %s is in use by another gateway (lock on %s); stop it or give "
                       "this one another store.path",
                       path, name);
    return 0;
}

static int open_all(struct db *db, const char *path, struct err *e)
{
    bool memory = strcmp(path, ":memory:") == 0;
    mode_t old;
    int rc;

    if (!memory && lock_file(db, path, e) < 0)
        return -1;
    old = umask(077); /* tokens are in there */
    rc = open_conn(&db->writer, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, e);
    (void)umask(old);
    if (rc < 0 || migrate(db->writer.sq, path, e) < 0)
        return -1;
    while (!memory && db->n_readers < DB_READERS) {
        struct db_conn *c = &db->readers[db->n_readers++];

        if (open_conn(c, path, SQLITE_OPEN_READWRITE, e) < 0)
            return -1;
    }
    return 0;
}

static int start_writer(struct db *db, struct err *e)
{
    int rc = thread_start(&db->thread, false, writer_main, db);

    if (rc)
        return err_sys(e, rc, "start the database thread");
    db->started = true;
    return 0;
}

int db_open(const char *path, struct db **out, struct err *e)
{
    struct db *db = calloc(1, sizeof(*db));

    if (!db)
        return err_nomem(e);
    db->lock_fd = -1;
    db->tail = &db->head;
    (void)pthread_mutex_init(&db->guard, NULL);
    (void)pthread_cond_init(&db->some, NULL);
    (void)pthread_cond_init(&db->committed, NULL);
    if (open_all(db, path, e) < 0 || start_writer(db, e) < 0) {
        db_close(db);
        return -1;
    }
    *out = db;
    return 0;
}

void db_close(struct db *db)
{
    unsigned i;

    if (!db)
        return;
    if (db->started) {
        (void)pthread_mutex_lock(&db->guard);
        db->stopping = true;
        (void)pthread_cond_signal(&db->some);
        (void)pthread_mutex_unlock(&db->guard);
        (void)pthread_join(db->thread, NULL);
    }
    for (i = 0; i < db->n_readers; i++)
        close_conn(&db->readers[i]);
    if (db->writer.sq)
        close_conn(&db->writer);
    if (db->lock_fd >= 0)
        (void)close(db->lock_fd);
    (void)pthread_cond_destroy(&db->some);
    (void)pthread_cond_destroy(&db->committed);
    (void)pthread_mutex_destroy(&db->guard);
    free(db);
}
