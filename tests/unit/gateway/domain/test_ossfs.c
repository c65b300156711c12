/* Mounting buckets, with scripts in place of the programs and a file in place of the kernel's table of mounts. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/ossfs.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "11111111-1111-4111-8111-111111111111"
#define SECRET "s3cr+t/KEY"

struct world {
    char top[64];
    char root[96];
    char programs[128];
    char table[96];
    struct ossfs o;
    struct volume_req v;
    json_t *options;
    struct err e;
};

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void at(const struct world *w, const char *rest, char out[256])
{
    (void)snprintf(out, 256, "%s/%s", w->top, rest);
}

static void put(const struct world *w, const char *rest, const char *text, mode_t mode)
{
    char path[256];
    FILE *f;

    at(w, rest, path);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    (void)fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static char *get(const struct world *w, const char *rest)
{
    static char text[4096];
    char path[256];
    FILE *f;
    size_t n;

    at(w, rest, path);
    f = fopen(path, "re");
    if (!f)
        return NULL;
    n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    return text;
}

/* Notes its arguments and the file with the keys, then mounts its directory: an entry of the table. */
static const char tool[] = "#!/bin/sh\n"
                           "top=$(dirname \"$(dirname \"$0\")\")\n"
                           "echo \"$@\" > $top/args\n"
                           "env > $top/env\n"
                           "for a in \"$@\"; do case $a in passwd_file=*) f=${a#passwd_file=};; "
                           "*.conf) f=$a;; esac; done\n"
                           "stat -c %a $f > $top/mode; cat $f > $top/keys\n"
                           "[ -e $top/fail ] && { echo \"no: $(cat $f)\" >&2; exit 1; }\n"
                           "[ -e $top/hang ] && exec sleep 60\n"
                           "[ -e $top/nothing ] && exit 0\n"
                           "echo \"1 1 0:1 / $2 rw - fuse x rw\" >> $top/table\n";
static const char unmounter[] = "#!/bin/sh\n"
                                "top=$(dirname \"$(dirname \"$0\")\")\n"
                                "[ -e $top/busy ] && exit 1\n"
                                "grep -v \" $2 \" $top/table > $top/table.new\n"
                                "mv $top/table.new $top/table\n";

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char path[256];

    log_set_level(LOG_OFF);
    (void)snprintf(w->top, sizeof(w->top), "/tmp/sandgate-oss-XXXXXX");
    assert_non_null(mkdtemp(w->top));
    (void)snprintf(w->root, sizeof(w->root), "%s/mnt/ossfs/own", w->top);
    (void)snprintf(w->programs, sizeof(w->programs), "%s/bin:/usr/bin:/bin", w->top);
    (void)snprintf(w->table, sizeof(w->table), "%s/table", w->top);
    at(w, "bin", path);
    assert_int_equal(mkdir(path, 0755), 0);
    put(w, "bin/ossfs", tool, 0755);
    put(w, "bin/ossfs2", tool, 0755);
    put(w, "bin/fusermount3", unmounter, 0755);
    put(w, "table", "22 1 8:1 / / rw - ext4 /dev/x rw\n23 22 0:4 / /with\\040blank rw - x y rw\n",
        0644);
    w->options = json_pack("[s,s]", "allow_other", "umask=022");
    w->o = (struct ossfs){ .root = w->root,
                           .programs = w->programs,
                           .device = "/dev/null",
                           .mountinfo = w->table,
                           .timeout_ms = 10000 };
    w->v = (struct volume_req){ .name = "data",
                                .mount_path = "/data",
                                .backend = VOLUME_OSSFS,
                                .ossfs = { .bucket = "bucket-1",
                                           .endpoint = "oss.example.com",
                                           .version = "2.0",
                                           .options = w->options,
                                           .key_id = "the-key-id",
                                           .key_secret = SECRET } };
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    (void)nftw(w->top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    json_decref(w->options);
    free(w);
    return 0;
}

static bool exists(const struct world *w, const char *rest)
{
    char path[256];

    at(w, rest, path);
    return access(path, F_OK) == 0;
}

static void says_what_is_missing(void **state)
{
    struct world *w = *state;
    char path[256];

    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), 0);
    at(w, "bin/ossfs2", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), -1);
    assert_string_equal(w->e.api_code, "VOLUME::UNSUPPORTED_BACKEND");
    assert_contains(w->e.msg, "ossfs2");
    w->v.ossfs.version = "1.0";
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), 0);
    w->o.device = "/dev/there-is-no-fuse";
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), -1);
    assert_contains(w->e.msg, "/dev/there-is-no-fuse");
    w->o.device = "/dev/null";
    w->o.programs = w->root;
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), -1);
    (void)snprintf(path, sizeof(path), "%s/bin", w->top);
    w->o.programs = path;
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), 0);
    at(w, "bin/fusermount3", path);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/bin", w->top);
    assert_int_equal(ossfs_check(&w->o, &w->v, &w->e), -1);
    assert_contains(w->e.msg, "fusermount");
}

static int do_mount(struct world *w, const char *sub, char *out)
{
    memset(&w->e, 0, sizeof(w->e));
    return ossfs_mount(&w->o, ID, &w->v, sub, out, &w->e);
}

static void version_2_gets_a_file(void **state)
{
    struct world *w = *state;
    char dir[HOST_PATH];
    char want[2 * HOST_PATH + 256];

    if (do_mount(w, "pre/fix", dir) < 0)
        fail_msg("%s", w->e.msg);
    (void)snprintf(want, sizeof(want), "%s/" ID "/data", w->root);
    assert_string_equal(dir, want);
    (void)snprintf(want, sizeof(want), "mount %s -c %s.conf\n", dir, dir);
    assert_string_equal(get(w, "args"), want);
    assert_string_equal(get(w, "mode"), "600\n");
    assert_string_equal(get(w, "keys"),
                        "--oss_endpoint=https://oss.example.com\n--oss_bucket=bucket-1\n"
                        "--oss_access_key_id=the-key-id\n--oss_access_key_secret=" SECRET "\n"
                        "--oss_bucket_prefix=pre/fix/\n--allow_other\n--umask=022\n");
    assert_false(exists(w, "mnt/ossfs/own/" ID "/data.conf"));
    assert_null(strstr(get(w, "env"), SECRET));
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
    assert_false(exists(w, "mnt/ossfs/own/" ID));
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0); /* again */
}

static void version_1_gets_arguments_without_keys(void **state)
{
    struct world *w = *state;
    char dir[HOST_PATH];
    char want[2 * HOST_PATH + 256];

    w->v.ossfs.version = "1.0";
    w->v.ossfs.endpoint = "http://127.0.0.1:9000";
    if (do_mount(w, "pre", dir) < 0)
        fail_msg("%s", w->e.msg);
    (void)snprintf(want, sizeof(want),
                   "bucket-1:/pre %s -o url=http://127.0.0.1:9000 -o passwd_file=%s.conf"
                   " -o allow_other -o umask=022\n",
                   dir, dir);
    assert_string_equal(get(w, "args"), want);
    assert_string_equal(get(w, "keys"), "bucket-1:the-key-id:" SECRET "\n");
    assert_false(exists(w, "mnt/ossfs/own/" ID "/data.conf"));
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
}

static void a_failure_says_why_but_not_the_keys(void **state)
{
    struct world *w = *state;
    char dir[HOST_PATH];

    put(w, "fail", "", 0600);
    assert_int_equal(do_mount(w, "", dir), -1);
    assert_string_equal(w->e.api_code, "VOLUME::OSSFS_MOUNT_FAILED");
    assert_int_equal(w->e.code, ERRC_INTERNAL);
    assert_contains(w->e.msg, "no: --oss_endpoint");
    assert_null(strstr(w->e.msg, SECRET));
    assert_null(strstr(w->e.msg, "the-key-id"));
    assert_false(exists(w, "mnt/ossfs/own/" ID "/data.conf"));
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
    assert_false(exists(w, "mnt/ossfs/own/" ID));
}

static void a_program_that_hangs_or_does_nothing_is_given_up(void **state)
{
    struct world *w = *state;
    char dir[HOST_PATH];

    w->o.timeout_ms = 300;
    put(w, "hang", "", 0600);
    assert_int_equal(do_mount(w, "", dir), -1);
    assert_string_equal(w->e.api_code, "VOLUME::OSSFS_MOUNT_FAILED");
    assert_false(exists(w, "mnt/ossfs/own/" ID "/data.conf"));
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
    at(w, "hang", dir);
    assert_int_equal(unlink(dir), 0);
    put(w, "nothing", "", 0600);
    assert_int_equal(do_mount(w, "", dir), -1);
    assert_string_equal(w->e.api_code, "VOLUME::OSSFS_MOUNT_FAILED");
}

static void what_is_busy_stays_for_the_next_time(void **state)
{
    struct world *w = *state;
    char dir[HOST_PATH];
    json_t *names;

    assert_int_equal(do_mount(w, "", dir), 0);
    put(w, "busy", "", 0600);
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), -1);
    assert_string_equal(w->e.api_code, "VOLUME::OSSFS_UNMOUNT_FAILED");
    assert_true(exists(w, "mnt/ossfs/own/" ID "/data"));
    names = ossfs_sandboxes(&w->o);
    assert_int_equal(json_array_size(names), 1);
    assert_string_equal(json_string_value(json_array_get(names, 0)), ID);
    json_decref(names);
    at(w, "busy", dir);
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
    names = ossfs_sandboxes(&w->o);
    assert_int_equal(json_array_size(names), 0);
    json_decref(names);
}

static void a_left_file_with_keys_goes(void **state)
{
    struct world *w = *state;
    char path[256];

    at(w, "mnt", path);
    assert_int_equal(mkdir(path, 0755), 0);
    at(w, "mnt/ossfs", path);
    assert_int_equal(mkdir(path, 0755), 0);
    at(w, "mnt/ossfs/own", path);
    assert_int_equal(mkdir(path, 0755), 0);
    at(w, "mnt/ossfs/own/" ID, path);
    assert_int_equal(mkdir(path, 0700), 0);
    put(w, "mnt/ossfs/own/" ID "/data.conf", SECRET, 0600);
    assert_int_equal(ossfs_release(&w->o, ID, &w->e), 0);
    assert_false(exists(w, "mnt/ossfs/own/" ID));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(says_what_is_missing),
        T(version_2_gets_a_file),
        T(version_1_gets_arguments_without_keys),
        T(a_failure_says_why_but_not_the_keys),
        T(a_program_that_hangs_or_does_nothing_is_given_up),
        T(what_is_busy_stays_for_the_next_time),
        T(a_left_file_with_keys_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
