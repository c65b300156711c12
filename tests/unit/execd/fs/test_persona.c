/* One thread becomes an account and comes back; the others stay as they are. Needs root. */
#include "tests/unit/test.h"

#include "common/base/err.h"
#include "execd/fs/accounts.h"
#include "execd/fs/persona.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned effective(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    assert_int_equal(syscall(SYS_capget, &head, data), 0);
    return data[0].effective;
}

static void *ids_of_another_thread(void *out)
{
    uid_t *ids = out;

    ids[0] = geteuid();
    ids[1] = getegid();
    return NULL;
}

/* What a thread that was there before is; a new one would inherit. */
struct other {
    pthread_barrier_t meet;
    uid_t ids[2];
};

static void *other_thread(void *arg)
{
    struct other *o = arg;

    (void)pthread_barrier_wait(&o->meet);
    (void)ids_of_another_thread(o->ids);
    (void)pthread_barrier_wait(&o->meet);
    return NULL;
}

static void there_and_back(void **state)
{
    const struct identity id = { .uid = 1234, .gid = 2345, .groups = { 7, 8 }, .n_groups = 2 };
    unsigned caps = effective();
    int n_before = getgroups(0, NULL);
    struct persona old = { 0 };
    struct other o;
    pthread_t thread;
    struct err e = { 0 };
    uid_t uids[3];
    gid_t groups[16];

    (void)state;
    if (geteuid() != 0)
        skip();
    (void)pthread_barrier_init(&o.meet, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &o), 0);
    if (persona_enter(&old, &id, &e) < 0)
        fail_msg("%s", e.msg);
    (void)pthread_barrier_wait(&o.meet);
    (void)pthread_barrier_wait(&o.meet);
    assert_int_equal(getresuid(&uids[0], &uids[1], &uids[2]), 0);
    assert_int_equal(uids[1], 1234);
    assert_true(uids[0] == 0 && uids[2] == 0); /* nobody's programs may send it signals */
    assert_int_equal(getegid(), 2345);
    assert_int_equal(getgroups(16, groups), 2);
    assert_true(groups[0] == 7 && groups[1] == 8);
    assert_int_equal(effective(), 0);
    assert_int_equal(access("/", F_OK), 0);
    assert_int_equal(faccessat(AT_FDCWD, "/etc/shadow", W_OK, AT_EACCESS), -1);
    persona_leave(&old);
    assert_int_equal(geteuid(), 0);
    assert_int_equal(getegid(), 0);
    assert_int_equal(getgroups(0, NULL), n_before);
    assert_int_equal(effective(), caps);
    persona_leave(&old); /* harmless */
    (void)pthread_join(thread, NULL);
    (void)pthread_barrier_destroy(&o.meet);
    assert_true(o.ids[0] == 0 && o.ids[1] == 0);
}

static void root_keeps_its_rights(void **state)
{
    const struct identity id = { .uid = 0, .gid = 5 };
    unsigned caps = effective();
    struct persona old = { 0 };
    struct err e = { 0 };

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(persona_enter(&old, &id, &e), 0);
    assert_int_equal(effective(), caps);
    assert_int_equal(getegid(), 5);
    persona_leave(&old);
    assert_int_equal(getegid(), 0);
}

/* Without the right to switch: nothing has changed, and the error has its code. */
static void refused(void **state)
{
    const struct identity nobody = { .uid = 65534, .gid = 65534 };
    const struct identity another = { .uid = 1234, .gid = 65534 };
    const struct identity group = { .uid = 65534, .gid = 65534, .groups = { 3 }, .n_groups = 1 };
    const struct identity own_group = {
        .uid = 65534, .gid = 65534, .groups = { 65534 }, .n_groups = 1
    };
    struct persona outer = { 0 };
    struct persona old = { 0 };
    struct err e = { 0 };

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(persona_enter(&outer, &nobody, &e), 0);
    assert_int_equal(persona_enter(&old, &group, &e), -1);
    assert_int_equal(e.code, ERRC_BUSY);
    assert_string_equal(e.api_code, "FILESYSTEM_IDENTITY_UNAVAILABLE");
    assert_int_equal(geteuid(), 65534);
    assert_int_equal(persona_enter(&old, &another, &e), -1);
    assert_int_equal(geteuid(), 65534);
    assert_int_equal(persona_enter(&old, &own_group, &e), 0); /* that it is already */
    persona_leave(&old);
    persona_leave(&outer);
    assert_int_equal(geteuid(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(root_keeps_its_rights),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
