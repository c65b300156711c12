/* openapi.yaml is the truth of the route table (design decision 16): compared both ways. */
#include "tests/unit/test.h"

#include "gateway/api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { OPERATIONS_MAX = 128 };

struct operation {
    char method[16];
    char path[128];
    unsigned mount; /* HTTP_BARE_ONLY, HTTP_PREFIX_ONLY or 0 */
    bool open;
};

struct spec {
    struct operation ops[OPERATIONS_MAX];
    size_t len;
};

/* The document is ours and keeps to a layout that needs no YAML library: paths are indented by 2,
 * methods by 4. */
static void read_spec(struct spec *s)
{
    static const char *const methods[] = { "get", "post", "put", "patch", "delete" };
    FILE *f = fopen("openapi.yaml", "re");
    char line[512];
    char path[128] = "";
    unsigned mount = 0;
    bool in_paths = false;
    size_t i;

    if (!f)
        fail_msg("openapi.yaml not found: run from the project's root");
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != ' ')
            in_paths = strcmp(line, "paths:") == 0;
        if (!in_paths)
            continue;
        if (strncmp(line, "  /", 3) == 0) {
            (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(line + 2, ":"), line + 2);
            mount = 0;
        }
        if (strcmp(line, "    x-mount: bare-only") == 0)
            mount = HTTP_BARE_ONLY;
        if (strcmp(line, "    x-mount: prefix-only") == 0)
            mount = HTTP_PREFIX_ONLY;
        if (s->len && strcmp(line, "      security: []") == 0)
            s->ops[s->len - 1].open = true;
        for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
            char want[32];

            (void)snprintf(want, sizeof(want), "    %s:", methods[i]);
            if (strcmp(line, want) != 0)
                continue;
            assert_true(s->len < OPERATIONS_MAX);
            (void)snprintf(s->ops[s->len].method, sizeof(s->ops[0].method), "%s", methods[i]);
            (void)snprintf(s->ops[s->len].path, sizeof(s->ops[0].path), "%s", path);
            s->ops[s->len].mount = mount;
            s->len++;
        }
    }
    (void)fclose(f);
}

static const struct operation *find_op(const struct spec *s, const struct http_route *r)
{
    size_t i;

    for (i = 0; i < s->len; i++)
        if (strcasecmp(s->ops[i].method, r->method) == 0 && strcmp(s->ops[i].path, r->pattern) == 0)
            return &s->ops[i];
    return NULL;
}

static bool has_route(const struct operation *op)
{
    size_t i;

    for (i = 0; i < api_routes_len; i++)
        if (strcasecmp(op->method, api_routes[i].method) == 0 &&
            strcmp(op->path, api_routes[i].pattern) == 0)
            return true;
    return false;
}

static void every_route_is_documented(void **state)
{
    struct spec s = { 0 };
    size_t i;

    (void)state;
    read_spec(&s);
    for (i = 0; i < api_routes_len; i++) {
        const struct http_route *r = &api_routes[i];
        const struct operation *op = find_op(&s, r);

        if (!op)
            fail_msg("%s %s is not in openapi.yaml", r->method, r->pattern);
        if (op->mount != (r->flags & (HTTP_BARE_ONLY | HTTP_PREFIX_ONLY)))
            fail_msg("%s %s: x-mount differs from the route's flags", r->method, r->pattern);
        if (op->open != !!(r->flags & HTTP_OPEN))
            fail_msg("%s %s: security differs from the route's flags", r->method, r->pattern);
    }
}

static void every_operation_has_a_route(void **state)
{
    struct spec s = { 0 };
    size_t i;

    (void)state;
    read_spec(&s);
    assert_true(s.len > 0);
    for (i = 0; i < s.len; i++)
        if (!has_route(&s.ops[i]))
            fail_msg("%s %s has no route", s.ops[i].method, s.ops[i].path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_documented),
        cmocka_unit_test(every_operation_has_a_route),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
