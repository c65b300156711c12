/* start_held: the hot path is exactly three engine calls, create, start, inspect. Everything else
 * (image, its platform, network, agent) is found missing by the engine's own refusal. */
#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/docker/engine.h"
#include "gateway/runtime/docker/image.h"
#include "gateway/runtime/docker/inspect.h"
#include "gateway/runtime/docker/names.h"
#include "gateway/runtime/docker/network.h"
#include "gateway/runtime/docker/refusal.h"
#include "gateway/runtime/docker/spec.h"

#include <string.h>

#define START_FAILED "DOCKER::SANDBOX_START_FAILED"

enum { CLEANUP_MS = 15000, ATTEMPTS = 2 };

/* One start on its way. */
struct start {
    struct docker *d;
    const struct runtime_spec *spec;
    char image[IMAGE_REF];
    struct docker_parts parts;
    bool made; /* the container may exist */
};

/* ---- the three calls ---- */

/* The engine finds an image of another platform unfit and says so with 404, as if it were not
 * there: that needs no look at the image before. */
static int create_path(const struct runtime_spec *spec, struct buf *out)
{
    char platform[IMAGE_PLATFORM];

    if (buf_printf(out, "/containers/create?name=" SANDBOX_NAME "%s", spec->id) < 0)
        return -1;
    image_ref_platform(spec->image.platform_os, spec->image.platform_arch, platform);
    return *platform ? engine_query(out, "platform", platform) : 0;
}

/* A limit that the kernel cannot enforce is not an error to the engine. One word in the log is
 * enough: the next start will hear the same. */
static void heed_warnings(struct docker *d, const struct engine_reply *r)
{
    json_auto_t *v = strstr(r->body.data ? r->body.data : "", "\"Warnings\":[\"")
                         ? jx_parse(r->body.data, r->body.len, true, NULL)
                         : NULL;
    const char *first = json_string_value(json_array_get(json_object_get(v, "Warnings"), 0));

    if (first && !atomic_exchange(&d->warned, true))
        log_warn("the container engine warns at the start of sandboxes", LOG_S("warning", first));
}

/* A request whose answer was lost is sent again by the HTTP client when the connection was a kept
 * one: then the name is taken, by this very start. Nothing else has its claim. */
static bool is_made_already(struct start *s)
{
    char path[DOCKER_PATH];
    char claim[sizeof(AGENT_ARG_CLAIM_SHA256) + RAND_SECRET_TEXT];
    const struct engine_call c = { .method = "GET", .path = path };
    json_auto_t *about = NULL;
    json_t *item;
    size_t i;

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/json", s->spec->id);
    (void)snprintf(claim, sizeof(claim), AGENT_ARG_CLAIM_SHA256 "%s", s->spec->claim_sha256);
    if (engine_do(s->d->engine, &c, "look who has the name", &about, NULL) < 0)
        return false;
    json_array_foreach(json_object_get(json_object_get(about, "Config"), "Cmd"), i, item) {
        const char *arg = json_string_value(item);

        if (arg && strcmp(arg, claim) == 0)
            return true;
    }
    return false;
}

static enum fault call_create(struct start *s, struct err *e)
{
    AUTO_BUF struct buf path = BUF_INIT(DOCKER_PATH);
    AUTO_REPLY struct engine_reply r = { 0 };
    json_auto_t *body = spec_body(s->d, &s->parts, s->spec, s->image);
    struct engine_call c = { .method = "POST", .json = body };

    if (!body || create_path(s->spec, &path) < 0) {
        (void)err_nomem(e);
        return FAULT_FINAL;
    }
    c.path = path.data;
    s->made = true; /* even when the answer is lost */
    if (engine_send(s->d->engine, &c, &r, e) < 0)
        return FAULT_FINAL;
    if (r.status == 201) {
        heed_warnings(s->d, &r);
        return FAULT_NONE;
    }
    if (r.status == 409 && is_made_already(s))
        return FAULT_NONE;
    s->made = false; /* refused; one of the same name is not ours to remove */
    return refusal_judge(s->d, s->spec, &r, true, e);
}

static enum fault call_start(struct start *s, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "POST", .path = path };
    AUTO_REPLY struct engine_reply r = { 0 };

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/start", s->spec->id);
    if (engine_send(s->d->engine, &c, &r, e) < 0)
        return FAULT_FINAL;
    if (r.status == 204 || r.status == 304)
        return FAULT_NONE;
    return refusal_judge(s->d, s->spec, &r, false, e);
}

static int check_place(struct start *s, const struct runtime_status *st, struct err *e)
{
    if (st->state != RUNTIME_RUNNING) {
        struct err why = { 0 };

        (void)err_api(&why, ERRC_INTERNAL, START_FAILED, "the sandbox ended at once");
        (void)docker_explain(s->d, s->spec->id, 0, &why);
        return err_api(e, why.code, START_FAILED, "%s", why.msg);
    }
    if (!st->place.address[0])
        return err_api(e, ERRC_INTERNAL, START_FAILED, "the sandbox has no address in network %s",
                       network_name(s->d->network));
    return 0;
}

/* ERRC_NOT_FOUND is kept for the image: the caller would pull it. */
static int not_the_image(struct err *e)
{
    if (e && e->code == ERRC_NOT_FOUND) {
        e->code = ERRC_INTERNAL;
        e->api_code = START_FAILED;
    }
    return -1;
}

/* Every list of sandboxes repeats them. */
static int check_labels(json_t *about, struct err *e)
{
    json_t *labels = json_object_get(json_object_get(about, "Config"), "Labels");
    const char *key;
    json_t *v;
    size_t n = 0;

    json_object_foreach(labels, key, v)
        n += strlen(key) + json_string_length(v);
    if (n <= IMAGE_LABELS_MAX)
        return 0;
    return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                   "image.uri: the labels of the image have %zu bytes; %d is the most", n,
                   IMAGE_LABELS_MAX);
}

static int call_inspect(struct start *s, struct runtime_place *place, struct err *e)
{
    char path[DOCKER_PATH];
    const struct engine_call c = { .method = "GET", .path = path };
    json_auto_t *about = NULL;
    struct runtime_status st;

    (void)snprintf(path, sizeof(path), "/containers/" SANDBOX_NAME "%s/json", s->spec->id);
    if (engine_do(s->d->engine, &c, "read the started sandbox", &about, e) < 0)
        return not_the_image(e);
    if (inspect_status(about, network_name(s->d->network), &st, e) < 0 ||
        check_labels(about, e) < 0 || check_place(s, &st, e) < 0)
        return -1;
    *place = st.place;
    return 0;
}

static enum fault run(struct start *s, struct runtime_place *place, struct err *e)
{
    enum fault f = call_create(s, e);

    if (f != FAULT_NONE)
        return f;
    crash_step(&s->d->cfg, "create.made");
    f = call_start(s, e);
    if (f != FAULT_NONE)
        return f;
    crash_step(&s->d->cfg, "create.started");
    if (call_inspect(s, place, e) < 0)
        return FAULT_FINAL;
    crash_step(&s->d->cfg, "create.inspected");
    return FAULT_NONE;
}

/* Leaves nothing when the engine lets it; the caller's remove does the rest. */
static void undo(struct start *s)
{
    struct err e = { 0 };

    if (s->made && docker_remove_within(s->d, s->spec->id, CLEANUP_MS, &e) < 0)
        log_warn("a sandbox that failed to start could not be removed yet",
                 LOG_S("id", s->spec->id), LOG_S("reason", e.msg));
    s->made = false;
}

int docker_start_held(struct runtime *rt, const struct runtime_spec *spec,
                      struct runtime_place *place, struct err *e)
{
    struct start s = { .d = (struct docker *)rt, .spec = spec };
    enum fault f = FAULT_NONE;
    unsigned missing = 0;
    int i;

    if (image_ref_name(&spec->image, s.image, e) < 0)
        return -1;
    for (i = 0; i < ATTEMPTS; i++) {
        if (docker_parts_get(s.d, missing, &s.parts, e) < 0)
            return not_the_image(e);
        f = run(&s, place, e);
        if (f == FAULT_NONE)
            return 0;
        undo(&s);
        if (f != FAULT_PARTS && f != FAULT_CHANCE)
            break;
        missing = f == FAULT_PARTS ? s.parts.generation : 0;
    }
    return -1;
}
