/* Resolving paths of the host beneath allowed directories, on a tree of the test's own. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "gateway/domain/host_path.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct world {
    char top[64]; /* top/allowed, top/secret */
    char allowed[96];
    char secret[96];
    struct host_roots *roots;
    struct err e;
};

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void put_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
}

static void in(const struct world *w, const char *rest, char out[256])
{
    (void)snprintf(out, 256, "%s/%s", w->allowed, rest);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char at[256];

    (void)snprintf(w->top, sizeof(w->top), "/tmp/sandgate-host-XXXXXX");
    assert_non_null(mkdtemp(w->top));
    (void)snprintf(w->allowed, sizeof(w->allowed), "%s/allowed", w->top);
    (void)snprintf(w->secret, sizeof(w->secret), "%s/secret", w->top);
    const char *const allowed[] = { w->allowed, NULL };
    assert_int_equal(mkdir(w->secret, 0755), 0);
    assert_int_equal(host_roots_new(allowed, NULL, 0, &w->roots, &w->e), 0);
    in(w, "dir", at);
    assert_int_equal(mkdir(at, 0755), 0);
    in(w, "file", at);
    put_file(at);
    in(w, "in-link", at);
    assert_int_equal(symlink("dir", at), 0);
    in(w, "etc", at);
    assert_int_equal(symlink("/etc", at), 0);
    in(w, "up", at);
    assert_int_equal(symlink("../secret", at), 0);
    in(w, "dangling", at);
    assert_int_equal(symlink("nowhere", at), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    host_roots_free(w->roots);
    (void)nftw(w->top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

static int open_at(struct world *w, const char *rest, const char *sub, bool make,
                   struct host_place *p)
{
    char at[256];

    *p = (struct host_place){ .fd = -1 };
    memset(&w->e, 0, sizeof(w->e));
    in(w, rest, at);
    return host_roots_open(w->roots, at, sub, make, p, &w->e);
}

static void text_is_cleaned(void **state)
{
    static const char *const rows[][2] = {
        { "/a/b", "/a/b" },     { "/a//b/", "/a/b" }, { "/./a/./", "/a" }, { "/", "/" },
        { "/a/..b", "/a/..b" }, { "/a/../b", NULL },  { "/..", NULL },     { "a", NULL },
        { "", NULL },           { "/a\nb", NULL },    { "/a\x7f", NULL },
    };
    static const char *const relative[][2] = {
        { "a/b/", "a/b" }, { "", "" },     { "./", "" },
        { "../a", NULL },  { "/a", NULL }, { "a/..", NULL },
    };
    char out[HOST_PATH];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(host_path_clean(rows[i][0], out), rows[i][1] ? 0 : -1);
        if (rows[i][1])
            assert_string_equal(out, rows[i][1]);
    }
    for (i = 0; i < sizeof(relative) / sizeof(relative[0]); i++) {
        assert_int_equal(host_path_clean_relative(relative[i][0], out), relative[i][1] ? 0 : -1);
        if (relative[i][1])
            assert_string_equal(out, relative[i][1]);
    }
}

static void a_path_fits_or_not(void **state)
{
    char path[HOST_PATH + 8];
    char out[HOST_PATH];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(path); i++)
        path[i] = i % 200 ? 'a' : '/';
    path[HOST_PATH - 1] = '\0';
    assert_int_equal(host_path_clean(path, out), 0);
    path[HOST_PATH - 1] = 'a';
    path[HOST_PATH] = '\0';
    assert_int_equal(host_path_clean(path, out), -1);
}

static void within_stops_at_components(void **state)
{
    (void)state;
    assert_true(host_path_within("/a", "/a"));
    assert_true(host_path_within("/a", "/a/b"));
    assert_true(host_path_within("/", "/a"));
    assert_false(host_path_within("/a", "/ab"));
    assert_false(host_path_within("/a/b", "/a"));
}

static void opens_what_is_there(void **state)
{
    struct world *w = *state;
    struct host_place p;
    struct stat st;
    char at[256];

    in(w, "dir", at);
    assert_int_equal(stat(at, &st), 0);
    assert_int_equal(open_at(w, "dir", NULL, false, &p), 0);
    assert_int_equal(p.ino, st.st_ino);
    assert_int_equal(p.dev, st.st_dev);
    assert_non_null(strstr(p.path, "/allowed/dir"));
    host_place_done(&p);
    assert_int_equal(open_at(w, "", "in-link", true, &p), 0); /* a link that stays inside */
    assert_int_equal(p.ino, st.st_ino);
    assert_non_null(strstr(p.path, "/allowed/dir"));
    host_place_done(&p);
    assert_int_equal(open_at(w, "file", NULL, true, &p), 0);
    host_place_done(&p);
    assert_int_equal(open_at(w, "", NULL, true, &p), 0); /* the entry itself */
    host_place_done(&p);
}

static void makes_what_is_missing(void **state)
{
    struct world *w = *state;
    struct host_place p;
    struct stat st;
    char at[256];
    mode_t mask = umask(077);

    in(w, "in-link/a", at);
    if (geteuid() == 0)
        assert_int_equal(chown(w->allowed, 0, 0), 0);
    assert_int_equal(open_at(w, "in-link/a", "b", false, &p), 0); /* a look changes nothing */
    assert_int_equal(p.fd, -1);
    assert_int_equal(access(at, F_OK), -1);
    assert_int_equal(open_at(w, "in-link/a", "b", true, &p), 0);
    (void)umask(mask);
    assert_non_null(strstr(p.path, "/allowed/dir/a/b"));
    assert_int_equal(fstat(p.fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    host_place_done(&p);
}

static void new_directories_belong_to_the_owner_of_their_parent(void **state)
{
    struct world *w = *state;
    struct host_place p;
    struct stat st;
    char at[256];

    if (geteuid() != 0)
        skip();
    in(w, "dir", at);
    assert_int_equal(chown(at, 12345, 54321), 0);
    assert_int_equal(open_at(w, "dir/x/y", NULL, true, &p), 0);
    assert_int_equal(fstat(p.fd, &st), 0);
    assert_int_equal(st.st_uid, 12345);
    assert_int_equal(st.st_gid, 54321);
    host_place_done(&p);
}

static void refuses_what_leads_outside(void **state)
{
    static const struct {
        const char *path;
        const char *sub;
        const char *code;
    } rows[] = {
        { "etc", NULL, "VOLUME::HOST_PATH_NOT_ALLOWED" },
        { "etc/passwd", NULL, "VOLUME::HOST_PATH_NOT_ALLOWED" },
        { "etc/new", NULL, "VOLUME::HOST_PATH_NOT_ALLOWED" },
        { "up", NULL, "VOLUME::HOST_PATH_NOT_ALLOWED" },
        { "up/x/y", NULL, "VOLUME::HOST_PATH_NOT_ALLOWED" },
        { "dir", "../../secret", "VOLUME::INVALID_HOST_PATH" },
        { "../secret", NULL, "VOLUME::INVALID_HOST_PATH" },
        { "file/x", NULL, "VOLUME::HOST_PATH_NOT_FOUND" },
        { "dangling", NULL, "VOLUME::HOST_PATH_NOT_FOUND" },
        { "dangling/x", NULL, "VOLUME::HOST_PATH_NOT_FOUND" },
    };
    struct world *w = *state;
    struct host_place p;
    size_t i;
    int plain;

    for (plain = 0; plain < 2; plain++) {
        for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (plain && strstr(rows[i].path, "dangling"))
                continue; /* without openat2 a link is a link */
            if (open_at(w, rows[i].path, rows[i].sub, true, &p) == 0)
                fail_msg("allowed: %s", rows[i].path);
            assert_string_equal(w->e.api_code, rows[i].code);
            assert_int_equal(w->e.code, ERRC_INVALID);
        }
        host_roots_avoid_openat2(w->roots);
    }
    assert_int_equal(open_at(w, "in-link", NULL, true, &p), -1);
    assert_int_equal(open_at(w, "dir/new", NULL, true, &p), 0);
    host_place_done(&p);
}

static void refuses_what_is_not_allowed(void **state)
{
    struct world *w = *state;
    struct host_place p = { .fd = -1 };
    struct host_roots *none;
    char at[256];

    assert_int_equal(host_roots_open(w->roots, w->secret, NULL, true, &p, &w->e), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    (void)snprintf(at, sizeof(at), "%s-not", w->allowed);
    assert_int_equal(host_roots_open(w->roots, at, NULL, true, &p, &w->e), -1);
    assert_int_equal(access(at, F_OK), -1);
    assert_int_equal(host_roots_new(NULL, NULL, 0, &none, &w->e), 0);
    assert_int_equal(host_roots_open(none, w->allowed, NULL, true, &p, &w->e), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    assert_contains(w->e.msg, "storage.allowed_host_paths");
    host_roots_free(none);
}

static void refuses_sockets_pipes_and_devices(void **state)
{
    struct world *w = *state;
    struct host_place p;
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char at[256];

    in(w, "pipe", at);
    assert_int_equal(mkfifo(at, 0600), 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", w->allowed);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    (void)close(fd);
    assert_int_equal(open_at(w, "pipe", NULL, true, &p), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
    assert_int_equal(open_at(w, "sock", NULL, false, &p), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
}

/* What was checked is what is told, whatever the name leads to by now: the agent compares. */
static void a_swap_after_the_check_shows(void **state)
{
    struct world *w = *state;
    struct host_place p;
    struct stat now;
    char at[256];
    char aside[256];

    in(w, "dir", at);
    in(w, "aside", aside);
    assert_int_equal(open_at(w, "dir", NULL, true, &p), 0);
    assert_int_equal(rename(at, aside), 0);
    assert_int_equal(symlink(w->secret, at), 0);
    assert_int_equal(stat(at, &now), 0);
    assert_true(now.st_ino != p.ino);
    assert_int_equal(stat(aside, &now), 0);
    assert_int_equal(now.st_ino, p.ino);
    host_place_done(&p);
    assert_int_equal(open_at(w, "dir", NULL, true, &p), -1);
    assert_string_equal(w->e.api_code, "VOLUME::HOST_PATH_NOT_ALLOWED");
}

static void entries_are_checked_at_start(void **state)
{
    struct world *w = *state;
    char sock[160];
    char link[160];
    char made[160];
    struct host_roots *r;
    const struct host_secret secret[] = { { "the engine's socket", sock }, { "nothing", NULL } };
    size_t i;

    (void)snprintf(sock, sizeof(sock), "%s/engine.sock", w->secret);
    (void)snprintf(link, sizeof(link), "%s/alias", w->top);
    (void)snprintf(made, sizeof(made), "%s/new/deep", w->top);
    put_file(sock);
    assert_int_equal(symlink(w->secret, link), 0);
    const char *const bad[] = { w->top, w->secret,  link,      sock,
                                "/",    "relative", "/a/../b", "/dev/null" };
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *const list[] = { w->allowed, bad[i], NULL };

        if (host_roots_new(list, secret, 2, &r, &w->e) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_contains(w->e.msg, "storage.allowed_host_paths");
    }
    const char *const good[] = { w->allowed, made, NULL };
    assert_int_equal(host_roots_new(good, secret, 2, &r, &w->e), 0);
    assert_int_equal(access(made, F_OK), 0);
    host_roots_free(r);
}

static void an_entry_by_its_other_name(void **state)
{
    struct world *w = *state;
    char link[160];
    char at[256];
    struct host_roots *r;
    struct host_place p = { .fd = -1 };

    (void)snprintf(link, sizeof(link), "%s/alias", w->top);
    assert_int_equal(symlink(w->allowed, link), 0);
    const char *const list[] = { link, NULL };
    assert_int_equal(host_roots_new(list, NULL, 0, &r, &w->e), 0);
    (void)snprintf(at, sizeof(at), "%s/dir", link);
    assert_int_equal(host_roots_open(r, at, NULL, false, &p, &w->e), 0);
    host_place_done(&p);
    in(w, "dir", at);
    assert_int_equal(host_roots_open(r, at, NULL, false, &p, &w->e), 0);
    host_place_done(&p);
    host_roots_free(r);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void repeat(char *out, const char *part, size_t n)
{
    size_t len = strlen(part);

    for (; n > 0; n--, out += len)
        memcpy(out, part, len);
    *out = '\0';
}

static void paths_have_limits(void **state)
{
    char path[4 * HOST_PATH];
    char clean[HOST_PATH];
    size_t past;
    size_t k;

    (void)state;
    for (past = 0; past < 2; past++) {
        repeat(path, "/a", HOST_PATH_PARTS + past);
        assert_int_equal(host_path_clean(path, clean), past ? -1 : 0);
        assert_int_equal(host_path_clean_relative(path + 1, clean), past ? -1 : 0);
        path[0] = '/';
        repeat(path + 1, "n", 255 + past);
        assert_int_equal(host_path_clean(path, clean), past ? -1 : 0);
        for (k = 0; k < 5; k++) {
            path[201 * k] = '/';
            repeat(path + 201 * k + 1, "a", k < 4 ? 200 : HOST_PATH - 2 - 201 * 4 + past);
        }
        assert_int_equal(strlen(path), HOST_PATH - 1 + past);
        assert_int_equal(host_path_clean(path, clean), past ? -1 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cleaned),
        cmocka_unit_test(a_path_fits_or_not),
        cmocka_unit_test(within_stops_at_components),
        T(opens_what_is_there),
        T(makes_what_is_missing),
        T(new_directories_belong_to_the_owner_of_their_parent),
        T(refuses_what_leads_outside),
        T(refuses_what_is_not_allowed),
        T(refuses_sockets_pipes_and_devices),
        T(a_swap_after_the_check_shows),
        T(entries_are_checked_at_start),
        T(an_entry_by_its_other_name),
        T(paths_have_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
