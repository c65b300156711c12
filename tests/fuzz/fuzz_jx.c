/* JSON request bodies: parsing and decoding by a table with every kind and flag. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "common/json/utf8.h"

struct body {
    const char *name;
    const char *image;
    int64_t timeout;
    int64_t count;
    bool flag;
    bool lax;
    json_t *env;
    json_t *metadata;
    json_t *entrypoint;
    json_t *volumes;
    json_t *lifecycle;
};

static const struct jx_field fields[] = {
    { "name", JX_STR, offsetof(struct body, name), JX_REQUIRED | JX_NONEMPTY, 0, 0, 63 },
    { "image", JX_STR, offsetof(struct body, image), JX_NULLABLE, 0, 0, 0 },
    { "timeout", JX_I64, offsetof(struct body, timeout), JX_NULLABLE | JX_LAX, 60, 86400, 0 },
    { "count", JX_I64, offsetof(struct body, count), 0, -5, 5, 0 },
    { "flag", JX_BOOL, offsetof(struct body, flag), 0, 0, 0, 0 },
    { "lax", JX_BOOL, offsetof(struct body, lax), JX_LAX, 0, 0, 0 },
    { "env", JX_STR_MAP, offsetof(struct body, env), JX_NULL_VALUES, 0, 8, 100 },
    { "metadata", JX_STR_MAP, offsetof(struct body, metadata), 0, 0, 4, 63 },
    { "entrypoint", JX_STR_LIST, offsetof(struct body, entrypoint), JX_NULLABLE, 1, 4, 100 },
    { "volumes", JX_LIST, offsetof(struct body, volumes), 0, 0, 3, 0 },
    { "lifecycle", JX_OBJ, offsetof(struct body, lifecycle), JX_NULLABLE, 0, 0, 0 },
};

static void check(const struct body *b)
{
    MUST(b->name && *b->name && strlen(b->name) <= 63);
    MUST(b->timeout == 0 || (b->timeout >= 60 && b->timeout <= 86400));
    MUST(b->count >= -5 && b->count <= 5);
    MUST(json_object_size(b->env) <= 8 && json_object_size(b->metadata) <= 4);
    MUST(!b->entrypoint ||
         (json_array_size(b->entrypoint) >= 1 && json_array_size(b->entrypoint) <= 4));
    MUST(json_array_size(b->volumes) <= 3);
}

static void decode(const json_t *v, bool closed)
{
    struct body b = { 0 };
    struct err e = { 0 };

    if (jx_decode(v, closed ? "a.b" : "", fields, ARRAY_LEN(fields), closed, &b, &e) == 0)
        check(&b);
    else
        MUST(e.code == ERRC_INVALID && e.msg[0]);
}

/* Takes all that is valid, whatever strings and keys hold; changes nothing behind the end. */
static void foreign(const uint8_t *data, size_t size)
{
    char *text = size ? malloc(size) : NULL;
    json_t *strict = jx_parse((const char *)data, size, true, NULL);
    json_t *v;

    MUST(text || !size);
    if (size)
        memcpy(text, data, size);
    v = jx_parse_foreign(text, size, NULL);
    MUST(v || !strict);
    MUST(!strict || json_equal(v, strict));
    json_decref(v);
    json_decref(strict);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int strict;

    foreign(data, size);
    for (strict = 0; strict < 2; strict++) {
        struct err e = { 0 };
        json_t *v = jx_parse((const char *)data, size, strict, &e);
        char *text;

        if (!v) {
            MUST(e.code == ERRC_INVALID && e.msg[0]);
            continue;
        }
        text = jx_dump(v, strict);
        MUST(text && utf8_valid_len(text, strlen(text)) == strlen(text));
        free(text);
        decode(v, strict);
        json_decref(v);
    }
    return 0;
}
