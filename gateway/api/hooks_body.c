/* The member "lifecycle" of POST /sandboxes (contract/newest.md 3.5): strict, unlike the rest of the
 * body, because a hook that is dropped for a typing error would not be missed. */
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <stdio.h>
#include <string.h>

#define SB_INVALID "SANDBOX::INVALID_PARAMETER"

static const char blanks[] = " \t\r\n";

struct hooks {
    json_t *pre_start;
    json_t *periodic;
};

struct hook {
    const char *name;
    const char *schedule;
    json_t *command;
    int64_t timeout_s;
};

static const struct jx_field hooks_fields[] = {
    { "preStart", JX_OBJ, offsetof(struct hooks, pre_start), JX_NULLABLE, 0, 0, 0 },
    { "periodic", JX_LIST, offsetof(struct hooks, periodic), JX_NULLABLE, 0, API_HOOKS_MAX, 0 },
};

#define COMMAND                                                                                    \
    {                                                                                              \
        "command", JX_STR_LIST, offsetof(struct hook, command), JX_REQUIRED, 1,                    \
            API_ENTRYPOINT_MAX, API_STRING_MAX                                                     \
    }
#define TIMEOUT(max)                                                                               \
    {                                                                                              \
        "timeoutSeconds", JX_I64, offsetof(struct hook, timeout_s), JX_NULLABLE, 1, max, 0         \
    }

static const struct jx_field pre_start_fields[] = { COMMAND, TIMEOUT(API_PRE_START_MAX_S) };

static const struct jx_field periodic_fields[] = {
    { "name", JX_STR, offsetof(struct hook, name), JX_REQUIRED, 0, 0, API_HOOK_NAME_MAX },
    { "schedule", JX_STR, offsetof(struct hook, schedule), JX_REQUIRED, 0, 0, API_SCHEDULE_MAX },
    COMMAND,
    TIMEOUT(API_PERIODIC_MAX_S),
};

/* jx_decode names the field; the code is the contract's. */
static int decode(const json_t *v, const char *at, const struct jx_field *fields, size_t n,
                  void *out, struct err *e)
{
    if (jx_decode(v, at, fields, n, true, out, e) == 0)
        return 0;
    if (e && e->code == ERRC_INVALID)
        e->api_code = SB_INVALID;
    return -1;
}

static int not_blank(const char *s, const char *at, const char *name, struct err *e)
{
    if (s[strspn(s, blanks)])
        return 0;
    return err_api(e, ERRC_INVALID, SB_INVALID, "%s.%s: must not be blank", at, name);
}

static int check_command(const struct hook *h, const char *at, struct err *e)
{
    return not_blank(json_string_value(json_array_get(h->command, 0)), at, "command[0]", e);
}

/* Without the blanks around it. */
static json_t *trimmed(const char *s)
{
    size_t len;

    s += strspn(s, blanks);
    len = strlen(s);
    while (len && strchr(blanks, s[len - 1]))
        len--;
    return json_stringn(s, len);
}

static json_t *take_pre_start(const json_t *v, struct create_req *out, struct err *e)
{
    struct hook h = { .timeout_s = API_HOOK_DEFAULT_S };
    json_t *made;

    if (decode(v, "lifecycle.preStart", pre_start_fields, ARRAY_LEN(pre_start_fields), &h, e) < 0 ||
        check_command(&h, "lifecycle.preStart", e) < 0)
        return NULL;
    out->pre_start_s = h.timeout_s;
    made = json_pack("{s:O, s:I}", "command", h.command, "timeoutSeconds", (json_int_t)h.timeout_s);
    if (!made)
        (void)err_nomem(e);
    return made;
}

static int take_periodic(const json_t *v, const char *at, json_t *names, json_t *list,
                         struct err *e)
{
    struct hook h = { .timeout_s = API_HOOK_DEFAULT_S };
    json_t *name;
    const char *text;

    if (decode(v, at, periodic_fields, ARRAY_LEN(periodic_fields), &h, e) < 0 ||
        not_blank(h.name, at, "name", e) < 0 || not_blank(h.schedule, at, "schedule", e) < 0 ||
        check_command(&h, at, e) < 0)
        return -1;
    name = trimmed(h.name);
    text = json_string_value(name);
    if (text && json_object_get(names, text)) {
        (void)err_api(e, ERRC_INVALID, SB_INVALID, "%s.name: '%s' is used twice", at, text);
        json_decref(name);
        return -1;
    }
    if (!text || json_object_set_new(names, text, json_true()) < 0 ||
        json_array_append_new(list, json_pack("{s:o, s:o, s:O, s:I}", "name", name, "schedule",
                                              trimmed(h.schedule), "command", h.command,
                                              "timeoutSeconds", (json_int_t)h.timeout_s)) < 0)
        return err_nomem(e);
    return 0;
}

static json_t *take_all_periodic(const json_t *from, struct err *e)
{
    json_t *names = json_object();
    json_t *list = json_array();
    char at[48];
    json_t *v;
    size_t i;
    int rc = names && list ? 0 : err_nomem(e);

    json_array_foreach((json_t *)from, i, v) {
        (void)snprintf(at, sizeof(at), "lifecycle.periodic[%zu]", i);
        if (rc == 0 && !json_is_object(v))
            rc = err_api(e, ERRC_INVALID, SB_INVALID, "%s: must be an object", at);
        if (rc == 0)
            rc = take_periodic(v, at, names, list, e);
    }
    json_decref(names);
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static int complete(const struct hooks *from, json_t *to, struct create_req *out, struct err *e)
{
    json_t *made;

    if (from->pre_start) {
        made = take_pre_start(from->pre_start, out, e);
        if (!made)
            return -1;
        if (json_object_set_new(to, "preStart", made) < 0)
            return err_nomem(e);
    }
    if (json_array_size(from->periodic)) {
        made = take_all_periodic(from->periodic, e);
        if (!made)
            return -1;
        if (json_object_set_new(to, "periodic", made) < 0)
            return err_nomem(e);
    }
    return 0;
}

int api_decode_hooks(json_t *doc, const json_t *lifecycle, struct create_req *out, struct err *e)
{
    struct hooks from = { 0 };
    json_t *to;

    if (!lifecycle)
        return 0;
    if (decode(lifecycle, "lifecycle", hooks_fields, ARRAY_LEN(hooks_fields), &from, e) < 0)
        return -1;
    to = json_object();
    if (!to)
        return err_nomem(e);
    if (complete(&from, to, out, e) < 0) {
        json_decref(to);
        return -1;
    }
    if (json_object_set_new(doc, "lifecycle", to) < 0)
        return err_nomem(e);
    out->hooks = json_object_size(to) ? to : NULL;
    return 0;
}
