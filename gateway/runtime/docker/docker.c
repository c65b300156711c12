#include "gateway/runtime/docker/docker.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/json/jx.h"
#include "gateway/runtime/agent.h"
#include "gateway/runtime/docker/container.h"
#include "gateway/runtime/docker/describe.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/events.h"
#include "gateway/runtime/docker/info.h"
#include "gateway/runtime/docker/inject.h"
#include "gateway/runtime/docker/inspect.h"
#include "gateway/runtime/docker/logs.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/network.h"
#include "gateway/runtime/docker/pull.h"
#include "gateway/runtime/docker/snapshot.h"
#include "gateway/runtime/docker/volume.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

enum {
    API_TIMEOUT_S = 180,
    PULL_TIMEOUT_S = 1800,
    SECCOMP_MAX = 1 << 20,
    LIST_MAX = 128 << 20, /* bytes; about 2 KB a container */
    LIST_MS = 60000,
    REMOVE_MS = 60000, /* at most; less when docker.api_timeout is less */
    CLOSE_MS = 3000,
    EXPLAIN_MS = 5000,
    ENDED_WAIT_MS = 500,
    ENDED_POLL_MS = 10,
    TEXT_MAX = 400,
};

static int api_timeout_s(const struct runtime_config *cfg)
{
    return cfg->api_timeout_s > 0 ? cfg->api_timeout_s : API_TIMEOUT_S;
}

static struct docker *docker_of(struct runtime *rt)
{
    return (struct docker *)rt; /* rt is its first member */
}

static int not_found(const char *id, struct err *e)
{
    return err_api(e, ERRC_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND", "sandbox %s not found", id);
}

static void sandbox_name(char out[DOCKER_NAME], const char *id)
{
    (void)snprintf(out, DOCKER_NAME, SANDBOX_NAME "%s", id);
}

/* ---- parts ---- */

/* Caller holds the lock. */
static int parts_prepare(struct docker *d, struct err *e)
{
    unsigned breaks = engine_breaks(d->engine);

    if (info_check(&d->cfg, d->engine, e) < 0 || network_prepare(d->network, d->engine, e) < 0)
        return -1;
    if (inject_prepare(&d->cfg, d->engine, d->parts.volume, sizeof(d->parts.volume), e) < 0)
        return -1;
    if (++d->parts.generation == 0)
        d->parts.generation = 1;
    d->breaks = breaks;
    return 0;
}

int docker_parts_get(struct docker *d, unsigned missing, struct docker_parts *out, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&d->guard);

    if (d->parts.generation == missing && parts_prepare(d, e) < 0)
        return -1;
    *out = d->parts;
    return 0;
}

/* Nothing to do as long as the engine stays the same: what somebody removes under it is found by
 * the start that misses it. So it may be called often. */
static int parts_renew(struct docker *d, struct err *e)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&d->guard);

    if (d->parts.generation && d->breaks == engine_breaks(d->engine))
        return 0;
    return parts_prepare(d, e);
}

static int docker_prepare(struct runtime *rt, struct err *e)
{
    struct docker *d = docker_of(rt);

    if (parts_renew(d, e) < 0)
        return -1;
    network_keep_closed(d->network);
    return 0;
}

/* ---- images ---- */

static int docker_pull(struct runtime *rt, const struct runtime_image *image, int wait_ms,
                       char progress[RUNTIME_TEXT], struct err *e)
{
    return pulls_get(docker_of(rt)->pulls, image, wait_ms, progress, e);
}

/* ---- stop and remove ---- */

static int docker_stop(struct runtime *rt, const char *id, int grace_ms, struct err *e)
{
    char name[DOCKER_NAME];

    sandbox_name(name, id);
    return container_stop(docker_of(rt)->engine, name, grace_ms, e);
}

int docker_remove_within(struct docker *d, const char *id, int timeout_ms, struct err *e)
{
    char name[DOCKER_NAME];

    sandbox_name(name, id);
    if (container_remove(d->engine, name, timeout_ms, e) < 0)
        return -1;
    crash_step(&d->cfg, "delete.removed");
    return 0;
}

static int docker_remove(struct runtime *rt, const char *id, struct err *e)
{
    struct docker *d = docker_of(rt);
    int api_ms = api_timeout_s(&d->cfg) * 1000;

    return docker_remove_within(d, id, api_ms < REMOVE_MS ? api_ms : REMOVE_MS, e);
}

/* ---- pause and resume ---- */

/* Words of a refusal that mean "it is not in the state for it"; the engine answers 409 to one and
 * 500 to the other. */
struct change {
    const char *path;
    const char *words[4]; /* ends with NULL */
    const char *conflict_code;
    const char *failed_code;
    const char *conflict_text;
    const char *verb;
};

static const struct change change_pause = {
    "/pause",
    { "is not running", "is already paused", "a stopped container" },
    "DOCKER::SANDBOX_NOT_RUNNING",
    "DOCKER::SANDBOX_PAUSE_FAILED",
    "is not running",
    "paused",
};

static const struct change change_resume = {
    "/unpause",
    { "is not paused", "is not running" },
    "DOCKER::SANDBOX_NOT_PAUSED",
    "DOCKER::SANDBOX_RESUME_FAILED",
    "is not paused",
    "resumed",
};

static bool is_conflict(const struct change *ch, int status, const char *text)
{
    size_t i;

    for (i = 0; ch->words[i]; i++)
        if (strstr(text, ch->words[i]))
            return true;
    return status == 409;
}

static int apply(struct docker *d, const char *id, const struct change *ch, struct err *e)
{
    char path[DOCKER_PATH];
    char text[TEXT_MAX];
    const struct engine_call c = { .method = "POST", .path = path };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s%s", id, ch->path);
    if (engine_send(d->engine, &c, &r, e) < 0)
        return -1;
    if (r.status == 204)
        return 0;
    if (r.status == 404)
        return not_found(id, e);
    (void)engine_text(&r, text, sizeof(text));
    if (is_conflict(ch, r.status, text))
        return err_api(e, ERRC_CONFLICT, ch->conflict_code, "sandbox %s %s", id, ch->conflict_text);
    return err_api(e, ERRC_INTERNAL, ch->failed_code, "sandbox %s could not be %s: %s", id,
                   ch->verb, text);
}

static int docker_pause(struct runtime *rt, const char *id, struct err *e)
{
    return apply(docker_of(rt), id, &change_pause, e);
}

static int docker_resume(struct runtime *rt, const char *id, struct err *e)
{
    return apply(docker_of(rt), id, &change_resume, e);
}

/* ---- status and list ---- */

static int status_within(struct docker *d, const char *id, int timeout_ms,
                         struct runtime_status *out, struct err *e)
{
    char name[DOCKER_NAME];

    sandbox_name(name, id);
    return container_status(d->engine, name, network_name(d->network), timeout_ms, out, e);
}

static int docker_status(struct runtime *rt, const char *id, struct runtime_status *out,
                         struct err *e)
{
    return status_within(docker_of(rt), id, 0, out, e);
}

static int list_path(const struct docker *d, struct buf *out)
{
    AUTO_FREE char *filter = NULL;
    json_auto_t *v = json_pack("{s:[s++, s]}", "label", LABEL_INSTANCE, "=", d->cfg.instance,
                               LABEL_ROLE "=" ROLE_SANDBOX);

    filter = v ? json_dumps(v, JSON_COMPACT) : NULL;
    if (!filter || buf_puts(out, "/containers/json?all=1") < 0)
        return -1;
    return engine_query(out, "filters", filter);
}

static int list_within(struct docker *d, int timeout_ms, struct runtime_list *out, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(1024);
    struct engine_call c = { .method = "GET", .timeout_ms = timeout_ms, .reply_max = LIST_MAX };
    struct runtime_list list = { 0 };
    json_auto_t *items = NULL;
    json_t *item;
    size_t i;

    if (list_path(d, &path) < 0)
        return err_nomem(e);
    c.path = path.data;
    if (engine_do(d->engine, &c, "list the sandboxes", &items, e) < 0)
        return -1;
    list.items = calloc(json_array_size(items) + 1, sizeof(*list.items));
    if (!list.items)
        return err_nomem(e);
    json_array_foreach(items, i, item) {
        if (inspect_item(item, network_name(d->network), &list.items[list.len], NULL) == 0)
            list.len++;
    }
    *out = list;
    return 0;
}

static int docker_list(struct runtime *rt, struct runtime_list *out, struct err *e)
{
    return list_within(docker_of(rt), LIST_MS, out, e);
}

static bool docker_is_sandbox_address(struct runtime *rt, const char *addr)
{
    return network_has(docker_of(rt)->network, addr);
}

/* ---- what it says and how it is ---- */

static int docker_logs(struct runtime *rt, const char *id, const struct runtime_log_query *q,
                       struct buf *out, bool *cut, struct err *e)
{
    char name[DOCKER_NAME];

    sandbox_name(name, id);
    return logs_read(docker_of(rt)->engine, name, q, out, cut, e);
}

static int docker_describe(struct runtime *rt, const char *id, struct buf *out, struct err *e)
{
    json_auto_t *about = NULL;
    char name[DOCKER_NAME];

    sandbox_name(name, id);
    if (container_about(docker_of(rt)->engine, name, 0, &about, e) < 0)
        return -1;
    return describe_container(about, out, e);
}

static void docker_metrics(struct runtime *rt, struct buf *out)
{
    struct docker *d = docker_of(rt);

    engine_metrics(d->engine, out);
    (void)buf_printf(out,
                     "# HELP sandgate_image_pulls_running Image pulls that run now.\n"
                     "# TYPE sandgate_image_pulls_running gauge\n"
                     "sandgate_image_pulls_running %u\n",
                     pulls_running(d->pulls));
}

/* ---- claim, and what became of a container ---- */

/* The engine notices an end a few milliseconds after the connection broke. */
static bool has_ended(struct docker *d, const char *id, int wait_ms, struct runtime_status *st)
{
    const struct timespec nap = { .tv_nsec = ENDED_POLL_MS * 1000000L };
    const int64_t until = clock_mono_ms() + wait_ms;

    for (;;) {
        if (status_within(d, id, EXPLAIN_MS, st, NULL) < 0)
            return false;
        if (st->state == RUNTIME_ENDED)
            return true;
        if (clock_mono_ms() >= until)
            return false;
        (void)nanosleep(&nap, NULL);
    }
}

int docker_explain(struct docker *d, const char *id, int wait_ms, struct err *e)
{
    struct runtime_status st;
    char name[DOCKER_NAME];
    char tail[CONTAINER_TAIL];
    char was[160];

    if (!has_ended(d, id, wait_ms, &st))
        return -1;
    sandbox_name(name, id);
    container_tail(d->engine, name, EXPLAIN_MS, tail);
    (void)snprintf(was, sizeof(was), "%.*s", (int)sizeof(was) - 1, e->msg);
    return err_api(e, e->code, e->api_code, "%s; the container ended with exit status %d%s%s%s",
                   was, st.exit_code, st.oom_killed ? " (out of memory)" : "",
                   tail[0] ? ", its last output: " : "", tail);
}

/* For agent.c while nothing answers. */
struct claim {
    struct docker *d;
    const char *id;
};

static int still_there(void *arg, struct err *e)
{
    const struct claim *c = arg;
    struct runtime_status st;
    struct err why = { 0 };

    if (status_within(c->d, c->id, EXPLAIN_MS, &st, &why) < 0) {
        if (why.code != ERRC_NOT_FOUND)
            return 0; /* the engine is busy; the agent may still come */
        return err_api(e, ERRC_BUSY, "DOCKER::SANDBOX_EXECD_START_FAILED",
                       "the sandbox was removed while it started");
    }
    if (st.state == RUNTIME_ENDED)
        return err_api(e, ERRC_BUSY, "DOCKER::SANDBOX_EXECD_START_FAILED",
                       "the agent ended before it was claimed");
    return 0;
}

static int docker_tell_deadline(struct runtime *rt, const struct runtime_place *place,
                                const char *token, int64_t deadline_ms, int64_t now_ms,
                                int timeout_ms, struct err *e)
{
    (void)rt;
    return agent_tell_deadline(place, token, deadline_ms, now_ms, timeout_ms, e);
}

static int docker_claim(struct runtime *rt, const char *id, const struct runtime_place *place,
                        const json_t *claim, int deadline_ms, struct err *e)
{
    struct claim c = { docker_of(rt), id };
    struct err mine = { 0 };

    if (agent_claim(place, claim, deadline_ms, still_there, &c, &mine) == 0)
        return 0;
    if (mine.code == ERRC_FORBIDDEN)
        log_error("security event: an agent refused its claim", LOG_S("id", id),
                  LOG_S("address", place->address));
    else if (mine.code != ERRC_INVALID)
        (void)docker_explain(c.d, id, ENDED_WAIT_MS, &mine);
    if (e)
        *e = mine;
    return -1;
}

/* ---- open and close ---- */

/* An instance without sandboxes leaves nothing on the engine but the agent. */
static void tidy(struct docker *d)
{
    struct runtime_list list = { 0 };

    if (d->parts.generation && list_within(d, CLOSE_MS, &list, NULL) == 0 && list.len == 0)
        network_drop(d->network, d->engine, CLOSE_MS);
    runtime_list_free(&list);
}

static void docker_close(struct runtime *rt)
{
    struct docker *d = docker_of(rt);

    docker_unwatch(rt);
    pulls_free(d->pulls);
    tidy(d);
    network_free(d->network);
    engine_free(d->engine);
    (void)pthread_mutex_destroy(&d->guard);
    binds_free(&d->binds);
    free(d->seccomp);
    free(d);
}

static const struct runtime_ops docker_ops = {
    .name = "docker",
    .prepare = docker_prepare,
    .start_held = docker_start_held,
    .claim = docker_claim,
    .tell_deadline = docker_tell_deadline,
    .pull = docker_pull,
    .stop = docker_stop,
    .remove = docker_remove,
    .pause = docker_pause,
    .resume = docker_resume,
    .status = docker_status,
    .list = docker_list,
    .watch = docker_watch,
    .unwatch = docker_unwatch,
    .volume_get = docker_volume_get,
    .volume_make = docker_volume_make,
    .volume_remove = docker_volume_remove,
    .snapshot_make = docker_snapshot_make,
    .snapshot_get = docker_snapshot_get,
    .snapshot_remove = docker_snapshot_remove,
    .logs = docker_logs,
    .describe = docker_describe,
    .metrics = docker_metrics,
    .is_sandbox_address = docker_is_sandbox_address,
    .close = docker_close,
};

/* The engine's API wants the profile itself, its command line reads the file. */
static int read_seccomp(const char *path, char **out, struct err *e)
{
    AUTO_FILE FILE *f = fopen(path, "re");
    AUTO_BUF struct buf b = BUF_INIT(SECCOMP_MAX);
    AUTO_BUF struct buf opt = BUF_INIT(SECCOMP_MAX + 16);
    AUTO_FREE char *compact = NULL;
    json_auto_t *v = NULL;
    size_t n;

    if (!f)
        return err_sys(e, errno, "docker.seccomp_profile %.200s", path);
    while (buf_reserve(&b, 4096) && (n = fread(b.data + b.len, 1, 4096, f)) > 0)
        b.len += n;
    v = b.data ? jx_parse(b.data, b.len, true, e) : NULL;
    if (!v)
        return err_wrap(e, "docker.seccomp_profile %.200s", path);
    compact = json_dumps(v, JSON_COMPACT);
    if (!compact || buf_printf(&opt, "seccomp=%s", compact) < 0)
        return err_nomem(e);
    *out = buf_take(&opt);
    return *out ? 0 : err_nomem(e);
}

/* The instance becomes part of names: only what UUIDs are made of. */
static int check_config(const struct runtime_config *cfg, struct err *e)
{
    size_t i;

    for (i = 0; i < INSTANCE_SHORT; i++)
        if (!isxdigit((unsigned char)cfg->instance[i]))
            return err_set(e, ERRC_INVALID, "the instance \"%.40s\" is not a UUID", cfg->instance);
    if (!cfg->agent_dir && !cfg->agent_len)
        return err_set(e, ERRC_INVALID, "this build has no agent in it");
    return 0;
}

static int fill(struct docker *d, struct err *e)
{
    const struct runtime_config *cfg = &d->cfg;
    int api_s = api_timeout_s(cfg);
    int pull_s = cfg->pull_timeout_s > 0 ? cfg->pull_timeout_s : PULL_TIMEOUT_S;

    d->engine = engine_new(cfg->engine, api_s * 1000);
    d->pulls = d->engine ? pulls_new(d->engine, pull_s * 1000) : NULL;
    if (!d->pulls)
        return err_nomem(e);
    d->network = network_new(cfg, e);
    if (!d->network || binds_parse(cfg->binds, &d->binds, e) < 0)
        return -1;
    if (cfg->seccomp_profile && strcmp(cfg->seccomp_profile, "unconfined") == 0) {
        d->seccomp = strdup("seccomp=unconfined");
        return d->seccomp ? 0 : err_nomem(e);
    }
    return cfg->seccomp_profile && *cfg->seccomp_profile
               ? read_seccomp(cfg->seccomp_profile, &d->seccomp, e)
               : 0;
}

int docker_open(const struct runtime_config *cfg, struct runtime **out, struct err *e)
{
    struct docker *d;

    if (check_config(cfg, e) < 0)
        return -1;
    d = calloc(1, sizeof(*d));
    if (!d)
        return err_nomem(e);
    d->rt.ops = &docker_ops;
    d->cfg = *cfg;
    (void)pthread_mutex_init(&d->guard, NULL);
    if (fill(d, e) < 0) {
        docker_close(&d->rt);
        return -1;
    }
    *out = &d->rt;
    return 0;
}
