/* The pure parts of the file routes: ranges, header values, modes, paths, lines of a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/fs/env.h"
#include "execd/fs/headers.h"
#include "execd/fs/path.h"
#include "execd/fs/perms.h"
#include "execd/fs/range.h"
#include "execd/fs/slice.h"
#include "execd/fs/tmpfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void range_is(const char *s, uint64_t size, uint64_t off, uint64_t len)
{
    uint64_t o;
    uint64_t l;

    assert_int_equal(range_parse(s, size, &o, &l), RANGE_OK);
    assert_int_equal(o, off);
    assert_int_equal(l, len);
}

static void range_fails(const char *s, uint64_t size, enum range want)
{
    uint64_t o;
    uint64_t l;

    assert_int_equal(range_parse(s, size, &o, &l), want);
}

static void ranges(void **state)
{
    (void)state;
    range_is("bytes=0-9", 100, 0, 10);
    range_is("bytes=90-", 100, 90, 10);
    range_is("bytes=-10", 100, 90, 10);
    range_is("bytes=-1000", 100, 0, 100);
    range_is("bytes=0-9223372036854775807", 5, 0, 5);
    range_is("bytes=0-99999999999999999999999", 5, 0, 5);
    range_is("bytes=2-2, 4-5", 100, 2, 1);
    range_is(" Bytes= 0-0", 1, 0, 1);
    range_fails("bytes=100-", 100, RANGE_BEYOND);
    range_fails("bytes=0-", 0, RANGE_BEYOND);
    range_fails("bytes=-0", 10, RANGE_BEYOND);
    range_fails("bytes=-5", 0, RANGE_BEYOND);
    range_fails("bytes=99999999999999999999999-", 5, RANGE_BEYOND);
    range_fails("bytes=5-2", 100, RANGE_BROKEN);
    range_fails("bytes=", 100, RANGE_BROKEN);
    range_fails("bytes=-", 100, RANGE_BROKEN);
    range_fails("bytes=a-b", 100, RANGE_BROKEN);
    range_fails("bytes=1-2x", 100, RANGE_BROKEN);
    range_fails("lines=1-2", 100, RANGE_BROKEN);
}

static void disposition_is(const char *name, const char *want)
{
    struct buf b = BUF_INIT(1000);

    assert_int_equal(disposition_format(name, &b), 0);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void dispositions(void **state)
{
    (void)state;
    disposition_is("a b.txt", "attachment; filename=\"a b.txt\"");
    disposition_is("a\"\\.txt", "attachment; filename=\"a\\\"\\\\.txt\"");
    disposition_is("é", "attachment; filename=\"__\"; filename*=UTF-8''%C3%A9");
    disposition_is("a\r\nX: y",
                   "attachment; filename=\"a__X: y\"; filename*=UTF-8''a%0D%0AX%3A%20y");
    disposition_is("\xff", "attachment; filename=\"_\"; filename*=UTF-8''%EF%BF%BD");
}

static void dates(void **state)
{
    char text[HTTP_DATE_TEXT];
    int64_t t;

    (void)state;
    http_date_format(784111777, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_int_equal(http_date_parse(text, &t), 0);
    assert_int_equal(t, 784111777);
    assert_int_equal(http_date_parse("Sun Nov  6 08:49:37 1994", &t), -1);
    assert_int_equal(http_date_parse("", &t), -1);
}

static void modes(void **state)
{
    mode_t m;

    (void)state;
    assert_int_equal(perms_mode(755, &m), 0);
    assert_int_equal(m, 0755);
    assert_int_equal(perms_mode(4755, &m), 0);
    assert_int_equal(m, 0755);
    assert_int_equal(perms_mode(0, &m), 0);
    assert_int_equal(m, 0);
    assert_int_equal(perms_mode(648, &m), -1);
    assert_int_equal(perms_mode(-7, &m), -1);
    assert_int_equal(perms_digits(0100644), 644);
    assert_int_equal(perms_digits(07), 7);
    assert_int_equal(perms_digits(04000), 0);
}

static void clean_is(const char *path, const char *want)
{
    char *p = strdup(path);

    path_clean(p);
    assert_string_equal(p, want);
    free(p);
}

static void clean_paths(void **state)
{
    (void)state;
    clean_is("/", "/");
    clean_is("///", "/");
    clean_is("/a//b/./c/", "/a/b/c");
    clean_is("/a/../b", "/b");
    clean_is("/../../a/..", "/");
    clean_is("/a/b/../../c", "/c");
    clean_is("/..a/...", "/..a/...");
}

static void literal_name_beats_a_missing_variable(void **state)
{
    char dir[] = "/tmp/sandgate-path-XXXXXX";
    char path[64];
    struct env v = { 0 };
    const struct path_from from = { &v, dir };
    struct err e;
    char *out = NULL;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/a$NOPE", dir);
    assert_int_equal(path_resolve(path, &from, &out, &e), -1);
    assert_int_equal(e.code, ERRC_INTERNAL);
    assert_int_equal(fclose(fopen(path, "w")), 0);
    assert_int_equal(path_resolve(path, &from, &out, &e), 0);
    assert_string_equal(out, path);
    free(out);
    assert_int_equal(path_resolve("../x/./a$NOPE", &from, &out, &e), -1);
    assert_int_equal(path_resolve("x/../a$NOPE", &from, &out, &e), 0);
    assert_string_equal(out, path);
    free(out);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void slice_is(const char *text, uint64_t first, uint64_t limit, const char *want)
{
    int fd = tmpfile_open(NULL);
    int to = tmpfile_open(NULL);
    struct slice s;
    struct err e = { 0 };
    char got[256] = "";
    uint64_t len;

    assert_true(fd >= 0 && to >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(slice_find(fd, first, limit, &s, &e), 0);
    if (s.crlf) {
        assert_int_equal(slice_copy(fd, &s, to, &len, &e), 0);
        assert_int_equal(pread(to, got, sizeof(got) - 1, 0), (ssize_t)len);
    } else {
        assert_int_equal(pread(fd, got, s.len, (off_t)s.off), (ssize_t)s.len);
    }
    assert_string_equal(got, want);
    assert_int_equal(s.crlf, strstr(want, "\n") && strstr(text, "\r\n"));
    (void)close(fd);
    (void)close(to);
}

static void slices(void **state)
{
    (void)state;
    slice_is("a\nb\nc\nd\n", 2, 2, "b\nc");
    slice_is("a\nb\nc\nd\n", 1, 0, "a\nb\nc\nd");
    slice_is("a\nb\nc", 3, 5, "c");
    slice_is("a\nb\nc", 4, 1, "");
    slice_is("a\nb\n", 3, 0, "");
    slice_is("", 1, 0, "");
    slice_is("\n\nx\n", 1, 2, "\n");
    slice_is("\n\nx\n", 2, 1, "");
    slice_is("a\r\nb\r\nc\r\n", 1, 2, "a\nb");
    slice_is("a\r\nb\r\nc\r\n", 2, 0, "b\nc");
    slice_is("a\nb\r", 2, 0, "b");
    slice_is("x\r\n", 1, 1, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),      cmocka_unit_test(dispositions),
        cmocka_unit_test(dates),       cmocka_unit_test(modes),
        cmocka_unit_test(clean_paths), cmocka_unit_test(literal_name_beats_a_missing_variable),
        cmocka_unit_test(slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
