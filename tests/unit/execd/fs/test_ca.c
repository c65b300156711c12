/* Certificates in a claim: their form, and where they go in images of many kinds. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/fs/ca.h"
#include "execd/fs/env.h"
#include "execd/fs/pem.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 11 bytes: a sequence (its length, 8, in one more byte) of a sequence: all that is looked at. */
#define BODY "MIEIMAcGBSsOAwI="
#define BEGIN "-----BEGIN CERTIFICATE-----\n"
#define END "-----END CERTIFICATE-----\n"
#define PEM BEGIN BODY "\n" END
#define OLD "-----BEGIN CERTIFICATE-----\nold\n-----END CERTIFICATE-----\n"

static char root[] = "/tmp/test_ca.XXXXXX";

/* ---- form ---- */

static void good(const char *text, int count, const char *want)
{
    AUTO_BUF struct buf out = BUF_INIT(1 << 20);
    struct err e = { 0 };

    if (pem_certificates(text, &out, &e) != count)
        fail_msg("%s: %s", text, e.msg);
    assert_string_equal(out.data, want);
}

static void bad(const char *text, const char *why)
{
    AUTO_BUF struct buf out = BUF_INIT(1 << 20);
    struct err e = { 0 };

    assert_int_equal(pem_certificates(text, &out, &e), -1);
    assert_int_equal(e.code, ERRC_INVALID);
    assert_contains(e.msg, why);
}

static void form(void **state)
{
    (void)state;
    good(PEM, 1, PEM);
    good("a comment\n" PEM "\nmore\n" PEM, 2, PEM PEM);
    good("-----BEGIN CERTIFICATE-----\r\nMIEIM\r\nAcGBSsOAwI=\r\n-----END CERTIFICATE-----", 1,
         PEM);
    bad("", "no line -----BEGIN CERTIFICATE-----");
    bad("hello", "no line");
    bad(BEGIN BODY, "certificate 1 has no line -----END");
    bad(PEM BEGIN "\n" END, "certificate 2 is broken");
    bad(BEGIN "MIEIMAcGBSsOAwI" END, "broken");  /* padding is missing */
    bad(BEGIN "MIEIMAcGBSs=OAwI" END, "broken"); /* or in the middle */
    bad(BEGIN "MIEIMAcGBSsOAw*=" END, "broken"); /* not base64 */
    bad(BEGIN "MIEJMAcGBSsOAwI=" END, "broken"); /* the length is another one */
    bad(BEGIN "MIEIMQcGBSsOAwI=" END, "broken"); /* no sequence inside */
    bad(BEGIN "AAAAAAAAAAAAAAA=" END, "broken");
    bad(BEGIN "====" END, "broken");
    bad("-----BEGIN PRIVATE KEY-----\n" BODY "\n-----END PRIVATE KEY-----\n",
        "not \"CERTIFICATE\"");
}

static void limits(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1 << 20);
    int i;

    (void)state;
    for (i = 0; i < PEM_CERTIFICATES_MAX; i++)
        assert_int_equal(buf_puts(&text, PEM), 0);
    good(text.data, PEM_CERTIFICATES_MAX, text.data);
    assert_int_equal(buf_puts(&text, PEM), 0);
    bad(text.data, "more than 16 certificates");
    buf_clear(&text);
    while (text.len < PEM_TEXT_MAX)
        assert_int_equal(buf_puts(&text, "x"), 0);
    bad(text.data, "no line");
    assert_int_equal(buf_puts(&text, "x"), 0);
    bad(text.data, "longer than 65536 bytes");
}

/* ---- places ---- */

static const char *at(const char *path)
{
    static char full[2][512];
    static int turn;

    turn = !turn;
    (void)snprintf(full[turn], sizeof(full[turn]), "%s%s", root, path);
    return full[turn];
}

static void dirs(const char *path)
{
    char full[512];
    char *slash;

    (void)snprintf(full, sizeof(full), "%s%s/", root, path);
    for (slash = strchr(full + sizeof(root), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(at(path), "w");

    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static const char *content(const char *path)
{
    static char text[4096];
    FILE *f = fopen(at(path), "r");
    size_t n;

    if (!f)
        return "(none)";
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    return text;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind;
    return ftw->level ? remove(path) : 0;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const struct ca_paths where = { root, "/opt/opensandbox" };

static void install(struct env *env)
{
    struct err e = { 0 };

    if (ca_install(&where, PEM, env, &e) < 0)
        fail_msg("%s", e.msg);
}

static void leads(const struct env *env, const char *name, const char *path)
{
    assert_non_null(env_get(env, name));
    assert_string_equal(env_get(env, name), at(path));
}

static void debian(void **state)
{
    AUTO_ENV struct env env = { 0 };
    struct stat st;
    char once[4096];

    (void)state;
    dirs("/etc/ssl/certs");
    dirs("/usr/local/share");
    put("/etc/ssl/certs/ca-certificates.crt", OLD);
    assert_int_equal(chmod(at("/etc/ssl/certs/ca-certificates.crt"), 0640), 0);
    assert_int_equal(env_set(&env, "CURL_CA_BUNDLE", "/mine"), 0);
    install(&env);
    assert_memory_equal(content("/etc/ssl/certs/ca-certificates.crt"), OLD, sizeof(OLD) - 1);
    assert_contains(content("/etc/ssl/certs/ca-certificates.crt"), PEM);
    assert_int_equal(stat(at("/etc/ssl/certs/ca-certificates.crt"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_string_equal(content("/usr/local/share/ca-certificates/opensandbox-ca.crt"), PEM);
    assert_string_equal(content("/opt/opensandbox/opensandbox-ca.crt"), PEM);
    leads(&env, "SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
    leads(&env, "REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt");
    leads(&env, "GIT_SSL_CAINFO", "/etc/ssl/certs/ca-certificates.crt");
    leads(&env, "NODE_EXTRA_CA_CERTS", "/opt/opensandbox/opensandbox-ca.crt");
    assert_string_equal(env_get(&env, "CURL_CA_BUNDLE"), "/mine"); /* the user's stays */

    /* in an image made from such a sandbox: not twice, and gone where none is wanted */
    (void)snprintf(once, sizeof(once), "%s", content("/etc/ssl/certs/ca-certificates.crt"));
    install(&env);
    assert_string_equal(content("/etc/ssl/certs/ca-certificates.crt"), once);
    ca_forget(&where);
    assert_string_equal(content("/etc/ssl/certs/ca-certificates.crt"), OLD);
    assert_string_equal(content("/usr/local/share/ca-certificates/opensandbox-ca.crt"), "(none)");
    ca_forget(&where);
    assert_string_equal(content("/etc/ssl/certs/ca-certificates.crt"), OLD);
}

/* Links lead to the bundle; a last line without its end is given one. */
static void rhel(void **state)
{
    AUTO_ENV struct env env = { 0 };

    (void)state;
    dirs("/etc/pki/tls/certs");
    dirs("/etc/pki/ca-trust/extracted/pem");
    dirs("/etc/pki/ca-trust/source/anchors");
    put("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "x");
    assert_int_equal(symlink("../../ca-trust/extracted/pem/tls-ca-bundle.pem",
                             at("/etc/pki/tls/certs/ca-bundle.crt")),
                     0);
    install(&env);
    assert_memory_equal(content("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"), "x\n# ", 4);
    assert_contains(content("/etc/pki/tls/certs/ca-bundle.crt"), PEM);
    assert_string_equal(content("/etc/pki/ca-trust/source/anchors/opensandbox-ca.crt"), PEM);
    leads(&env, "SSL_CERT_FILE", "/etc/pki/tls/certs/ca-bundle.crt");
}

static void nothing_in_the_image(void **state)
{
    AUTO_ENV struct env env = { 0 };

    (void)state;
    install(&env);
    leads(&env, "SSL_CERT_FILE", "/opt/opensandbox/opensandbox-ca.crt");
    leads(&env, "NODE_EXTRA_CA_CERTS", "/opt/opensandbox/opensandbox-ca.crt");
    assert_int_equal(access(at("/etc"), F_OK), -1); /* no bundle is made up */
}

static void only_pythons(void **state)
{
    AUTO_ENV struct env env = { 0 };

    (void)state;
    dirs("/usr/local/lib/python3.12/site-packages/certifi");
    put("/usr/local/lib/python3.12/site-packages/certifi/cacert.pem", OLD);
    install(&env);
    leads(&env, "REQUESTS_CA_BUNDLE", "/opt/opensandbox/merged-ca-certificates.pem");
    assert_contains(content("/opt/opensandbox/merged-ca-certificates.pem"), OLD);
    assert_contains(content("/opt/opensandbox/merged-ca-certificates.pem"), PEM);
    assert_string_equal(content("/usr/local/lib/python3.12/site-packages/certifi/cacert.pem"), OLD);
}

/* Neither home nor bundle can be written: a directory of our own beside the others' files. */
static void elsewhere(void **state)
{
    AUTO_ENV struct env env = { 0 };
    const char *own;

    (void)state;
    dirs("/etc/ssl/certs");
    dirs("/etc/ssl/certs/ca-certificates.crt"); /* a directory: not even the super-user writes it */
    dirs("/tmp");
    dirs("/opt");
    put("/opt/opensandbox", "a file");
    install(&env);
    own = env_get(&env, "NODE_EXTRA_CA_CERTS");
    assert_memory_equal(own, at("/tmp/opensandbox-ca."), strlen(at("/tmp/opensandbox-ca.")));
    assert_string_equal(content(own + sizeof(root) - 1), PEM);
    assert_string_equal(env_get(&env, "SSL_CERT_FILE"), own);
}

static void nowhere(void **state)
{
    AUTO_ENV struct env env = { 0 };
    struct err e = { 0 };

    (void)state;
    dirs("/opt");
    put("/opt/opensandbox", "a file");
    assert_int_equal(ca_install(&where, PEM, &env, &e), -1);
    assert_contains(e.msg, "none of /opt/opensandbox, /tmp");
    assert_null(env_get(&env, "SSL_CERT_FILE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(form),
        cmocka_unit_test(limits),
        cmocka_unit_test_teardown(debian, teardown),
        cmocka_unit_test_teardown(rhel, teardown),
        cmocka_unit_test_teardown(nothing_in_the_image, teardown),
        cmocka_unit_test_teardown(only_pythons, teardown),
        cmocka_unit_test_teardown(elsewhere, teardown),
        cmocka_unit_test_teardown(nowhere, teardown),
    };
    int failed;

    if (!mkdtemp(root))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(root);
    return failed;
}
