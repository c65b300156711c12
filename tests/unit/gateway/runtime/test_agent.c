/* The claim's client against a scripted agent on a loopback port. */
#include "tests/unit/test.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "gateway/runtime/agent.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_MAX = 2 << 20 };

/* Answers one connection with reply, or closes it at once when reply is NULL. */
struct scripted {
    int listener;
    uint16_t port;
    const char *reply;
    int deaf_ms; /* before it listens: connections are refused */
    atomic_bool over;
    struct buf request;
    pthread_t thread;
};

static void read_request(int fd, struct buf *b)
{
    const char *end;
    const char *cl;
    size_t len = 0;
    ssize_t n;

    while (buf_reserve(b, 65536) && (n = recv(fd, b->data + b->len, 65536, 0)) > 0) {
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        end = strstr(b->data, "\r\n\r\n");
        cl = strcasestr(b->data, "content-length:");
        if (end && cl && sscanf(cl + 15, "%zu", &len) == 1 &&
            b->len >= (size_t)(end - b->data) + 4 + len)
            return;
    }
}

static void *serve(void *arg)
{
    struct scripted *s = arg;
    const int64_t from = clock_mono_ms() + s->deaf_ms;
    struct pollfd p = { .fd = s->listener, .events = POLLIN };
    int fd;

    while (!atomic_load(&s->over)) {
        if (clock_mono_ms() < from) {
            (void)poll(NULL, 0, 2);
            continue;
        }
        (void)listen(s->listener, 4);
        if (poll(&p, 1, 2) <= 0)
            continue;
        fd = accept(s->listener, NULL, NULL);
        read_request(fd, &s->request);
        if (s->reply)
            (void)send(fd, s->reply, strlen(s->reply), MSG_NOSIGNAL);
        (void)close(fd);
        return NULL;
    }
    return NULL;
}

static struct scripted *script(const char *reply, int deaf_ms, struct runtime_place *place)
{
    struct scripted *s = calloc(1, sizeof(*s));
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(sa);

    s->reply = reply;
    s->deaf_ms = deaf_ms;
    s->request = BUF_INIT(REQUEST_MAX);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&sa, &len), 0);
    if (!deaf_ms)
        assert_int_equal(listen(s->listener, 4), 0);
    *place = (struct runtime_place){ .address = "127.0.0.1", .agent_port = ntohs(sa.sin_port) };
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    return s;
}

static void end(struct scripted *s)
{
    atomic_store(&s->over, true);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->listener);
    buf_free(&s->request);
    free(s);
}

static int claim(const struct runtime_place *place, int deadline_ms, agent_alive_fn alive,
                 void *arg, struct err *e)
{
    json_t *v = json_pack("{s:s}", "secret", "s3cret");
    int rc = agent_claim(place, v, deadline_ms, alive, arg, e);

    json_decref(v);
    return rc;
}

#define REPLY(status, body)                                                                        \
    "HTTP/1.1 " status " X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body

static void one_request_is_the_claim(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    struct scripted *s = script(REPLY("200", "{\"status\":\"claimed\",\"pid\":7}"), 0, &place);

    (void)state;
    assert_int_equal(claim(&place, 5000, NULL, NULL, &e), 0);
    assert_contains(s->request.data, "POST " AGENT_CLAIM_PATH " HTTP/1.1\r\n");
    assert_contains(s->request.data, "Content-Type: application/json");
    assert_contains(s->request.data, "{\"secret\":\"s3cret\"}");
    assert_null(strstr(s->request.data, "Expect"));
    end(s);
}

static void an_agent_that_is_not_up_yet_is_waited_for(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    struct scripted *s = script(REPLY("200", "{}"), 60, &place);
    int64_t t = clock_mono_ms();

    (void)state;
    assert_int_equal(claim(&place, 10000, NULL, NULL, &e), 0);
    assert_in_range(clock_mono_ms() - t, 50, 5000);
    end(s);
}

static void refusals_are_told_apart(void **state)
{
    static const struct {
        const char *reply;
        enum errc code;
        const char *api_code;
        const char *text;
    } rows[] = {
        { REPLY("400", "{\"code\":\"X\",\"message\":\"entrypoint: no such file\"}"), ERRC_INVALID,
          "DOCKER::INVALID_ENTRYPOINT", "entrypoint: no such file" },
        { REPLY("400", "{\"code\":\"" AGENT_PRE_START_FAILED "\",\"message\":\"status 3\"}"),
          ERRC_INTERNAL, "DOCKER::SANDBOX_START_FAILED", "status 3" },
        { REPLY("400", "{\"code\":\"" AGENT_MOUNT_REFUSED "\",\"message\":\"/data: another\"}"),
          ERRC_INVALID, "VOLUME::INVALID_HOST_PATH", "/data: another" },
        { REPLY("400", "{\"code\":\"" AGENT_LIFECYCLE_INVALID "\",\"message\":\"no schedule\"}"),
          ERRC_INVALID, "SANDBOX::INVALID_PARAMETER", "no schedule" },
        { REPLY("400", "{\"code\":7}"), ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT", "no reason" },
        { REPLY("403", "{\"message\":\"wrong secret\"}"), ERRC_FORBIDDEN, NULL, "wrong secret" },
        { REPLY("409", "{}"), ERRC_CONFLICT, NULL, "claimed before" },
        { REPLY("500", "oops"), ERRC_BUSY, "DOCKER::SANDBOX_EXECD_START_FAILED", "500" },
        { REPLY("302", ""), ERRC_BUSY, "DOCKER::SANDBOX_EXECD_START_FAILED", "302" },
        { NULL, ERRC_BUSY, "DOCKER::SANDBOX_EXECD_START_FAILED", "broke" },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct runtime_place place;
        struct err e = { 0 };
        struct scripted *s = script(rows[i].reply, 0, &place);

        assert_int_equal(claim(&place, 5000, NULL, NULL, &e), -1);
        assert_int_equal(e.code, rows[i].code);
        if (rows[i].api_code)
            assert_string_equal(e.api_code, rows[i].api_code);
        assert_contains(e.msg, rows[i].text);
        assert_null(strstr(e.msg, "s3cret"));
        end(s);
    }
}

static void an_endless_reply_is_cut(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    char *reply = malloc(256 << 10);
    struct scripted *s;

    (void)state;
    memset(reply, 'x', 256 << 10);
    memcpy(reply, REPLY("200", ""), strlen(REPLY("200", "")));
    reply[(256 << 10) - 1] = '\0';
    s = script(reply, 0, &place);
    assert_int_equal(claim(&place, 5000, NULL, NULL, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    end(s);
    free(reply);
}

static void the_deadline_holds_for_refused_and_for_silent_agents(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    int64_t t = clock_mono_ms();
    struct scripted *s;

    (void)state;
    s = script(NULL, 900, &place); /* refuses for longer than the deadline */
    assert_int_equal(claim(&place, 100, NULL, NULL, &e), -1);
    assert_int_equal(e.code, ERRC_TIMEOUT);
    assert_in_range(clock_mono_ms() - t, 100, 900);
    end(s);
}

struct watch {
    int asked;
    int until;
};

static int alive_for_a_while(void *arg, struct err *e)
{
    struct watch *w = arg;

    if (++w->asked < w->until)
        return 0;
    return err_set(e, ERRC_NOT_FOUND, "it is gone");
}

static void a_dead_sandbox_is_not_waited_for(void **state)
{
    struct runtime_place place;
    struct watch w = { .until = 2 };
    struct err e = { 0 };
    struct scripted *s = script(NULL, 900, &place);

    (void)state;
    assert_int_equal(claim(&place, 600000, alive_for_a_while, &w, &e), -1);
    assert_int_equal(e.code, ERRC_NOT_FOUND);
    assert_int_equal(w.asked, 2);
    end(s);
}

static void a_claim_has_a_size_limit(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    struct scripted *s = script(REPLY("200", "{}"), 0, &place);
    const size_t room = AGENT_CLAIM_MAX - strlen("{\"k\":\"\"}");
    char *big = malloc(room + 2);
    json_t *v;

    (void)state;
    memset(big, 'b', room + 1);
    big[room + 1] = '\0';
    v = json_pack("{s:s#}", "k", big, (int)room + 1);
    assert_int_equal(agent_claim(&place, v, 5000, NULL, NULL, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    json_decref(v);
    v = json_pack("{s:s#}", "k", big, (int)room);
    assert_int_equal(agent_claim(&place, v, 5000, NULL, NULL, &e), 0);
    json_decref(v);
    free(big);
    end(s);
}

static int tell(const struct runtime_place *place, struct err *e)
{
    return agent_tell_deadline(place, "t0ken", 1765100000000, 1765000000000, 5000, e);
}

static void a_deadline_is_told_once(void **state)
{
    struct runtime_place place;
    struct err e = { 0 };
    struct scripted *s = script(REPLY("200", ""), 0, &place);

    (void)state;
    assert_int_equal(tell(&place, &e), 0);
    assert_contains(s->request.data, "POST " AGENT_DEADLINE_PATH " HTTP/1.1\r\n");
    assert_contains(s->request.data, AGENT_TOKEN_HEADER ": t0ken\r\n");
    assert_contains(s->request.data, "{\"deadline\":1765100000000,\"now\":1765000000000}");
    end(s);
    assert_int_equal(tell(&place, &e), -1); /* nobody is there */
    assert_int_equal(e.code, ERRC_BUSY);
}

static void agents_that_know_no_deadline_are_told_apart(void **state)
{
    static const struct {
        const char *reply;
        enum errc code;
    } rows[] = {
        { REPLY("404", "{}"), ERRC_UNSUPPORTED },
        { REPLY("503", "{}"), ERRC_BUSY },
        { REPLY("401", "{}"), ERRC_BUSY },
        { NULL, ERRC_BUSY },
    };
    struct runtime_place place;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = { 0 };
        struct scripted *s = script(rows[i].reply, 0, &place);

        assert_int_equal(tell(&place, &e), -1);
        assert_int_equal(e.code, rows[i].code);
        end(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_is_the_claim),
        cmocka_unit_test(an_agent_that_is_not_up_yet_is_waited_for),
        cmocka_unit_test(refusals_are_told_apart),
        cmocka_unit_test(an_endless_reply_is_cut),
        cmocka_unit_test(the_deadline_holds_for_refused_and_for_silent_agents),
        cmocka_unit_test(a_dead_sandbox_is_not_waited_for),
        cmocka_unit_test(a_claim_has_a_size_limit),
        cmocka_unit_test(a_deadline_is_told_once),
        cmocka_unit_test(agents_that_know_no_deadline_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
