/* Files written as a whole, where the file system has files without a name and where it has none. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/fs/put.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/sandgate-put-XXXXXX";

static const char *at(const char *name)
{
    static char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static int names_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (readdir(d))
        n++;
    (void)closedir(d);
    return n - 2;
}

static int content_is(const char *path, const char *want)
{
    char text[64] = "";
    FILE *f = fopen(path, "re");

    if (!f)
        return 0;
    (void)!fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    return strcmp(text, want) == 0;
}

static int make(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");

    return f && fputs(text, f) >= 0 && fclose(f) == 0 && chmod(path, mode) == 0 ? 0 : -1;
}

/* hidden: names that are seen while the bytes are written. parked: not kept open. 0, or the line of
 * what is wrong. */
static int write_one(const char *path, bool parked, int hidden)
{
    const struct perms none = { 0 };
    int before = names_in(dir);
    struct put p = PUT_INIT;
    struct err e = { 0 };

    if (put_open(&p, path, NULL, &e) < 0 || put_write(&p, "new", 3, &e) < 0)
        return __LINE__;
    if (names_in(dir) != before + hidden)
        return __LINE__;
    if (put_seal(&p, &none, 0640, &e) < 0 || (parked && put_park(&p, &e) < 0))
        return __LINE__;
    if (content_is(path, "new"))
        return __LINE__;
    if (put_commit(&p, &none, &e) < 0)
        return __LINE__;
    put_free(&p);
    return content_is(path, "new") ? 0 : __LINE__;
}

static int give_up(const char *path, bool parked)
{
    const struct perms none = { 0 };
    int before = names_in(dir);
    struct put p = PUT_INIT;
    struct err e = { 0 };

    if (put_open(&p, path, NULL, &e) < 0 || put_write(&p, "new", 3, &e) < 0 ||
        put_seal(&p, &none, 0640, &e) < 0 || (parked && put_park(&p, &e) < 0))
        return __LINE__;
    put_free(&p);
    return names_in(dir) == before && !content_is(path, "new") ? 0 : __LINE__;
}

static int all(int hidden)
{
    struct stat st;
    int parked;
    int rc;

    for (parked = 0; parked < 2; parked++) {
        if ((rc = give_up(at("f"), parked)) || (rc = write_one(at("f"), parked, hidden)))
            return rc;
        if (stat(at("f"), &st) < 0 || (st.st_mode & 07777) != 0640 || names_in(dir) != 1)
            return __LINE__;
        if (make(at("f"), "old", 0604) < 0 || (rc = give_up(at("f"), parked)) ||
            (rc = write_one(at("f"), parked, hidden)))
            return rc ? rc : __LINE__;
        if (stat(at("f"), &st) < 0 || (st.st_mode & 07777) != 0604 || names_in(dir) != 1 ||
            unlink(at("f")) < 0)
            return __LINE__;
    }
    return 0;
}

/* From here on this process makes no file without a name. */
static int forbid_nameless(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
               ? -1
               : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void with_nameless_files(void **state)
{
    int rc;

    (void)state;
    rc = all(0);
    if (rc)
        fail_msg("line %d", rc);
}

static void without_nameless_files(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (!pid)
        _exit(forbid_nameless() < 0 ? 1 : all(1) ? 2 : 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Two writers of a new name: the last one wins, neither fails. */
static void a_name_that_came_meanwhile(void **state)
{
    const struct perms none = { 0 };
    struct put a = PUT_INIT;
    struct put b = PUT_INIT;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(put_open(&a, at("f"), NULL, &e), 0);
    assert_int_equal(put_open(&b, at("f"), NULL, &e), 0);
    assert_int_equal(put_write(&a, "a", 1, &e), 0);
    assert_int_equal(put_write(&b, "b", 1, &e), 0);
    assert_int_equal(put_seal(&a, &none, 0644, &e), 0);
    assert_int_equal(put_seal(&b, &none, 0644, &e), 0);
    assert_int_equal(put_commit(&a, &none, &e), 0);
    assert_true(content_is(at("f"), "a"));
    assert_int_equal(put_commit(&b, &none, &e), 0);
    assert_true(content_is(at("f"), "b"));
    put_free(&a);
    put_free(&b);
    assert_int_equal(names_in(dir), 1);
    assert_int_equal(unlink(at("f")), 0);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int take_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_nameless_files),
        cmocka_unit_test(without_nameless_files),
        cmocka_unit_test(a_name_that_came_meanwhile),
    };

    return cmocka_run_group_tests(tests, set_up, take_down);
}
