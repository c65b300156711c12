/* The state machine of snapshots over a fake runtime and an in-memory database: captures, recovery,
 * deletes, restores, and what happens when they meet. */
#include "tests/unit/gateway/domain/snapshot_world.h"

/* ---- create ---- */

static void it_is_creating_until_it_is_ready(void **state)
{
    struct world *w = *state;
    struct snapshot s;
    struct snapshot after;

    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    assert_int_equal(snapshots_create(w->s, w->source, "first", &s, &w->e), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 1));
    assert_state(w, s.id, SNAPSHOT_CREATING, "snapshot_accepted");
    assert_string_equal(get(w, s.id).message, "Snapshot creation accepted.");
    now_ms += 500;
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_state(w, s.id, SNAPSHOT_READY, "snapshot_runtime_ready");
    after = get(w, s.id);
    assert_string_equal(after.name, "first");
    assert_string_equal(after.sandbox_id, w->source);
    assert_int_equal(after.created_ms, s.created_ms);
    assert_int_equal(after.transition_ms, s.created_ms + 500);
    assert_int_equal(after.size_bytes, 4096);
    assert_true(fake_runtime_has_snapshot(w->rt, s.id));
}

static void a_failure_says_why_and_leaves_no_image(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    fake_runtime_fail(w->rt, "snapshot_make", 1, ERRC_INTERNAL, NULL);
    take(w, id);
    assert_state(w, id, SNAPSHOT_FAILED, "snapshot_runtime_failed");
    assert_contains(get(w, id).message, "fails on demand");
    assert_false(fake_runtime_has_snapshot(w->rt, id));
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);

    fake_runtime_fail(w->rt, "snapshot_make", 1, ERRC_TIMEOUT, NULL);
    take(w, id);
    assert_state(w, id, SNAPSHOT_FAILED, "snapshot_runtime_timeout");
}

static void the_source_must_run(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct snapshot s;

    assert_int_equal(lifecycle_pause(&w->lc, w->source, &w->e), 0);
    assert_error(w, snapshots_create(w->s, w->source, NULL, &s, &w->e), ERRC_CONFLICT,
                 "SNAPSHOT::INVALID_SOURCE_STATE");
    assert_error(w, snapshots_create(w->s, "nobody", NULL, &s, &w->e), ERRC_NOT_FOUND,
                 "DOCKER::SANDBOX_NOT_FOUND");
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_make"), 0);

    w->cfg.allow_paused = true;
    restart(w);
    ready(w, id);
    assert_int_equal(fake_runtime_state(w->rt, w->source), RUNTIME_PAUSED);
}

static void an_unfit_runtime_is_refused_before_any_work(void **state)
{
    struct world *w = *state;
    struct snapshot s;

    w->cfg.refusal = "not with this runtime";
    restart(w);
    assert_error(w, snapshots_create(w->s, w->source, NULL, &s, &w->e), ERRC_CONFLICT,
                 "SNAPSHOT::UNSUPPORTED_RUNTIME");
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_make"), 0);
}

static void a_source_that_ends_before_its_turn_fails_it(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    leave(w, "s1", SNAPSHOT_CREATING, w->source);
    assert_int_equal(snapshots_reserve(w->s, "s1", &w->e), 0);
    assert_int_equal(lifecycle_delete(&w->lc, w->source, NULL, &w->e), 0);
    snapshots_post(w->s, "s1", false);
    wait_idle(w);
    assert_state(w, "s1", SNAPSHOT_FAILED, "snapshot_runtime_failed");
    assert_contains(get(w, "s1").message, "source ended");
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_make"), 0);

    run_sandbox(w, id); /* one that was paused meanwhile is still captured */
    leave(w, "s2", SNAPSHOT_CREATING, id);
    assert_int_equal(snapshots_reserve(w->s, "s2", &w->e), 0);
    assert_int_equal(lifecycle_pause(&w->lc, id, &w->e), 0);
    snapshots_post(w->s, "s2", false);
    wait_idle(w);
    assert_state(w, "s2", SNAPSHOT_READY, "snapshot_runtime_ready");
}

static void there_is_an_end_to_how_many_wait(void **state)
{
    struct world *w = *state;
    struct snapshot s;
    struct snapshot_page p;
    int i;

    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    for (i = 0; i < SNAPSHOTS_WAITING_MAX; i++)
        assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    assert_error(w, snapshots_create(w->s, w->source, NULL, &s, &w->e), ERRC_BUSY, "");
    assert_int_equal(w->e.retry_after_s, 1);
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_int_equal(snapshots_list(w->s,
                                    &(struct snapshot_query){ .limit = 1, .states = "[\"Ready\"]" },
                                    &p, &w->e),
                     0);
    assert_int_equal(p.total, SNAPSHOTS_WAITING_MAX); /* the refused one left no row */
    snapshot_page_done(&p);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
}

static void there_is_an_end_to_how_many_are_kept(void **state)
{
    struct world *w = *state;
    struct snapshot s;
    char id[RUNTIME_ID];

    w->cfg.max = 2;
    restart(w);
    ready(w, id);
    fake_runtime_hold(w->rt, "snapshot_make", w->source); /* what is being made counts */
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    assert_error(w, snapshots_create(w->s, w->source, NULL, &s, &w->e), ERRC_LIMIT, "");
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);
    ready(w, id);
}

/* ---- recovery ---- */

static void what_was_cut_off_is_finished(void **state)
{
    struct world *w = *state;

    leave(w, "made", SNAPSHOT_CREATING, w->source);
    put_image(w, "made");
    leave(w, "again", SNAPSHOT_CREATING, w->source);
    leave(w, "lost", SNAPSHOT_CREATING, "gone");
    leave(w, "old", SNAPSHOT_READY, w->source);
    leave(w, "removed", SNAPSHOT_DELETING, w->source);
    leave(w, "there", SNAPSHOT_DELETING, w->source);
    put_image(w, "there");
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    wait_idle(w);
    assert_state(w, "made", SNAPSHOT_READY, "snapshot_recovery_ready");
    assert_state(w, "again", SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_true(fake_runtime_has_snapshot(w->rt, "again"));
    assert_state(w, "lost", SNAPSHOT_FAILED, "snapshot_recovery_missing_image");
    assert_state(w, "old", SNAPSHOT_READY, "left");
    assert_error(w, snapshots_get(w->s, "removed", &(struct snapshot){ 0 }, &w->e), ERRC_NOT_FOUND,
                 "SNAPSHOT::NOT_FOUND");
    assert_error(w, snapshots_get(w->s, "there", &(struct snapshot){ 0 }, &w->e), ERRC_NOT_FOUND,
                 "SNAPSHOT::NOT_FOUND");
    assert_false(fake_runtime_has_snapshot(w->rt, "there"));
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
}

static void an_engine_that_is_away_is_waited_for(void **state)
{
    struct world *w = *state;
    struct snapshot s;

    leave(w, "s1", SNAPSHOT_CREATING, w->source);
    leave(w, "s2", SNAPSHOT_DELETING, w->source);
    fake_runtime_fail(w->rt, "snapshot_get", 1, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR");
    fake_runtime_fail(w->rt, "snapshot_remove", 1, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR");
    assert_int_equal(snapshots_pass(w->s, &w->e), 2);
    assert_state(w, "s1", SNAPSHOT_CREATING, "left");
    assert_state(w, "s2", SNAPSHOT_DELETING, "left");
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    wait_idle(w);
    assert_state(w, "s1", SNAPSHOT_READY, "snapshot_runtime_ready");

    /* the same in the middle of a capture, with the background thread at work */
    fake_runtime_fail(w->rt, "snapshot_make", 1, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR");
    assert_int_equal(snapshots_start(w->s, &w->e), 0);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 3));
    wait_idle(w);
    assert_state(w, s.id, SNAPSHOT_READY, "snapshot_runtime_ready");
}

/* The engine goes on with what a process that died had asked for. */
static void what_the_engine_is_still_at_is_waited_for(void **state)
{
    struct world *w = *state;
    struct sandbox sb;

    leave(w, "s1", SNAPSHOT_CREATING, w->source);
    leave(w, "s2", SNAPSHOT_CREATING, w->source);
    fake_runtime_put(w->rt, w->source, RUNTIME_PAUSED, 0);
    restart(w);
    w->lc.capture_wait_ms = 1;
    assert_int_equal(lifecycle_try_settle(&w->lc, w->source, &w->e), 1);
    assert_int_equal(lifecycle_get(&w->lc, w->source, &sb, &w->e), 0);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    sandbox_done(&sb);
    assert_error(w, lifecycle_delete(&w->lc, w->source, NULL, &w->e), ERRC_BUSY, "");
    assert_int_equal(snapshots_pass(w->s, &w->e), 2);
    assert_state(w, "s1", SNAPSHOT_CREATING, "left");
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_make"), 0);

    fake_runtime_put(w->rt, w->source, RUNTIME_RUNNING, 0);
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    wait_idle(w);
    assert_state(w, "s1", SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_state(w, "s2", SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(lifecycle_delete(&w->lc, w->source, NULL, &w->e), 0);

    leave(w, "s3", SNAPSHOT_CREATING, "gone"); /* a mark does not outlive who set it */
    restart(w);
    assert_true(captures_has(w->lc.captures, "gone"));
    snapshots_free(w->s);
    assert_false(captures_has(w->lc.captures, "gone"));
    start(w);
}

static void what_is_under_way_is_left_alone(void **state)
{
    struct world *w = *state;
    struct snapshot s;

    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 1));
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_get"), 0);
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_make"), 1);
}

static void *free_them(void *arg)
{
    struct world *w = arg;

    snapshots_free(w->s);
    return NULL;
}

static void what_waits_at_the_end_is_left_to_the_next_start(void **state)
{
    struct world *w = *state;
    struct snapshot running;
    struct snapshot waiting;
    pthread_t thread;

    w->cfg.workers = 1;
    restart(w);
    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &running, &w->e), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 1));
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &waiting, &w->e), 0);
    assert_int_equal(pthread_create(&thread, NULL, free_them, w), 0);
    /* the capture that is held keeps it from being freed */
    TEST_UNTIL(snapshots_reserve(w->s, "x", &w->e) < 0 && w->e.code == ERRC_BUSY,
               (snapshots_release(w->s, "x"), captures_wait(w->lc.captures, w->source, 1)));
    fake_runtime_release(w->rt);
    (void)pthread_join(thread, NULL);
    start(w);
    assert_state(w, running.id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_state(w, waiting.id, SNAPSHOT_CREATING, "snapshot_accepted");
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    wait_idle(w);
    assert_state(w, waiting.id, SNAPSHOT_READY, "snapshot_runtime_ready");
}

/* ---- delete ---- */

static void image_and_row_go_together(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    ready(w, id);
    assert_int_equal(lifecycle_delete(&w->lc, w->source, NULL, &w->e),
                     0); /* the source may be gone */
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);
    assert_false(fake_runtime_has_snapshot(w->rt, id));
    assert_error(w, snapshots_delete(w->s, id, &w->e), ERRC_NOT_FOUND, "SNAPSHOT::NOT_FOUND");
    assert_error(w, snapshots_delete(w->s, "nothing", &w->e), ERRC_NOT_FOUND,
                 "SNAPSHOT::NOT_FOUND");
}

static void one_that_is_being_created_stays(void **state)
{
    struct world *w = *state;
    struct snapshot s;

    fake_runtime_hold(w->rt, "snapshot_make", w->source);
    assert_int_equal(snapshots_create(w->s, w->source, NULL, &s, &w->e), 0);
    assert_true(fake_runtime_wait_calls(w->rt, "snapshot_make", 1));
    assert_error(w, snapshots_delete(w->s, s.id, &w->e), ERRC_CONFLICT, "SNAPSHOT::INVALID_STATE");
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_state(w, s.id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(snapshots_delete(w->s, s.id, &w->e), 0);
}

static void one_in_use_stays_ready(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    char id[RUNTIME_ID];

    ready(w, id);
    assert_int_equal(create(w, id, 0, &sb), 0);
    assert_error(w, snapshots_delete(w->s, id, &w->e), ERRC_CONFLICT, "SNAPSHOT::DELETE_CONFLICT");
    assert_contains(w->e.msg, "1 sandbox made");
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(fake_runtime_calls(w->rt, "snapshot_remove"), 0);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &w->e), 0);
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);
    sandbox_done(&sb);
}

static void a_refusal_of_the_engine_puts_it_back(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    ready(w, id);
    fake_runtime_fail(w->rt, "snapshot_remove", 1, ERRC_CONFLICT, NULL);
    assert_error(w, snapshots_delete(w->s, id, &w->e), ERRC_CONFLICT, "SNAPSHOT::DELETE_CONFLICT");
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);

    leave(w, "s1", SNAPSHOT_DELETING, w->source); /* what it was before is not known any more */
    put_image(w, "s1");
    fake_runtime_fail(w->rt, "snapshot_remove", 1, ERRC_CONFLICT, NULL);
    assert_error(w, snapshots_delete(w->s, "s1", &w->e), ERRC_CONFLICT,
                 "SNAPSHOT::DELETE_CONFLICT");
    assert_state(w, "s1", SNAPSHOT_READY, "snapshot_delete_conflict");
}

static void a_failure_of_the_engine_is_retried(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    ready(w, id);
    fake_runtime_fail(w->rt, "snapshot_remove", 2, ERRC_BUSY, "DOCKER::INITIALIZATION_ERROR");
    assert_error(w, snapshots_delete(w->s, id, &w->e), ERRC_INTERNAL,
                 "DOCKER::SNAPSHOT_IMAGE_REMOVE_FAILED");
    assert_state(w, id, SNAPSHOT_DELETING, "snapshot_delete_requested");
    assert_int_equal(snapshots_pass(w->s, &w->e), 1);
    assert_int_equal(snapshots_pass(w->s, &w->e), 0);
    assert_error(w, snapshots_get(w->s, id, &(struct snapshot){ 0 }, &w->e), ERRC_NOT_FOUND,
                 "SNAPSHOT::NOT_FOUND");
}

/* ---- restore ---- */

static void a_sandbox_is_made_from_it(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    char id[RUNTIME_ID];
    char *spec;

    ready(w, id);
    assert_int_equal(lifecycle_delete(&w->lc, w->source, NULL, &w->e), 0);
    assert_int_equal(create(w, id, 0, &sb), 0);
    assert_string_equal(sb.snapshot_id, id);
    assert_string_equal(sb.image, "");
    assert_int_equal(sb.expires_ms, 0);
    spec = fake_runtime_last_spec(w->rt);
    assert_contains(spec, id);
    assert_contains(spec, "\"image\": null");
    assert_int_equal(fake_runtime_calls(w->rt, "pull"), 0);
    free(spec);
    sandbox_done(&sb);
}

static void only_what_is_ready_is_restored(void **state)
{
    struct world *w = *state;
    struct sandbox sb;

    assert_error(w, create(w, "nothing", 0, &sb), ERRC_NOT_FOUND, "SNAPSHOT::NOT_FOUND");
    leave(w, "s1", SNAPSHOT_CREATING, w->source);
    leave(w, "s2", SNAPSHOT_FAILED, w->source);
    leave(w, "s3", SNAPSHOT_DELETING, w->source);
    assert_error(w, create(w, "s1", 0, &sb), ERRC_CONFLICT, "SNAPSHOT::NOT_READY");
    assert_error(w, create(w, "s2", 0, &sb), ERRC_CONFLICT, "SNAPSHOT::NOT_READY");
    assert_error(w, create(w, "s3", 0, &sb), ERRC_CONFLICT, "SNAPSHOT::NOT_READY");
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 1); /* that of the source */
}

static void a_missing_image_is_found_out(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    char id[RUNTIME_ID];

    ready(w, id);
    assert_int_equal(runtime_snapshot_remove(w->rt, id, &w->e), 0);
    assert_error(w, create(w, id, 0, &sb), ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    assert_state(w, id, SNAPSHOT_FAILED, "snapshot_image_missing");
    assert_error(w, create(w, id, 0, &sb), ERRC_CONFLICT, "SNAPSHOT::NOT_READY");
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);
}

static void another_failure_leaves_it_ready(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    char id[RUNTIME_ID];

    ready(w, id);
    fake_runtime_fail(w->rt, "start_held", 1, ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    assert_error(w, create(w, id, 0, &sb), ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG");
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(snapshots_delete(w->s, id, &w->e), 0); /* the failed create is no user */
}

static void the_platform_must_be_the_same(void **state)
{
    struct world *w = *state;
    struct snapshot s = { .created_ms = now_ms, .platform_os = "linux", .platform_arch = "arm64" };

    (void)snprintf(s.id, sizeof(s.id), "s1");
    snapshot_set_state(&s, SNAPSHOT_READY, "r", "m", now_ms);
    assert_int_equal(snapshot_store_insert(w->db, &s, 10, &w->e), 0);
    assert_int_equal(snapshots_check_restore(&w->lc, "s1", NULL, NULL, &w->e), 0);
    assert_int_equal(snapshots_check_restore(&w->lc, "s1", "linux", "arm64", &w->e), 0);
    assert_error(w, snapshots_check_restore(&w->lc, "s1", "linux", "amd64", &w->e), ERRC_CONFLICT,
                 "SNAPSHOT::INVALID_RESTORE_CONFIG");
}

/* ---- the source during a capture ---- */

struct deleting {
    struct world *w;
    int rc;
    struct err e;
    pthread_t thread;
};

static void *run_delete(void *arg)
{
    struct deleting *c = arg;

    c->rc = lifecycle_delete(&c->w->lc, c->w->source, NULL, &c->e);
    return NULL;
}

static void a_delete_of_the_source_comes_after_it(void **state)
{
    struct world *w = *state;
    struct deleting c = { .w = w };
    char id[RUNTIME_ID];

    hold_a_capture(w, id);
    assert_int_equal(pthread_create(&c.thread, NULL, run_delete, &c), 0);
    assert_false(captures_wait(w->lc.captures, w->source, 10));
    assert_int_equal(fake_runtime_calls(w->rt, "remove"), 0);
    fake_runtime_release(w->rt);
    (void)pthread_join(c.thread, NULL);
    assert_int_equal(c.rc, 0);
    wait_idle(w);
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
    assert_int_equal(fake_runtime_state(w->rt, w->source), RUNTIME_UNKNOWN);
}

static void changes_of_the_source_wait_only_so_long(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    int64_t next;

    hold_a_capture(w, id);
    w->lc.capture_wait_ms = 1;
    assert_error(w, lifecycle_pause(&w->lc, w->source, &w->e), ERRC_BUSY, "");
    assert_contains(w->e.msg, "snapshot");
    assert_int_equal(w->e.retry_after_s, 1);
    assert_error(w, lifecycle_delete(&w->lc, w->source, NULL, &w->e), ERRC_BUSY, "");
    assert_int_equal(lifecycle_renew(&w->lc, w->source, now_ms + 1000, &w->e), 0);
    now_ms += 2000; /* its time has come: others that are due are not held up by it */
    assert_int_equal(lifecycle_try_expire(&w->lc, w->source, &next, &w->e), 1);
    assert_error(w, lifecycle_expire(&w->lc, w->source, &w->e), ERRC_BUSY, "");
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_int_equal(lifecycle_expire(&w->lc, w->source, &w->e), 0);
    assert_int_equal(fake_runtime_state(w->rt, w->source), RUNTIME_UNKNOWN);
    assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
}

static void the_sweep_does_not_mistake_it_for_a_pause(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    char id[RUNTIME_ID];

    hold_a_capture(w, id);
    fake_runtime_put(w->rt, w->source, RUNTIME_PAUSED, 0); /* as the engine does meanwhile */
    assert_int_equal(lifecycle_try_settle(&w->lc, w->source, &w->e), 1);
    assert_int_equal(lifecycle_get(&w->lc, w->source, &sb, &w->e), 0);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    sandbox_done(&sb);
    fake_runtime_end(w->rt, w->source, 3, false, now_ms); /* it dies: seen right after */
    fake_runtime_release(w->rt);
    wait_idle(w);
    assert_int_equal(lifecycle_get(&w->lc, w->source, &sb, &w->e), 0);
    assert_int_equal(sb.state, SANDBOX_FAILED);
    sandbox_done(&sb);
}

/* ---- races ---- */

struct racer {
    struct world *w;
    const char *id;
    pthread_barrier_t *go;
    struct sandbox sb;
    int rc;
    struct err e;
    pthread_t thread;
};

static void *race_delete(void *arg)
{
    struct racer *r = arg;

    (void)pthread_barrier_wait(r->go);
    r->rc = snapshots_delete(r->w->s, r->id, &r->e);
    return NULL;
}

static void *race_create(void *arg)
{
    struct racer *r = arg;
    struct create_req rq = { .snapshot_id = r->id, .entrypoint = r->w->entrypoint };

    (void)pthread_barrier_wait(r->go);
    r->rc = lifecycle_create(&r->w->lc, &rq, &r->sb, &r->e);
    return NULL;
}

static void *race_snapshot(void *arg)
{
    struct racer *r = arg;
    struct snapshot s;

    (void)pthread_barrier_wait(r->go);
    r->rc = snapshots_create(r->w->s, r->w->source, NULL, &s, &r->e);
    return NULL;
}

static void race(struct world *w, const char *id, void *(*first)(void *), void *(*second)(void *),
                 struct racer out[2])
{
    pthread_barrier_t go;
    int i;

    assert_int_equal(pthread_barrier_init(&go, NULL, 2), 0);
    for (i = 0; i < 2; i++) {
        out[i] = (struct racer){ .w = w, .id = id, .go = &go };
        assert_int_equal(pthread_create(&out[i].thread, NULL, i ? second : first, &out[i]), 0);
    }
    for (i = 0; i < 2; i++)
        (void)pthread_join(out[i].thread, NULL);
    (void)pthread_barrier_destroy(&go);
}

static void of_two_deletes_one_wins(void **state)
{
    struct world *w = *state;
    struct racer r[2];
    char id[RUNTIME_ID];
    int round;
    int loser;

    for (round = 0; round < 20; round++) {
        ready(w, id);
        race(w, id, race_delete, race_delete, r);
        loser = r[0].rc == 0;
        assert_int_equal(r[!loser].rc, 0);
        assert_int_equal(r[loser].rc, -1);
        assert_string_equal(r[loser].e.api_code, "SNAPSHOT::NOT_FOUND");
        assert_false(fake_runtime_has_snapshot(w->rt, id));
    }
}

static void a_restore_and_a_delete_exclude_each_other(void **state)
{
    struct world *w = *state;
    struct racer r[2];
    char id[RUNTIME_ID];
    int round;

    for (round = 0; round < 50; round++) {
        ready(w, id);
        race(w, id, race_create, race_delete, r);
        assert_int_equal(r[0].rc + r[1].rc, -1); /* exactly one of them went through */
        assert_int_equal(fake_runtime_has_snapshot(w->rt, id), r[0].rc == 0);
        if (r[0].rc < 0) {
            if (strcmp(r[0].e.api_code, "SNAPSHOT::NOT_READY") != 0)
                assert_string_equal(r[0].e.api_code, "SNAPSHOT::NOT_FOUND");
            continue;
        }
        assert_string_equal(r[1].e.api_code, "SNAPSHOT::DELETE_CONFLICT");
        assert_state(w, id, SNAPSHOT_READY, "snapshot_runtime_ready");
        assert_int_equal(lifecycle_delete(&w->lc, r[0].sb.id, NULL, &w->e), 0);
        assert_int_equal(snapshots_delete(w->s, id, &w->e), 0);
        sandbox_done(&r[0].sb);
    }
}

static void two_of_one_sandbox_come_one_after_the_other(void **state)
{
    struct world *w = *state;
    struct racer r[2];
    struct snapshot_page p;
    int round;

    for (round = 1; round <= 20; round++) {
        race(w, NULL, race_snapshot, race_snapshot, r);
        assert_int_equal(r[0].rc + r[1].rc, 0);
        wait_idle(w);
        assert_int_equal(
            snapshots_list(w->s, &(struct snapshot_query){ .limit = 1, .states = "[\"Ready\"]" },
                           &p, &w->e),
            0);
        assert_int_equal(p.total, 2 * round);
        snapshot_page_done(&p);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(it_is_creating_until_it_is_ready),
        T(a_failure_says_why_and_leaves_no_image),
        T(the_source_must_run),
        T(an_unfit_runtime_is_refused_before_any_work),
        T(a_source_that_ends_before_its_turn_fails_it),
        T(there_is_an_end_to_how_many_wait),
        T(there_is_an_end_to_how_many_are_kept),
        T(what_was_cut_off_is_finished),
        T(an_engine_that_is_away_is_waited_for),
        T(what_the_engine_is_still_at_is_waited_for),
        T(what_is_under_way_is_left_alone),
        T(what_waits_at_the_end_is_left_to_the_next_start),
        T(image_and_row_go_together),
        T(one_that_is_being_created_stays),
        T(one_in_use_stays_ready),
        T(a_refusal_of_the_engine_puts_it_back),
        T(a_failure_of_the_engine_is_retried),
        T(a_sandbox_is_made_from_it),
        T(only_what_is_ready_is_restored),
        T(a_missing_image_is_found_out),
        T(another_failure_leaves_it_ready),
        T(the_platform_must_be_the_same),
        T(a_delete_of_the_source_comes_after_it),
        T(changes_of_the_source_wait_only_so_long),
        T(the_sweep_does_not_mistake_it_for_a_pause),
        T(of_two_deletes_one_wins),
        T(a_restore_and_a_delete_exclude_each_other),
        T(two_of_one_sandbox_come_one_after_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
