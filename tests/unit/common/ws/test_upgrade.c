/* A WebSocket of an HTTP server: the handshake's answers, and a client of ours against it. */
#include "tests/unit/test.h"

#include "common/base/macros.h"
#include "common/http/http.h"
#include "common/ws/ws.h"
#include "tests/unit/common/support/http_env.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct http_env env;
static struct ws_set set;
static struct ws *served;
static struct ws *dialled;
static atomic_int lost;
static sem_t happened;
static char heard[256];

static void on_message(void *owner, bool text, const char *data, size_t len)
{
    (void)owner, (void)text;
    (void)ws_send(served, WS_TEXT, "echo ", 5, data, len);
}

static void on_close(void *owner, unsigned code, const char *reason)
{
    (void)owner;
    served = NULL;
    (void)snprintf(heard, sizeof(heard), "server: %u %s", code, reason);
    sem_post(&happened);
}

static const struct ws_ops ops = { NULL, on_message, NULL, on_close };

static void on_open(void *owner, struct http_upgraded *up, int fd, const void *early, size_t len)
{
    (void)owner;
    served = ws_serve(&set, up, fd, early, len, NULL, &ops, NULL);
}

static void on_lost(void *owner)
{
    (void)owner;
    atomic_fetch_add(&lost, 1);
}

static const struct http_upgrade_ops upgrade_ops = { on_open, on_lost };

static int upgrade(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app;
    if (ws_accept(rq, rs, e) < 0)
        return -1;
    rs->upgrade = &upgrade_ops;
    return 0;
}

static int start(void **state)
{
    static const struct http_route routes[] = { { "GET", "/ws", upgrade, HTTP_OPEN, 100, NULL } };
    const struct http_service svc = { .routes = routes, .n_routes = ARRAY_LEN(routes) };

    (void)state;
    sem_init(&happened, 0, 0);
    atomic_store(&lost, 0);
    heard[0] = '\0';
    http_env_start(&env, &svc, 1, 4);
    set = (struct ws_set){ .loop = env.loop };
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_env_halt(&env);
    ws_set_free(&set);
    http_env_stop(&env);
    sem_destroy(&happened);
    return 0;
}

#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define ASK                                                                                        \
    "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n" KEY

static void bytes_of_a_handshake(void **state)
{
    struct client c;
    struct reply r;

    (void)state;
    client_open(&c, &env);
    /* the first frame comes with the request */
    client_text(&c, "GET /ws HTTP/1.1\r\nHost: t\r\n" ASK "\r\n");
    client_send(&c, "\x81\x82\0\0\0\0hi", 8);
    client_reply(&c, true, &r);
    assert_int_equal(r.status, 101);
    assert_string_equal(reply_header(&r, "Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_string_equal(reply_header(&r, "Upgrade"), "websocket");
    assert_true(strcasecmp(reply_header(&r, "Connection"), "upgrade") == 0);
    assert_non_null(reply_header(&r, "X-Request-ID"));
    reply_free(&r);
    assert_true(client_wait(&c, 9));
    assert_memory_equal(c.in,
                        "\x81\x07"
                        "echo hi",
                        9);
    client_close(&c);
    http_env_wait(&happened);
    assert_contains(heard, "server: 1006");
}

static void bad_handshakes(void **state)
{
    static const struct {
        const char *first;
        const char *headers;
        int status;
        const char *says;
    } rows[] = {
        { "GET /ws", "", 426, "Upgrade: websocket" },
        { "GET /ws", "Connection: Upgrade\r\nUpgrade: h2c\r\n" KEY, 426, "Upgrade: websocket" },
        { "GET /ws", "Connection: close\r\nUpgrade: websocket\r\n" KEY, 426, "Upgrade: websocket" },
        { "GET /ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n" KEY, 426, "13" },
        { "GET /ws",
          "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n" KEY, 426,
          "13" },
        { "GET /ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
          400, "Key" },
        { "GET /ws",
          "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
          "Sec-WebSocket-Key: dG!lIHNhbXBsZSBub25jZQ==\r\n",
          400, "Key" },
        { "HEAD /ws", ASK, 400, NULL },
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        struct reply r;

        http_once(&env, rows[i].first, rows[i].headers, NULL, &r);
        assert_int_equal(r.status, rows[i].status);
        if (rows[i].says)
            assert_contains(r.body, rows[i].says);
        if (r.status == 426)
            assert_string_equal(reply_header(&r, "Sec-WebSocket-Version"), "13");
        reply_free(&r);
    }
    assert_int_equal(atomic_load(&lost), 1); /* of the HEAD */
}

static void the_server_goes_on(void **state)
{
    struct client c;
    struct reply r;
    int i;

    (void)state;
    for (i = 0; i < 100; i++) { /* more than its connections at a time */
        client_open(&c, &env);
        client_text(&c, "GET /ws HTTP/1.1\r\nHost: t\r\n" ASK "\r\n");
        client_reply(&c, true, &r);
        assert_int_equal(r.status, 101);
        reply_free(&r);
        client_send(&c, "\x88\x82\0\0\0\0\x03\xe8", 8);
        assert_true(client_wait(&c, 4));
        client_close(&c);
        http_env_wait(&happened);
    }
    http_once(&env, "GET /nothing", "", NULL, &r);
    assert_int_equal(r.status, 404);
    reply_free(&r);
}

/* ---- our client ---- */

static void dialled_open(void *owner)
{
    (void)owner;
    (void)ws_send(dialled, WS_TEXT, NULL, 0, "hello", 5);
}

static void dialled_message(void *owner, bool text, const char *data, size_t len)
{
    (void)owner, (void)text, (void)len;
    (void)snprintf(heard, sizeof(heard), "%s", data);
    sem_post(&happened);
}

static void dialled_close(void *owner, unsigned code, const char *reason)
{
    (void)owner;
    (void)snprintf(heard, sizeof(heard), "client: %u %s", code, reason);
    sem_post(&happened);
}

static const struct ws_ops dial_ops = { dialled_open, dialled_message, NULL, dialled_close };

static void dial(void *arg)
{
    const struct ws_dial d = { .host = "localhost", .port = env.port, .target = arg };

    dialled = ws_connect(&set, &d, NULL, &dial_ops, NULL, &env.e);
}

static void say_bye(void *arg)
{
    (void)arg;
    ws_close(dialled, 4000, "bye", 0);
    ws_forget(dialled);
}

static void our_client(void **state)
{
    (void)state;
    http_env_call(&env, dial, (void *)"/ws");
    assert_non_null(dialled);
    http_env_wait(&happened);
    assert_string_equal(heard, "echo hello");
    http_env_call(&env, say_bye, NULL);
    http_env_wait(&happened);
    assert_string_equal(heard, "server: 4000 bye");
}

static void our_client_is_refused(void **state)
{
    (void)state;
    http_env_call(&env, dial, (void *)"/nothing");
    http_env_wait(&happened);
    assert_string_equal(heard, "client: 1006 the server refused the WebSocket: HTTP 404");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_of_a_handshake), CASE(bad_handshakes),        CASE(the_server_goes_on),
        CASE(our_client),           CASE(our_client_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
