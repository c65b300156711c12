#include "tests/fakes/fake_runtime.h"

#include "common/base/cleanup.h"

#include <string.h>
#include <time.h>

enum { FAKE_VERBS = 32, PULL_SLICE_MS = 10 };

struct verb {
    const char *name;
    int calls;
    int failures; /* still to come; < 0: for ever */
    enum errc code;
    const char *api_code;
    bool held;
};

struct fake_runtime {
    struct runtime rt;
    pthread_mutex_t guard; /* guards all below */
    json_t *sandboxes;     /* id → state * 1000 + exit code */
    struct verb verbs[FAKE_VERBS];
    char *claim;
    pthread_cond_t changed; /* a verb was called, or somebody may go on */
    bool no_image;
    char progress[RUNTIME_TEXT];
};

static struct fake_runtime *fake(struct runtime *rt)
{
    return (struct fake_runtime *)rt;
}

static struct verb *verb(struct fake_runtime *f, const char *name)
{
    int i;

    for (i = 0; f->verbs[i].name && strcmp(f->verbs[i].name, name) != 0; i++)
        continue;
    f->verbs[i].name = name;
    return &f->verbs[i];
}

/* Counts the call; -1 when it was told to fail. Caller holds guard. */
static int enter(struct fake_runtime *f, const char *name, struct err *e)
{
    struct verb *v = verb(f, name);

    v->calls++;
    (void)pthread_cond_broadcast(&f->changed);
    if (!v->failures)
        return 0;
    if (v->failures > 0)
        v->failures--;
    return err_api(e, v->code, v->api_code, "%s fails on demand", name);
}

static int state_of(struct fake_runtime *f, const char *id)
{
    json_t *v = json_object_get(f->sandboxes, id);

    return v ? (int)(json_integer_value(v) / 1000) : RUNTIME_UNKNOWN;
}

static void put(struct fake_runtime *f, const char *id, enum runtime_state state, int exit_code)
{
    (void)json_object_set_new(f->sandboxes, id, json_integer((int)state * 1000 + exit_code));
}

/* Caller holds guard; false when ms have passed. */
static bool wait_changed(struct fake_runtime *f, int ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&f->changed, &f->guard, &until) == 0;
}

static int fake_pull(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                     char progress[RUNTIME_TEXT], struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    struct fake_runtime *f = fake(rt);

    (void)image;
    if (enter(f, "pull", e) < 0)
        return -1;
    if (verb(f, "pull")->held)
        (void)wait_changed(f, wait_ms < PULL_SLICE_MS ? wait_ms : PULL_SLICE_MS);
    if (verb(f, "pull")->held) {
        memcpy(progress, f->progress, RUNTIME_TEXT);
        return 1;
    }
    f->no_image = false;
    return 0;
}

static int fake_prepare(struct runtime *rt, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return enter(fake(rt), "prepare", e);
}

static int fake_start_held(struct runtime *rt, const struct runtime_spec *spec,
                           struct runtime_place *place, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "start_held", e) < 0)
        return -1;
    if (fake(rt)->no_image && !spec->image.snapshot_id)
        return err_set(e, ERRC_NOT_FOUND, "no such image");
    put(fake(rt), spec->id, RUNTIME_RUNNING, 0);
    *place = (struct runtime_place){
        .address = "192.0.2.1", .agent_port = 44772, .host_address = "127.0.0.1", .host_port = 40001
    };
    return 0;
}

static int fake_claim(struct runtime *rt, const char *id, const struct runtime_place *place,
                      const json_t *claim, int deadline_ms, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)place, (void)deadline_ms;
    if (enter(fake(rt), "claim", e) < 0)
        return -1;
    while (verb(fake(rt), "claim")->held && json_object_get(fake(rt)->sandboxes, id))
        (void)wait_changed(fake(rt), 1000);
    if (verb(fake(rt), "claim")->held)
        return err_set(e, ERRC_BUSY, "the agent broke the claim off");
    free(fake(rt)->claim);
    fake(rt)->claim = json_dumps(claim, JSON_SORT_KEYS);
    return 0;
}

static int fake_remove(struct runtime *rt, const char *id, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "remove", e) < 0)
        return -1;
    (void)json_object_del(fake(rt)->sandboxes, id);
    (void)pthread_cond_broadcast(&fake(rt)->changed);
    return 0;
}

static int change(struct runtime *rt, const char *name, const char *id, enum runtime_state from,
                  enum runtime_state to, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), name, e) < 0)
        return -1;
    if (!json_object_get(fake(rt)->sandboxes, id))
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    if (state_of(fake(rt), id) != (int)from)
        return err_set(e, ERRC_CONFLICT, "wrong state");
    put(fake(rt), id, to, 0);
    return 0;
}

static int fake_pause(struct runtime *rt, const char *id, struct err *e)
{
    return change(rt, "pause", id, RUNTIME_RUNNING, RUNTIME_PAUSED, e);
}

static int fake_resume(struct runtime *rt, const char *id, struct err *e)
{
    return change(rt, "resume", id, RUNTIME_PAUSED, RUNTIME_RUNNING, e);
}

static void fill(const char *id, const json_t *v, struct runtime_status *out)
{
    *out = (struct runtime_status){
        .state = (enum runtime_state)(json_integer_value(v) / 1000),
        .exit_code = (int)(json_integer_value(v) % 1000),
        .ended_ms = 12345,
    };
    (void)snprintf(out->id, sizeof(out->id), "%s", id);
}

static int fake_status(struct runtime *rt, const char *id, struct runtime_status *out,
                       struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    json_t *v = json_object_get(fake(rt)->sandboxes, id);

    if (enter(fake(rt), "status", e) < 0)
        return -1;
    if (!v)
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    fill(id, v, out);
    return 0;
}

static int fake_list(struct runtime *rt, struct runtime_list *out, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    struct runtime_list l = { 0 };
    const char *id;
    json_t *v;

    if (enter(fake(rt), "list", e) < 0)
        return -1;
    l.items = calloc(json_object_size(fake(rt)->sandboxes) + 1, sizeof(*l.items));
    if (!l.items)
        return err_nomem(e);
    json_object_foreach(fake(rt)->sandboxes, id, v) {
        fill(id, v, &l.items[l.len++]);
    }
    *out = l;
    return 0;
}

static bool fake_is_sandbox_address(struct runtime *rt, const char *addr)
{
    (void)rt;
    return strncmp(addr, "192.0.2.", 8) == 0;
}

static void fake_close(struct runtime *rt)
{
    json_decref(fake(rt)->sandboxes);
    free(fake(rt)->claim);
    (void)pthread_cond_destroy(&fake(rt)->changed);
    (void)pthread_mutex_destroy(&fake(rt)->guard);
    free(rt);
}

static const struct runtime_ops fake_ops = {
    .name = "fake",
    .prepare = fake_prepare,
    .pull = fake_pull,
    .start_held = fake_start_held,
    .claim = fake_claim,
    .remove = fake_remove,
    .pause = fake_pause,
    .resume = fake_resume,
    .status = fake_status,
    .list = fake_list,
    .is_sandbox_address = fake_is_sandbox_address,
    .close = fake_close,
};

struct runtime *fake_runtime_new(void)
{
    struct fake_runtime *f = calloc(1, sizeof(*f));

    f->rt.ops = &fake_ops;
    f->sandboxes = json_object();
    (void)pthread_mutex_init(&f->guard, NULL);
    (void)pthread_cond_init(&f->changed, NULL);
    return &f->rt;
}

void fake_runtime_fail(struct runtime *rt, const char *name, int times, enum errc code,
                       const char *api_code)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    struct verb *v = verb(fake(rt), name);

    v->failures = times;
    v->code = code;
    v->api_code = api_code;
}

int fake_runtime_calls(struct runtime *rt, const char *name)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return verb(fake(rt), name)->calls;
}

void fake_runtime_put(struct runtime *rt, const char *id, enum runtime_state state, int exit_code)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    put(fake(rt), id, state, exit_code);
}

void fake_runtime_drop(struct runtime *rt, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)json_object_del(fake(rt)->sandboxes, id);
}

enum runtime_state fake_runtime_state(struct runtime *rt, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return (enum runtime_state)state_of(fake(rt), id);
}

char *fake_runtime_last_claim(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return fake(rt)->claim ? strdup(fake(rt)->claim) : NULL;
}

/* ---- what takes its time ---- */

void fake_runtime_miss_image(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    fake(rt)->no_image = true;
}

void fake_runtime_hold(struct runtime *rt, const char *name, bool hold)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    verb(fake(rt), name)->held = hold;
    (void)pthread_cond_broadcast(&fake(rt)->changed);
}

void fake_runtime_progress(struct runtime *rt, const char *text)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)snprintf(fake(rt)->progress, RUNTIME_TEXT, "%s", text);
}

bool fake_runtime_wait_calls(struct runtime *rt, const char *name, int n, int ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    while (verb(fake(rt), name)->calls < n)
        if (!wait_changed(fake(rt), ms))
            return verb(fake(rt), name)->calls >= n;
    return true;
}
