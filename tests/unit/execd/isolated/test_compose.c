/* The shell code of runs, given to the shells that this machine has. */
#include "tests/unit/test.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "execd/isolated/compose.h"

#include <string.h>
#include <sys/wait.h>

static const char *const shells[] = { "/bin/bash", "/bin/sh" };

/* What shell prints for the composed code; its status in *status. */
static void run(const char *shell, const struct compose_req *rq, char *out, size_t room,
                int *status)
{
    struct err e = { 0 };
    AUTO_FREE char *code = compose(rq, &e);
    size_t have = 0;
    ssize_t n;
    int fds[2];
    pid_t pid;

    assert_non_null(code);
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(fds[1], 1);
        (void)close(fds[0]);
        (void)close(fds[1]);
        (void)execl(shell, shell, "-c", "eval \"$1\"; s=$?; wait; exit $s", "x", code,
                    (char *)NULL);
        _exit(127);
    }
    (void)close(fds[1]);
    while (have < room - 1 && (n = read(fds[0], out + have, room - 1 - have)) > 0)
        have += (size_t)n;
    out[have] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
    *status = WEXITSTATUS(*status);
}

static void plain_code_is_left_alone(void **state)
{
    const struct compose_req rq = { .code = "x='a\nb'; echo \"$x\" # end" };
    struct err e = { 0 };
    AUTO_FREE char *code = compose(&rq, &e);

    (void)state;
    assert_string_equal(code, rq.code);
}

static void values_arrive_byte_for_byte(void **state)
{
    static const char *const values[] = {
        "", "'", "a'b''c", "$HOME `id` $(id) \\ \"", "line\nbreak\n", "\xff\xfe", "*", "-n", "# no",
    };
    char out[256];
    char want[256];
    int status;
    size_t i;
    size_t k;

    (void)state;
    for (k = 0; k < 2; k++)
        for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            const char *const envs[] = { "V", values[i], "W_1", "w" };
            const struct compose_req rq = { .code = "printf '[%s]%s' \"$V\" \"$W_1\"; exit 3",
                                            .envs = envs,
                                            .n_envs = 2 };

            run(shells[k], &rq, out, sizeof(out), &status);
            (void)snprintf(want, sizeof(want), "[%s]w", values[i]);
            assert_string_equal(out, want);
            assert_int_equal(status, 3);
        }
}

static void awkward_code_stays_one_piece(void **state)
{
    static const struct {
        const char *code;
        const char *out;
    } all[] = {
        { "cat <<'E'\n')(\nE", "')(\n" },
        { "echo a # comment", "a\n" },
        { "f() { echo \"$1\"; }; f \"it's\"", "it's\n" },
        { "case x in (x) echo y;; esac", "y\n" },
    };
    const char *const envs[] = { "A", "1" };
    char out[256];
    int status;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct compose_req rq = { .code = all[i].code, .envs = envs, .n_envs = 1 };

        run(shells[0], &rq, out, sizeof(out), &status);
        assert_string_equal(out, all[i].out);
        assert_int_equal(status, 0);
    }
}

static void background_code_goes_to_its_files(void **state)
{
    char dir[] = "/tmp/test-compose-XXXXXX";
    char log[64];
    char code[64];
    char text[64];
    char out[64];
    struct compose_req rq = { .code = "echo it\\'s; echo err >&2; exit 7",
                              .log = log,
                              .exit = code };
    int status;
    size_t k;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(log, sizeof(log), "%s/log", dir);
    (void)snprintf(code, sizeof(code), "%s/code", dir);
    for (k = 0; k < 2; k++) {
        AUTO_FILE FILE *f = NULL;
        AUTO_FILE FILE *g = NULL;

        run(shells[k], &rq, out, sizeof(out), &status);
        assert_string_equal(out, "");
        f = fopen(log, "re");
        g = fopen(code, "re");
        assert_non_null(f);
        assert_non_null(g);
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        assert_string_equal(text, "it's\nerr\n");
        text[fread(text, 1, sizeof(text) - 1, g)] = '\0';
        assert_string_equal(text, "7\n");
    }
    (void)unlink(log);
    (void)unlink(code);
    (void)rmdir(dir);
}

static void names_are_checked(void **state)
{
    static const char *const bad[] = { "", "1", "a b", "a-b", "a;id", "a=b", "\xc3\xa4" };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *const envs[] = { bad[i], "v" };
        const struct compose_req rq = { .code = ":", .envs = envs, .n_envs = 1 };
        struct err e = { 0 };

        assert_null(compose(&rq, &e));
        assert_int_equal(e.code, ERRC_INVALID);
        assert_contains(e.msg, "envs");
    }
}

static void long_code_is_refused(void **state)
{
    AUTO_FREE char *quotes = malloc(COMPOSE_MAX / 2);
    const char *const envs[] = { "A", "1" };
    struct compose_req rq = { .envs = envs, .n_envs = 1 };
    struct err e = { 0 };

    (void)state;
    assert_non_null(quotes);
    memset(quotes, '\'', COMPOSE_MAX / 2 - 1);
    quotes[COMPOSE_MAX / 2 - 1] = '\0';
    rq.code = quotes;
    assert_null(compose(&rq, &e));
    assert_int_equal(e.code, ERRC_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_code_is_left_alone),
        cmocka_unit_test(values_arrive_byte_for_byte),
        cmocka_unit_test(awkward_code_stays_one_piece),
        cmocka_unit_test(background_code_goes_to_its_files),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(long_code_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
