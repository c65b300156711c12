/* Creates that take long, fail, are deleted and interrupted: a fake runtime, a clock of the test's
 * own, real threads. */
#include "tests/unit/gateway/domain/create_world.h"

#include "common/agent/wire.h"
#include "gateway/domain/claim.h"
#include "gateway/domain/expiry.h"
#include "gateway/store/sandbox_store.h"

/* ---- the ordinary way ---- */

static void a_known_image_needs_no_pull_and_no_thread(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, &sb, &e), 0);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    assert_int_equal(sb.expires_ms, now_ms + 600000);
    assert_string_equal(sb.place.address, "192.0.2.1");
    assert_int_equal(fake_runtime_calls(w->rt, "pull"), 0);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 1);
    assert_int_equal(fake_runtime_calls(w->rt, "status"), 0);
    assert_false(creates_has(w->creates, sb.id));
    expect_state(w, sb.id, SANDBOX_RUNNING);
    sandbox_done(&sb);
}

static void a_request_waits_for_the_image(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    fake_runtime_pull_slices(w->rt, 1);
    assert_int_equal(create(w, &sb, &e), 0);
    assert_int_equal(sb.state, SANDBOX_RUNNING);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 2);
    sandbox_done(&sb);
}

static const char *env_of(const json_t *claim, const char *name)
{
    return json_string_value(json_object_get(json_object_get(claim, "env"), name));
}

static json_t *last_claim(struct world *w)
{
    char *text = fake_runtime_last_claim(w->rt);
    json_t *claim = json_loads(text, 0, NULL);

    assert_non_null(claim);
    free(text);
    return claim;
}

static void the_claim_carries_environment_hints_and_hooks(void **state)
{
    struct world *w = *state;
    json_t *all = json_pack("{s:s, s:s, s:s}", "A", "all", "B", "all", "GOMAXPROCS", "9");
    json_t *own = json_pack("{s:s, s:n, s:s, s:s, s:s}", "A", "own", "B", "EMPTY", "",
                            "OMP_NUM_THREADS", "5", "OPENSANDBOX_EGRESS_LOG_LEVEL", "debug");
    json_t *limits = json_pack("{s:s}", "cpu", "1500m");
    struct sandbox sb;
    json_t *claim;
    struct err e;

    w->lc.env = all;
    w->lc.cpu_hints = true;
    w->rq.env = own;
    w->rq.resources = limits;
    w->rq.hooks = w->hooks;
    w->rq.pre_start_s = 30;
    assert_int_equal(create(w, &sb, &e), 0);
    claim = last_claim(w);
    assert_string_equal(env_of(claim, "A"), "own");
    assert_string_equal(env_of(claim, "B"), "all"); /* null leaves out what the request names */
    assert_string_equal(env_of(claim, "EMPTY"), "");
    assert_string_equal(env_of(claim, "GOMAXPROCS"), "9");
    assert_string_equal(env_of(claim, "OMP_NUM_THREADS"), "5");
    assert_string_equal(env_of(claim, "RAYON_NUM_THREADS"), "2");
    assert_string_equal(env_of(claim, "PYTHON_CPU_COUNT"), "2");
    assert_null(env_of(claim, "OPENSANDBOX_EGRESS_LOG_LEVEL"));
    assert_true(json_equal(json_object_get(claim, "lifecycle"), w->hooks));
    json_decref(claim);
    sandbox_done(&sb);

    w->lc.cpu_hints = false;
    w->lc.env = NULL;
    w->rq.env = NULL;
    w->rq.hooks = NULL;
    w->rq.pre_start_s = 0;
    assert_int_equal(create(w, &sb, &e), 0);
    claim = last_claim(w);
    assert_int_equal(json_object_size(json_object_get(claim, "env")), 0);
    assert_null(json_object_get(claim, "lifecycle"));
    json_decref(claim);
    sandbox_done(&sb);
    json_decref(all);
    json_decref(own);
    json_decref(limits);
}

/* ---- checks ---- */

static void expect_refusal(struct world *w, const char *code, const char *text)
{
    struct sandbox sb;
    struct err e;

    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_string_equal(e.api_code, code);
    assert_contains(e.msg, text);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 0);
    assert_int_equal(records(w, true), 0);
}

static void checks_name_the_field_and_come_in_order(void **state)
{
    struct world *w = *state;
    json_t *metadata = json_pack("{s:s}", "opensandbox.io/x", "y");
    json_t *limits = json_pack("{s:s}", "foo", "1");
    json_t *env = json_pack("{s:s}", "OPENSANDBOX_EGRESS_NO", "1");

    w->lc.max_timeout_s = 600;
    w->rq.timeout_s = 601;
    w->rq.metadata = metadata;
    w->rq.platform_os = "plan9";
    w->rq.platform_arch = "amd64";
    w->rq.resources = limits;
    w->rq.env = env;
    expect_refusal(w, "SANDBOX::INVALID_METADATA_LABEL", "opensandbox.io/x");
    w->rq.metadata = NULL;
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "platform.os");
    w->rq.platform_os = "linux";
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "timeout");
    w->rq.timeout_s = 600;
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "resourceLimits.foo");
    w->rq.resources = NULL;
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "env.OPENSANDBOX_EGRESS_NO");
    json_decref(metadata);
    json_decref(limits);
    json_decref(env);
}

/* The last second of the year 9999 is a date; what is later is none. */
static void a_timeout_ends_within_the_calendar(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    w->rq.timeout_s = (253402300799000 - now_ms) / 1000 + 1;
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "timeout");
    w->rq.timeout_s = INT64_MAX;
    expect_refusal(w, "SANDBOX::INVALID_PARAMETER", "timeout");
    w->rq.timeout_s = (253402300799000 - now_ms) / 1000;
    assert_int_equal(create(w, &sb, &e), 0);
    sandbox_done(&sb);
}

static void a_claim_has_a_size(void **state)
{
    struct world *w = *state;
    char *big = malloc(AGENT_CLAIM_MAX + 1);
    struct sandbox sb;
    struct err e;
    const json_t *before = w->rq.entrypoint;
    json_t *command;

    memset(big, 'x', AGENT_CLAIM_MAX);
    big[AGENT_CLAIM_MAX - CLAIM_RESERVE - 300] = '\0'; /* with token, secret and the rest it fits */
    command = json_pack("[s,s]", "a", big);
    w->rq.entrypoint = command;
    assert_int_equal(create(w, &sb, &e), 0);
    sandbox_done(&sb);
    json_decref(command);
    memset(big, 'x', AGENT_CLAIM_MAX);
    big[AGENT_CLAIM_MAX - CLAIM_RESERVE] = '\0';
    command = json_pack("[s,s]", "a", big);
    w->rq.entrypoint = command;
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_contains(e.msg, "env");
    assert_int_equal(records(w, true), 1);
    json_decref(command);
    w->rq.entrypoint = before;
    free(big);
}

/* ---- what takes long ---- */

static void expect_words(struct world *w, const char *id, const char *reason, const char *text)
{
    struct sandbox sb;

    for (;;) {
        assert_int_equal(lifecycle_get(&w->lc, id, &sb, NULL), 0);
        if (strstr(sb.message, text))
            break;
        sandbox_done(&sb);
        /* the next slice writes it, or the one after it */
        if (!fake_runtime_wait_calls(w->rt, "pull", fake_runtime_calls(w->rt, "pull") + 1))
            fail_msg("no slice follows");
    }
    assert_string_equal(sb.reason, reason);
    assert_int_equal(sb.state, SANDBOX_PENDING);
    sandbox_done(&sb);
}

static void a_pull_shows_its_progress_once_a_second(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct sandbox sb;

    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    expect_words(w, id, "IMAGE_PULLING", "Pulling image img:1.");
    fake_runtime_progress(w->rt, "10 of 40 MB");
    assert_true(fake_runtime_wait_calls(w->rt, "pull", fake_runtime_calls(w->rt, "pull") + 3));
    assert_int_equal(lifecycle_get(&w->lc, id, &sb, NULL), 0);
    assert_null(strstr(sb.message, "10 of 40")); /* no second has passed */
    sandbox_done(&sb);
    now_ms += 1000;
    expect_words(w, id, "IMAGE_PULLING", "Pulling image img:1: 10 of 40 MB");
    fake_runtime_hold_pulls(w->rt, false);
    finish(w, id);
    expect_state(w, id, SANDBOX_RUNNING);
}

static void the_pull_does_not_count_against_the_timeout(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    char renewed[RUNTIME_ID];
    struct sandbox sb;
    struct err e;

    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    create_apart(w, renewed);
    assert_int_equal(lifecycle_renew(&w->lc, renewed, now_ms + 5000, &e), 0);
    now_ms += 900000;
    assert_int_equal(lifecycle_expire(&w->lc, id, &e), 0);
    expect_state(w, id, SANDBOX_PENDING);
    fake_runtime_hold_pulls(w->rt, false);
    finish(w, id);
    finish(w, renewed);
    assert_int_equal(lifecycle_get(&w->lc, id, &sb, &e), 0);
    assert_int_equal(sb.expires_ms, now_ms + 600000);
    sandbox_done(&sb);
    assert_int_equal(lifecycle_get(&w->lc, renewed, &sb, &e), 0);
    assert_int_equal(sb.expires_ms, now_ms - 900000 + 5000); /* somebody said so */
    sandbox_done(&sb);
}

static void a_failed_pull_is_told_afterwards(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];

    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    fake_runtime_fail(w->rt, "pull", -1, ERRC_INTERNAL, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    finish(w, id);
    expect_end(w, id, SANDBOX_FAILED, "IMAGE_PULL_FAILED");
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 1);
    assert_int_equal(fake_runtime_calls(w->rt, "remove"), 0); /* nothing was made */
}

static void a_failure_reaches_who_waits_and_stays_on_record(void **state)
{
    static const struct {
        const char *verb;
        const char *reason;
    } rows[] = {
        { "pull", "IMAGE_PULL_FAILED" },
        { "start_held", "CREATE_FAILED" },
        { "claim", "CREATE_FAILED" },
    };
    struct world *w = *state;
    struct sandbox_query q = { .limit = 1, .with_ended = true };
    struct sandbox_page p;
    struct sandbox sb;
    struct err e;
    char *logs;
    size_t i;

    fake_runtime_set_logs(w->rt, "last words\n");
    for (i = 0; i < 3; i++) {
        now_ms++;
        fake_runtime_pull_slices(w->rt, 1);
        fake_runtime_fail(w->rt, rows[i].verb, 1, ERRC_TIMEOUT, "DOCKER::SANDBOX_START_FAILED");
        assert_int_equal(create(w, &sb, &e), -1);
        assert_int_equal(e.code, ERRC_TIMEOUT);
        assert_string_equal(e.api_code, "DOCKER::SANDBOX_START_FAILED");
        assert_int_equal(records(w, false), 0);
        assert_int_equal(lifecycle_list(&w->lc, &q, &p, &e), 0);
        expect_end(w, p.items[0].id, SANDBOX_FAILED, rows[i].reason);
        assert_contains(p.items[0].message, "fails on demand");
        assert_int_equal(sandbox_store_logs(w->db, p.items[0].id, &logs, &e), 0);
        assert_string_equal(logs, i == 2 ? "last words\n" : ""); /* nothing ran before the claim */
        free(logs);
        sandbox_page_done(&p);
    }
    assert_int_equal(records(w, true), 3);
}

static void an_image_that_vanishes_again_is_no_404(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    fake_runtime_fail(w->rt, "start_held", 2, ERRC_NOT_FOUND, NULL);
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_INTERNAL);
    assert_string_equal(e.api_code, "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
}

static void a_hook_is_waited_for_apart(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct sandbox sb;

    w->rq.hooks = w->hooks;
    w->rq.pre_start_s = 30;
    fake_runtime_hold_claims(w->rt, true);
    create_apart(w, id);
    assert_true(fake_runtime_wait_calls(w->rt, "claim", 1));
    assert_int_equal(lifecycle_get(&w->lc, id, &sb, NULL), 0);
    assert_int_equal(sb.state, SANDBOX_PENDING);
    assert_string_equal(sb.reason, "PRE_START");
    sandbox_done(&sb);
    fake_runtime_hold_claims(w->rt, false);
    finish(w, id);
    expect_state(w, id, SANDBOX_RUNNING);
    assert_int_equal(fake_runtime_calls(w->rt, "pull"), 0);
}

/* ---- deleted meanwhile ---- */

static void delete_while_pulling_takes_effect_at_once(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct err e;

    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &e), 0);
    finish(w, id); /* although the pull goes on */
    expect_end(w, id, SANDBOX_TERMINATED, "DELETED");
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 1);
}

static void delete_while_claiming_takes_effect_at_once(void **state)
{
    struct world *w = *state;
    char id[RUNTIME_ID];
    struct err e;

    w->rq.hooks = w->hooks;
    w->rq.pre_start_s = 30;
    fake_runtime_hold_claims(w->rt, true);
    create_apart(w, id);
    assert_true(fake_runtime_wait_calls(w->rt, "claim", 1));
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &e), 0);
    finish(w, id);
    expect_end(w, id, SANDBOX_TERMINATED, "DELETED");
}

static void who_waits_for_a_deleted_one_is_told(void **state)
{
    struct world *w = *state;
    struct request r;
    char id[RUNTIME_ID];
    struct err e;

    fake_runtime_hold_claims(w->rt, true);
    send_request(w, &r);
    assert_true(fake_runtime_wait_calls(w->rt, "claim", 1));
    only_id(w, id);
    assert_int_equal(lifecycle_delete(&w->lc, id, NULL, &e), 0);
    (void)pthread_join(r.thread, NULL);
    assert_int_equal(r.rc, -1);
    assert_int_equal(r.e.code, ERRC_CONFLICT);
    assert_contains(r.e.msg, "deleted");
    expect_end(w, id, SANDBOX_TERMINATED, "DELETED");
}

/* ---- limits ---- */

static void as_many_go_on_as_is_allowed(void **state)
{
    struct world *w = *state;
    char ids[CREATES_BACKGROUND_MAX][RUNTIME_ID];
    struct sandbox sb;
    struct err e;
    int i;

    w->lc.expiry = expiry_new(&w->lc, &e);
    assert_non_null(w->lc.expiry);
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    for (i = 0; i < CREATES_BACKGROUND_MAX; i++)
        create_apart(w, ids[i]);
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_int_equal(e.retry_after_s, CREATES_RETRY_S);
    assert_int_equal(records(w, true), CREATES_BACKGROUND_MAX);
    assert_int_equal(expiry_len(w->lc.expiry), CREATES_BACKGROUND_MAX); /* nothing stays behind */
    w->rq.hooks = w->hooks; /* known beforehand: not even tried */
    w->rq.pre_start_s = 30;
    i = fake_runtime_calls(w->rt, "start_held");
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), i);
    w->rq.hooks = NULL;
    w->rq.pre_start_s = 0;
    fake_runtime_hold_pulls(w->rt, false);
    for (i = 0; i < CREATES_BACKGROUND_MAX; i++) {
        finish(w, ids[i]);
        expect_state(w, ids[i], SANDBOX_RUNNING);
    }
    assert_int_equal(create(w, &sb, &e), 0);
    sandbox_done(&sb);
    expiry_free(w->lc.expiry);
    w->lc.expiry = NULL;
}

static void waiting_requests_do_not_take_every_thread(void **state)
{
    struct creates *cs = creates_new(0);
    struct creation *c = creates_begin(cs, "x");

    (void)state;
    assert_int_equal(creates_wait(cs, c, TEST_DEADLINE_MS, NULL), 0); /* at once */
    creates_end(cs, c, NULL);
    creates_free(cs);
}

/* ---- the end of the server ---- */

static void stop_undoes_what_pulls_and_what_waits_for_a_hook(void **state)
{
    struct world *w = *state;
    char pulling[RUNTIME_ID];
    char hooked[RUNTIME_ID];
    struct sandbox sb;
    struct err e;

    w->rq.hooks = w->hooks;
    w->rq.pre_start_s = 10800;
    fake_runtime_hold_claims(w->rt, true);
    create_apart(w, hooked);
    assert_true(fake_runtime_wait_calls(w->rt, "claim", 1));
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, pulling);
    lifecycle_stop(&w->lc);
    expect_end(w, hooked, SANDBOX_FAILED, "CREATE_INTERRUPTED");
    expect_end(w, pulling, SANDBOX_FAILED, "CREATE_INTERRUPTED");
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_int_equal(records(w, false), 0);
}

/* Up to a thousand requests may wait for a thread when the server stops. */
static void none_is_begun_once_it_stops(void **state)
{
    struct world *w = *state;
    struct sandbox sb;
    struct err e;

    lifecycle_stop(&w->lc);
    assert_int_equal(create(w, &sb, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_int_equal(e.retry_after_s, CREATES_RETRY_S);
    assert_int_equal(fake_runtime_calls(w->rt, "start_held"), 0);
    assert_int_equal(records(w, true), 0);
}

static void the_sweep_undoes_what_nobody_makes(void **state)
{
    struct world *w = *state;
    struct sandbox sb = { .state = SANDBOX_PENDING,
                          .image = (char *)"i",
                          .entrypoint = (char *)"[]",
                          .metadata = (char *)"{}",
                          .extensions = (char *)"{}" };
    char id[RUNTIME_ID];
    struct err e;

    (void)snprintf(sb.id, sizeof(sb.id), "nobodys");
    sb.created_ms = now_ms + 1; /* whatever the clock says */
    assert_int_equal(sandbox_store_insert(w->db, &sb, &e), 0);
    fake_runtime_put(w->rt, "nobodys", RUNTIME_RUNNING, 0);
    fake_runtime_pull_slices(w->rt, 1);
    fake_runtime_hold_pulls(w->rt, true);
    create_apart(w, id);
    assert_int_equal(reconcile_once(w->reconcile, &e), 0);
    expect_end(w, "nobodys", SANDBOX_FAILED, "CREATE_INTERRUPTED");
    expect_state(w, id, SANDBOX_PENDING);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_known_image_needs_no_pull_and_no_thread),
        T(a_request_waits_for_the_image),
        T(the_claim_carries_environment_hints_and_hooks),
        T(checks_name_the_field_and_come_in_order),
        T(a_timeout_ends_within_the_calendar),
        T(a_claim_has_a_size),
        T(a_pull_shows_its_progress_once_a_second),
        T(the_pull_does_not_count_against_the_timeout),
        T(a_failed_pull_is_told_afterwards),
        T(a_failure_reaches_who_waits_and_stays_on_record),
        T(an_image_that_vanishes_again_is_no_404),
        T(a_hook_is_waited_for_apart),
        T(delete_while_pulling_takes_effect_at_once),
        T(delete_while_claiming_takes_effect_at_once),
        T(who_waits_for_a_deleted_one_is_told),
        T(as_many_go_on_as_is_allowed),
        T(waiting_requests_do_not_take_every_thread),
        T(stop_undoes_what_pulls_and_what_waits_for_a_hook),
        T(none_is_begun_once_it_stops),
        T(the_sweep_undoes_what_nobody_makes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
