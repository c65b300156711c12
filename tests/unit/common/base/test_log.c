#include "tests/unit/test.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* stderr is a datagram socket meanwhile: each write(2) is one message. */
struct env {
    int saved;
    int rd;
    char line[65536];
};

static int set_up(void **state)
{
    struct env *env = calloc(1, sizeof(*env));
    int sv[2];
    int size = 1 << 20;

    if (!env || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sv) < 0)
        return -1;
    (void)setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    env->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    env->rd = sv[0];
    (void)dup2(sv[1], STDERR_FILENO);
    (void)close(sv[1]);
    log_set_level(LOG_INFO);
    *state = env;
    return 0;
}

static int tear_down(void **state)
{
    struct env *env = *state;

    (void)dup2(env->saved, STDERR_FILENO);
    (void)close(env->saved);
    (void)close(env->rd);
    free(env);
    log_set_level(LOG_INFO);
    return 0;
}

/* The next message; "" when nothing was written. */
static const char *next_line(struct env *env)
{
    ssize_t n = recv(env->rd, env->line, sizeof(env->line) - 1, MSG_DONTWAIT);

    env->line[n > 0 ? n : 0] = '\0';
    return env->line;
}

/* Asserts that the message is one JSON object on one line; the caller releases it. */
static json_t *next_object(struct env *env)
{
    const char *line = next_line(env);
    size_t len = strlen(line);
    json_t *v;

    assert_true(len > 0);
    assert_int_equal(line[len - 1], '\n');
    assert_null(memchr(line, '\n', len - 1));
    v = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!v)
        fail_msg("not JSON: %s", line);
    return v;
}

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static void one_line_per_call(void **state)
{
    struct env *env = *state;
    json_t *v;
    int64_t at;

    log_info("hello", LOG_S("a", "b"), LOG_N("n", -7), LOG_S("none", NULL));
    v = next_object(env);
    assert_string_equal(text_of(v, "msg"), "hello");
    assert_string_equal(text_of(v, "level"), "info");
    assert_string_equal(text_of(v, "a"), "b");
    assert_string_equal(text_of(v, "none"), "");
    assert_int_equal(json_integer_value(json_object_get(v, "n")), -7);
    assert_int_equal(clock_parse_ms(text_of(v, "time"), &at), 0);
    json_decref(v);
    log_error("no fields");
    v = next_object(env);
    assert_int_equal(json_object_size(v), 3);
    json_decref(v);
    assert_string_equal(next_line(env), "");
}

static void level_decides(void **state)
{
    struct env *env = *state;

    log_debug("x");
    assert_string_equal(next_line(env), "");
    log_set_level(LOG_DEBUG);
    log_debug("x");
    assert_contains(next_line(env), "\"debug\"");
    log_set_level(LOG_ERROR);
    log_warn("x");
    assert_string_equal(next_line(env), "");
    log_error("x");
    assert_contains(next_line(env), "\"error\"");
    log_set_level(LOG_OFF);
    log_error("x");
    assert_string_equal(next_line(env), "");
}

/* No byte of a value may end the line, the string or the terminal's sanity. */
static void every_byte_is_escaped(void **state)
{
    struct env *env = *state;
    char all[256];
    const char *line;
    json_t *v;
    int i;

    for (i = 1; i < 256; i++)
        all[i - 1] = (char)i;
    all[255] = '\0';
    log_info("m", LOG_S("v", all));
    v = next_object(env);
    json_decref(v);
    for (line = env->line; line[1]; line++)
        assert_in_range((unsigned char)*line, 0x20, 0x7e);
}

static void value_is_cut_at_its_limit(void **state)
{
    struct env *env = *state;
    char text[2 * LOG_VALUE_MAX];
    json_t *v;

    memset(text, 'x', sizeof(text));
    text[LOG_VALUE_MAX] = '\0';
    log_info("m", LOG_S("v", text));
    v = next_object(env);
    assert_int_equal(strlen(text_of(v, "v")), LOG_VALUE_MAX);
    json_decref(v);
    text[LOG_VALUE_MAX] = 'x';
    text[LOG_VALUE_MAX + 1] = '\0';
    log_info("m", LOG_S("v", text));
    v = next_object(env);
    assert_int_equal(strlen(text_of(v, "v")), LOG_VALUE_MAX);
    json_decref(v);
}

/* A line that cannot hold all fields says what it can; it neither vanishes nor breaks. */
static void long_line_keeps_its_first_fields(void **state)
{
    struct env *env = *state;
    char text[LOG_VALUE_MAX + 1];
    size_t n;

    for (n = 0; n <= LOG_VALUE_MAX; n += 16) {
        json_t *v;

        memset(text, '\x01', n);
        text[n] = '\0';
        log_info("m", LOG_S("a", text), LOG_S("b", text), LOG_S("c", text), LOG_S("d", text),
                 LOG_S("e", text), LOG_S("f", text), LOG_S("g", text), LOG_N("h", 1));
        v = next_object(env);
        assert_int_equal(strlen(text_of(v, "a")), n);
        assert_int_equal(strlen(text_of(v, "d")), n);
        json_decref(v);
    }
}

static void errno_survives(void **state)
{
    (void)state;
    errno = ENOTTY;
    log_info("x", LOG_S("a", "b"));
    assert_int_equal(errno, ENOTTY);
}

static void *log_many(void *arg)
{
    int i;

    for (i = 0; i < 50; i++)
        log_info("thread", LOG_S("who", arg), LOG_N("i", i));
    return NULL;
}

static void *read_lines(void *arg)
{
    struct env *env = arg;
    char line[4096];
    intptr_t good = 0;
    int i;

    for (i = 0; i < 150; i++) {
        ssize_t n = recv(env->rd, line, sizeof(line), 0);
        json_t *v = n > 0 ? json_loadb(line, (size_t)n, 0, NULL) : NULL;

        good += v != NULL;
        json_decref(v);
    }
    return (void *)good;
}

static void threads_do_not_mix_lines(void **state)
{
    struct env *env = *state;
    pthread_t t[3];
    pthread_t reader;
    void *good;
    int i;

    assert_int_equal(pthread_create(&reader, NULL, read_lines, env), 0);
    for (i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, log_many, (void *)"someone"), 0);
    for (i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    pthread_join(reader, &good);
    assert_int_equal((intptr_t)good, 150);
}

static void level_names(void **state)
{
    (void)state;
    assert_int_equal(log_level_parse("debug"), LOG_DEBUG);
    assert_int_equal(log_level_parse("INFO"), LOG_INFO);
    assert_int_equal(log_level_parse("Warning"), LOG_WARN);
    assert_int_equal(log_level_parse("warn"), LOG_WARN);
    assert_int_equal(log_level_parse("CRITICAL"), LOG_ERROR);
    assert_int_equal(log_level_parse("off"), LOG_OFF);
    assert_int_equal(log_level_parse(""), -1);
    assert_int_equal(log_level_parse("verbose"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_line_per_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(level_decides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_byte_is_escaped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(value_is_cut_at_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_line_keeps_its_first_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errno_survives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_do_not_mix_lines, set_up, tear_down),
        cmocka_unit_test(level_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
