/* Changes that share a commit. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/store/db.h"

#include <sqlite3.h>

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { CHANGES = 32, BAD = 8 };

static struct {
    struct db *db;
    sem_t gate;
    atomic_int waiting;
} t;

struct change {
    int n;
    int rc;
    pthread_t thread;
};

static int wait_fn(struct db_conn *c, void *arg, struct err *e)
{
    (void)c, (void)arg, (void)e;
    (void)sem_wait(&t.gate);
    return 0;
}

static int put_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "INSERT INTO meta (key, value) VALUES (?, '')";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || sqlite3_bind_int(st, 1, ((struct change *)arg)->n) != SQLITE_OK)
        return -1;
    return db_exec(c, st, e);
}

/* As when SQLite gives the whole transaction up: for want of memory or disk, or after an I/O error. */
static int give_up_fn(struct db_conn *c, void *arg, struct err *e)
{
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, "ROLLBACK", e);

    (void)arg;
    if (!st || db_exec(c, st, e) < 0)
        return -1;
    return err_set(e, ERRC_INTERNAL, "disk I/O error");
}

static int has_fn(struct db_conn *c, void *arg, struct err *e)
{
    static const char sql[] = "SELECT 1 FROM meta WHERE key = ?";
    AUTO_STMT sqlite3_stmt *st = db_stmt(c, sql, e);

    if (!st || sqlite3_bind_int(st, 1, ((struct change *)arg)->n) != SQLITE_OK)
        return -1;
    return sqlite3_step(st) == SQLITE_ROW ? 0 : -1;
}

static void *run(void *arg)
{
    struct change *ch = arg;
    struct err e = { 0 };

    atomic_fetch_add(&t.waiting, 1);
    ch->rc = db_write(t.db, ch->n == BAD ? give_up_fn : ch->n == 0 ? wait_fn : put_fn, ch, &e);
    return NULL;
}

static void what_failed_is_not_on_disk(void **state)
{
    struct change all[CHANGES];
    struct err e = { 0 };
    int i;

    (void)state;
    assert_int_equal(db_open(":memory:", &t.db, &e), 0);
    assert_int_equal(sem_init(&t.gate, 0, 0), 0);
    for (i = 0; i < CHANGES; i++) {
        all[i] = (struct change){ .n = i };
        assert_int_equal(pthread_create(&all[i].thread, NULL, run, &all[i]), 0);
        while (atomic_load(&t.waiting) <= i) /* about in this order */
            (void)sched_yield();
    }
    (void)sem_post(&t.gate);
    for (i = 0; i < CHANGES; i++)
        (void)pthread_join(all[i].thread, NULL);
    assert_int_equal(all[BAD].rc, -1);
    for (i = 1; i < CHANGES; i++)
        if (i != BAD && all[i].rc != db_read(t.db, has_fn, &all[i], &e))
            fail_msg("change %d: answered %d, but on disk is something else", i, all[i].rc);
    db_close(t.db);
    (void)sem_destroy(&t.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_failed_is_not_on_disk) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
