/* The state machine over a fake runtime, an in-memory database and a clock of the test's own. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/reconcile.h"
#include "gateway/store/db.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"

#include <stdlib.h>
#include <string.h>

static int64_t now_ms;

static int64_t fake_now(void)
{
    return now_ms;
}

static const struct clock test_clock = { fake_now, fake_now };

struct world {
    struct db *db;
    struct runtime *rt;
    struct keyed_locks *locks;
    struct lifecycle lc;
    struct reconcile *reconcile;
    json_t *entrypoint;
    json_t *metadata;
    json_t *env;
};

static int setup(void **state)
{
    static const struct reconcile_config cfg = { 1000, 5000, 100000 };
    struct world *w = calloc(1, sizeof(*w));
    struct err e;

    now_ms = 1700000000000;
    assert_int_equal(db_open(":memory:", &w->db, &e), 0);
    w->rt = fake_runtime_new();
    w->locks = keyed_locks_new();
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .clock = &test_clock,
                                .started_ms = now_ms,
                                .max_timeout_s = 3600,
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto" };
    w->reconcile = reconcile_new(&w->lc, &cfg, &e);
    w->entrypoint = json_pack("[s,s,s]", "tail", "-f", "/dev/null");
    w->metadata = json_pack("{s:s}", "app", "demo");
    w->env = json_pack("{s:s,s:n,s:s}", "A", "1", "GONE", "EMPTY", "");
    log_set_level(LOG_OFF);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    reconcile_free(w->reconcile);
    keyed_locks_free(w->locks);
    runtime_close(w->rt);
    db_close(w->db);
    json_decref(w->entrypoint);
    json_decref(w->metadata);
    json_decref(w->env);
    free(w);
    return 0;
}

static int create(struct world *w, int64_t timeout_s, struct sandbox *out, struct err *e)
{
    struct create_req rq = { .image = "img:1",
                             .timeout_s = timeout_s,
                             .entrypoint = w->entrypoint,
                             .metadata = w->metadata,
                             .env = w->env };

    memset(e, 0, sizeof(*e));
    return lifecycle_create(&w->lc, &rq, out, e);
}

static int64_t records(struct world *w)
{
    struct sandbox_page p;
    int64_t total;

    assert_int_equal(lifecycle_list(&w->lc, &(struct sandbox_query){ .limit = 100 }, &p, NULL), 0);
    total = p.total;
    sandbox_page_done(&p);
    return total;
}

static enum sandbox_state state_of(struct world *w, const char *id)
{
    struct sandbox sb;
    enum sandbox_state s;

    assert_int_equal(lifecycle_get(&w->lc, id, &sb, NULL), 0);
    s = sb.state;
    sandbox_done(&sb);
    return s;
}

static void create_claims_with_env_and_entrypoint(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;
    char *claim;
    json_t *c;

    assert_int_equal(create(w, 60, &sb, &e), 0);
    claim = fake_runtime_last_claim(w->rt);
    c = json_loads(claim, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(c, "token")), sb.token);
    assert_int_equal(json_string_length(json_object_get(c, "secret")), 64);
    assert_true(json_equal(json_object_get(c, "entrypoint"), w->entrypoint));
    assert_int_equal(json_integer_value(json_object_get(c, "deadline")), sb.expires_ms);
    assert_int_equal(json_integer_value(json_object_get(c, "now")), now_ms);
    /* null means "leave it out", "" is kept */
    assert_int_equal(json_object_size(json_object_get(c, "env")), 2);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    assert_int_equal(sb.expires_ms, now_ms + 60000);
    assert_int_equal(state_of(w, sb.id), SANDBOX_RUNNING);
    json_decref(c);
    free(claim);
    sandbox_done(&sb);
}

static void failed_create_leaves_nothing(void **state)
{
    static const char *const verbs[] = { "start_held", "claim" };
    struct world *w = *state;
    struct sandbox sb;
    struct err e;
    size_t i;

    for (i = 0; i < 2; i++) {
        fake_runtime_fail(w->rt, verbs[i], 1, ERRC_INTERNAL, "DOCKER::SANDBOX_START_FAILED");
        assert_int_equal(create(w, 0, &sb, &e), -1);
        assert_string_equal(e.api_code, "DOCKER::SANDBOX_START_FAILED");
        assert_int_equal(records(w), 0);
        assert_int_equal(fake_runtime_calls(w->rt, "remove"), (int)i + 1);
    }
}

static void create_that_cannot_be_undone_is_undone_by_the_sweep(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    fake_runtime_fail(w->rt, "claim", 1, ERRC_TIMEOUT, NULL);
    fake_runtime_fail(w->rt, "remove", 1, ERRC_BUSY, NULL);
    assert_int_equal(create(w, 0, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_TIMEOUT);
    assert_int_equal(records(w), 1);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(records(w), 0);
}

static void checks_come_before_any_side_effect(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 3601, &sb, &e), -1);
    assert_string_equal(e.api_code, "SANDBOX::INVALID_PARAMETER");
    (void)json_object_set_new(w->metadata, "opensandbox.io/x", json_string("y"));
    assert_int_equal(create(w, 60, &sb, &e), -1);
    assert_string_equal(e.api_code, "SANDBOX::INVALID_METADATA_LABEL");
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 0);
    assert_int_equal(records(w), 0);
}

static void delete_is_final_and_says_why_afterwards(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, sb.id), RUNTIME_UNKNOWN);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_NOT_FOUND");
    assert_non_null(strstr(e.msg, "DELETED"));
    sandbox_done(&sb);
}

static void delete_goes_on_after_an_engine_outage(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    fake_runtime_fail(w->rt, "remove", 1, ERRC_BUSY, NULL);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), -1);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_DELETE_FAILED");
    assert_int_equal(state_of(w, sb.id), SANDBOX_STOPPING);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(records(w), 0);
    sandbox_done(&sb);
}

/* Due means "at or before now", not "before". */
static void expires_at_the_exact_millisecond(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 60, &sb, &e), 0);
    now_ms = sb.expires_ms - 1;
    assert_int_equal(lifecycle_expire(&w->lc, sb.id, &e), 0);
    assert_int_equal(records(w), 1);
    now_ms = sb.expires_ms;
    assert_int_equal(lifecycle_expire(&w->lc, sb.id, &e), 0);
    assert_int_equal(records(w), 0);
    assert_int_equal(lifecycle_expire(&w->lc, sb.id, &e), 0); /* gone: nothing to do */
    sandbox_done(&sb);
}

static void renew_moves_the_expiry_both_ways(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct sandbox manual;
    struct err e;

    assert_int_equal(create(w, 600, &sb, &e), 0);
    assert_int_equal(lifecycle_renew(&w->lc, sb.id, now_ms + 1, &e), 0);
    assert_int_equal(lifecycle_renew(&w->lc, sb.id, now_ms + 99999999, &e), 0);
    now_ms += 600000;
    assert_int_equal(lifecycle_expire(&w->lc, sb.id, &e), 0);
    assert_int_equal(records(w), 1);
    assert_int_equal(lifecycle_renew(&w->lc, sb.id, now_ms, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_int_equal(create(w, 0, &manual, &e), 0);
    assert_int_equal(lifecycle_renew(&w->lc, manual.id, now_ms + 1000, &e), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    assert_string_equal(e.api_code, "DOCKER::INVALID_EXPIRATION");
    sandbox_done(&sb);
    sandbox_done(&manual);
}

/* Renewing changes the time only, in whatever state. */
static void renewing_leaves_the_state_alone(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 600, &sb, &e), 0);
    assert_int_equal(lifecycle_pause(&w->lc, sb.id, &e), 0);
    assert_int_equal(lifecycle_renew(&w->lc, sb.id, now_ms + 5000, &e), 0);
    assert_int_equal(state_of(w, sb.id), SANDBOX_PAUSED);
    assert_int_equal(fake_runtime_state(w->rt, sb.id), RUNTIME_PAUSED);
    assert_int_equal(lifecycle_resume(&w->lc, sb.id, &e), 0);
    sandbox_done(&sb);
}

static void access_renews_but_never_shortens(void **state)
{
    struct world *w = *state;
    struct create_req rq = {
        .image = "img:1", .timeout_s = 60, .entrypoint = w->entrypoint, .renew_s = 300
    };
    struct sandbox sb;
    struct sandbox got;
    struct err e;

    assert_int_equal(lifecycle_create(&w->lc, &rq, &sb, &e), 0);
    assert_int_equal(lifecycle_renew_by_access(&w->lc, sb.id, &e), 0);
    assert_int_equal(lifecycle_get(&w->lc, sb.id, &got, &e), 0);
    assert_int_equal(got.expires_ms, now_ms + 300000);
    sandbox_done(&got);
    assert_int_equal(lifecycle_renew(&w->lc, sb.id, now_ms + 900000, &e), 0);
    assert_int_equal(lifecycle_renew_by_access(&w->lc, sb.id, &e), 0);
    assert_int_equal(lifecycle_get(&w->lc, sb.id, &got, &e), 0);
    assert_int_equal(got.expires_ms, now_ms + 900000);
    sandbox_done(&got);
    assert_int_equal(lifecycle_renew_by_access(&w->lc, "gone", &e), 0);
    sandbox_done(&sb);
}

static void pause_and_resume_refuse_the_wrong_state(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    assert_int_equal(lifecycle_resume(&w->lc, sb.id, &e), -1);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_NOT_PAUSED");
    assert_int_equal(lifecycle_pause(&w->lc, sb.id, &e), 0);
    assert_int_equal(state_of(w, sb.id), SANDBOX_PAUSED);
    assert_int_equal(lifecycle_pause(&w->lc, sb.id, &e), -1);
    assert_int_equal(e.code, ERRC_CONFLICT);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_NOT_RUNNING");
    assert_int_equal(lifecycle_resume(&w->lc, sb.id, &e), 0);
    assert_int_equal(state_of(w, sb.id), SANDBOX_RUNNING);
    sandbox_done(&sb);
}

static void metadata_patch_sets_and_deletes(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct sandbox after;
    struct err e;
    json_t *patch = json_pack("{s:s,s:n}", "b", "2", "app");

    assert_int_equal(create(w, 0, &sb, &e), 0);
    assert_int_equal(lifecycle_patch_metadata(&w->lc, sb.id, patch, &after, &e), 0);
    assert_string_equal(after.metadata, "{\"b\":\"2\"}");
    json_decref(patch);
    sandbox_done(&sb);
    sandbox_done(&after);
}

static void sweep_follows_what_happened_outside(void **state)
{
    struct world *w = *state;
    struct sandbox a;
    struct sandbox b;
    struct sandbox c;
    struct err e;

    assert_int_equal(create(w, 0, &a, &e), 0);
    assert_int_equal(create(w, 0, &b, &e), 0);
    assert_int_equal(create(w, 0, &c, &e), 0);
    fake_runtime_put(w->rt, a.id, RUNTIME_ENDED, 3);
    fake_runtime_put(w->rt, b.id, RUNTIME_PAUSED, 0);
    fake_runtime_drop(w->rt, c.id);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(state_of(w, a.id), SANDBOX_FAILED);
    assert_int_equal(state_of(w, b.id), SANDBOX_PAUSED);
    assert_int_equal(lifecycle_get(&w->lc, c.id, &c, &e), -1);
    assert_non_null(strstr(e.msg, "CONTAINER_REMOVED"));
    sandbox_done(&a);
    sandbox_done(&b);
    sandbox_done(&c);
}

static void sweep_undoes_a_create_of_an_earlier_process_only(void **state)
{
    struct world *w = *state;
    struct sandbox sb = { .state = SANDBOX_PENDING,
                          .image = (char *)"i",
                          .entrypoint = (char *)"[]",
                          .metadata = (char *)"{}",
                          .extensions = (char *)"{}" };
    struct err e;

    (void)snprintf(sb.id, sizeof(sb.id), "left-over");
    sb.created_ms = w->lc.started_ms - 1;
    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    (void)snprintf(sb.id, sizeof(sb.id), "under-way");
    sb.created_ms = w->lc.started_ms;
    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    fake_runtime_put(w->rt, "left-over", RUNTIME_RUNNING, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(records(w), 1);
    assert_int_equal(state_of(w, "under-way"), SANDBOX_PENDING);
    assert_int_equal(fake_runtime_state(w->rt, "left-over"), RUNTIME_UNKNOWN);
}

static void strays_are_frozen_first_and_removed_later(void **state)
{
    struct world *w = *state;
    struct err e;

    fake_runtime_put(w->rt, "stray", RUNTIME_RUNNING, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, "stray"), RUNTIME_PAUSED);
    now_ms += 4999;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, "stray"), RUNTIME_PAUSED);
    now_ms += 1;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, "stray"), RUNTIME_UNKNOWN);
}

/* A start that was given up, or a removal that the engine forgot, comes to its end after all. */
static void a_container_of_one_that_ended_needs_no_quarantine(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    assert_int_equal(lifecycle_delete(&w->lc, sb.id, NULL, &e), 0);
    fake_runtime_put(w->rt, sb.id, RUNTIME_MADE, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, sb.id), RUNTIME_UNKNOWN);
    assert_int_equal(fake_runtime_calls(w->rt, "pause"), 0);
    sandbox_done(&sb);
}

/* The engine that was asked may have been another one for a while. */
static void one_that_had_vanished_comes_back_into_quarantine(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    fake_runtime_drop(w->rt, sb.id);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(records(w), 0);
    fake_runtime_put(w->rt, sb.id, RUNTIME_RUNNING, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, sb.id), RUNTIME_PAUSED);
    now_ms += 5000;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, sb.id), RUNTIME_UNKNOWN);
    sandbox_done(&sb);
}

static struct {
    const struct runtime_ops *ops;
    struct lifecycle *lc;
    const char *id;
} during;

/* The sandbox is deleted right after the look at the engine. */
static int list_then_delete(struct runtime *rt, struct runtime_list *out, struct err *e)
{
    int rc = during.ops->list(rt, out, e);

    assert_int_equal(lifecycle_delete(during.lc, during.id, NULL, e), 0);
    return rc;
}

static void what_goes_during_a_sweep_is_no_stray(void **state)
{
    struct world *w = *state;
    struct runtime_ops ops = *w->rt->ops;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, 0, &sb, &e), 0);
    during.ops = w->rt->ops;
    during.lc = &w->lc;
    during.id = sb.id;
    ops.list = list_then_delete;
    w->rt->ops = &ops;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    w->rt->ops = during.ops;
    assert_int_equal(fake_runtime_calls(w->rt, "pause"), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "remove"), 1); /* that of the delete */
    sandbox_done(&sb);
}

static int64_t later_wall(void)
{
    return now_ms + 3600000;
}

static void setting_the_clock_does_not_end_a_quarantine(void **state)
{
    static const struct clock set_forward = { later_wall, fake_now };
    struct world *w = *state;
    struct err e;

    fake_runtime_put(w->rt, "stray", RUNTIME_RUNNING, 0);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    w->lc.clock = &set_forward;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, "stray"), RUNTIME_PAUSED);
    now_ms += 5000;
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    assert_int_equal(fake_runtime_state(w->rt, "stray"), RUNTIME_UNKNOWN);
}

static void list_filters_and_pages_newest_first(void **state)
{
    struct world *w = *state;
    struct sandbox sb[3];
    struct sandbox_page p;
    struct err e;
    int i;

    for (i = 0; i < 3; i++) {
        assert_int_equal(create(w, 0, &sb[i], &e), 0); /* same millisecond: order of creation */
    }
    assert_int_equal(lifecycle_pause(&w->lc, sb[1].id, &e), 0);
    assert_int_equal(lifecycle_list(&w->lc,
                                    &(struct sandbox_query){ .states = "[\"running\",\"nonsense\"]",
                                                             .limit = 10 },
                                    &p, &e),
                     0);
    assert_int_equal(p.total, 2);
    assert_string_equal(p.items[0].id, sb[2].id);
    assert_string_equal(p.items[1].id, sb[0].id);
    sandbox_page_done(&p);
    assert_int_equal(lifecycle_list(&w->lc,
                                    &(struct sandbox_query){
                                        .metadata = "{\"app\":\"demo\"}", .offset = 1, .limit = 1 },
                                    &p, &e),
                     0);
    assert_int_equal(p.total, 3);
    assert_int_equal(p.len, 1);
    assert_string_equal(p.items[0].id, sb[1].id);
    sandbox_page_done(&p);
    assert_int_equal(
        lifecycle_list(&w->lc,
                       &(struct sandbox_query){ .metadata = "{\"app\":\"other\"}", .limit = 10 },
                       &p, &e),
        0);
    assert_int_equal(p.total, 0);
    sandbox_page_done(&p);
    for (i = 0; i < 3; i++)
        sandbox_done(&sb[i]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(create_claims_with_env_and_entrypoint),
        T(failed_create_leaves_nothing),
        T(create_that_cannot_be_undone_is_undone_by_the_sweep),
        T(checks_come_before_any_side_effect),
        T(delete_is_final_and_says_why_afterwards),
        T(delete_goes_on_after_an_engine_outage),
        T(expires_at_the_exact_millisecond),
        T(renew_moves_the_expiry_both_ways),
        T(renewing_leaves_the_state_alone),
        T(access_renews_but_never_shortens),
        T(pause_and_resume_refuse_the_wrong_state),
        T(metadata_patch_sets_and_deletes),
        T(sweep_follows_what_happened_outside),
        T(sweep_undoes_a_create_of_an_earlier_process_only),
        T(strays_are_frozen_first_and_removed_later),
        T(a_container_of_one_that_ended_needs_no_quarantine),
        T(one_that_had_vanished_comes_back_into_quarantine),
        T(what_goes_during_a_sweep_is_no_stray),
        T(setting_the_clock_does_not_end_a_quarantine),
        T(list_filters_and_pages_newest_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
