#include "common/json/jx.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/num.h"
#include "common/base/rand.h"
#include "common/json/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* A field on its way through the decoder. */
struct at {
    const char *base; /* path of the object */
    const struct jx_field *f;
    struct err *e;
};

void jx_init(void)
{
    size_t seed;

    rand_bytes(&seed, sizeof(seed));
    json_object_seed(seed | 1);
}

/* Nesting is bounded before jansson recurses: brackets outside of strings. */
static bool too_deep(const char *s, size_t len)
{
    bool in_string = false;
    int depth = 0;
    size_t i;

    for (i = 0; i < len; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = false;
        } else if (s[i] == '"') {
            in_string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > JX_DEPTH_MAX)
                return true;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        }
    }
    return false;
}

/* jansson's text ends in what it read last: that may be a secret, and errors are logged. */
static void not_json(json_error_t *je, struct err *e)
{
    char *quote = strstr(je->text, " near '");

    if (quote)
        *quote = '\0';
    (void)err_set(e, ERRC_INVALID, "body is not valid JSON: %s (line %d column %d)", je->text,
                  je->line, je->column);
}

static json_t *parse(const char *text, size_t len, size_t flags, struct err *e)
{
    json_error_t je;
    json_t *v;

    if (!len) {
        (void)err_set(e, ERRC_INVALID, "a JSON body is required");
        return NULL;
    }
    if (too_deep(text, len)) {
        (void)err_set(e, ERRC_INVALID, "JSON is nested deeper than %d levels", JX_DEPTH_MAX);
        return NULL;
    }
    v = json_loadb(text, len, flags | JSON_DECODE_ANY, &je);
    if (!v)
        not_json(&je, e);
    return v;
}

json_t *jx_parse(const char *text, size_t len, bool strict, struct err *e)
{
    return parse(text, len, JSON_REJECT_DUPLICATES | (strict ? 0 : JSON_DISABLE_EOF_CHECK), e);
}

json_t *jx_parse_foreign(char *text, size_t len, struct err *e)
{
    size_t i;

    for (i = 0; i + 1 < len; i++) {
        if (text[i] != '\\')
            continue;
        i++; /* what the backslash is about; a second one begins nothing */
        if (len - i >= 5 && memcmp(text + i, "u0000", 5) == 0)
            memcpy(text + i, "ufffd", 5);
    }
    return parse(text, len, 0, e);
}

static int bad(const struct at *a, const char *what)
{
    return err_set(a->e, ERRC_INVALID, "%s%s%s: %s", a->base, *a->base ? "." : "", a->f->name,
                   what);
}

static int bad_member(const struct at *a, const char *member, const char *what)
{
    return err_set(a->e, ERRC_INVALID, "%s%s%s.%.80s: %s", a->base, *a->base ? "." : "", a->f->name,
                   member, what);
}

static bool has_range(const struct jx_field *f)
{
    return f->min || f->max;
}

static const char *string_fault(const struct jx_field *f, const json_t *v)
{
    size_t max = f->max_len ? f->max_len : JX_STR_MAX;

    if (!json_is_string(v))
        return "must be a string";
    if (json_string_length(v) > max)
        return "is too long";
    return NULL;
}

static int put_string(const struct at *a, const json_t *v, void *out)
{
    const char *fault = string_fault(a->f, v);

    if (fault)
        return bad(a, fault);
    if ((a->f->flags & JX_NONEMPTY) && !json_string_length(v))
        return bad(a, "must not be empty");
    *(const char **)out = json_string_value(v);
    return 0;
}

static int put_i64(const struct at *a, const json_t *v, void *out)
{
    const struct jx_field *f = a->f;
    int64_t n = 0;
    bool ok = false;

    if (json_is_integer(v)) {
        n = json_integer_value(v);
        ok = true;
    } else if (json_is_real(v)) {
        double d = json_real_value(v);

        ok = d == floor(d) && fabs(d) < 9e15;
        n = ok ? (int64_t)d : 0;
    } else if (json_is_string(v) && (f->flags & JX_LAX)) {
        ok = num_parse_i64(json_string_value(v), INT64_MIN + 1, INT64_MAX, &n) == 0;
    }
    if (!ok)
        return bad(a, "must be an integer");
    if (has_range(f) && (n < f->min || n > f->max))
        return err_set(a->e, ERRC_INVALID, "%s%s%s: must be between %" PRId64 " and %" PRId64,
                       a->base, *a->base ? "." : "", f->name, f->min, f->max);
    *(int64_t *)out = n;
    return 0;
}

static int lax_bool(const char *s)
{
    static const char *const yes[] = { "true", "1", "on", "yes", "t", "y" };
    static const char *const no[] = { "false", "0", "off", "no", "f", "n" };
    size_t i;

    for (i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(s, yes[i]) == 0)
            return 1;
        if (strcasecmp(s, no[i]) == 0)
            return 0;
    }
    return -1;
}

static int put_bool(const struct at *a, const json_t *v, void *out)
{
    int b = -1;

    if (json_is_boolean(v))
        b = json_is_true(v);
    else if ((a->f->flags & JX_LAX) && json_is_integer(v) &&
             (json_int_t)(json_integer_value(v) & 1) == json_integer_value(v))
        b = (int)json_integer_value(v);
    else if ((a->f->flags & JX_LAX) && json_is_string(v))
        b = lax_bool(json_string_value(v));
    if (b < 0)
        return bad(a, "must be true or false");
    *(bool *)out = b;
    return 0;
}

static int put_map(const struct at *a, json_t *v, void *out)
{
    const char *key;
    const char *fault;
    json_t *item;

    if (!json_is_object(v))
        return bad(a, "must be an object");
    if (a->f->max && (int64_t)json_object_size(v) > a->f->max)
        return bad(a, "has too many entries");
    json_object_foreach(v, key, item) {
        if (json_is_null(item) && (a->f->flags & JX_NULL_VALUES))
            continue;
        fault = string_fault(a->f, item);
        if (fault)
            return bad_member(a, key, fault);
    }
    *(json_t **)out = v;
    return 0;
}

static int put_list(const struct at *a, json_t *v, bool strings, void *out)
{
    const char *fault;
    char where[24];
    json_t *item;
    size_t i;

    if (!json_is_array(v))
        return bad(a, "must be an array");
    if ((int64_t)json_array_size(v) < a->f->min)
        return bad(a, "has too few items");
    if (a->f->max && (int64_t)json_array_size(v) > a->f->max)
        return bad(a, "has too many items");
    json_array_foreach(v, i, item) {
        fault = strings ? string_fault(a->f, item) : NULL;
        if (fault) {
            (void)snprintf(where, sizeof(where), "%zu", i);
            return bad_member(a, where, fault);
        }
    }
    *(json_t **)out = v;
    return 0;
}

static int put_value(const struct at *a, json_t *v, void *out)
{
    switch (a->f->kind) {
    case JX_STR:
        return put_string(a, v, out);
    case JX_I64:
        return put_i64(a, v, out);
    case JX_BOOL:
        return put_bool(a, v, out);
    case JX_STR_MAP:
        return put_map(a, v, out);
    case JX_STR_LIST:
        return put_list(a, v, true, out);
    case JX_LIST:
        return put_list(a, v, false, out);
    case JX_OBJ:
        if (!json_is_object(v))
            return bad(a, "must be an object");
        *(json_t **)out = v;
        return 0;
    }
    return bad(a, "has no decoder");
}

static int refuse_unknown(const json_t *obj, const char *at, const struct jx_field *fields,
                          size_t n, struct err *e)
{
    const char *key;
    json_t *v;
    size_t i;

    json_object_foreach((json_t *)obj, key, v) {
        for (i = 0; i < n; i++)
            if (strcmp(fields[i].name, key) == 0)
                break;
        if (i == n)
            return err_set(e, ERRC_INVALID, "%s%s%.80s: unknown field", at, *at ? "." : "", key);
    }
    return 0;
}

static int decode_field(const struct at *a, json_t *v, char *out)
{
    if (json_is_null(v) && (a->f->flags & JX_NULLABLE))
        v = NULL;
    if (!v && (a->f->flags & JX_REQUIRED))
        return bad(a, "is required");
    return v ? put_value(a, v, out + a->f->offset) : 0;
}

int jx_decode(const json_t *obj, const char *at, const struct jx_field *fields, size_t n,
              bool closed, void *out, struct err *e)
{
    struct at a = { .base = at, .e = e };
    json_t *v;
    size_t i;

    if (json_is_null(obj))
        obj = NULL;
    if (obj && !json_is_object(obj))
        return err_set(e, ERRC_INVALID, "%s: must be an object", *at ? at : "body");
    if (obj && closed && refuse_unknown(obj, at, fields, n, e) < 0)
        return -1;
    for (i = 0; i < n; i++) {
        a.f = &fields[i];
        v = obj ? json_object_get(obj, a.f->name) : NULL;
        if (decode_field(&a, v, out) < 0)
            return -1;
    }
    return 0;
}

json_t *jx_bytes(const char *s, size_t len)
{
    AUTO_BUF struct buf fixed = BUF_INIT(SIZE_MAX / 8);

    if (!len)
        return json_stringn_nocheck("", 0); /* s may be NULL: an empty buf */
    if (utf8_valid_len(s, len) == len)
        return json_stringn_nocheck(s, len);
    if (utf8_repair(s, len, &fixed) < 0)
        return NULL;
    return json_stringn_nocheck(fixed.data, fixed.len);
}

char *jx_dump(const json_t *v, bool ascii)
{
    return json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | (ascii ? JSON_ENSURE_ASCII : 0));
}
