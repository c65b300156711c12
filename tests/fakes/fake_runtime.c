#include "tests/fakes/fake_runtime.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#include <string.h>
#include <time.h>

enum {
    FAKE_VERBS = 32,
    FAKE_WAIT_S = 10,
    FAKE_SLICE_MS = 10,
    FAKE_SNAPSHOT_BYTES = 4096,
    FAKE_ENDED_MS = 12345
};

struct verb {
    const char *name;
    int calls;
    int failures; /* still to come; < 0: for ever */
    enum errc code;
    const char *api_code;
};

struct fake_runtime {
    struct runtime rt;
    struct runtime_ops ops;
    pthread_mutex_t guard; /* guards all below but the watcher */
    pthread_cond_t changed;
    json_t *sandboxes; /* id → {state, exit, oom, ended, address, port} */
    json_t *volumes;   /* name → {driver, path, madeFor, internal} */
    json_t *snapshots; /* id → true */
    struct verb verbs[FAKE_VERBS];
    const char *held_verb; /* NULL: none */
    const char *held_id;
    int slices;
    bool pulls_held;
    bool claims_held;
    char progress[RUNTIME_TEXT];
    int grace_ms;
    char *claim;
    int64_t deadline_ms;
    char *spec;
    char *logs;
    pthread_mutex_t watching; /* guards the two below; held while fn runs */
    runtime_event_fn fn;
    void *arg;
};

static struct fake_runtime *fake(struct runtime *rt)
{
    return (struct fake_runtime *)rt;
}

/* ---- verbs ---- */

static struct verb *verb(struct fake_runtime *f, const char *name)
{
    int i;

    for (i = 0; f->verbs[i].name && strcmp(f->verbs[i].name, name) != 0; i++)
        continue;
    f->verbs[i].name = name;
    return &f->verbs[i];
}

static bool is_held(const struct fake_runtime *f, const char *name, const char *id)
{
    return f->held_verb && strcmp(f->held_verb, name) == 0 && id && strcmp(f->held_id, id) == 0;
}

/* Counts the call; hangs or fails when it was told to. Caller holds guard. */
static int enter(struct fake_runtime *f, const char *name, const char *id, struct err *e)
{
    struct verb *v = verb(f, name);

    v->calls++;
    (void)pthread_cond_broadcast(&f->changed);
    while (is_held(f, name, id))
        (void)pthread_cond_wait(&f->changed, &f->guard);
    if (!v->failures)
        return 0;
    if (v->failures > 0)
        v->failures--;
    return err_api(e, v->code, v->api_code, "%s fails on demand", name);
}

static int fake_prepare(struct runtime *rt, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return enter(fake(rt), "prepare", NULL, e);
}

/* ---- sandboxes ---- */

static int number(const json_t *sandbox, const char *key)
{
    return (int)json_integer_value(json_object_get(sandbox, key));
}

static int state_of(struct fake_runtime *f, const char *id)
{
    json_t *v = json_object_get(f->sandboxes, id);

    return v ? number(v, "state") : RUNTIME_UNKNOWN;
}

static void put(struct fake_runtime *f, const char *id, enum runtime_state state, int exit_code,
                bool oom_killed, int64_t ended_ms)
{
    json_t *v = json_object_get(f->sandboxes, id);

    if (!v) {
        v = json_pack("{s:s, s:i}", "address", "192.0.2.1", "port", 40001);
        (void)json_object_set_new(f->sandboxes, id, v);
    }
    (void)json_object_set_new(v, "state", json_integer((int)state));
    (void)json_object_set_new(v, "exit", json_integer(exit_code));
    (void)json_object_set_new(v, "oom", json_boolean(oom_killed));
    (void)json_object_set_new(v, "ended", json_integer(ended_ms));
}

static void fill_place(const json_t *v, struct runtime_place *out)
{
    *out = (struct runtime_place){ .agent_port = 44772,
                                   .host_address = "127.0.0.1",
                                   .host_port = (uint16_t)number(v, "port") };
    (void)snprintf(out->address, sizeof(out->address), "%s",
                   json_string_value(json_object_get(v, "address")));
}

static void fill(const char *id, const json_t *v, struct runtime_status *out)
{
    *out = (struct runtime_status){ .state = (enum runtime_state)number(v, "state") };
    (void)snprintf(out->id, sizeof(out->id), "%s", id);
    if (out->state == RUNTIME_RUNNING || out->state == RUNTIME_PAUSED)
        fill_place(v, &out->place);
    out->ended_ms = json_integer_value(json_object_get(v, "ended"));
    if (out->state != RUNTIME_ENDED)
        return;
    out->exit_code = number(v, "exit");
    out->oom_killed = json_is_true(json_object_get(v, "oom"));
}

static void note_spec(struct fake_runtime *f, const struct runtime_spec *spec)
{
    json_t *mounts = json_array();
    json_t *v;
    size_t i;

    for (i = 0; i < spec->n_mounts; i++) {
        v = json_sprintf("%s:%s:%s", spec->mounts[i].source, spec->mounts[i].target,
                         spec->mounts[i].read_only ? "ro" : "rw");
        (void)json_array_append_new(mounts, v);
    }
    v = json_pack("{s:s?, s:s?, s:I, s:I, s:I, s:i, s:o}", "image", spec->image.ref, "snapshot",
                  spec->image.snapshot_id, "memory", (json_int_t)spec->memory_bytes, "cpus",
                  (json_int_t)spec->nano_cpus, "disk", (json_int_t)spec->disk_bytes, "gpus",
                  spec->gpus, "mounts", mounts);
    free(f->spec);
    f->spec = json_dumps(v, JSON_SORT_KEYS);
    json_decref(v);
}

static int fake_start_held(struct runtime *rt, const struct runtime_spec *spec,
                           struct runtime_place *place, struct err *e)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    if (enter(f, "start_held", spec->id, e) < 0)
        return -1;
    note_spec(f, spec);
    if (spec->image.snapshot_id && !json_object_get(f->snapshots, spec->image.snapshot_id))
        return err_api(e, ERRC_CONFLICT, "SNAPSHOT::INVALID_RESTORE_CONFIG", "no such snapshot");
    if (!spec->image.snapshot_id && f->slices > 0)
        return err_set(e, ERRC_NOT_FOUND, "no such image");
    put(f, spec->id, RUNTIME_RUNNING, 0, false, 0);
    fill_place(json_object_get(f->sandboxes, spec->id), place);
    return 0;
}

static int fake_claim(struct runtime *rt, const char *id, const struct runtime_place *place,
                      const json_t *claim, int deadline_ms, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)place, (void)deadline_ms;
    if (enter(fake(rt), "claim", id, e) < 0)
        return -1;
    while (fake(rt)->claims_held && state_of(fake(rt), id) == RUNTIME_RUNNING)
        (void)pthread_cond_wait(&fake(rt)->changed, &fake(rt)->guard);
    if (state_of(fake(rt), id) != RUNTIME_RUNNING)
        return err_set(e, ERRC_BUSY, "the agent broke the claim off");
    free(fake(rt)->claim);
    fake(rt)->claim = json_dumps(claim, JSON_SORT_KEYS);
    return 0;
}

static int fake_tell_deadline(struct runtime *rt, const struct runtime_place *place,
                              const char *token, int64_t deadline_ms, int64_t now_ms,
                              int timeout_ms, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)place, (void)token, (void)now_ms, (void)timeout_ms;
    if (enter(fake(rt), "tell_deadline", NULL, e) < 0)
        return -1;
    fake(rt)->deadline_ms = deadline_ms;
    return 0;
}

static int fake_stop(struct runtime *rt, const char *id, int grace_ms, struct err *e)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    int state;

    if (enter(f, "stop", id, e) < 0)
        return -1;
    f->grace_ms = grace_ms;
    state = state_of(f, id);
    if (state == RUNTIME_RUNNING || state == RUNTIME_PAUSED)
        put(f, id, RUNTIME_ENDED, 143, false, clock_wall_ms());
    (void)pthread_cond_broadcast(&f->changed);
    return 0;
}

static int fake_remove(struct runtime *rt, const char *id, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "remove", id, e) < 0)
        return -1;
    (void)json_object_del(fake(rt)->sandboxes, id);
    (void)pthread_cond_broadcast(&fake(rt)->changed);
    return 0;
}

static int change(struct runtime *rt, const char *name, const char *id, enum runtime_state from,
                  enum runtime_state to, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), name, id, e) < 0)
        return -1;
    if (!json_object_get(fake(rt)->sandboxes, id))
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    if (state_of(fake(rt), id) != (int)from)
        return err_set(e, ERRC_CONFLICT, "wrong state");
    put(fake(rt), id, to, 0, false, 0);
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

static int fake_status(struct runtime *rt, const char *id, struct runtime_status *out,
                       struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    json_t *v;

    if (enter(fake(rt), "status", id, e) < 0)
        return -1;
    v = json_object_get(fake(rt)->sandboxes, id);
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

    if (enter(fake(rt), "list", NULL, e) < 0)
        return -1;
    l.items = calloc(json_object_size(fake(rt)->sandboxes) + 1, sizeof(*l.items));
    if (!l.items)
        return err_nomem(e);
    json_object_foreach(fake(rt)->sandboxes, id, v) {
        fill(id, v, &l.items[l.len]);
        l.items[l.len].oom_killed = false;
        l.items[l.len++].ended_ms = 0;
    }
    *out = l;
    return 0;
}

/* ---- images, output, events ---- */

/* Caller holds guard. */
static void wait_slice(struct fake_runtime *f, int ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&f->changed, &f->guard, &until);
}

static int fake_pull(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                     char progress[RUNTIME_TEXT], struct err *e)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    if (enter(f, "pull", image->ref, e) < 0)
        return -1;
    if (f->pulls_held)
        wait_slice(f, wait_ms < FAKE_SLICE_MS ? wait_ms : FAKE_SLICE_MS);
    if (f->pulls_held) {
        memcpy(progress, f->progress, RUNTIME_TEXT);
        return 1;
    }
    if (f->slices <= 0)
        return 0;
    (void)snprintf(progress, RUNTIME_TEXT, "%d to go", f->slices--);
    return 1;
}

/* The last tail lines of text. */
static const char *tail_of(const char *text, int tail)
{
    const char *p = text + strlen(text);

    if (tail <= 0)
        return text;
    for (p -= p > text && p[-1] == '\n'; p > text; p--)
        if (p[-1] == '\n' && --tail == 0)
            break;
    return p;
}

static int fake_logs(struct runtime *rt, const char *id, const struct runtime_log_query *q,
                     struct buf *out, bool *cut, struct err *e)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    size_t room = out->max - out->len;
    const char *text;

    if (enter(f, "logs", id, e) < 0)
        return -1;
    if (!json_object_get(f->sandboxes, id))
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    text = tail_of(f->logs, q->tail);
    *cut = strlen(text) > room;
    if (*cut)
        text += strlen(text) - room;
    return buf_puts(out, text) < 0 ? err_nomem(e) : 0;
}

static int fake_describe(struct runtime *rt, const char *id, struct buf *out, struct err *e)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);

    if (enter(f, "describe", id, e) < 0)
        return -1;
    if (!json_object_get(f->sandboxes, id))
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    return buf_printf(out, "runtime: fake\nstate: %d\n", state_of(f, id)) < 0 ? err_nomem(e) : 0;
}

static int fake_watch(struct runtime *rt, runtime_event_fn fn, void *arg, struct err *e)
{
    struct fake_runtime *f = fake(rt);
    int rc;

    (void)pthread_mutex_lock(&f->guard);
    rc = enter(f, "watch", NULL, e);
    (void)pthread_mutex_unlock(&f->guard);
    if (rc < 0)
        return -1;
    (void)pthread_mutex_lock(&f->watching);
    f->fn = fn;
    f->arg = arg;
    (void)pthread_mutex_unlock(&f->watching);
    (void)fake_runtime_tell(rt, RUNTIME_EVENT_SYNC, "", 0);
    return 0;
}

static void fake_unwatch(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->watching);

    fake(rt)->fn = NULL;
}

static void fake_metrics(struct runtime *rt, struct buf *out)
{
    (void)rt;
    (void)buf_puts(out, "fake_runtime_up 1\n");
}

static bool fake_is_sandbox_address(struct runtime *rt, const char *addr)
{
    (void)rt;
    return strncmp(addr, "192.0.2.", 8) == 0;
}

/* ---- volumes ---- */

static void put_volume(struct fake_runtime *f, const char *name, const char *driver,
                       const char *path, const char *made_for, bool internal)
{
    json_t *v = json_pack("{s:s, s:s, s:s, s:b}", "driver", driver, "path", path, "madeFor",
                          made_for, "internal", internal);

    (void)json_object_set_new(f->volumes, name, v);
}

static const char *text(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static int fake_volume_get(struct runtime *rt, const char *name, struct runtime_volume *out,
                           struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    json_t *v;

    if (enter(fake(rt), "volume_get", name, e) < 0)
        return -1;
    v = json_object_get(fake(rt)->volumes, name);
    if (!v)
        return err_set(e, ERRC_NOT_FOUND, "no such volume");
    *out = (struct runtime_volume){ .internal = json_is_true(json_object_get(v, "internal")) };
    (void)snprintf(out->driver, sizeof(out->driver), "%s", text(v, "driver"));
    (void)snprintf(out->path, sizeof(out->path), "%s", text(v, "path"));
    (void)snprintf(out->made_for, sizeof(out->made_for), "%s", text(v, "madeFor"));
    return 0;
}

static int fake_volume_make(struct runtime *rt, const char *name, const char *sandbox_id,
                            struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "volume_make", name, e) < 0)
        return -1;
    if (!json_object_get(fake(rt)->volumes, name))
        put_volume(fake(rt), name, "local", "/fake/volumes", sandbox_id, false);
    return 0;
}

static int fake_volume_remove(struct runtime *rt, const char *name, const char *sandbox_id,
                              struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    json_t *v;

    if (enter(fake(rt), "volume_remove", name, e) < 0)
        return -1;
    v = json_object_get(fake(rt)->volumes, name);
    if (v && strcmp(text(v, "madeFor"), sandbox_id) == 0)
        (void)json_object_del(fake(rt)->volumes, name);
    return 0;
}

/* ---- snapshots ---- */

static int fake_snapshot_make(struct runtime *rt, const char *sandbox_id, const char *snapshot_id,
                              int timeout_ms, int64_t *size_bytes, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)timeout_ms;
    if (enter(fake(rt), "snapshot_make", sandbox_id, e) < 0)
        return -1;
    if (!json_object_get(fake(rt)->sandboxes, sandbox_id))
        return err_set(e, ERRC_NOT_FOUND, "no such container");
    (void)json_object_set_new(fake(rt)->snapshots, snapshot_id, json_true());
    *size_bytes = FAKE_SNAPSHOT_BYTES;
    return 0;
}

static int fake_snapshot_get(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "snapshot_get", snapshot_id, e) < 0)
        return -1;
    if (!json_object_get(fake(rt)->snapshots, snapshot_id))
        return err_set(e, ERRC_NOT_FOUND, "no such snapshot");
    return 0;
}

static int fake_snapshot_remove(struct runtime *rt, const char *snapshot_id, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    if (enter(fake(rt), "snapshot_remove", snapshot_id, e) < 0)
        return -1;
    (void)json_object_del(fake(rt)->snapshots, snapshot_id);
    return 0;
}

/* ---- the runtime ---- */

static void fake_close(struct runtime *rt)
{
    struct fake_runtime *f = fake(rt);

    json_decref(f->sandboxes);
    json_decref(f->volumes);
    json_decref(f->snapshots);
    free(f->claim);
    free(f->spec);
    free(f->logs);
    (void)pthread_cond_destroy(&f->changed);
    (void)pthread_mutex_destroy(&f->guard);
    (void)pthread_mutex_destroy(&f->watching);
    free(rt);
}

static const struct runtime_ops fake_ops = {
    .name = "fake",
    .prepare = fake_prepare,
    .pull = fake_pull,
    .start_held = fake_start_held,
    .claim = fake_claim,
    .tell_deadline = fake_tell_deadline,
    .stop = fake_stop,
    .remove = fake_remove,
    .pause = fake_pause,
    .resume = fake_resume,
    .status = fake_status,
    .list = fake_list,
    .watch = fake_watch,
    .unwatch = fake_unwatch,
    .logs = fake_logs,
    .describe = fake_describe,
    .volume_get = fake_volume_get,
    .volume_make = fake_volume_make,
    .volume_remove = fake_volume_remove,
    .snapshot_make = fake_snapshot_make,
    .snapshot_get = fake_snapshot_get,
    .snapshot_remove = fake_snapshot_remove,
    .metrics = fake_metrics,
    .is_sandbox_address = fake_is_sandbox_address,
    .close = fake_close,
};

struct runtime *fake_runtime_new(void)
{
    struct fake_runtime *f = calloc(1, sizeof(*f));
    pthread_condattr_t attr;

    f->ops = fake_ops;
    f->rt.ops = &f->ops;
    f->sandboxes = json_object();
    f->volumes = json_object();
    f->snapshots = json_object();
    f->logs = strdup("");
    f->grace_ms = -1;
    (void)pthread_mutex_init(&f->guard, NULL);
    (void)pthread_mutex_init(&f->watching, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&f->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return &f->rt;
}

void fake_runtime_cannot(struct runtime *rt, const char *name)
{
    struct runtime_ops *ops = &fake(rt)->ops;

    if (strcmp(name, "watch") == 0)
        ops->watch = NULL;
    if (strcmp(name, "logs") == 0)
        ops->logs = NULL;
}

/* ---- what tests do ---- */

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

bool fake_runtime_wait_calls(struct runtime *rt, const char *name, int calls)
{
    struct fake_runtime *f = fake(rt);
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&f->guard);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FAKE_WAIT_S;
    while (verb(f, name)->calls < calls)
        if (pthread_cond_timedwait(&f->changed, &f->guard, &until) != 0)
            return false;
    return true;
}

void fake_runtime_hold(struct runtime *rt, const char *name, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    fake(rt)->held_verb = name;
    fake(rt)->held_id = id;
}

void fake_runtime_release(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    fake(rt)->held_verb = NULL;
    (void)pthread_cond_broadcast(&fake(rt)->changed);
}

void fake_runtime_put(struct runtime *rt, const char *id, enum runtime_state state, int exit_code)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    put(fake(rt), id, state, exit_code, false, state == RUNTIME_ENDED ? FAKE_ENDED_MS : 0);
}

void fake_runtime_end(struct runtime *rt, const char *id, int exit_code, bool oom_killed,
                      int64_t ended_ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    put(fake(rt), id, RUNTIME_ENDED, exit_code, oom_killed, ended_ms);
}

void fake_runtime_restart(struct runtime *rt, const char *id, int64_t ended_ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    put(fake(rt), id, RUNTIME_RUNNING, 0, false, ended_ms);
}

void fake_runtime_move(struct runtime *rt, const char *id, const char *address, uint16_t host_port)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);
    json_t *v = json_object_get(fake(rt)->sandboxes, id);

    (void)json_object_set_new(v, "address", json_string(address));
    (void)json_object_set_new(v, "port", json_integer(host_port));
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

int64_t fake_runtime_last_deadline(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return fake(rt)->deadline_ms;
}

char *fake_runtime_last_spec(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return fake(rt)->spec ? strdup(fake(rt)->spec) : NULL;
}

int fake_runtime_last_grace(struct runtime *rt)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return fake(rt)->grace_ms;
}

void fake_runtime_pull_slices(struct runtime *rt, int slices)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    fake(rt)->slices = slices;
}

void fake_runtime_set_logs(struct runtime *rt, const char *output)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    free(fake(rt)->logs);
    fake(rt)->logs = strdup(output);
}

bool fake_runtime_emit(struct runtime *rt, const struct runtime_event *ev)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->watching);

    if (!fake(rt)->fn)
        return false;
    fake(rt)->fn(fake(rt)->arg, ev);
    return true;
}

bool fake_runtime_tell(struct runtime *rt, enum runtime_event_kind kind, const char *id,
                       int exit_code)
{
    struct runtime_event ev = { .kind = kind, .at_ms = clock_wall_ms(), .exit_code = exit_code };

    (void)snprintf(ev.id, sizeof(ev.id), "%s", id);
    return fake_runtime_emit(rt, &ev);
}

void fake_runtime_put_volume(struct runtime *rt, const char *name, const char *driver,
                             const char *path, bool internal)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    put_volume(fake(rt), name, driver, path, "", internal);
}

bool fake_runtime_has_volume(struct runtime *rt, const char *name)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return json_object_get(fake(rt)->volumes, name) != NULL;
}

bool fake_runtime_has_snapshot(struct runtime *rt, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    return json_object_get(fake(rt)->snapshots, id) != NULL;
}

/* ---- what takes its time ---- */

static void set_flag(struct runtime *rt, bool *flag, bool value)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    *flag = value;
    (void)pthread_cond_broadcast(&fake(rt)->changed);
}

void fake_runtime_hold_pulls(struct runtime *rt, bool hold)
{
    set_flag(rt, &fake(rt)->pulls_held, hold);
}

void fake_runtime_hold_claims(struct runtime *rt, bool hold)
{
    set_flag(rt, &fake(rt)->claims_held, hold);
}

void fake_runtime_progress(struct runtime *rt, const char *text)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&fake(rt)->guard);

    (void)snprintf(fake(rt)->progress, RUNTIME_TEXT, "%s", text);
}
