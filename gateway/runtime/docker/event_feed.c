#include "gateway/runtime/docker/event_feed.h"

#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/names.h"

#include <string.h>

enum { NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

static const struct {
    const char *action;
    enum runtime_event_kind kind;
} actions[] = {
    { "start", RUNTIME_EVENT_STARTED },   { "pause", RUNTIME_EVENT_PAUSED },
    { "unpause", RUNTIME_EVENT_RESUMED }, { "oom", RUNTIME_EVENT_OOM },
    { "die", RUNTIME_EVENT_ENDED },       { "destroy", RUNTIME_EVENT_REMOVED },
};

void event_feed_init(struct event_feed *f, const char *instance)
{
    *f = (struct event_feed){ .instance = instance, .object = BUF_INIT(EVENT_FEED_OBJECT_MAX) };
}

void event_feed_free(struct event_feed *f)
{
    buf_free(&f->object);
}

void event_feed_reset(struct event_feed *f)
{
    buf_clear(&f->object);
    f->depth = 0;
    f->text = false;
    f->escaped = false;
    f->too_long = false;
}

/* ---- one object ---- */

static bool kind_of(const char *action, enum runtime_event_kind *out)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(actions); i++)
        if (strcmp(actions[i].action, action) == 0) {
            *out = actions[i].kind;
            return true;
        }
    return false;
}

/* A container of a committed image may carry the labels too, but not the name. */
static bool is_sandbox(const struct event_feed *f, json_t *attributes, char id[RUNTIME_ID])
{
    const char *instance;
    const char *role;
    const char *name;
    const char *label;

    if (json_unpack(attributes, "{s:s, s:s, s:s, s:s}", LABEL_INSTANCE, &instance, LABEL_ROLE,
                    &role, LABEL_ID, &label, "name", &name) < 0 ||
        strcmp(instance, f->instance) != 0 || strcmp(role, ROLE_SANDBOX) != 0 ||
        strlen(label) >= RUNTIME_ID || strncmp(name, SANDBOX_NAME, strlen(SANDBOX_NAME)) != 0 ||
        strcmp(name + strlen(SANDBOX_NAME), label) != 0)
        return false;
    (void)snprintf(id, RUNTIME_ID, "%s", label);
    return true;
}

static bool take_exit_code(json_t *attributes, int *out)
{
    const char *text = json_string_value(json_object_get(attributes, "exitCode"));
    int64_t n;

    if (!text || num_parse_i64(text, INT32_MIN, INT32_MAX, &n) < 0)
        return false;
    *out = (int)n;
    return true;
}

/* 1: *ev and *at_ns are filled; 0: about something else; -1: not such an object. */
static int read_object(const struct event_feed *f, struct runtime_event *ev, int64_t *at_ns)
{
    json_auto_t *v = jx_parse_foreign(f->object.data, f->object.len, NULL);
    const char *type = "";
    const char *action = "";
    json_t *attributes = NULL;
    json_int_t sec = 0;
    json_int_t ns = 0;

    if (!v || json_unpack(v, "{s?s, s?s, s?I, s?I, s?{s?o}}", "Type", &type, "Action", &action,
                          "time", &sec, "timeNano", &ns, "Actor", "Attributes", &attributes) < 0)
        return -1;
    if (strcmp(type, "container") != 0 || !kind_of(action, &ev->kind) ||
        !is_sandbox(f, attributes, ev->id))
        return 0;
    if (ns <= 0 && sec > 0 && sec < INT64_MAX / NS_PER_S)
        ns = sec * NS_PER_S;
    if (ns <= 0 || (ev->kind == RUNTIME_EVENT_ENDED && !take_exit_code(attributes, &ev->exit_code)))
        return -1;
    ev->at_ms = ns / NS_PER_MS;
    *at_ns = ns;
    return 1;
}

static void finish(struct event_feed *f, event_feed_fn fn, void *arg)
{
    struct runtime_event ev = { 0 };
    int64_t at_ns = 0;
    int rc = f->too_long ? -1 : read_object(f, &ev, &at_ns);

    event_feed_reset(f);
    if (rc < 0) {
        ev = (struct runtime_event){ .kind = RUNTIME_EVENT_SYNC };
        at_ns = 0;
    }
    if (rc != 0)
        fn(arg, &ev, at_ns);
}

/* ---- where objects begin and end ---- */

static void step_in_text(struct event_feed *f, char c)
{
    if (f->escaped)
        f->escaped = false;
    else if (c == '\\')
        f->escaped = true;
    else if (c == '"')
        f->text = false;
}

static void step(struct event_feed *f, char c)
{
    if (f->text) {
        step_in_text(f, c);
    } else if (f->depth == 0) {
        f->depth = c == '{';
    } else if (c == '"') {
        f->text = true;
    } else if (c == '{' || c == '[') {
        f->depth++;
    } else if (c == '}' || c == ']') {
        f->depth--;
    }
}

static void keep(struct event_feed *f, const char *data, size_t len)
{
    if (!f->too_long && buf_append(&f->object, data, len) < 0)
        f->too_long = true;
}

void event_feed_put(struct event_feed *f, const char *data, size_t len, event_feed_fn fn, void *arg)
{
    size_t from = 0;
    size_t i;
    bool inside;

    for (i = 0; i < len; i++) {
        inside = f->depth > 0;
        step(f, data[i]);
        if (!inside && f->depth > 0)
            from = i;
        if (inside && f->depth == 0) {
            keep(f, data + from, i + 1 - from);
            finish(f, fn, arg);
        }
    }
    if (f->depth > 0)
        keep(f, data + from, len - from);
}
