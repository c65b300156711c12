/* Configuration: upstream's keys, environment, errors that name file, line and key. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "gateway/config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    char path[64];
    struct buf notes;
    struct config cfg;
    struct err e;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    int fd;

    (void)snprintf(w->path, sizeof(w->path), "/tmp/sandgate-config-XXXXXX");
    fd = mkstemp(w->path);
    assert_true(fd >= 0);
    (void)close(fd);
    w->notes = BUF_INIT(65536);
    (void)unsetenv("OPENSANDBOX_SERVER_API_KEY");
    (void)unsetenv("OPENSANDBOX_INSECURE_SERVER");
    (void)unsetenv("DOCKER_HOST");
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    (void)unlink(w->path);
    buf_free(&w->notes);
    config_done(&w->cfg);
    free(w);
    return 0;
}

static int load(struct world *w, const char *text)
{
    FILE *f = fopen(w->path, "we");

    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    config_done(&w->cfg);
    buf_clear(&w->notes);
    return config_load(w->path, &w->cfg, &w->notes, &w->e);
}

static void reads_upstream_keys(void **state)
{
    struct world *w = *state;

    assert_int_equal(load(w,
                          "[server]\nhost = \"0.0.0.0\"\nport = 9000\napi_key = \"k\"\n"
                          "[runtime]\ntype = \"docker\"\nexecd_image = \"opensandbox/execd:v1\"\n"
                          "[docker]\nnetwork_mode = \"bridge\"\ndrop_capabilities = [\"MKNOD\"]\n"
                          "pids_limit = 77\nno_new_privileges = false\n"
                          "sandbox_binds = [\"/a,b:/c:ro\", \"v:/d\"]\n"
                          "[docker.sandbox_env]\nANY_NAME = \"x\"\n"
                          "[store]\npath = \"/x/y.db\"\n"
                          "[storage]\nallowed_host_paths = [\"/srv/a\", \"/srv/b\"]\n"
                          "volume_default_size = \"2Gi\"\n"),
                     0);
    assert_string_equal(w->cfg.host, "0.0.0.0");
    assert_int_equal(w->cfg.port, 9000);
    assert_string_equal(w->cfg.api_key, "k");
    assert_string_equal(w->cfg.drop_capabilities[0], "MKNOD");
    assert_null(w->cfg.drop_capabilities[1]);
    assert_int_equal(w->cfg.pids_limit, 77);
    assert_false(w->cfg.no_new_privileges);
    assert_string_equal(w->cfg.sandbox_binds[0], "/a,b:/c:ro");
    assert_string_equal(w->cfg.sandbox_binds[1], "v:/d");
    assert_null(w->cfg.sandbox_binds[2]);
    assert_int_equal(w->cfg.log_max_mb, 10);
    assert_string_equal(w->cfg.store_path, "/x/y.db");
    assert_string_equal(w->cfg.allowed_host_paths[0], "/srv/a");
    assert_string_equal(w->cfg.allowed_host_paths[1], "/srv/b");
    assert_null(w->cfg.allowed_host_paths[2]);
    assert_string_equal(w->cfg.ossfs_mount_root, "/mnt/ossfs");
    assert_non_null(w->cfg.file);
    assert_contains(w->notes.data, "storage.volume_default_size in line");
    assert_contains(w->notes.data, "runtime.execd_image in line 7 has no effect");
    assert_string_equal(json_string_value(json_object_get(w->cfg.sandbox_env, "ANY_NAME")), "x");
    assert_contains(w->notes.data, "differs from upstream: docker.publish_host");
}

static void reports_unknown_keys_with_their_line(void **state)
{
    struct world *w = *state;

    assert_int_equal(load(w, "[server]\napi_key = \"k\"\napi_kee = \"typo\"\n[nope]\nx = 1\n"), 0);
    assert_contains(w->notes.data, "unknown key server.api_kee in line 3");
    assert_contains(w->notes.data, "unknown key nope.x in line 5");
}

static void refuses_wrong_values_naming_the_line(void **state)
{
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        { "[server]\nport = \"80\"\n", "line 2: server.port: must be an integer" },
        { "[server]\nport = 65536\n", "line 2: server.port = 65536: must be between" },
        { "[server]\nport = \n", "line 2" },
        { "[docker]\nno_new_privileges = 1\n", "must be true or false" },
        { "[docker]\ndrop_capabilities = \"X\"\n", "array of names" },
        { "[docker]\nnetwork_mode = \"host\"\n", "host" },
        { "[runtime]\nline_endings = \"dos\"\n", "auto, keep or strip" },
        { "[engine]\nsocket = \"tcp://1.2.3.4:2375\"\n", "unix socket path" },
        { "[snapshots]\nworkers = 0\n", "snapshots.workers = 0: must be between" },
        { "[snapshots]\nmax = 0\n", "snapshots.max = 0: must be between" },
        { "[secure_runtime]\ntype = \"firecracker\"\n", "use gvisor, kata" },
        { "[sandbox]\nlog_max_mb = 1025\n", "sandbox.log_max_mb = 1025: must be between" },
        { "x = 2020-01-01\n", "dates" },
        { "[server]\nmax_sandbox_timeout_seconds = 100\n[sandbox]\ndefault_timeout_seconds = 101\n",
          "sandbox.default_timeout_seconds = 101: is more than" },
        { "[docker]\npublish_host = \"localhost\"\n", "docker.publish_host = \"localhost\"" },
        { "[docker]\npublish_host = \"\"\n", "must be an IPv4 address" },
        { "[relay]\nhost = \"here\"\n", "relay.host = \"here\": must be an IP address" },
        { "[tenants]\nprovider = \"file\"\n", "line 2: tenants.provider" },
    };
    struct world *w = *state;
    char text[256];
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)snprintf(text, sizeof(text), "%s[log]\nlevel = \"info\"\n", rows[i].text);
        (void)setenv("OPENSANDBOX_SERVER_API_KEY", "k", 1);
        if (load(w, text) == 0)
            fail_msg("accepted: %s", text);
        assert_contains(w->e.msg, rows[i].want);
    }
}

static void names_the_environment_of_every_sandbox(void **state)
{
    static const char *const bad[] = { "sandbox_env = 1", "[docker.sandbox_env]\nA = 1",
                                       "[docker.sandbox_env]\n\"A=B\" = \"1\"",
                                       "sandbox_env = { \"\" = \"1\" }" };
    struct world *w = *state;
    char text[128];
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(text, sizeof(text), "[server]\napi_key = \"k\"\n[docker]\n%s\n", bad[i]);
        assert_int_equal(load(w, text), -1);
        assert_contains(w->e.msg, "docker.sandbox_env");
    }
}

static void needs_a_key_or_the_consent_to_go_without(void **state)
{
    struct world *w = *state;

    assert_int_equal(load(w, ""), -1);
    assert_contains(w->e.msg, "OPENSANDBOX_INSECURE_SERVER=YES");
    assert_int_equal(load(w, "[server]\napi_key = \"  \"\n"), -1);
    (void)setenv("OPENSANDBOX_INSECURE_SERVER", "yes", 1);
    assert_int_equal(load(w, ""), -1); /* exactly YES */
    (void)setenv("OPENSANDBOX_INSECURE_SERVER", "YES", 1);
    assert_int_equal(load(w, ""), 0);
    assert_null(w->cfg.api_key);
}

static void the_environment_wins_over_the_file(void **state)
{
    struct world *w = *state;

    (void)setenv("OPENSANDBOX_SERVER_API_KEY", "from-env", 1);
    (void)setenv("DOCKER_HOST", "unix:///run/other.sock", 1);
    assert_int_equal(load(w, "[server]\napi_key = \"from-file\"\n"), 0);
    assert_string_equal(w->cfg.api_key, "from-env");
    assert_string_equal(w->cfg.engine, "/run/other.sock");
}

static void a_level_of_the_log_is_one_of_some(void **state)
{
    struct world *w = *state;

    assert_int_equal(load(w, "[server]\napi_key = \"k\"\n[log]\nlevel = \"LOUD\"\n"), -1);
    assert_contains(w->e.msg, "log.level = LOUD: use DEBUG");
    assert_int_equal(load(w, "[server]\napi_key = \"k\"\n[log]\nlevel = \"warning\"\n"), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(reads_upstream_keys),
        T(reports_unknown_keys_with_their_line),
        T(refuses_wrong_values_naming_the_line),
        T(names_the_environment_of_every_sandbox),
        T(needs_a_key_or_the_consent_to_go_without),
        T(the_environment_wins_over_the_file),
        T(a_level_of_the_log_is_one_of_some),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
