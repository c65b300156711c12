/* The `volumes` of a create request: every rule with a good and a bad side. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/json/jx.h"
#include "gateway/api/volume_body.h"
#include "gateway/domain/volume_rules.h"

#include <stdlib.h>
#include <string.h>

#define NAMED "\"name\":\"v\",\"mountPath\":\"/data\""
#define PVC "\"pvc\":{\"claimName\":\"c\"}"
#define OSS(more) "[{" NAMED ",\"ossfs\":{" more "}}]"
#define KEYS "\"accessKeyId\":\"id\",\"accessKeySecret\":\"se/cr+et\""
#define BUCKET "\"bucket\":\"bucket-1\",\"endpoint\":\"oss-x.example.com\""

static int decode(const char *text, struct volume_list *out, json_t **doc, struct err *e)
{
    memset(e, 0, sizeof(*e));
    *doc = jx_parse(text, strlen(text), true, e);
    return *doc ? volume_body_decode(*doc, out, e) : -1;
}

static void takes_what_the_sdks_send(void **state)
{
    struct volume_list l;
    struct err e;
    json_t *doc;

    (void)state;
    assert_int_equal(
        decode(
            "[{\"name\":\"work\",\"mountPath\":\"/data/\",\"readOnly\":false,\"subPath\":null,"
            "\"host\":null,\"ossfs\":null,\"pvc\":{\"claimName\":\"v-1\",\"createIfNotExists\":true,"
            "\"deleteOnSandboxTermination\":false,\"storageClass\":null,\"storage\":null,"
            "\"accessModes\":null}},"
            "{\"name\":\"h\",\"mountPath\":\"/h\",\"readOnly\":true,\"subPath\":\"a/b\","
            "\"host\":{\"path\":\"/srv/x\"}},"
            "{\"name\":\"o\",\"mountPath\":\"/o\",\"ossfs\":{" BUCKET "," KEYS
            ",\"options\":[\"allow_other\",\"umask=022\"]}}]",
            &l, &doc, &e),
        0);
    assert_int_equal(l.len, 3);
    assert_int_equal(l.items[0].backend, VOLUME_NAMED);
    assert_string_equal(l.items[0].claim, "v-1");
    assert_true(l.items[0].create);
    assert_false(l.items[0].delete_with_sandbox);
    assert_null(l.items[0].sub_path);
    assert_int_equal(l.items[1].backend, VOLUME_HOST);
    assert_true(l.items[1].read_only);
    assert_string_equal(l.items[1].sub_path, "a/b");
    assert_string_equal(l.items[2].ossfs.version, "2.0");
    json_decref(doc);
}

static void accepts(void **state)
{
    static const char *const rows[] = {
        "[]",
        "[{" NAMED "," PVC "}]",
        "[{" NAMED "," PVC ",\"unknown\":1}]",
        "[{" NAMED "," PVC ",\"subPath\":\"\"}]",
        "[{" NAMED "," PVC ",\"subPath\":\"a/..b/c\"}]",
        "[{\"name\":\"0\",\"mountPath\":\"/a\"," PVC "}]",
        "[{" NAMED ",\"pvc\":{\"claimName\":\"c\",\"storage\":\"1.5Gi\",\"storageClass\":\"s\","
        "\"accessModes\":[\"ReadWriteOnce\"]}}]",
        "[{" NAMED ",\"pvc\":{\"claimName\":\"c\",\"storage\":\"10\"}}]",
        "[{" NAMED ",\"host\":{\"path\":\"/a\"}}]",
        "[{" NAMED ",\"host\":{\"path\":\"/\"}}]",
        "[{\"name\":\"a\",\"mountPath\":\"/opt/opensandbox-x\"," PVC "}]",
        "[{\"name\":\"a\",\"mountPath\":\"/etc/hosts.d\"," PVC "}]",
        "[{\"name\":\"a\",\"mountPath\":\"/a\"," PVC "},{\"name\":\"b\",\"mountPath\":\"/a/b\"," PVC
        "}]",
        OSS(BUCKET "," KEYS ",\"version\":\"1.0\""),
        OSS("\"bucket\":\"abc\",\"endpoint\":\"http://127.0.0.1:9000\"," KEYS),
    };
    struct volume_list l;
    struct err e;
    json_t *doc;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (decode(rows[i], &l, &doc, &e) < 0)
            fail_msg("%s: %s", rows[i], e.msg);
        json_decref(doc);
    }
    assert_int_equal(volume_body_decode(NULL, &l, &e), 0);
    assert_int_equal(l.len, 0);
}

struct bad {
    const char *text;
    const char *code; /* behind VOLUME:: */
};

static void refuse_all(const struct bad *rows, size_t n)
{
    struct volume_list l;
    struct err e;
    json_t *doc;
    size_t i;

    for (i = 0; i < n; i++) {
        if (decode(rows[i].text, &l, &doc, &e) == 0)
            fail_msg("accepted: %s", rows[i].text);
        json_decref(doc);
        assert_int_equal(e.code, ERRC_INVALID);
        if (!rows[i].code) {
            assert_null(e.api_code);
            continue;
        }
        if (!e.api_code || strncmp(e.api_code, "VOLUME::", 8) != 0 ||
            strcmp(e.api_code + 8, rows[i].code) != 0)
            fail_msg("%s: %s (%s)", rows[i].text, e.api_code ? e.api_code : "-", e.msg);
    }
}

#define MP(path) "[{\"name\":\"a\",\"mountPath\":\"" path "\"," PVC "}]"
#define SUB(path) "[{" NAMED "," PVC ",\"subPath\":\"" path "\"}]"
#define HOST(path) "[{" NAMED ",\"host\":{\"path\":\"" path "\"}}]"
#define CLAIM(name) "[{" NAMED ",\"pvc\":{\"claimName\":\"" name "\"}}]"
#define NAME(name) "[{\"name\":\"" name "\",\"mountPath\":\"/a\"," PVC "}]"

static void refuses_and_says_why(void **state)
{
    static const struct bad rows[] = {
        { "[1]", NULL },
        { "[null]", NULL },
        { "[{\"mountPath\":\"/a\"," PVC "}]", NULL },
        { "[{\"name\":\"a\"," PVC "}]", NULL },
        { "[{" NAMED ",\"readOnly\":\"perhaps\"," PVC "}]", NULL },
        { "[{" NAMED ",\"pvc\":{}}]", NULL },
        { "[{" NAMED ",\"host\":{}}]", NULL },
        { "[{" NAMED ",\"ossfs\":{}}]", NULL },
        { "[{" NAMED "}]", "INVALID_BACKEND" },
        { "[{" NAMED ",\"host\":null,\"pvc\":null}]", "INVALID_BACKEND" },
        { "[{" NAMED "," PVC ",\"host\":{\"path\":\"/a\"}}]", "INVALID_BACKEND" },
        { NAME(""), "INVALID_NAME" },
        { NAME("-a"), "INVALID_NAME" },
        { NAME("a-"), "INVALID_NAME" },
        { NAME("A"), "INVALID_NAME" },
        { NAME("a.b"), "INVALID_NAME" },
        { NAME("a/b"), "INVALID_NAME" },
        { "[{\"name\":\"a\",\"mountPath\":\"/a\"," PVC "},{\"name\":\"a\",\"mountPath\":\"/b\"," PVC
          "}]",
          "DUPLICATE_NAME" },
        { "[{\"name\":\"a\",\"mountPath\":\"/a\"," PVC
          "},{\"name\":\"b\",\"mountPath\":\"//a/\"," PVC "}]",
          "INVALID_MOUNT_PATH" },
        { MP(""), "INVALID_MOUNT_PATH" },
        { MP("a"), "INVALID_MOUNT_PATH" },
        { MP("/"), "INVALID_MOUNT_PATH" },
        { MP("//."), "INVALID_MOUNT_PATH" },
        { MP("/a/../b"), "INVALID_MOUNT_PATH" },
        { MP("/a\\nb"), "INVALID_MOUNT_PATH" },
        { MP("/proc"), "INVALID_MOUNT_PATH" },
        { MP("/proc/sys"), "INVALID_MOUNT_PATH" },
        { MP("/sys/fs"), "INVALID_MOUNT_PATH" },
        { MP("/dev/shm"), "INVALID_MOUNT_PATH" },
        { MP("/etc/hosts"), "INVALID_MOUNT_PATH" },
        { MP("/etc/hostname"), "INVALID_MOUNT_PATH" },
        { MP("/etc/resolv.conf"), "INVALID_MOUNT_PATH" },
        { MP("/opt"), "INVALID_MOUNT_PATH" },
        { MP("/opt/opensandbox"), "INVALID_MOUNT_PATH" },
        { MP("/opt/./opensandbox/agent"), "INVALID_MOUNT_PATH" },
        { SUB("/a"), "INVALID_SUB_PATH" },
        { SUB(".."), "INVALID_SUB_PATH" },
        { SUB("a/../b"), "INVALID_SUB_PATH" },
        { SUB("a/.."), "INVALID_SUB_PATH" },
        { HOST(""), "INVALID_HOST_PATH" },
        { HOST("a"), "INVALID_HOST_PATH" },
        { HOST("/a/../b"), "INVALID_HOST_PATH" },
        { HOST("/.."), "INVALID_HOST_PATH" },
        { HOST("/a//b"), "INVALID_HOST_PATH" },
        { HOST("/a/"), "INVALID_HOST_PATH" },
        { HOST("/a\\u0001"), "INVALID_HOST_PATH" },
        { HOST("C:"), "INVALID_HOST_PATH" },
        { HOST("C:\\\\data"), "HOST_PATH_NOT_ALLOWED" },
        { CLAIM(""), "INVALID_PVC_NAME" },
        { CLAIM("A"), "INVALID_PVC_NAME" },
        { CLAIM("a_b"), "INVALID_PVC_NAME" },
        { CLAIM("../x"), "INVALID_PVC_NAME" },
        { CLAIM("-a"), "INVALID_PVC_NAME" },
    };

    (void)state;
    refuse_all(rows, sizeof(rows) / sizeof(rows[0]));
}

#define OPT(text) OSS(BUCKET "," KEYS ",\"options\":[\"" text "\"]")
#define END(text) OSS("\"bucket\":\"abc\",\"endpoint\":\"" text "\"," KEYS)

static void refuses_wrong_buckets(void **state)
{
    static const struct bad rows[] = {
        { OSS(BUCKET "," KEYS ",\"version\":\"3.0\""), "INVALID_OSSFS_VERSION" },
        { OSS("\"bucket\":\"ab\",\"endpoint\":\"e\"," KEYS), "INVALID_OSSFS_BUCKET" },
        { OSS("\"bucket\":\"Abc\",\"endpoint\":\"e\"," KEYS), "INVALID_OSSFS_BUCKET" },
        { OSS("\"bucket\":\"-bc\",\"endpoint\":\"e\"," KEYS), "INVALID_OSSFS_BUCKET" },
        { END(""), "INVALID_OSSFS_ENDPOINT" },
        { END("a b"), "INVALID_OSSFS_ENDPOINT" },
        { END("x,passwd_file=y"), "INVALID_OSSFS_ENDPOINT" },
        { END("file://x"), "INVALID_OSSFS_ENDPOINT" },
        { END("https://"), "INVALID_OSSFS_ENDPOINT" },
        { END("-o"), "INVALID_OSSFS_ENDPOINT" },
        { OSS(BUCKET), "INVALID_OSSFS_CREDENTIALS" },
        { OSS(BUCKET ",\"accessKeyId\":\"a\""), "INVALID_OSSFS_CREDENTIALS" },
        { OSS(BUCKET ",\"accessKeyId\":\"a\",\"accessKeySecret\":\"\""),
          "INVALID_OSSFS_CREDENTIALS" },
        { OSS(BUCKET ",\"accessKeyId\":\"a:b\",\"accessKeySecret\":\"c\""),
          "INVALID_OSSFS_CREDENTIALS" },
        { OSS(BUCKET ",\"accessKeyId\":\"a\",\"accessKeySecret\":\"c\\nd\""),
          "INVALID_OSSFS_CREDENTIALS" },
        { OPT(""), "INVALID_OSSFS_OPTION" },
        { OPT("-o"), "INVALID_OSSFS_OPTION" },
        { OPT("a;b"), "INVALID_OSSFS_OPTION" },
        { OPT("a b"), "INVALID_OSSFS_OPTION" },
        { OPT("a,passwd_file=b"), "INVALID_OSSFS_OPTION" },
        { OPT("$x"), "INVALID_OSSFS_OPTION" },
        { OPT("a`b"), "INVALID_OSSFS_OPTION" },
        { OPT("a\\nb"), "INVALID_OSSFS_OPTION" },
        { OPT("use_cache=x"), "INVALID_OSSFS_OPTION" },
        { OPT("Passwd_file=x"), "INVALID_OSSFS_OPTION" },
        { OPT("foo=/etc/passwd"), "INVALID_OSSFS_OPTION" },
        { OPT("ram_role=x"), "INVALID_OSSFS_OPTION" },
        { OPT("oss_endpoint=x"), "INVALID_OSSFS_OPTION" },
        { OPT("dev"), "INVALID_OSSFS_OPTION" },
        { OPT("flagfile=x"), "INVALID_OSSFS_OPTION" },
        { OPT("mime=x"), "INVALID_OSSFS_OPTION" },
        { OPT("ssl_client_cert=a:b:c"), "INVALID_OSSFS_OPTION" },
        { OPT("proxy=internal:3128"), "INVALID_OSSFS_OPTION" },
        { OPT("host=x"), "INVALID_OSSFS_OPTION" },
        { OPT("fd=3"), "INVALID_OSSFS_OPTION" },
    };

    (void)state;
    refuse_all(rows, sizeof(rows) / sizeof(rows[0]));
}

static void keys_are_not_in_errors(void **state)
{
    struct volume_list l;
    struct err e;
    json_t *doc;

    (void)state;
    assert_int_equal(
        decode(OSS(BUCKET ",\"accessKeyId\":\"k-e-y\",\"accessKeySecret\":\"top secret\""), &l,
               &doc, &e),
        -1);
    assert_null(strstr(e.msg, "top"));
    assert_null(strstr(e.msg, "k-e-y"));
    json_decref(doc);
}

static int many(size_t n, size_t name, size_t options)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct volume_list l;
    struct err e;
    json_t *doc;
    size_t i;
    int rc;

    (void)buf_puts(&b, "[");
    for (i = 0; i < n; i++)
        (void)buf_printf(&b, "%s{\"name\":\"%0*zu\",\"mountPath\":\"/m/%zu\"," PVC "}",
                         i ? "," : "", (int)name, i, i);
    if (options) {
        (void)buf_printf(&b,
                         "%s{\"name\":\"o\",\"mountPath\":\"/o\",\"ossfs\":{" BUCKET "," KEYS
                         ",\"options\":[\"a\"",
                         n ? "," : "");
        for (i = 1; i < options; i++)
            (void)buf_puts(&b, ",\"a\"");
        (void)buf_puts(&b, "]}}");
    }
    (void)buf_puts(&b, "]");
    rc = decode(b.data, &l, &doc, &e);
    json_decref(doc);
    return rc;
}

static void limits(void **state)
{
    (void)state;
    assert_int_equal(many(VOLUMES_MAX, 2, 0), 0);
    assert_int_equal(many(VOLUMES_MAX + 1, 2, 0), -1);
    assert_int_equal(many(1, VOLUME_NAME_MAX, 0), 0);
    assert_int_equal(many(1, VOLUME_NAME_MAX + 1, 0), -1);
    assert_int_equal(many(0, 0, OSSFS_OPTIONS_MAX), 0);
    assert_int_equal(many(0, 0, OSSFS_OPTIONS_MAX + 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_the_sdks_send), cmocka_unit_test(accepts),
        cmocka_unit_test(refuses_and_says_why),     cmocka_unit_test(refuses_wrong_buckets),
        cmocka_unit_test(keys_are_not_in_errors),   cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
