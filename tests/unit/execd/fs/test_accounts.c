/* Account and group files as they are found in images. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "execd/fs/accounts.h"

#include <string.h>

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "# comment\n"
                             "\n"
                             "broken:x:abc:1:::\n"
                             "short:x:7\n"
                             "app:x:1000:1001:App,,,:/home/app:/bin/sh\n"
                             "twin:x:1000:1002::/home/twin:\n"
                             "big:x:4294967294:4294967294::/:";

static const char group[] = "root:x:0:\n"
                            "wheel:x:10:root,app\n"
                            "audio:x:29:apple,app,xapp\n"
                            "app:x:1001:\n"
                            "bad:x::app\n"
                            "none:x:65534:ap";

static void accounts(void **state)
{
    struct account a;

    (void)state;
    assert_int_equal(accounts_find(passwd, "app", 0, &a), 1);
    assert_int_equal(a.uid, 1000);
    assert_int_equal(a.gid, 1001);
    assert_string_equal(a.home, "/home/app");
    assert_int_equal(accounts_find(passwd, NULL, 1000, &a), 1);
    assert_string_equal(a.name, "app");
    assert_int_equal(accounts_find(passwd, NULL, 4294967294U, &a), 1);
    assert_string_equal(a.name, "big");
    assert_int_equal(accounts_find(passwd, "broken", 0, &a), 0);
    assert_int_equal(accounts_find(passwd, "short", 0, &a), 0);
    assert_int_equal(accounts_find(passwd, "ap", 0, &a), 0);
    assert_int_equal(accounts_find(passwd, "", 0, &a), 0);
    assert_int_equal(accounts_find("", "root", 0, &a), 0);
}

static void groups(void **state)
{
    gid_t list[4];
    char name[ACCOUNT_TEXT];

    (void)state;
    assert_int_equal(groups_find(group, "audio", &list[0]), 1);
    assert_int_equal(list[0], 29);
    assert_int_equal(groups_find(group, "bad", &list[0]), 0);
    assert_int_equal(groups_name(group, 65534, name), 1);
    assert_string_equal(name, "none");
    assert_int_equal(groups_name(group, 5, name), 0);
    assert_int_equal(groups_of(group, "app", list, 4), 2);
    assert_int_equal(list[0], 10);
    assert_int_equal(list[1], 29);
    assert_int_equal(groups_of(group, "app", list, 1), 1);
    assert_int_equal(groups_of(group, "ap", list, 4), 1);
    assert_int_equal(groups_of(group, "nobody", list, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts),
        cmocka_unit_test(groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
