/* /proxy/{port}: what is a port's path, and what is left of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/macros.h"
#include "execd/proxy/port_path.h"

#include <stdlib.h>
#include <string.h>

/* A copy without a terminator: reading past it is seen by the sanitizer. */
static enum port_path_kind parse(const char *text, struct port_path *out)
{
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    enum port_path_kind kind;

    assert_non_null(copy);
    memcpy(copy, text, len);
    kind = port_path_parse(copy, len, out);
    if (kind == PORT_PATH_PORT)
        out->rest = text + (out->rest - copy);
    free(copy);
    return kind;
}

static void ports(void **state)
{
    static const struct {
        const char *path;
        unsigned port;
        const char *rest;
    } rows[] = {
        { "/proxy/8080", 8080, "" },
        { "/proxy/1", 1, "" },
        { "/proxy/65535/", 65535, "/" },
        { "/proxy/8080/a/b", 8080, "/a/b" },
        { "/proxy/8080?x=1", 8080, "?x=1" },
        { "/proxy/8080/?", 8080, "/?" },
        { "/proxy/8080//a%2Fb/../c?a&b=&%3f=/x", 8080, "//a%2Fb/../c?a&b=&%3f=/x" },
        { "/proxy/8080/proxy/9090/x", 8080, "/proxy/9090/x" },
    };
    struct port_path at;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(parse(rows[i].path, &at), PORT_PATH_PORT);
        assert_int_equal(at.port, rows[i].port);
        assert_int_equal(at.rest_len, strlen(rows[i].rest));
        assert_memory_equal(at.rest, rows[i].rest, at.rest_len);
    }
}

static void bad(void **state)
{
    static const char *const rows[] = {
        "/proxy",
        "/proxy/",
        "/proxy?x",
        "/proxy//x",
        "/proxy/?x",
        "/proxy/0",
        "/proxy/0/x",
        "/proxy/00080/",
        "/proxy/65536",
        "/proxy/65536/x",
        "/proxy/99999999999999999999999/",
        "/proxy/4294967376",
        "/proxy/x",
        "/proxy/80x/",
        "/proxy/80:81/",
        "/proxy/-80/",
        "/proxy/+80/",
        "/proxy/%38080/",
        "/proxy/80%2F",
        "/proxy/ 80/",
        "/proxy/80#x",
        "/proxy/80;x/",
    };
    struct port_path at = { .port = 7 };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(parse(rows[i], &at), PORT_PATH_BAD);
    assert_int_equal(at.port, 7);
}

static void other(void **state)
{
    static const char *const rows[] = {
        "",           "/",           "*",         "/ping",        "/prox",         "/proxyx/80/",
        "/Proxy/80/", "//proxy/80/", "proxy/80/", "/%70roxy/80/", "/v1/proxy/80/", "?/proxy/80/",
    };
    struct port_path at;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(parse(rows[i], &at), PORT_PATH_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports),
        cmocka_unit_test(bad),
        cmocka_unit_test(other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
