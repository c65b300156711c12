/* Which paths are the proxy's, and what of them reaches the sandbox. */
#include "tests/unit/test.h"

#include "gateway/proxy/target.h"

#include <stdlib.h>
#include <string.h>

#define ID "0b7e1a52-9f7c-4b6e-8d0a-1c2d3e4f5a6b"

static void splits_what_is_the_proxys(void **state)
{
    static const struct {
        const char *path;
        int port;
        const char *prefix;
        const char *rest;
    } rows[] = {
        { "/v1/sandboxes/" ID "/proxy/8080/a/b?q=1", 8080, "/v1/sandboxes/" ID "/proxy/8080",
          "/a/b?q=1" },
        { "/sandboxes/" ID "/proxy/1", 1, "/sandboxes/" ID "/proxy/1", "" },
        { "/sandboxes/" ID "/proxy/65535?x", 65535, "/sandboxes/" ID "/proxy/65535", "?x" },
        { "/sandboxes/" ID "/proxy/80/", 80, "/sandboxes/" ID "/proxy/80", "/" },
        { "/sandboxes/" ID "/proxy/80//a%2Fb;c=%00?d=/../e", 80, "/sandboxes/" ID "/proxy/80",
          "//a%2Fb;c=%00?d=/../e" },
        { "/sandboxes/" ID "/proxy/80/...", 80, "/sandboxes/" ID "/proxy/80", "/..." },
        { "/sandboxes/" ID "/proxy/80/.a/b..", 80, "/sandboxes/" ID "/proxy/80", "/.a/b.." },
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *path = rows[i].path;
        struct target t = { 0 };

        if (target_parse(path, strlen(path), &t) != TARGET_PROXY)
            fail_msg("%s is not taken", path);
        assert_string_equal(t.id, ID);
        assert_int_equal(t.port, rows[i].port);
        assert_int_equal(t.prefix_len, strlen(rows[i].prefix));
        assert_memory_equal(path, rows[i].prefix, t.prefix_len);
        assert_int_equal(t.rest_len, strlen(rows[i].rest));
        assert_memory_equal(t.rest, rows[i].rest, t.rest_len);
    }
}

static void splits_signed_routes(void **state)
{
    static const char path[] = "/v1/signed/" ID "/80/vf7oqs/0123456789abcdef0123456789abcdef/a?b";
    struct target t = { 0 };

    (void)state;
    assert_int_equal(target_parse(path, strlen(path), &t), TARGET_PROXY);
    assert_string_equal(t.id, ID);
    assert_int_equal(t.port, 80);
    assert_string_equal(t.expires, "vf7oqs");
    assert_string_equal(t.signature, "0123456789abcdef0123456789abcdef");
    assert_memory_equal(t.rest, "/a?b", 4);
}

static void leaves_the_rest_to_the_api(void **state)
{
    static const char *const paths[] = {
        "",
        "/",
        "/health",
        "/v1/sandboxes",
        "/v1/sandboxes/" ID,
        "/v1/sandboxes/" ID "/proxy",
        "/v1/sandboxes/" ID "/proxy/",
        "/v1/sandboxes/" ID "/proxy/x",
        "/v1/sandboxes/" ID "/proxy/0",
        "/v1/sandboxes/" ID "/proxy/65536",
        "/v1/sandboxes/" ID "/proxy/080800",
        "/v1/sandboxes/" ID "/proxy/80x",
        "/v1/sandboxes/" ID "/proxy/-1",
        "/v2/sandboxes/" ID "/proxy/80",
        "/v1/v1/sandboxes/" ID "/proxy/80",
        "/proxy/sandboxes/" ID "/proxy/80",
        "/v1/sandboxes//proxy/80",
        "/v1/sandboxes/%30/proxy/80",
        "/v1/sandboxes/" ID ID "/proxy/80",
        "/v1/sandboxes/../proxy/80",
        "/signed/" ID "/80/x",
        "/signed/" ID "/80/x/",
        "/signed/" ID "/80/toolongtoolong/0123456789abcdef0123456789abcdef",
        "/signed/" ID "/80/x/0123456789abcdef0123456789abcdef0",
    };
    struct target t;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (target_parse(paths[i], strlen(paths[i]), &t) != TARGET_OTHER)
            fail_msg("%s is taken", paths[i]);
}

static void refuses_dot_segments(void **state)
{
    static const char *const rests[] = {
        "/..", "/../x", "/a/../b", "/.", "/./x", "/%2e%2E/x", "/.%2e", "/%2e?x", "/a/..?x",
    };
    struct target t;
    char path[256];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rests) / sizeof(rests[0]); i++) {
        (void)snprintf(path, sizeof(path), "/v1/sandboxes/" ID "/proxy/80%s", rests[i]);
        if (target_parse(path, strlen(path), &t) != TARGET_TRAVERSAL)
            fail_msg("%s is not refused", path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_what_is_the_proxys),
        cmocka_unit_test(splits_signed_routes),
        cmocka_unit_test(leaves_the_rest_to_the_api),
        cmocka_unit_test(refuses_dot_segments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
