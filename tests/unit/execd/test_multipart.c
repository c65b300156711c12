/* The form parser, with the body cut at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_part(void *arg, const struct multipart_part *p, struct err *e)
{
    (void)e;
    return buf_printf(arg, "<%s|%s|%s>", p->name, p->filename ? p->filename : "-",
                      p->content_type ? p->content_type : "-");
}

static int on_data(void *arg, const char *data, size_t len, struct err *e)
{
    (void)e;
    return buf_append(arg, data, len);
}

static int on_end(void *arg, struct err *e)
{
    (void)e;
    return buf_puts(arg, ";");
}

static const struct multipart_ops ops = { on_part, on_data, on_end };

/* NULL want: some push or the finish fails. */
static void check_steps(const char *type, const char *body, size_t len, const char *want)
{
    size_t step;

    for (step = 1; step <= len; step++) {
        struct buf out = BUF_INIT(1 << 16);
        struct err e = { 0 };
        struct multipart *m = multipart_new(type, 3, &ops, &out, &e);
        size_t i;
        int rc = 0;

        assert_non_null(m);
        for (i = 0; i < len && rc == 0; i += step)
            rc = multipart_push(m, body + i, len - i < step ? len - i : step, &e);
        if (rc == 0)
            rc = multipart_finish(m, &e);
        assert_int_equal(rc, want ? 0 : -1);
        if (want)
            assert_string_equal(out.data ? out.data : "", want);
        else
            assert_int_equal(e.code, ERRC_INVALID);
        multipart_free(m);
        buf_free(&out);
    }
}

static void check(const char *body, const char *want)
{
    check_steps("multipart/form-data; boundary=B", body, strlen(body), want);
}

#define HEAD "Content-Disposition: form-data; name=\"f\"\r\n\r\n"

static void bodies(void **state)
{
    (void)state;
    check("--B\r\n" HEAD "hello\r\n--B--\r\n", "<f|-|->hello;");
    check("--B\r\n" HEAD "\r\n--B--", "<f|-|->;");
    check("--B\r\n" HEAD "a\r\n-\r\n--\r\r\n--A\r\n--B--", "<f|-|->a\r\n-\r\n--\r\r\n--A;");
    check("--B\r\n" HEAD "x\r\n--B \t\r\n" HEAD "y\r\n--B--trailer\r\n--B\r\n",
          "<f|-|->x;<f|-|->y;");
    check("preamble\r\n--B\r\n" HEAD "x\r\n--B--", "<f|-|->x;");
    check("--B--", "");
    check("--B\r\n\r\nx\r\n--B--", "<|-|->x;");
    check("--B\r\nContent-Type: a/b\r\ncontent-disposition: form-data; name=n; "
          "filename=\"a;\\\"\\\\b.txt\"\r\n\r\nx\r\n--B--",
          "<n|a;\"\\b.txt|a/b>x;");
    check("--B\r\n" HEAD "1\r\n--B\r\n" HEAD "2\r\n--B\r\n" HEAD "3\r\n--B--",
          "<f|-|->1;<f|-|->2;<f|-|->3;");
}

static void faults(void **state)
{
    (void)state;
    check("--B\r\n" HEAD "never closed", NULL);
    check("--B\r\n" HEAD "x\r\n--B", NULL);
    check("--B\r\n" HEAD "x\r\n--Bgarbage\r\n", NULL);
    check("--B\r\n" HEAD "x\r\n--B-x", NULL);
    check("no boundary at all", NULL);
    check("--B\r\nContent-Disposition: form-data; name=\"open\r\n\r\nx\r\n--B--", NULL);
    check("--B\r\n" HEAD "1\r\n--B\r\n" HEAD "2\r\n--B\r\n" HEAD "3\r\n--B\r\n" HEAD "4\r\n--B--",
          NULL); /* one part too many */
}

static void content_types(void **state)
{
    static const char *const bad[] = { NULL,
                                       "",
                                       "text/plain",
                                       "multipart/form-data",
                                       "multipart/form-data; boundary=",
                                       "multipart/form-data; boundary=\"open",
                                       "multipart/mixed; boundary=B" };
    struct err e;
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(multipart_new(bad[i], 1, &ops, NULL, &e));
    check_steps("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"", "--a b\r\n\r\nx\r\n--a b--",
                25, "<|-|->x;");
}

static void limits(void **state)
{
    size_t len = MULTIPART_HEADERS_MAX - 30; /* the field's name and two line breaks */
    char *body = calloc(1, len + 200);
    struct buf out = BUF_INIT(1 << 16);
    struct err e = { 0 };
    struct multipart *m;
    char name[MULTIPART_NAME_MAX + 1];
    unsigned over;

    (void)state;
    for (over = 0; over < 2; over++) {
        size_t n = MULTIPART_HEADERS_MAX - 4 - 3 + over;

        memcpy(body, "--B\r\nX: ", 8);
        memset(body + 8, 'x', n);
        memcpy(body + 8 + n, "\r\n\r\nv\r\n--B--", 13);
        m = multipart_new("multipart/form-data; boundary=B", 1, &ops, &out, &e);
        assert_int_equal(multipart_push(m, body, strlen(body), &e), over ? -1 : 0);
        multipart_free(m);
    }
    for (over = 0; over < 2; over++) {
        memset(name, 'n', sizeof(name));
        name[MULTIPART_NAME_MAX - 1 + over] = '\0';
        (void)snprintf(body, len, "--B\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n",
                       name);
        m = multipart_new("multipart/form-data; boundary=B", 1, &ops, &out, &e);
        assert_int_equal(multipart_push(m, body, strlen(body), &e), over ? -1 : 0);
        multipart_free(m);
    }
    buf_free(&out);
    free(body);
}

/* Binary content that looks like delimiters at the edges of the pieces. */
static void random_content(void **state)
{
    static const char alphabet[] = "\r\n-Bx";
    char body[512];
    char want[512];
    unsigned seed = 7;
    unsigned round;

    (void)state;
    for (round = 0; round < 300; round++) {
        char content[65];
        unsigned i;

        for (i = 0; i < 64; i++) {
            seed = seed * 1103515245 + 12345;
            content[i] = alphabet[(seed >> 16) % 5];
        }
        content[64] = '\0';
        if (strstr(content, "\r\n--B"))
            continue;
        (void)snprintf(body, sizeof(body), "--B\r\n\r\n%s\r\n--B--", content);
        (void)snprintf(want, sizeof(want), "<|-|->%s;", content);
        check(body, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies), cmocka_unit_test(faults),         cmocka_unit_test(content_types),
        cmocka_unit_test(limits), cmocka_unit_test(random_content),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
