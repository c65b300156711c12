/* Verbs of the Docker runtime that end a sandbox or tell about it: stop, logs, describe, metrics. */
#include "tests/unit/gateway/runtime/docker_fixture.h"

#include "common/base/buf.h"
#include "common/base/macros.h"
#include "common/json/utf8.h"
#include "gateway/runtime/docker/calls.h"
#include "gateway/runtime/docker/describe.h"
#include "gateway/runtime/docker/frames.h"

#define CONTAINER "/containers/sandbox-" ID

/* ---- stop ---- */

static void stop_is_graceful_and_idempotent(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(runtime_stop(x->rt, ID, 5000, &x->e), 0); /* there is none */
    assert_int_equal(start(x), 0);
    assert_int_equal(runtime_stop(x->rt, ID, 2500, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST " CONTAINER "/stop?t=3"), 1);
    assert_int_equal(fake_docker_containers(x->fake, "exited"), 1);
    assert_int_equal(runtime_stop(x->rt, ID, 0, &x->e), 0); /* it has ended: 304 */
    assert_int_equal(fake_docker_calls(x->fake, "POST " CONTAINER "/stop?t=0"), 1);
}

static void a_paused_one_is_thawed_first(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(start(x), 0);
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), 0);
    assert_int_equal(runtime_stop(x->rt, ID, 1000, &x->e), 0);
    assert_int_equal(fake_docker_calls(x->fake, "POST " CONTAINER "/unpause"), 1);
    assert_int_equal(fake_docker_containers(x->fake, "exited"), 1);
}

/* The engine answers after the grace: that may be longer than any other call takes. */
static void the_grace_is_not_cut_by_the_calls_deadline(void **state)
{
    struct fixture *x = *state;

    x->cfg.api_timeout_s = 1;
    assert_int_equal(reopen(x), 0);
    assert_int_equal(start(x), 0);
    fake_docker_rule(x->fake,
                     &(struct fake_rule){ .part = "/stop", .how = FAKE_PASS, .delay_ms = 1500 });
    assert_int_equal(runtime_stop(x->rt, ID, 1000, &x->e), 0);
}

static void a_refused_stop_is_said(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(start(x), 0);
    fail_next(x, CONTAINER, "/stop", 500, "{\"message\":\"cannot kill\"}");
    assert_int_equal(runtime_stop(x->rt, ID, 1000, &x->e), -1);
    assert_contains(x->e.msg, "cannot kill");
    fake_docker_die(x->fake);
    assert_int_equal(runtime_stop(x->rt, ID, 1000, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_BUSY);
}

/* ---- logs ---- */

static int read_logs(struct fixture *x, const struct runtime_log_query *q, struct buf *out,
                     bool *cut)
{
    buf_free(out);
    x->e = (struct err){ 0 };
    *cut = false;
    return runtime_logs(x->rt, ID, q, out, cut, &x->e);
}

static void put_frame(struct buf *b, int stream, const char *data, size_t len)
{
    const char head[8] = { (char)stream,     0,        0, 0, (char)(len >> 24), (char)(len >> 16),
                           (char)(len >> 8), (char)len };

    assert_int_equal(buf_append(b, head, sizeof(head)), 0);
    assert_int_equal(buf_append(b, data, len), 0);
}

/* The engine's next logs are these bytes. */
static void tell(struct fixture *x, const struct buf *raw)
{
    fake_docker_rule(x->fake, &(struct fake_rule){ .path = CONTAINER,
                                                   .part = "/logs",
                                                   .how = FAKE_REPLY,
                                                   .status = 200,
                                                   .body = raw->data,
                                                   .body_len = raw->len,
                                                   .times = 1 });
}

static void logs_are_asked_for_as_wanted(void **state)
{
    struct fixture *x = *state;
    const struct runtime_log_query all = { 0 };
    const struct runtime_log_query some = { .tail = 7,
                                            .since_ms = 1700000000042,
                                            .timestamps = true };
    struct buf out = BUF_INIT(1024);
    bool cut;

    assert_int_equal(start(x), 0);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_string_equal(out.data, "oh no!\n");
    assert_false(cut);
    assert_int_equal(
        fake_docker_calls(x->fake, "GET " CONTAINER "/logs?stdout=1&stderr=1&tail=1025"), 1);
    assert_int_equal(read_logs(x, &some, &out, &cut), 0);
    assert_int_equal(fake_docker_calls(x->fake, "GET " CONTAINER "/logs?stdout=1&stderr=1&tail=7"
                                                "&since=1700000000.042000000&timestamps=1"),
                     1);
    fake_docker_end(x->fake, "sandbox-" ID, 1);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0); /* an ended one tells too */
    assert_string_equal(out.data, "oh no!\n");
    buf_free(&out);
}

static void the_end_of_much_output_is_kept(void **state)
{
    struct fixture *x = *state;
    const struct runtime_log_query all = { 0 };
    struct buf raw = BUF_INIT(4 << 20);
    struct buf out = BUF_INIT(1000);
    char line[32];
    bool cut;
    int i;

    assert_int_equal(start(x), 0);
    for (i = 0; i < 60000; i++) {
        (void)snprintf(line, sizeof(line), "line %06d\n", i);
        put_frame(&raw, i % 2 + 1, line, strlen(line));
    }
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_true(cut);
    assert_int_equal(out.len, 1000);
    assert_string_equal(out.data + out.len - 24, "line 059998\nline 059999\n");

    buf_clear(&raw); /* one frame that is larger than the room */
    {
        char *big = malloc(300000);

        memset(big, 'a', 299999);
        big[299999] = 'z';
        put_frame(&raw, 1, big, 300000);
        free(big);
    }
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_true(cut);
    assert_int_equal(out.len, 1000);
    assert_int_equal(out.data[999], 'z');

    buf_clear(&raw); /* exactly what fits */
    memset(line, 'b', sizeof(line));
    for (i = 0; i < 100; i++)
        put_frame(&raw, 1, line, 10);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_false(cut);
    assert_int_equal(out.len, 1000);
    buf_free(&raw);
    buf_free(&out);
}

static void bytes_become_text(void **state)
{
    struct fixture *x = *state;
    const struct runtime_log_query all = { 0 };
    struct buf raw = BUF_INIT(1 << 20);
    struct buf out = BUF_INIT(100);
    bool cut;
    int i;

    assert_int_equal(start(x), 0);
    put_frame(&raw, 1, "a\xff\xc3", 3); /* a character cut by a frame is whole again */
    put_frame(&raw, 1, "\xa9z", 2);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_false(cut);
    assert_string_equal(out.data, "a\xef\xbf\xbd\xc3\xa9z");

    buf_clear(&raw); /* three bytes of text for each */
    for (i = 0; i < 50; i++)
        put_frame(&raw, 2, "\xff", 1);
    put_frame(&raw, 2, "end", 3);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_true(cut);
    assert_true(out.len <= 100 && out.len > 96);
    assert_int_equal(utf8_valid_len(out.data, out.len), out.len);
    assert_string_equal(out.data + out.len - 3, "end");

    buf_clear(&raw); /* the cut falls into a character */
    put_frame(&raw, 1, "xxxxxx", 6);
    for (i = 0; i < 49; i++)
        put_frame(&raw, 1, "\xc3\xa9", 2);
    put_frame(&raw, 1, "!", 1);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_true(cut);
    assert_int_equal(utf8_valid_len(out.data, out.len), out.len);
    assert_null(strstr(out.data, "\xef\xbf\xbd"));

    buf_clear(&raw); /* what is no text at all does not vanish */
    for (i = 0; i < 300; i++)
        put_frame(&raw, 1, "\x80", 1);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), 0);
    assert_true(out.len > 96);
    buf_free(&raw);
    buf_free(&out);
}

static void an_errors_text_is_no_output(void **state)
{
    struct fixture *x = *state;
    const struct runtime_log_query all = { 0 };
    struct buf raw = BUF_INIT(1 << 20);
    struct buf out = BUF_INIT(100);
    bool cut;

    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_int_equal(start(x), 0);
    fail_next(x, CONTAINER, "/logs", 409, "{\"message\":\"marked for removal\"}");
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    fail_next(x, CONTAINER, "/logs", 501, "{\"message\":\"driver does not support reading\"}");
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_contains(x->e.msg, "does not support reading");
    fail_next(x, CONTAINER, "/logs", 200, "raw bytes of a terminal");
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);

    put_frame(&raw, 1, "good", 4);
    put_frame(&raw, FRAMES_SYSTEM, "Error grabbing logs: bad file", 29);
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_contains(x->e.msg, "Error grabbing logs");
    buf_clear(&raw);
    put_frame(&raw, 1, "half", 4);
    raw.len -= 2;
    tell(x, &raw);
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_int_equal(x->e.code, ERRC_BAD_GATEWAY);
    fake_docker_rule(x->fake, &(struct fake_rule){ .part = "/logs", .how = FAKE_TRUNCATE });
    assert_int_equal(read_logs(x, &all, &out, &cut), -1);
    assert_int_equal(out.len, 0);
    buf_free(&raw);
    buf_free(&out);
}

/* ---- describe ---- */

static const char about[] =
    "{\"Id\":\"c0ffee\",\"Image\":\"sha256:99\",\"Created\":\"2026-01-01T00:00:00Z\",\"State\":{"
    "\"Status\":\"exited\",\"ExitCode\":137,\"OOMKilled\":true,\"StartedAt\":\"2026-01-01T00:00:01Z\","
    "\"FinishedAt\":\"2026-01-01T00:00:02Z\"},\"Config\":{\"Image\":\"img:1\",\"Labels\":{"
    "\"sandgate.id\":\"" ID "\",\"maintainer\":\"a\\nstate: running\"},\"Env\":[\"PATH=/bin\","
    "\"API_KEY=1\",\"my_token=2\",\"DbPassword=3\",\"AWS_SECRET_ACCESS_KEY=4\",\"PWD=/x\",\"ODD\"]},"
    "\"HostConfig\":{\"Memory\":64,\"MemorySwap\":64,\"NanoCpus\":0,\"PidsLimit\":4096,\"Runtime\":"
    "\"runc\",\"ReadonlyRootfs\":false},\"NetworkSettings\":{\"Networks\":{\"sg\":{\"IPAddress\":"
    "\"10.9.0.3\"}},\"Ports\":{\"44772/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"32768\"}],"
    "\"8080/tcp\":null}},\"Mounts\":[{\"Type\":\"volume\",\"Name\":\"work\",\"Source\":\"/var/x\","
    "\"Destination\":\"/work\",\"RW\":true},{\"Type\":\"bind\",\"Source\":\"/srv\",\"Destination\":"
    "\"/data\",\"RW\":false},{\"Type\":\"tmpfs\",\"Source\":\"\",\"Destination\":\"/tmp\",\"RW\":true}]}";

static void a_description_says_all_but_secrets(void **state)
{
    static const char *const lines[] = {
        "image: img:1\n",
        "image id: sha256:99\n",
        "state: exited\n",
        "exit code: 137\n",
        "out of memory: yes\n",
        "started: 2026-01-01T00:00:01Z\n",
        "finished: 2026-01-01T00:00:02Z\n",
        "memory limit (bytes): 64\n",
        "cpu limit (billionths): none\n",
        "process limit: 4096\n",
        "runtime: runc\n",
        "network: sg, address 10.9.0.3\n",
        "port: 44772/tcp at 127.0.0.1:32768\n",
        "mount: volume work at /work (rw)\n",
        "mount: bind at /data (ro)\n",
        "mount: tmpfs at /tmp (rw)\n",
        "label: sandgate.id=" ID "\n",
        "label: maintainer=a state: running\n",
        "env: PATH=/bin\n",
        "env: API_KEY=***\n",
        "env: my_token=***\n",
        "env: DbPassword=***\n",
        "env: AWS_SECRET_ACCESS_KEY=***\n",
        "env: PWD=/x\n",
        "env: ODD=\n",
    };
    struct fixture *x = *state;
    struct buf out = BUF_INIT(8192);
    size_t i;

    assert_int_equal(runtime_describe(x->rt, ID, &out, &x->e), -1);
    assert_int_equal(x->e.code, ERRC_NOT_FOUND);
    assert_int_equal(start(x), 0);
    fail_next(x, CONTAINER, "/json", 200, about);
    assert_int_equal(runtime_describe(x->rt, ID, &out, &x->e), 0);
    for (i = 0; i < ARRAY_LEN(lines); i++)
        assert_contains(out.data, lines[i]);
    buf_free(&out);
}

static void a_description_fits_or_ends_with_a_line(void **state)
{
    json_t *v = json_loads(about, 0, NULL);
    struct err e = { 0 };
    size_t max;

    (void)state;
    for (max = 0; max < 1200; max += 7) {
        struct buf out = BUF_INIT(max);

        assert_int_equal(describe_container(v, &out, &e), 0);
        assert_true(out.len <= max);
        if (out.len)
            assert_int_equal(out.data[out.len - 1], '\n');
        buf_free(&out);
    }
    json_decref(v);
    v = json_loads("{\"State\":{}}", 0, NULL);
    assert_int_equal(describe_container(v, &(struct buf){ .max = 9 }, &e), -1);
    assert_int_equal(e.code, ERRC_BAD_GATEWAY);
    json_decref(v);
}

/* ---- metrics ---- */

static void calls_are_counted_by_operation(void **state)
{
    static const char *const lines[] = {
        "# TYPE sandgate_engine_calls_total counter\n",
        "{op=\"create\",result=\"refused\"} 1\n",
        "{op=\"start\",result=\"ok\"} 1\n",
        "{op=\"inspect\",result=\"ok\"} 1\n",
        "{op=\"pause\",result=\"failed\"} 1\n",
        "{op=\"logs\",result=\"ok\"} 0\n",
        "sandgate_image_pulls_running 0\n",
    };
    struct fixture *x = *state;
    struct buf out = BUF_INIT(64 << 10);
    size_t i;

    prepare(x);
    assert_int_equal(reopen(x),
                     0); /* what prepares is there: creates and starts are the sandboxes' */
    assert_int_equal(runtime_prepare(x->rt, &x->e), 0);
    assert_int_equal(start_as(x, ID, "nope:1", &x->e), -1);
    assert_int_equal(start(x), 0);
    fake_docker_rule(x->fake, &(struct fake_rule){ .part = "/pause", .how = FAKE_CLOSE });
    assert_int_equal(runtime_pause(x->rt, ID, &x->e), -1);
    runtime_metrics(x->rt, &out);
    for (i = 0; i < ARRAY_LEN(lines); i++)
        assert_contains(out.data, lines[i]);
    buf_free(&out);
}

static void operations_are_read_from_the_path(void **state)
{
    static const char *const cases[][3] = {
        { "POST", "/containers/create?name=a", "create" },
        { "POST", "/containers/a/start", "start" },
        { "POST", "/containers/a/stop?t=1", "stop" },
        { "POST", "/containers/a/pause", "pause" },
        { "POST", "/containers/a/unpause", "resume" },
        { "GET", "/containers/json?all=1", "list" },
        { "GET", "/containers/a/json", "inspect" },
        { "GET", "/containers/a/logs?tail=1", "logs" },
        { "GET", "/containers/a/archive?path=/", "archive" },
        { "DELETE", "/containers/a?force=1", "remove" },
        { "POST", "/images/create?fromImage=a", "pull" },
        { "POST", "/images/create?fromSrc=-", "import" },
        { "POST", "/images/load", "import" },
        { "GET", "/images/a/json", "image" },
        { "DELETE", "/images/a", "image" },
        { "POST", "/commit?container=a", "commit" },
        { "GET", "/volumes/v", "volume" },
        { "POST", "/networks/create", "network" },
        { "GET", "/events?since=1", "events" },
        { "GET", "/info", "info" },
        { "GET", "/version", "other" },
    };
    char want[96];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        struct calls c = { 0 };
        struct buf out = BUF_INIT(64 << 10);

        calls_count(&c, cases[i][0], cases[i][1], CALLS_OK);
        calls_metrics(&c, &out);
        (void)snprintf(want, sizeof(want), "{op=\"%s\",result=\"ok\"} 1\n", cases[i][2]);
        assert_contains(out.data, want);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stop_is_graceful_and_idempotent),
        TEST(a_paused_one_is_thawed_first),
        TEST(the_grace_is_not_cut_by_the_calls_deadline),
        TEST(a_refused_stop_is_said),
        TEST(logs_are_asked_for_as_wanted),
        TEST(the_end_of_much_output_is_kept),
        TEST(bytes_become_text),
        TEST(an_errors_text_is_no_output),
        TEST(a_description_says_all_but_secrets),
        cmocka_unit_test(a_description_fits_or_ends_with_a_line),
        TEST(calls_are_counted_by_operation),
        cmocka_unit_test(operations_are_read_from_the_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
