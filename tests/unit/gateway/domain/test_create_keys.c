/* Creates that are repeated with a key, by clients and after a crash. */
#include "tests/unit/gateway/domain/create_world.h"

#include "gateway/store/idempotency_store.h"
#include "gateway/store/sandbox_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- keys ---- */

static void use_key(struct world *w, const char *key, char body)
{
    w->rq.key = key;
    memset(w->rq.body_sha256, body, 64);
    w->rq.body_sha256[64] = '\0';
}

static void expect_conflict(struct world *w, const char *text)
{
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    assert_string_equal(e.api_code, "GENERAL::IDEMPOTENCY_CONFLICT");
    assert_contains(e.msg, "Idempotency-Key");
    assert_contains(e.msg, text);
}

static void a_key_names_one_sandbox(void **state)
{
    struct world *w = *state;
    struct sandbox first;
    struct sandbox again;
    struct err e;

    use_key(w, "k", 'a');
    assert_int_equal(create(w, &first, &e), 0);
    assert_int_equal(create(w, &again, &e), 0);
    assert_string_equal(first.id, again.id);
    assert_int_equal(again.state, SANDBOX_RUNNING);
    assert_int_equal(records(w, true), 1);
    sandbox_done(&again);
    use_key(w, "k", 'b');
    expect_conflict(w, "another body");
    use_key(w, "other", 'a');
    assert_int_equal(create(w, &again, &e), 0);
    assert_string_not_equal(first.id, again.id);
    sandbox_done(&again);
    use_key(w, "k", 'a');
    assert_int_equal(lifecycle_pause(&w->lc, first.id, &e), 0);
    assert_int_equal(create(w, &again, &e), 0); /* as it is now */
    assert_int_equal(again.state, SANDBOX_PAUSED);
    sandbox_done(&again);
    assert_int_equal(lifecycle_delete(&w->lc, first.id, NULL, &e), 0);
    expect_conflict(w, "has ended");
    sandbox_done(&first);
}

static void a_key_of_one_that_is_being_removed_is_spent(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    use_key(w, "k", 'a');
    assert_int_equal(create(w, &sb, &e), 0);
    fake_runtime_fail(w->rt, "remove", 1, ERRC_BUSY, NULL);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), -1);
    expect_conflict(w, "is being removed");
    sandbox_done(&sb);
}

static void a_failed_create_frees_its_key(void **state)
{
    static const char *const verbs[] = { "start_held", "claim", "remove" };
    struct world *w = *state;
    struct sandbox sb;
    struct err e;
    size_t i;

    use_key(w, "k", 'a');
    for (i = 0; i < 3; i++) {
        /* the third cannot even be undone: the sweep has to */
        fake_runtime_fail(w->rt, verbs[i], 1, ERRC_INTERNAL, NULL);
        if (i == 2)
            fake_runtime_fail(w->rt, "claim", 1, ERRC_INTERNAL, NULL);
        assert_int_equal(create(w, &sb, &e), -1);
    }
    use_key(w, "k", 'b'); /* it may be another request now */
    assert_int_equal(create(w, &sb, &e), 0);
    sandbox_done(&sb);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(records(w, false), 1);
    assert_int_equal(records(w, true), 4);
}

static void a_key_waits_for_the_first_and_shares_its_failure(void **state)
{
    struct world *w = *state;
    struct request r;
    char id[RUNTIME_ID];

    use_key(w, "k", 'a');
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    create_apart(w, id); /* pending as well: it is the same */
    assert_int_equal(records(w, true), 1);
    send_request(w, &r);
    fake_runtime_fail(w->rt, "pull", -1, ERRC_INTERNAL, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    (void)pthread_join(r.thread, NULL);
    assert_int_equal(r.rc, -1);
    assert_string_equal(r.e.api_code, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    assert_int_equal(records(w, false), 0);
}

enum { RACERS = 8 };

static void requests_that_race_make_one_sandbox(void **state)
{
    struct world *w = *state;
    struct request r[RACERS];
    int round;
    int i;

    for (round = 0; round < 4; round++) {
        use_key(w, round % 2 ? "odd" : "even", (char)('a' + round));
        if (round == 1)
            fake_runtime_pull_slices(w->rt, 1);
        if (round >= 2)
            w->rq.key = round == 2 ? "x" : "y";
        for (i = 0; i < RACERS; i++)
            send_request(w, &r[i]);
        for (i = 0; i < RACERS; i++) {
            (void)pthread_join(r[i].thread, NULL);
            if (r[i].rc < 0)
                fail_msg("round %d, request %d: %s", round, i, r[i].e.msg);
            assert_string_equal(r[i].sb.id, r[0].sb.id);
            assert_int_equal(r[i].sb.state, SANDBOX_RUNNING);
        }
        for (i = 0; i < RACERS; i++)
            sandbox_done(&r[i].sb);
        assert_int_equal(records(w, true), round + 1);
    }
}

static void keys_are_forgotten_after_a_day(void **state)
{
    struct world *w = *state;
    struct sandbox first;
    struct sandbox again;
    struct err e;

    use_key(w, "k", 'a');
    assert_int_equal(create(w, &first, &e), 0);
    now_ms += LIFECYCLE_KEY_KEEP_MS;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(create(w, &again, &e), 0);
    assert_string_equal(first.id, again.id);
    sandbox_done(&again);
    now_ms += 1;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(create(w, &again, &e), 0);
    assert_string_not_equal(first.id, again.id);
    sandbox_done(&again);
    sandbox_done(&first);
}

/* ---- crashes ---- */

static int setup_file(void **state)
{
    struct world *w = new_world();
    int fd;

    (void)snprintf(w->path, sizeof(w->path), "/tmp/sandgate-test-XXXXXX");
    fd = mkostemp(w->path, O_CLOEXEC);
    assert_true(fd >= 0);
    (void)close(fd);
    *state = w;
    return 0;
}

static int teardown_file(void **state)
{
    static const char *const ends[] = { "", "-wal", "-shm", ".lock" };
    struct world *w = *state;
    char name[96];
    size_t i;

    for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", w->path, ends[i]);
        (void)unlink(name);
    }
    free_world(w);
    return 0;
}

/* In a process of its own: a create that dies at a step. The image has to be pulled. */
static void crash_at(struct world *w, const char *step)
{
    char fault[64];
    struct sandbox sb;
    struct err e;
    int status;
    pid_t pid;

    (void)snprintf(fault, sizeof(fault), "crash:%s", step);
    pid = fork();
    if (pid == 0) {
        (void)setenv("SANDGATE_FAULT", fault, 1);
        open_world(w, w->path);
        fake_runtime_pull_slices(w->rt, 1);
        (void)create(w, &sb, &e);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("did not die at %s: status %d", step, status);
}

/* Whatever the process left: the next one undoes it, its key is free, nothing is left over. */
static void a_crash_leaves_neither_ghost_nor_orphan(void **state)
{
    static const char *const steps[] = { "create.intent", "create.pulled", "create.held",
                                         "create.claimed" };
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct sandbox sb;
    struct err e;
    size_t i;

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        use_key(w, "k", 'a');
        crash_at(w, steps[i]);
        now_ms += 10;
        open_world(w, w->path);
        assert_int_equal(records(w, false), 1);
        {
            struct sandbox_ids ids;

            assert_int_equal(sandbox_store_ids(w->db, SANDBOX_PENDING, &ids, &e), 0);
            assert_int_equal(ids.len, 1);
            memcpy(id, ids.ids[0], RUNTIME_ID);
            free(ids.ids);
        }
        if (i >= 2) /* the engine has it */
            fake_runtime_put(w->rt, id, RUNTIME_RUNNING, 0);
        assert_int_equal(reconcile_once(w->reconcile, &e), 0);
        expect_end(w, id, SANDBOX_FAILED, "CREATE_INTERRUPTED");
        assert_int_equal(records(w, false), 0);
        assert_int_equal(create(w, &sb, &e), 0); /* the retry of the client */
        assert_string_not_equal(sb.id, id);
        assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), 0);
        assert_int_equal(idempotency_store_release(w->db, sb.id, &e), 0);
        sandbox_done(&sb);
        close_world(w);
    }
}

/* The client may be quicker than the sweep. */
static void a_key_whose_create_died_makes_another_before_the_sweep(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct sandbox sb;
    struct err e;

    use_key(w, "k", 'a');
    crash_at(w, "create.held");
    now_ms += 10;
    open_world(w, w->path);
    only_id(w, id);
    fake_runtime_put(w->rt, id, RUNTIME_RUNNING, 0);
    fake_runtime_fail(w->rt, "remove", 1, ERRC_BUSY, NULL);
    assert_int_equal(create(w, &sb, &e), -1); /* the engine is not back yet */
    assert_int_equal(e.code, ERRC_BUSY);
    assert_int_equal(create(w, &sb, &e), 0);
    assert_string_not_equal(sb.id, id);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    expect_end(w, id, SANDBOX_FAILED, "CREATE_INTERRUPTED");
    sandbox_done(&sb);
    close_world(w);
}

static void a_confirmed_create_outlives_a_crash_and_its_key_finds_it(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct sandbox sb;
    struct err e;

    use_key(w, "k", 'a');
    crash_at(w, "create.confirmed");
    open_world(w, w->path);
    only_id(w, id);
    fake_runtime_put(w->rt, id, RUNTIME_RUNNING, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(create(w, &sb, &e), 0);
    assert_string_equal(sb.id, id);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 0);
    sandbox_done(&sb);
    close_world(w);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define T_FILE(f) cmocka_unit_test_setup_teardown(f, setup_file, teardown_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_key_names_one_sandbox),
        T(a_key_of_one_that_is_being_removed_is_spent),
        T(a_failed_create_frees_its_key),
        T(a_key_waits_for_the_first_and_shares_its_failure),
        T(requests_that_race_make_one_sandbox),
        T(keys_are_forgotten_after_a_day),
        T_FILE(a_crash_leaves_neither_ghost_nor_orphan),
        T_FILE(a_key_whose_create_died_makes_another_before_the_sweep),
        T_FILE(a_confirmed_create_outlives_a_crash_and_its_key_finds_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
