#include "execd/exec/lifecycle.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/json/jx.h"

#include <string.h>

enum { WHERE_MAX = 64, ARG_MAX_LEN = 128 * 1024 - 1 /* the kernel's limit of one argument */ };

struct hook_json {
    const char *name;
    const char *schedule;
    json_t *command;
    int64_t timeout_s;
};

struct lifecycle_json {
    json_t *pre_start;
    json_t *periodic;
    int64_t version;
};

static const struct jx_field lifecycle_fields[] = {
    { "version", JX_I64, offsetof(struct lifecycle_json, version), JX_NULLABLE, 1, 1, 0 },
    { "preStart", JX_OBJ, offsetof(struct lifecycle_json, pre_start), JX_NULLABLE, 0, 0, 0 },
    { "periodic", JX_LIST, offsetof(struct lifecycle_json, periodic), JX_NULLABLE, 0,
      LIFECYCLE_PERIODIC_MAX, 0 },
};

static const struct jx_field pre_start_fields[] = {
    { "command", JX_STR_LIST, offsetof(struct hook_json, command), JX_REQUIRED, 1,
      LIFECYCLE_ARGS_MAX, ARG_MAX_LEN },
    { "timeoutSeconds", JX_I64, offsetof(struct hook_json, timeout_s), JX_NULLABLE, 1,
      LIFECYCLE_PRE_START_MAX_S, 0 },
};

static const struct jx_field periodic_fields[] = {
    { "name", JX_STR, offsetof(struct hook_json, name), JX_REQUIRED, 0, 0, 4096 },
    { "schedule", JX_STR, offsetof(struct hook_json, schedule), JX_REQUIRED, 0, 0, CRON_TEXT_MAX },
    { "command", JX_STR_LIST, offsetof(struct hook_json, command), JX_REQUIRED, 1,
      LIFECYCLE_ARGS_MAX, ARG_MAX_LEN },
    { "timeoutSeconds", JX_I64, offsetof(struct hook_json, timeout_s), JX_NULLABLE, 1,
      LIFECYCLE_PERIODIC_MAX_S, 0 },
};

#define BLANKS " \t\r\n\f\v"

static bool is_blank(const char *s)
{
    return !s[strspn(s, BLANKS)];
}

static void hook_free(struct lifecycle_hook *h)
{
    size_t i;

    for (i = 0; h->argv && i < h->n_argv; i++)
        free(h->argv[i]);
    free(h->argv);
    free(h->name);
}

void lifecycle_free(struct lifecycle *lc)
{
    size_t i;

    hook_free(&lc->pre_start);
    for (i = 0; i < lc->n_periodic; i++)
        hook_free(&lc->periodic[i]);
    free(lc->periodic);
    *lc = (struct lifecycle){ 0 };
}

static int take_command(const json_t *command, const char *at, struct lifecycle_hook *out,
                        struct err *e)
{
    size_t n = json_array_size(command);
    json_t *item;
    size_t i;

    if (is_blank(json_string_value(json_array_get(command, 0))))
        return err_set(e, ERRC_INVALID, "%s.command.0: must not be blank", at);
    out->argv = calloc(n + 1, sizeof(*out->argv));
    if (!out->argv)
        return err_nomem(e);
    out->n_argv = n;
    json_array_foreach(command, i, item) {
        out->argv[i] = strdup(json_string_value(item));
        if (!out->argv[i])
            return err_nomem(e);
    }
    return 0;
}

static int take_pre_start(const json_t *v, const char *at, struct lifecycle *out, struct err *e)
{
    struct hook_json j = { .timeout_s = LIFECYCLE_TIMEOUT_S };
    char where[WHERE_MAX];

    (void)snprintf(where, sizeof(where), "%s.preStart", at);
    if (jx_decode(v, where, pre_start_fields, ARRAY_LEN(pre_start_fields), true, &j, e) < 0)
        return -1;
    out->has_pre_start = true;
    out->pre_start.timeout_s = j.timeout_s;
    return take_command(j.command, where, &out->pre_start, e);
}

static int take_name(const char *name, const char *at, struct lifecycle_hook *out, struct err *e)
{
    const char *begin = name + strspn(name, BLANKS);
    size_t len = strlen(begin);

    while (len && strchr(BLANKS, begin[len - 1]))
        len--;
    if (!len || len > LIFECYCLE_NAME_MAX)
        return err_set(e, ERRC_INVALID, "%s.name: must have 1 to %d bytes besides blanks", at,
                       LIFECYCLE_NAME_MAX);
    out->name = strndup(begin, len);
    return out->name ? 0 : err_nomem(e);
}

static int take_schedule(const char *schedule, const char *at, const char *tz,
                         struct lifecycle_hook *out, struct err *e)
{
    if (is_blank(schedule))
        return err_set(e, ERRC_INVALID, "%s.schedule: must not be blank", at);
    if (cron_parse(schedule, &out->cron, e) < 0 ||
        (out->cron.zone[0] && zone_open(&out->zone, out->cron.zone, e) < 0))
        return err_wrap(e, "%s.schedule", at);
    if (!out->cron.zone[0] && !out->cron.every_s)
        zone_open_local(&out->zone, tz);
    return 0;
}

static int take_periodic(const json_t *v, const char *at, const char *tz, struct lifecycle *out,
                         struct err *e)
{
    struct hook_json j = { .timeout_s = LIFECYCLE_TIMEOUT_S };
    struct lifecycle_hook *h = &out->periodic[out->n_periodic];
    char where[WHERE_MAX];
    size_t i;

    (void)snprintf(where, sizeof(where), "%s.periodic.%zu", at, out->n_periodic);
    if (jx_decode(v, where, periodic_fields, ARRAY_LEN(periodic_fields), true, &j, e) < 0)
        return -1;
    out->n_periodic++;
    h->timeout_s = j.timeout_s;
    if (take_name(j.name, where, h, e) < 0 || take_schedule(j.schedule, where, tz, h, e) < 0 ||
        take_command(j.command, where, h, e) < 0)
        return -1;
    for (i = 0; &out->periodic[i] != h; i++)
        if (strcmp(out->periodic[i].name, h->name) == 0)
            return err_set(e, ERRC_INVALID, "%s.name: %.64s is the name of another hook already",
                           where, h->name);
    return 0;
}

static int take_all(const json_t *v, const char *at, const char *tz, struct lifecycle *out,
                    struct err *e)
{
    struct lifecycle_json j = { .version = 1 };
    json_t *item;
    size_t i;

    if (jx_decode(v, at, lifecycle_fields, ARRAY_LEN(lifecycle_fields), true, &j, e) < 0)
        return -1;
    if (j.pre_start && take_pre_start(j.pre_start, at, out, e) < 0)
        return -1;
    if (!json_array_size(j.periodic))
        return 0;
    out->periodic = calloc(json_array_size(j.periodic), sizeof(*out->periodic));
    if (!out->periodic)
        return err_nomem(e);
    json_array_foreach(j.periodic, i, item)
        if (take_periodic(item, at, tz, out, e) < 0)
            return -1;
    return 0;
}

int lifecycle_decode(const json_t *v, const char *at, const char *tz, struct lifecycle *out,
                     struct err *e)
{
    *out = (struct lifecycle){ 0 };
    if (!v || json_is_null(v))
        return 0;
    if (take_all(v, at, tz, out, e) == 0)
        return 0;
    lifecycle_free(out);
    return -1;
}
