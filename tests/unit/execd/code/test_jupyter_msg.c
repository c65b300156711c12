/* Kernel messages and the REST API's answers: what is read from them, and what is refused. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "execd/code/jupyter_replies.h"
#include "execd/code/jupyter_rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD(type)                                                                                 \
    "{\"header\":{\"msg_id\":\"m\",\"session\":\"theirs\",\"msg_type\":\"" type                    \
    "\"},\"parent_header\":{\"msg_id\":\"ours\"},\"content\":"

static struct jupyter_msg m;

static int parse(const char *text)
{
    struct err e = { 0 };
    int rc;

    jupyter_msg_free(&m);
    rc = jupyter_msg_parse(true, text, strlen(text), &m, &e);
    assert_true(rc == 0 || e.code == ERRC_INVALID);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    jupyter_msg_free(&m);
    return 0;
}

static void output(void **state)
{
    (void)state;
    assert_int_equal(parse(HEAD("stream") "{\"name\":\"stderr\",\"text\":\"a\\nb\"}}"), 0);
    assert_int_equal(m.type, JUPYTER_STREAM);
    assert_true(m.is_stderr);
    assert_int_equal(m.text_len, 3);
    assert_string_equal(m.text, "a\nb");
    assert_string_equal(m.parent, "ours");
    assert_string_equal(m.session, "theirs");
    assert_int_equal(parse(HEAD("stream") "{\"name\":\"stdout\",\"text\":\"a\\u0000b\"}}"), 0);
    assert_false(m.is_stderr);
    assert_string_equal(m.text, "a\xef\xbf\xbd"
                                "b");
    assert_int_equal(parse(HEAD("stream") "{\"name\":\"stdout\"}}"), -1);
    assert_int_equal(
        parse(HEAD("execute_result") "{\"execution_count\":3,\"data\":{\"text/plain\":\"4\"}}}"),
        0);
    assert_int_equal(m.type, JUPYTER_RESULT);
    assert_int_equal(m.count, 3);
    assert_string_equal(json_string_value(json_object_get(m.data, "text/plain")), "4");
    assert_int_equal(parse(HEAD("update_display_data") "{\"data\":{}}}"), 0);
    assert_int_equal(m.type, JUPYTER_DISPLAY);
    assert_int_equal(parse(HEAD("display_data") "{\"data\":5}}"), -1);
    assert_int_equal(parse(HEAD("execute_input") "{\"code\":\"1\",\"execution_count\":7}}"), 0);
    assert_int_equal(m.type, JUPYTER_INPUT);
    assert_int_equal(m.count, 7);
    assert_int_equal(parse(HEAD("comm_open") "{\"data\":5}}"), 0);
    assert_int_equal(m.type, JUPYTER_OTHER);
}

static void states(void **state)
{
    static const struct {
        const char *name;
        enum jupyter_state state;
    } rows[] = {
        { "busy", JUPYTER_STATE_BUSY },
        { "idle", JUPYTER_STATE_IDLE },
        { "restarting", JUPYTER_STATE_RESTARTING },
        { "autorestarting", JUPYTER_STATE_RESTARTING },
        { "dead", JUPYTER_STATE_DEAD },
        { "starting", JUPYTER_STATE_OTHER },
    };
    char text[256];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        (void)snprintf(text, sizeof(text), "%s{\"execution_state\":\"%s\"}}", HEAD("status"),
                       rows[i].name);
        assert_int_equal(parse(text), 0);
        assert_int_equal(m.type, JUPYTER_STATUS);
        assert_int_equal(m.state, rows[i].state);
    }
    /* the server's own word about a kernel is of no execution */
    assert_int_equal(parse("{\"header\":{\"msg_type\":\"status\"},\"parent_header\":{},"
                           "\"content\":{\"execution_state\":\"dead\"}}"),
                     0);
    assert_string_equal(m.parent, "");
    assert_int_equal(m.state, JUPYTER_STATE_DEAD);
}

/* Whatever is wrong with it, an error stays one. */
static void errors(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(4 * JUPYTER_TEXT_MAX);
    size_t i;

    (void)state;
    assert_int_equal(
        parse(HEAD("error") "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"t\"]}}"), 0);
    assert_string_equal(m.ename, "E");
    assert_string_equal(m.evalue, "v");
    assert_int_equal(json_array_size(m.traceback), 1);
    assert_int_equal(parse(HEAD("error") "{}}"), 0);
    assert_string_equal(m.ename, "KernelError");
    assert_null(m.traceback);
    assert_int_equal(parse(HEAD("error") "{\"ename\":5,\"traceback\":\"x\"}}"), 0);
    assert_contains(m.evalue, "malformed");
    assert_int_equal(parse(HEAD("execute_reply") "{\"status\":\"error\",\"ename\":\"E\"}}"), 0);
    assert_int_equal(m.outcome, JUPYTER_FAILED);
    assert_int_equal(parse(HEAD("execute_reply") "{\"status\":\"aborted\"}}"), 0);
    assert_int_equal(m.outcome, JUPYTER_ABORTED);
    assert_int_equal(parse(HEAD("execute_reply") "{\"status\":\"ok\",\"execution_count\":2}}"), 0);
    assert_int_equal(m.outcome, JUPYTER_OK);
    assert_int_equal(parse(HEAD("execute_reply") "{\"status\":7}}"), 0);
    assert_int_equal(m.outcome, JUPYTER_FAILED);
    /* cut between characters */
    (void)buf_printf(&text, "%s{\"ename\":\"E\",\"evalue\":\"x", HEAD("error"));
    for (i = 0; i < JUPYTER_TEXT_MAX; i++)
        (void)buf_puts(&text, "\xc3\xa9");
    assert_int_equal(buf_puts(&text, "\"}}"), 0);
    assert_int_equal(parse(text.data), 0);
    assert_int_equal(strlen(m.evalue), JUPYTER_TEXT_MAX - 1);
}

static void what_is_no_message(void **state)
{
    static const char *const rows[] = {
        "",
        "{",
        "[]",
        "5",
        "null",
        "{}",
        "{\"header\":{}}",
        "{\"header\":5,\"content\":{}}",
        "{\"header\":{\"msg_type\":5},\"content\":{}}",
        "{\"header\":{},\"content\":{},\"parent_header\":7}",
    };
    AUTO_BUF struct buf text = BUF_INIT(4 * JUPYTER_VALUES_MAX);
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (parse(rows[i]) == 0)
            fail_msg("accepted: %s", rows[i]);
    for (i = 0; i < 2; i++) { /* at the limit, which the head counts towards, and one more */
        size_t commas = JUPYTER_VALUES_MAX - 9 + i;

        buf_clear(&text);
        (void)buf_printf(&text, "%s{\"x\":[1", HEAD("comm_msg"));
        for (; commas; commas--)
            (void)buf_puts(&text, ",1");
        assert_int_equal(buf_puts(&text, "]}}"), 0);
        assert_int_equal(parse(text.data), i == 0 ? 0 : -1);
    }
}

static void buffers(void **state)
{
    static const char json[] = "{\"header\":{\"msg_type\":\"status\"},\"content\":{}}";
    char data[256] = { 0, 0, 0, 2, 0, 0, 0, 12 };
    struct err e = { 0 };
    size_t len = 12 + sizeof(json) - 1;

    (void)state;
    data[11] = (char)len;
    memcpy(data + 12, json, sizeof(json));
    jupyter_msg_free(&m);
    assert_int_equal(jupyter_msg_parse(false, data, len + 3, &m, &e), 0);
    assert_int_equal(m.type, JUPYTER_STATUS);
    jupyter_msg_free(&m);
    data[11] = 127;
    assert_int_equal(jupyter_msg_parse(false, data, len, &m, &e), -1);
    data[11] = 11;
    assert_int_equal(jupyter_msg_parse(false, data, len, &m, &e), -1);
    data[3] = 0;
    assert_int_equal(jupyter_msg_parse(false, data, len, &m, &e), -1);
    data[0] = 127;
    assert_int_equal(jupyter_msg_parse(false, data, len, &m, &e), -1);
    assert_int_equal(jupyter_msg_parse(false, data, 3, &m, &e), -1);
}

/* What we send can be read back. */
static void requests(void **state)
{
    struct err e = { 0 };
    char *text = jupyter_msg_execute("us", "id-1", "print('\xc3\xa9')", false);
    json_t *root = json_loads(text, 0, NULL);
    const json_t *v = root;

    (void)state;
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "header"), "msg_id")),
                        "id-1");
    assert_string_equal(json_string_value(json_object_get(v, "channel")), "shell");
    v = json_object_get(v, "content");
    assert_string_equal(json_string_value(json_object_get(v, "code")), "print('\xc3\xa9')");
    assert_true(json_is_false(json_object_get(v, "silent")));
    assert_true(json_is_true(json_object_get(v, "store_history")));
    assert_true(json_is_false(json_object_get(v, "allow_stdin")));
    assert_int_equal(jupyter_msg_parse(true, text, strlen(text), &m, &e), 0);
    assert_string_equal(m.session, "us");
    json_decref(root);
    free(text);
}

static void directories(void **state)
{
    char *code;

    (void)state;
    assert_int_equal(jupyter_msg_chdir("python", "/a \"b\"\n", &code), 0);
    assert_string_equal(code, "__import__('os').chdir(\"/a \\\"b\\\"\\n\")");
    free(code);
    assert_int_equal(jupyter_msg_chdir("bash", "/it's $X", &code), 0);
    assert_string_equal(code, "cd -- '/it'\\''s $X'");
    free(code);
    assert_int_equal(jupyter_msg_chdir("java", "/", &code), 0);
    assert_null(code);
}

static int choose(const char *specs, const char *language, char *out, struct err *e)
{
    char text[1024];
    int n = snprintf(text, sizeof(text), "{\"default\":\"python3\",\"kernelspecs\":{%s}}", specs);

    *e = (struct err){ 0 };
    return jupyter_choose_spec(text, (size_t)n, language, out, e);
}

#define SPEC(name, language) "\"" name "\":{\"spec\":{\"language\":\"" language "\"}}"

static void kernelspecs(void **state)
{
    char out[JUPYTER_SPEC_TEXT];
    struct err e;

    (void)state;
    assert_int_equal(
        choose(SPEC("python3", "python") "," SPEC("b", "Python") "," SPEC("a", "python"), "python",
               out, &e),
        0);
    assert_string_equal(out, "a");
    assert_int_equal(choose(SPEC("a", "python") "," SPEC("python", "python"), "python", out, &e),
                     0);
    assert_string_equal(out, "python");
    assert_int_equal(choose(SPEC("python3", "python"), "python", out, &e), 0);
    assert_string_equal(out, "python3");
    assert_int_equal(
        choose(SPEC("a", "python") "," SPEC("b", "python") "," SPEC("c", "py"), "java", out, &e),
        -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_contains(e.msg, "\"java\"");
    assert_contains(e.msg, "languages available: python, py");
    assert_int_equal(choose("", "java", out, &e), -1);
    assert_contains(e.msg, "available: none");
    assert_int_equal(choose("\"a\":5,\"b\":{\"spec\":7},\"c\":{}", "java", out, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_int_equal(jupyter_choose_spec("<html>", 6, "python", out, &e), -1);
    assert_int_equal(e.code, ERRC_BAD_GATEWAY);
}

static int session(const char *text)
{
    struct jupyter_ids ids;
    struct err e = { 0 };
    int rc = jupyter_read_session(text, strlen(text), &ids, &e);

    assert_true(rc == 0 ? strcmp(ids.session, "s-1") == 0 && strcmp(ids.kernel, "k_2") == 0
                        : e.code == ERRC_BAD_GATEWAY);
    return rc;
}

static void sessions(void **state)
{
    static const char gone[] = "{\"execution_state\":\"dead\"}";
    static const char again[] = "{\"execution_state\":\"autorestarting\"}";
    char said[16];

    (void)state;
    assert_int_equal(session("{\"id\":\"s-1\",\"kernel\":{\"id\":\"k_2\"}}"), 0);
    assert_int_equal(session("{\"id\":\"s-1\"}"), -1);
    assert_int_equal(session("{\"id\":\"s-1\",\"kernel\":{\"id\":\"../x\"}}"), -1);
    assert_int_equal(session("{\"id\":\"a/b\",\"kernel\":{\"id\":\"k_2\"}}"), -1);
    assert_int_equal(session("{\"id\":\"\",\"kernel\":{\"id\":\"k_2\"}}"), -1);
    assert_int_equal(
        session("{\"id\":\"0123456789012345678901234567890123456789012345678901234567890123\","
                "\"kernel\":{\"id\":\"k_2\"}}"),
        -1);
    assert_int_equal(session("nonsense"), -1);
    assert_int_equal(jupyter_read_kernel(gone, strlen(gone)), JUPYTER_STATE_DEAD);
    assert_int_equal(jupyter_read_kernel(again, strlen(again)), JUPYTER_STATE_RESTARTING);
    assert_int_equal(jupyter_read_kernel("{}", 2), JUPYTER_STATE_OTHER);
    jupyter_read_error("{\"message\":\"a long explanation\"}", 32, said, sizeof(said));
    assert_string_equal(said, "a long explanat");
    jupyter_read_error("<html>", 6, said, sizeof(said));
    assert_string_equal(said, "");
}

static void addresses(void **state)
{
    static const char *const bad[] = {
        "",
        "127.0.0.1",
        "https://127.0.0.1",
        "http://",
        "http://a.b",
        "http://[::1",
        "http://1.2.3.4:",
        "http://1.2.3.4:0",
        "http://1.2.3.4:65536",
        "http://1.2.3.4?x",
        "http://1.2.3.4/a b",
        "http://u@1.2.3.4",
        "http://1.2.3.4/a?b",
        "http://1.2.3.4/\r\nX: y",
        "http://:80",
    };
    struct rest r;
    struct err e = { 0 };
    size_t i;

    (void)state;
    assert_int_equal(rest_init(&r, NULL, "http://localhost:8888/a/b//", "t", &e), 0);
    assert_string_equal(r.host, "127.0.0.1");
    assert_int_equal(r.port, 8888);
    assert_string_equal(r.base, "/a/b");
    assert_string_equal(r.authorization, "Token t");
    assert_string_equal(r.url, "http://127.0.0.1:8888/a/b");
    assert_int_equal(rest_init(&r, NULL, "http://[::1]", "", &e), 0);
    assert_string_equal(r.host, "::1");
    assert_int_equal(r.port, 80);
    assert_string_equal(r.base, "");
    assert_string_equal(r.authorization, "");
    for (i = 0; i < ARRAY_LEN(bad); i++)
        if (rest_init(&r, NULL, bad[i], "", &e) == 0)
            fail_msg("accepted: %s", bad[i]);
    assert_contains(e.msg, "http://127.0.0.1:44771");
    assert_int_equal(rest_init(&r, NULL, "http://1.2.3.4", "a\r\nb", &e), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(output, tear_down),
        cmocka_unit_test_teardown(states, tear_down),
        cmocka_unit_test_teardown(errors, tear_down),
        cmocka_unit_test_teardown(what_is_no_message, tear_down),
        cmocka_unit_test_teardown(buffers, tear_down),
        cmocka_unit_test_teardown(requests, tear_down),
        cmocka_unit_test(directories),
        cmocka_unit_test(kernelspecs),
        cmocka_unit_test(sessions),
        cmocka_unit_test(addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
