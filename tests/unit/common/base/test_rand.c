#include "tests/unit/test.h"

#include "common/base/rand.h"

#include <stdlib.h>
#include <string.h>

static void digest_is(const char *data, size_t len, const char *want)
{
    char got[RAND_SECRET_TEXT];

    sha256_hex(data, len, got);
    assert_string_equal(got, want);
}

/* FIPS 180-4 examples and NIST's SHA256ShortMsg/LongMsg edge lengths. */
static void sha256_known_answers(void **state)
{
    char *million = malloc(1000000);
    char block[65];

    (void)state;
    memset(block, 'a', sizeof(block));
    digest_is("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_is("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    digest_is(block, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    digest_is(block, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    digest_is(block, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    digest_is(block, 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
    assert_non_null(million);
    memset(million, 'a', 1000000);
    digest_is(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void hex_encodes(void **state)
{
    char out[9];

    (void)state;
    hex_encode((const unsigned char *)"\x00\x7f\x80\xff", 4, out);
    assert_string_equal(out, "007f80ff");
    hex_encode(NULL, 0, out);
    assert_string_equal(out, "");
}

static void uuid_has_the_shape_of_version_4(void **state)
{
    char a[RAND_UUID_TEXT];
    char b[RAND_UUID_TEXT];
    int round;
    int i;

    (void)state;
    for (round = 0; round < 200; round++) {
        rand_uuid4(a);
        assert_int_equal(strlen(a), 36);
        for (i = 0; i < 36; i++) {
            if (i == 8 || i == 13 || i == 18 || i == 23)
                assert_int_equal(a[i], '-');
            else
                assert_non_null(strchr("0123456789abcdef", a[i]));
        }
        assert_int_equal(a[14], '4');
        assert_non_null(strchr("89ab", a[19]));
        rand_uuid4(b);
        assert_string_not_equal(a, b);
    }
}

static void rand_hex_writes_what_was_asked(void **state)
{
    char out[401];
    size_t n;

    (void)state;
    for (n = 0; n <= 200; n++) {
        memset(out, '!', sizeof(out));
        rand_hex(out, n);
        assert_int_equal(strlen(out), 2 * n);
        assert_int_equal(strspn(out, "0123456789abcdef"), 2 * n);
    }
}

static void rand_bytes_fills_everything(void **state)
{
    unsigned char sum[300] = { 0 };
    unsigned char got[300];
    int round;
    size_t i;

    (void)state;
    for (round = 0; round < 64; round++) {
        rand_bytes(got, sizeof(got));
        for (i = 0; i < sizeof(sum); i++)
            sum[i] |= got[i];
    }
    for (i = 0; i < sizeof(sum); i++)
        assert_int_equal(sum[i], 0xff); /* fails by chance once in 2^50 runs */
}

static void secrets_compare(void **state)
{
    (void)state;
    assert_true(secret_equal("", ""));
    assert_true(secret_equal("abc", "abc"));
    assert_false(secret_equal("abc", "abd"));
    assert_false(secret_equal("abc", "Abc"));
    assert_false(secret_equal("abc", "ab"));
    assert_false(secret_equal("ab", "abc"));
    assert_false(secret_equal("", "a"));
    assert_false(secret_equal("a", ""));
    assert_false(secret_equal("\x80", "\x81"));
}

/* A length difference of a multiple of 256 must not vanish in a byte. */
static void secrets_of_any_length_differ(void **state)
{
    char *longer = calloc(1, 258);

    (void)state;
    assert_non_null(longer);
    memset(longer, 'a', 257);
    assert_false(secret_equal("a", longer));
    assert_false(secret_equal(longer, "a"));
    free(longer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(hex_encodes),
        cmocka_unit_test(uuid_has_the_shape_of_version_4),
        cmocka_unit_test(rand_hex_writes_what_was_asked),
        cmocka_unit_test(rand_bytes_fills_everything),
        cmocka_unit_test(secrets_compare),
        cmocka_unit_test(secrets_of_any_length_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
