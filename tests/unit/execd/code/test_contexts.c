/* Contexts over kernels that do what the test says: order, limits, back-pressure, death. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/http/http.h"
#include "execd/code/contexts.h"
#include "execd/exec/run.h"

#include <string.h>
#include <sys/socket.h>

enum { KERNELS_MAX = 80, DEADLINE_MS = 10000, SEEN_MAX = 64 << 20 };

/* A kernel that only notes what is asked of it. */
struct kernel {
    const struct kernel_events *ev;
    void *owner;
    char code[64];
    char cwd[64];
    bool busy;
    bool held;
    bool alive;
    unsigned interrupts;
};

/* One test; kernels by the order of their making. */
static struct world {
    struct loop *loop;
    struct runs *runs;
    struct http_server *server;
    struct contexts *contexts;
    struct context *target; /* of the next request */
    struct kernel kernels[KERNELS_MAX];
    unsigned n;
    struct err no_kernel; /* create fails with it */
} w;

static struct kernel *create(void *provider, const struct kernel_req *rq, struct err *e)
{
    struct kernel *k;

    assert_ptr_equal(provider, &w);
    if (w.no_kernel.code) {
        *e = w.no_kernel;
        return NULL;
    }
    assert_true(w.n < KERNELS_MAX);
    k = &w.kernels[w.n++];
    *k = (struct kernel){ .ev = rq->events, .owner = rq->owner, .alive = true };
    (void)snprintf(k->cwd, sizeof(k->cwd), "%s", rq->cwd ? rq->cwd : "");
    return k;
}

static int execute(struct kernel *k, const char *code, struct err *e)
{
    (void)e;
    assert_true(k->alive && !k->busy);
    k->busy = true;
    (void)snprintf(k->code, sizeof(k->code), "%s", code);
    return 0;
}

static int interrupt(struct kernel *k, struct err *e)
{
    (void)e;
    k->interrupts++;
    return 0;
}

static void hold(struct kernel *k, bool on)
{
    assert_true(k->alive && k->held != on);
    k->held = on;
}

static void destroy(struct kernel *k)
{
    if (k)
        k->alive = false;
}

static const struct kernel_ops ops = { create, execute, interrupt, hold, destroy };

static void ready(unsigned i)
{
    char id[32];

    (void)snprintf(id, sizeof(id), "id-%u", i);
    w.kernels[i].ev->on_ready(w.kernels[i].owner, id, NULL);
}

static void say(unsigned i, const char *text)
{
    w.kernels[i].ev->on_text(w.kernels[i].owner, false, text, strlen(text));
}

static void idle(unsigned i, int64_t count)
{
    w.kernels[i].busy = false;
    w.kernels[i].ev->on_idle(w.kernels[i].owner, count);
}

static void die(unsigned i)
{
    struct err e = { 0 };

    (void)err_set(&e, ERRC_INTERNAL, "killed by signal 9");
    w.kernels[i].busy = false;
    w.kernels[i].ev->on_dead(w.kernels[i].owner, &e);
}

/* ---- a client ---- */

struct client {
    int fd;
    struct buf in;
};

static int handle(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    return context_run(w.target, rq->body, &rs->stream, e);
}

static const struct http_route routes[] = { { "POST", "/run", handle, HTTP_OPEN, 1 << 20, NULL } };

static void pull(struct client *c)
{
    char *at = buf_reserve(&c->in, 65536);
    ssize_t n = recv(c->fd, at, 65536, MSG_DONTWAIT);

    if (n > 0)
        c->in.len += (size_t)n;
    if (n > 0)
        c->in.data[c->in.len] = '\0';
}

static void until(struct client *c, const char *text)
{
    int64_t end = clock_mono_ms() + DEADLINE_MS;

    while (!c->in.len || !strstr(c->in.data, text)) {
        if (clock_mono_ms() > end)
            fail_msg("no %s in: %.2000s", text, c->in.len ? c->in.data : "nothing");
        assert_int_equal(loop_step(w.loop, 10, NULL), 0);
        pull(c);
    }
}

static void turns(unsigned n)
{
    while (n--)
        assert_int_equal(loop_step(w.loop, 1, NULL), 0);
}

static struct client run(struct context *target, const char *code)
{
    struct err e = { 0 };
    struct client c = { .fd = http_server_connect(w.server, &e), .in = BUF_INIT(SEEN_MAX) };
    AUTO_BUF struct buf head = BUF_INIT(1 << 20);

    assert_true(c.fd >= 0);
    w.target = target;
    assert_int_equal(buf_printf(&head,
                                "POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                                strlen(code), code),
                     0);
    assert_int_equal(send(c.fd, head.data, head.len, 0), head.len);
    until(&c, "\r\n\r\n");
    return c;
}

static void leave(struct client *c)
{
    (void)close(c->fd);
    buf_free(&c->in);
    turns(3);
}

static bool has(const struct client *c, const char *text)
{
    return c->in.len && strstr(c->in.data, text);
}

static int setup(void **state)
{
    const struct http_service svc = {
        .routes = routes, .n_routes = 1, .max_connections = 128, .idle_timeout_s = 60
    };
    struct contexts_req rq = { .ops = &ops, .provider = &w };
    struct err e = { 0 };

    (void)state;
    w = (struct world){ .loop = loop_new(&e) };
    w.runs = runs_new(w.loop, NULL, &e);
    w.server = http_server_new(w.loop, &svc, &e);
    assert_non_null(w.server);
    runs_set_server(w.runs, w.server);
    rq.loop = w.loop;
    rq.runs = w.runs;
    w.contexts = contexts_new(&rq, &e);
    return w.contexts ? 0 : -1;
}

static int teardown(void **state)
{
    unsigned i;

    (void)state;
    contexts_free(w.contexts);
    for (i = 0; i < w.n; i++)
        assert_false(w.kernels[i].alive);
    runs_free(w.runs);
    http_server_free(w.server);
    loop_free(w.loop);
    return 0;
}

/* ---- waiting for a context ---- */

struct told {
    struct context_waiter waiter;
    unsigned times;
    struct context *context;
    struct err e;
};

static void on_done(struct context_waiter *waiter, struct context *c, const struct err *e)
{
    struct told *t = CONTAINER_OF(waiter, struct told, waiter);

    t->times++;
    t->context = c;
    if (e)
        t->e = *e;
}

static struct context *made(const char *language)
{
    struct told t = { .waiter = { .on_done = on_done } };
    struct err e = { 0 };

    assert_int_equal(contexts_create(w.contexts, language, NULL, &t.waiter, &e), 0);
    assert_int_equal(t.times, 0);
    ready(w.n - 1);
    assert_int_equal(t.times, 1);
    assert_non_null(t.context);
    return t.context;
}

static void one_default_context_for_all_who_wait(void **state)
{
    struct told a = { .waiter = { .on_done = on_done } };
    struct told b = { .waiter = { .on_done = on_done } };
    struct context *c = NULL;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(contexts_default(w.contexts, "python", &a.waiter, &c, &e), 0);
    assert_int_equal(contexts_default(w.contexts, "python", &b.waiter, &c, &e), 0);
    assert_int_equal(w.n, 1);
    assert_null(contexts_next(w.contexts, NULL)); /* not shown before it has an id */
    ready(0);
    assert_ptr_equal(a.context, b.context);
    assert_int_equal(contexts_default(w.contexts, "python", NULL, &c, &e), 1);
    assert_ptr_equal(c, a.context);
    assert_ptr_equal(contexts_find(w.contexts, "id-0"), c);
    assert_ptr_equal(contexts_next(w.contexts, NULL), c);
    assert_null(contexts_next(w.contexts, c));
    assert_null(contexts_find(w.contexts, ""));
    contexts_delete_language(w.contexts, "bash");
    assert_ptr_equal(contexts_find(w.contexts, "id-0"), c);
    contexts_delete_language(w.contexts, "python");
    assert_null(contexts_find(w.contexts, "id-0"));
}

static void a_context_that_does_not_start_leaves_nothing(void **state)
{
    struct told t = { .waiter = { .on_done = on_done } };
    struct context *c = NULL;
    struct err e = { 0 };

    (void)state;
    (void)err_set(&w.no_kernel, ERRC_INVALID, "no such language");
    assert_int_equal(contexts_create(w.contexts, "java", NULL, &t.waiter, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    w.no_kernel.code = ERRC_NONE;
    assert_int_equal(contexts_default(w.contexts, "python", &t.waiter, &c, &e), 0);
    w.kernels[0].ev->on_ready(w.kernels[0].owner, NULL, &e);
    assert_int_equal(t.times, 1);
    assert_null(t.context);
    turns(3);
    assert_false(w.kernels[0].alive);
    assert_null(contexts_next(w.contexts, NULL));
    assert_int_equal(contexts_default(w.contexts, "python", &t.waiter, &c, &e),
                     0); /* another try */
    assert_int_equal(w.n, 2);
    contexts_delete_language(w.contexts, "python"); /* while it starts */
    assert_int_equal(t.times, 2);
    assert_null(t.context);
}

static void the_number_is_bounded(void **state)
{
    struct told t = { .waiter = { .on_done = on_done } };
    struct err e = { 0 };
    unsigned i;

    (void)state;
    for (i = 0; i < CONTEXTS_MAX; i++)
        (void)made("python");
    assert_int_equal(contexts_create(w.contexts, "python", NULL, &t.waiter, &e), -1);
    assert_int_equal(e.code, ERRC_LIMIT);
    context_delete(contexts_find(w.contexts, "id-5"));
    (void)made("python");
}

static void events_of_an_execution(void **state)
{
    struct context *c = made("python");
    json_t *mime = json_pack("{s:s}", "text/plain", "4");
    struct client x = run(c, "2+2");

    (void)state;
    until(&x, "pong");
    assert_true(has(&x, "{\"type\":\"init\",\"text\":\"id-0\""));
    assert_string_equal(w.kernels[0].code, "2+2");
    say(0, "hi\n");
    w.kernels[0].ev->on_result(w.kernels[0].owner, 0, mime);
    assert_false(has(&x, "execution_count"));
    w.kernels[0].ev->on_result(w.kernels[0].owner, 7, mime);
    idle(0, 7);
    until(&x, "execution_complete");
    assert_true(strstr(x.in.data, "\"text\":\"hi\\n\"") <
                strstr(x.in.data, "\"execution_count\":7"));
    assert_null(strstr(strstr(x.in.data, "\"execution_count\":7") + 1, "\"execution_count\":7"));
    say(0, "late"); /* of no execution */
    idle(0, 8);
    json_decref(mime);
    leave(&x);
}

static void an_error_comes_last(void **state)
{
    struct context *c = made("python");
    json_t *lines = json_pack("[s,s]", "one", "two");
    struct client x = run(c, "1/0");

    (void)state;
    w.kernels[0].ev->on_error(w.kernels[0].owner, "ZeroDivisionError", "v", lines);
    say(0, "after\n");
    idle(0, 3);
    until(&x, "\"traceback\":[\"one\",\"two\"]");
    assert_true(strstr(x.in.data, "after") < strstr(x.in.data, "\"execution_count\":3"));
    assert_true(strstr(x.in.data, "\"execution_count\":3") <
                strstr(x.in.data, "ZeroDivisionError"));
    assert_false(has(&x, "execution_complete"));
    json_decref(lines);
    leave(&x);
}

static void what_waits_goes_in_order(void **state)
{
    struct context *c = made("python");
    struct client a = run(c, "a");
    struct client b = run(c, "b");
    struct client gone = run(c, "gone");
    struct client d = run(c, "d");

    (void)state;
    assert_string_equal(w.kernels[0].code, "a");
    until(&b, "init"); /* it knows that it is waited for */
    leave(&gone);
    idle(0, 1);
    until(&a, "execution_complete");
    assert_string_equal(w.kernels[0].code, "b");
    idle(0, 2);
    assert_string_equal(w.kernels[0].code, "d");
    idle(0, 3);
    until(&d, "execution_complete");
    leave(&a);
    leave(&b);
    leave(&d);
}

static void the_queue_is_bounded(void **state)
{
    struct context *c = made("python");
    struct client all[CONTEXT_QUEUE_MAX + 1];
    struct http_stream *stream;
    struct err e = { 0 };
    unsigned i;

    (void)state;
    for (i = 0; i <= CONTEXT_QUEUE_MAX; i++)
        all[i] = run(c, "x");
    assert_int_equal(context_run(c, "y", &stream, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    for (i = 0; i <= CONTEXT_QUEUE_MAX; i++) {
        idle(0, i + 1);
        until(&all[i], "execution_complete");
        leave(&all[i]);
    }
}

/* A client that reads nothing: the kernel is held before much is buffered, and nothing is lost. */
static void a_slow_client_holds_the_kernel(void **state)
{
    struct context *c = made("python");
    struct client x = run(c, "x");
    char *line = malloc(100001);
    unsigned n = 0;
    unsigned i;
    const char *p;

    (void)state;
    memset(line, 'x', 100000);
    line[100000] = '\0';
    while (!w.kernels[0].held) {
        say(0, line);
        n++;
        assert_true(n < 1000);
    }
    idle(0, 1); /* a kernel that is held says nothing; this one does not know */
    until(&x, "execution_complete");
    assert_false(w.kernels[0].held);
    for (i = 0, p = x.in.data; (p = strstr(p, "\"stdout\"")); p++)
        i++;
    assert_int_equal(i, n);
    free(line);
    leave(&x);
}

static void a_client_that_leaves_lets_the_kernel_go_on(void **state)
{
    struct context *c = made("python");
    struct client x = run(c, "x");
    struct client y = run(c, "y");
    char *line = calloc(1, 100001);

    (void)state;
    memset(line, 'x', 100000);
    while (!w.kernels[0].held)
        say(0, line);
    leave(&x);
    turns(3);
    assert_false(w.kernels[0].held);
    say(0, line);
    assert_false(w.kernels[0].held);
    idle(0, 1);
    assert_string_equal(w.kernels[0].code, "y");
    idle(0, 2);
    until(&y, "execution_complete");
    free(line);
    leave(&y);
}

static void death_is_told_to_all_and_the_context_starts_anew(void **state)
{
    struct context *c = made("python");
    struct client a = run(c, "a");
    struct client b = run(c, "b");

    (void)state;
    die(0);
    until(&a, "KernelDied");
    until(&b, "KernelDied");
    turns(3);
    assert_false(w.kernels[0].alive);
    leave(&a);
    leave(&b);
    a = run(c, "again");
    assert_int_equal(w.n, 2);
    ready(1);
    assert_string_equal(context_id(c), "id-0"); /* it keeps its name */
    assert_string_equal(w.kernels[1].code, "again");
    idle(1, 1);
    until(&a, "execution_complete");
    leave(&a);
}

static void death_in_between_is_told_once(void **state)
{
    struct context *c = made("python");
    struct client a;

    (void)state;
    die(0);
    a = run(c, "a");
    until(&a, "KernelDied");
    assert_int_equal(w.n, 1);
    leave(&a);
    (void)err_set(&w.no_kernel, ERRC_SYS, "no memory for it");
    a = run(c, "b");
    until(&a, "KernelError");
    assert_true(has(&a, "no memory for it"));
    leave(&a);
    w.no_kernel.code = ERRC_NONE;
    a = run(c, "c");
    ready(1);
    idle(1, 1);
    until(&a, "execution_complete");
    leave(&a);
}

static void death_behind_a_slow_client_comes_after_its_output(void **state)
{
    struct context *c = made("python");
    struct client x = run(c, "x");
    struct client y = run(c, "y");
    char *line = calloc(1, 100001);

    (void)state;
    memset(line, 'x', 100000);
    while (!w.kernels[0].held)
        say(0, line);
    die(0);
    until(&y, "KernelDied");
    until(&x, "KernelDied");
    free(line);
    leave(&x);
    leave(&y);
}

static void a_deleted_context_ends_its_streams(void **state)
{
    struct context *c = made("python");
    struct client a = run(c, "a");
    struct client b = run(c, "b");
    struct err e = { 0 };

    (void)state;
    assert_int_equal(context_interrupt(c, &e), 0);
    assert_int_equal(w.kernels[0].interrupts, 1);
    context_delete(c);
    assert_false(w.kernels[0].alive);
    until(&a, "ContextDeleted");
    until(&b, "ContextDeleted");
    leave(&a);
    leave(&b);
    c = made("python");
    assert_int_equal(context_interrupt(c, &e), 0);
    assert_int_equal(w.kernels[1].interrupts, 0); /* nothing runs */
    die(1);
    a = run(c, "told");
    leave(&a);
    a = run(c, "waits for the start");
    assert_int_equal(context_interrupt(c, &e), 0);
    until(&a, "interrupted before it began");
    ready(2);
    assert_string_equal(w.kernels[2].code, "");
    leave(&a);
}

/* What is under way when the agent ends is cut: no clean end. */
static void the_end_cuts_streams(void **state)
{
    struct told t = { .waiter = { .on_done = on_done } };
    struct context *c = made("python");
    struct client a = run(c, "a");
    struct client b = run(c, "b");
    struct err e = { 0 };

    (void)state;
    assert_int_equal(contexts_create(w.contexts, "bash", NULL, &t.waiter, &e), 0);
    contexts_free(w.contexts);
    w.contexts = NULL;
    assert_int_equal(t.times, 1);
    assert_int_equal(t.e.code, ERRC_BUSY);
    turns(3);
    pull(&a);
    assert_false(has(&a, "execution_complete"));
    assert_false(has(&a, "\r\n0\r\n"));
    leave(&a);
    leave(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_default_context_for_all_who_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(a_context_that_does_not_start_leaves_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_number_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(events_of_an_execution, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_comes_last, setup, teardown),
        cmocka_unit_test_setup_teardown(what_waits_goes_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(the_queue_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_client_holds_the_kernel, setup, teardown),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_lets_the_kernel_go_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(death_is_told_to_all_and_the_context_starts_anew, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(death_in_between_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(death_behind_a_slow_client_comes_after_its_output, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_deleted_context_ends_its_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(the_end_cuts_streams, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
