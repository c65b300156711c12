/* /v1/isolated: what is possible, sessions (contract/execd.md 13, newest.md 3.3). Runs: isolated_run.c. */
#include "execd/isolated/isolated.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/api/isolated_routes.h"
#include "execd/app.h"
#include "execd/isolated/plan.h"
#include "execd/isolated/probe.h"

#include <string.h>
#include <unistd.h>

enum { KEYS_LEN_MAX = 256, PATH_LEN_MAX = 4095 };

struct isolated_body {
    const char *profile;
    const char *uid_mode;
    json_t *workspace;
    json_t *overlays;
    json_t *extra_writable;
    json_t *binds;
    json_t *env;
    bool share_net;
    int64_t uid; /* -1: absent */
    int64_t gid;
    int64_t idle_s;
};

struct mount_body {
    const char *path;
    const char *mode;
    bool persist;
};

struct bind_body {
    const char *source;
    const char *dest;
    bool read_only;
};

struct env_body {
    const char *mode;
    json_t *keys;
};

static const struct jx_field fields[] = {
    { "profile", JX_STR, offsetof(struct isolated_body, profile), JX_NULLABLE, 0, 0, 64 },
    { "uid_mode", JX_STR, offsetof(struct isolated_body, uid_mode), JX_NULLABLE, 0, 0, 64 },
    { "workspace", JX_OBJ, offsetof(struct isolated_body, workspace), JX_NULLABLE, 0, 0, 0 },
    { "overlays", JX_LIST, offsetof(struct isolated_body, overlays), JX_NULLABLE, 0,
      PLAN_MOUNTS_MAX, 0 },
    { "extra_writable", JX_STR_LIST, offsetof(struct isolated_body, extra_writable), JX_NULLABLE, 0,
      PLAN_BINDS_MAX, PATH_LEN_MAX },
    { "binds", JX_LIST, offsetof(struct isolated_body, binds), JX_NULLABLE, 0, PLAN_BINDS_MAX, 0 },
    { "env_passthrough", JX_OBJ, offsetof(struct isolated_body, env), JX_NULLABLE, 0, 0, 0 },
    { "share_net", JX_BOOL, offsetof(struct isolated_body, share_net), JX_NULLABLE, 0, 0, 0 },
    { "uid", JX_I64, offsetof(struct isolated_body, uid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "gid", JX_I64, offsetof(struct isolated_body, gid), JX_NULLABLE, 0, UINT32_MAX - 1, 0 },
    { "idle_timeout_seconds", JX_I64, offsetof(struct isolated_body, idle_s), JX_NULLABLE, 0,
      PLAN_IDLE_MAX, 0 },
};
static const struct jx_field mount_fields[] = {
    { "path", JX_STR, offsetof(struct mount_body, path), JX_REQUIRED, 0, 0, PATH_LEN_MAX },
    { "mode", JX_STR, offsetof(struct mount_body, mode), JX_NULLABLE, 0, 0, 64 },
    { "persist", JX_BOOL, offsetof(struct mount_body, persist), JX_NULLABLE, 0, 0, 0 },
};
static const struct jx_field bind_fields[] = {
    { "source", JX_STR, offsetof(struct bind_body, source), JX_REQUIRED, 0, 0, PATH_LEN_MAX },
    { "dest", JX_STR, offsetof(struct bind_body, dest), JX_NULLABLE, 0, 0, PATH_LEN_MAX },
    { "readonly", JX_BOOL, offsetof(struct bind_body, read_only), JX_NULLABLE, 0, 0, 0 },
};
static const struct jx_field env_fields[] = {
    { "mode", JX_STR, offsetof(struct env_body, mode), JX_NULLABLE, 0, 0, 64 },
    { "keys", JX_STR_LIST, offsetof(struct env_body, keys), JX_NULLABLE, 0, PLAN_KEYS_MAX,
      KEYS_LEN_MAX },
};

const struct api_table isolated_table = { fields, ARRAY_LEN(fields) };
const struct api_table isolated_mount_table = { mount_fields, ARRAY_LEN(mount_fields) };
const struct api_table isolated_bind_table = { bind_fields, ARRAY_LEN(bind_fields) };
const struct api_table isolated_env_table = { env_fields, ARRAY_LEN(env_fields) };

int isolated_reply(struct http_resp *rs, int status, json_t *v, struct err *e)
{
    int rc = http_resp_json(rs, status, v ? jx_dump(v, false) : NULL, e);

    json_decref(v);
    return rc;
}

struct isolated_session *isolated_of(struct app *app, const struct http_req *rq, struct err *e)
{
    struct isolated_session *s;

    if (cages_gate(e) < 0)
        return NULL;
    s = isolated_find(app->isolated, rq->params[0]);
    if (!s)
        (void)err_api(e, ERRC_NOT_FOUND, "SESSION_NOT_FOUND", "no isolated session %.64s",
                      rq->params[0]);
    return s;
}

/* ---- what is possible ---- */

static json_t *layer(const char *why)
{
    return json_pack("{s:s, s:s}", "state", "disabled", "message", why);
}

/* Of commands and the entrypoint; what sessions have is not optional. */
static json_t *hardening(void)
{
    bool first = getpid() == 1;

    return json_pack(
        "{s:s, s:b, s:o, s:o, s:o, s:o}", "init_mode", first ? "pid1" : "subreaper",
        "signal_shield", first, "cap_drop",
        layer("commands have the container's capabilities; isolated sessions drop most of them"),
        "seccomp",
        layer("commands have the container's filter; isolated sessions have one of their own"),
        "landlock", layer("not part of this agent"), "ebpf", layer("not part of this agent"));
}

int isolated_capabilities(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct cages c;

    (void)app, (void)rq;
    cages_probe(&c);
    return isolated_reply(rs, 200,
                          json_pack("{s:b, s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:o}", "available",
                                    c.available, "isolator", "bwrap", "version", SANDGATE_VERSION,
                                    "message", c.message, "setpriv_available", c.available,
                                    "userns_available", c.userns, "commit_supported", 0,
                                    "diff_supported", 0, "hardening", hardening()),
                          e);
}

/* ---- create ---- */

static int bad_value(struct err *e, const char *what, const char *value, const char *choice)
{
    return err_api(e, ERRC_INVALID, "RUNTIME_ERROR", "%s: \"%.40s\" is none of %s", what, value,
                   choice);
}

static int take_mode(const struct mount_body *b, bool has_persist, enum cage_mode *out,
                     struct err *e)
{
    const char *mode = b->mode && *b->mode ? b->mode : "overlay";
    bool overlay = strcmp(mode, "overlay") == 0;

    if (has_persist && !overlay)
        return err_api(e, ERRC_INVALID, "RUNTIME_ERROR", "persist: only with mode overlay");
    if (overlay)
        *out = b->persist ? CAGE_OVERLAY : CAGE_SCRATCH;
    else if (strcmp(mode, "rw") == 0)
        *out = CAGE_RW;
    else if (strcmp(mode, "ro") == 0)
        *out = CAGE_RO;
    else
        return bad_value(e, "mode", mode, "rw, overlay, ro");
    return 0;
}

static const char *mode_word(enum cage_mode m)
{
    return m == CAGE_RW ? "rw" : m == CAGE_RO ? "ro" : "overlay";
}

static int take_mount(const json_t *v, const char *at, struct plan_req *out, struct err *e)
{
    struct mount_body b = { .persist = true };
    struct plan_mount *m = &out->mounts[out->n_mounts];

    if (jx_decode(v, at, mount_fields, ARRAY_LEN(mount_fields), false, &b, e) < 0)
        return -1;
    if (out->n_mounts == PLAN_MOUNTS_MAX)
        return err_api(e, ERRC_INVALID, "RUNTIME_ERROR", "more than %d mounts", PLAN_MOUNTS_MAX);
    if (take_mode(&b, json_is_boolean(json_object_get(v, "persist")), &m->mode, e) < 0)
        return -1;
    m->path = b.path;
    out->n_mounts++;
    return 0;
}

static int take_bind(const json_t *v, const char *at, struct plan_req *out, struct err *e)
{
    struct bind_body b = { 0 };

    if (jx_decode(v, at, bind_fields, ARRAY_LEN(bind_fields), false, &b, e) < 0)
        return -1;
    out->binds[out->n_binds++] =
        (struct plan_bind){ b.source, b.dest && *b.dest ? b.dest : b.source, b.read_only };
    return 0;
}

static int take_env(struct http_req *rq, const json_t *v, struct plan_req *out, struct err *e)
{
    struct env_body b = { 0 };
    const char **keys;
    json_t *key;
    size_t i;

    if (v && jx_decode(v, "env_passthrough", env_fields, ARRAY_LEN(env_fields), false, &b, e) < 0)
        return -1;
    if (b.mode && *b.mode && strcmp(b.mode, "deny") != 0 && strcmp(b.mode, "allow") != 0)
        return bad_value(e, "env_passthrough.mode", b.mode, "allow, deny");
    out->keys_allow = b.mode && strcmp(b.mode, "allow") == 0;
    out->n_keys = json_array_size(b.keys);
    out->keys = keys = arena_alloc(&rq->arena, (out->n_keys + 1) * sizeof(*keys));
    if (!keys)
        return err_nomem(e);
    json_array_foreach(b.keys, i, key)
        keys[i] = json_string_value(key);
    return 0;
}

static int take_lists(const struct isolated_body *b, struct plan_req *out, struct err *e)
{
    char at[32];
    json_t *v;
    size_t i;

    if (b->workspace && take_mount(b->workspace, "workspace", out, e) < 0)
        return -1;
    json_array_foreach(b->overlays, i, v) {
        (void)snprintf(at, sizeof(at), "overlays[%zu]", i);
        if (take_mount(v, at, out, e) < 0)
            return -1;
    }
    json_array_foreach(b->binds, i, v) {
        (void)snprintf(at, sizeof(at), "binds[%zu]", i);
        if (take_bind(v, at, out, e) < 0)
            return -1;
    }
    json_array_foreach(b->extra_writable, i, v)
        out->extra_writable[out->n_extra++] = json_string_value(v);
    return 0;
}

static int take_words(const struct isolated_body *b, struct plan_req *out, struct err *e)
{
    const char *profile = b->profile && *b->profile ? b->profile : "strict";
    const char *mode = b->uid_mode && *b->uid_mode ? b->uid_mode : "setpriv";

    out->balanced = strcmp(profile, "balanced") == 0;
    out->userns = strcmp(mode, "userns") == 0;
    if (!out->balanced && strcmp(profile, "strict") != 0)
        return bad_value(e, "profile", profile, "strict, balanced");
    if (!out->userns && strcmp(mode, "setpriv") != 0)
        return bad_value(e, "uid_mode", mode, "setpriv, userns");
    out->own_net = !b->share_net;
    out->has_uid = b->uid >= 0;
    out->has_gid = b->gid >= 0;
    out->uid = (uid_t)b->uid;
    out->gid = (gid_t)b->gid;
    return 0;
}

/* As the session is, in the words of a request. */
static json_t *mount_echo(const struct plan_mount *m)
{
    json_t *v = json_pack("{s:s, s:s}", "path", m->path, "mode", mode_word(m->mode));

    if (m->mode == CAGE_OVERLAY || m->mode == CAGE_SCRATCH)
        (void)json_object_set_new(v, "persist", json_boolean(m->mode == CAGE_OVERLAY));
    return v;
}

static json_t *lists_echo(const struct plan_req *r)
{
    json_t *overlays = json_array();
    json_t *binds = json_array();
    json_t *extra = json_array();
    json_t *keys = json_array();
    size_t i;

    for (i = 0; i < r->n_mounts; i++)
        (void)json_array_append_new(overlays, mount_echo(&r->mounts[i]));
    for (i = 0; i < r->n_binds; i++)
        (void)json_array_append_new(binds, json_pack("{s:s, s:s, s:b}", "source",
                                                     r->binds[i].source, "dest", r->binds[i].dest,
                                                     "readonly", r->binds[i].read_only));
    for (i = 0; i < r->n_extra; i++)
        (void)json_array_append_new(extra, json_string(r->extra_writable[i]));
    for (i = 0; i < r->n_keys; i++)
        (void)json_array_append_new(keys, json_string(r->keys[i]));
    return json_pack("{s:o, s:o, s:o, s:{s:s, s:o}}", "overlays", overlays, "binds", binds,
                     "extra_writable", extra, "env_passthrough", "mode",
                     r->keys_allow ? "allow" : "deny", "keys", keys);
}

static json_t *echo_of(const struct plan_req *r, const struct cage *c, int64_t idle_s)
{
    json_t *v = lists_echo(r);

    (void)json_object_set_new(v, "profile", json_string(r->balanced ? "balanced" : "strict"));
    (void)json_object_set_new(v, "share_net", json_boolean(!r->own_net));
    (void)json_object_set_new(v, "uid", json_integer(c->uid));
    (void)json_object_set_new(v, "gid", json_integer(c->gid));
    (void)json_object_set_new(v, "uid_mode", json_string(r->userns ? "userns" : "setpriv"));
    (void)json_object_set_new(v, "idle_timeout_seconds", json_integer(idle_s));
    if (r->n_mounts == 1) {
        const struct plan_mount *m = &r->mounts[0];

        (void)json_object_set_new(
            v, "workspace", json_pack("{s:s, s:s}", "path", m->path, "mode", mode_word(m->mode)));
    }
    return v;
}

static json_t *time_text(int64_t ms)
{
    char text[CLOCK_TEXT];

    clock_format_ms(ms, text);
    return json_string(text);
}

/* A request that waits: rq and rs stay valid until it is completed. */
struct waiting {
    struct http_req *rq;
    struct http_resp *rs;
    struct isolated_session *session;
};

static void on_ready(void *arg, const struct err *why)
{
    struct waiting *w = arg;
    struct isolated_info info;
    struct err e = { 0 };
    json_t *v;

    if (why) {
        http_complete(w->rq, why);
        return;
    }
    isolated_look(w->session, &info);
    v = json_copy(info.echo);
    (void)json_object_set_new(v, "session_id", json_string(info.id));
    (void)json_object_set_new(v, "created_at", time_text(info.created_ms));
    http_complete(w->rq, isolated_reply(w->rs, 201, v, &e) < 0 ? &e : NULL);
}

static int create(struct app *app, struct http_req *rq, const struct isolated_body *b,
                  struct http_resp *rs, struct err *e)
{
    struct waiting *w = arena_alloc(&rq->arena, sizeof(*w));
    struct plan_req *pr = arena_alloc(&rq->arena, sizeof(*pr));
    struct plan *plan = arena_alloc(&rq->arena, sizeof(*plan));
    struct isolated_req make = { plan, NULL, b->idle_s, on_ready, w };

    if (!w || !pr || !plan)
        return err_nomem(e);
    if (take_words(b, pr, e) < 0 || take_lists(b, pr, e) < 0 || take_env(rq, b->env, pr, e) < 0 ||
        plan_make(pr, &app->base, plan, e) < 0)
        return -1;
    make.echo = echo_of(pr, &plan->cage, b->idle_s);
    *w = (struct waiting){ rq, rs, NULL };
    w->session = isolated_add(app->isolated, &make, e);
    json_decref(make.echo);
    if (!w->session)
        return -1;
    http_defer(rq);
    return 0;
}

int isolated_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct isolated_body b = { .share_net = true, .uid = -1, .gid = -1 };
    json_t *body;
    int rc = -1;

    if (cages_gate(e) < 0)
        return -1;
    body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    if (body && jx_decode(body, "", fields, ARRAY_LEN(fields), false, &b, e) == 0)
        rc = create(app, rq, &b, rs, e);
    if (rc < 0 && e->code == ERRC_INVALID && !e->api_code)
        (void)err_wrap(e, "error parsing request");
    json_decref(body);
    return rc;
}

/* ---- look ---- */

static void add_state(json_t *v, const struct isolated_info *info)
{
    (void)json_object_set_new(v, "status", json_string(info->dead ? "dead" : "active"));
    (void)json_object_set_new(v, "created_at", time_text(info->created_ms));
    (void)json_object_set_new(v, "last_run_at", time_text(info->last_run_ms));
    if (info->idle_left_s >= 0)
        (void)json_object_set_new(v, "idle_remaining_seconds", json_integer(info->idle_left_s));
}

int isolated_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct isolated_session *s = isolated_of(app, rq, e);
    struct isolated_info info;
    json_t *v;

    if (!s)
        return -1;
    isolated_look(s, &info);
    v = json_copy(info.echo);
    add_state(v, &info);
    return isolated_reply(rs, 200, v, e);
}

int isolated_list(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct app *app = arg;
    struct isolated_session *s = NULL;
    struct isolated_info info;
    json_t *list;

    (void)rq;
    if (cages_gate(e) < 0)
        return -1;
    list = json_array();
    while ((s = isolated_next(app->isolated, s))) {
        json_t *v = json_object();

        isolated_look(s, &info);
        (void)json_object_set_new(v, "session_id", json_string(info.id));
        add_state(v, &info);
        (void)json_array_append_new(list, v);
    }
    return isolated_reply(rs, 200, json_pack("{s:o}", "sessions", list), e);
}

/* ---- end ---- */

static void on_gone(void *arg, const struct err *e)
{
    http_complete(((struct waiting *)arg)->rq, e);
}

int isolated_remove(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct isolated_session *s = isolated_of(app, rq, e);
    struct waiting *w = arena_alloc(&rq->arena, sizeof(*w));

    if (!s)
        return -1;
    if (!w)
        return err_nomem(e);
    *w = (struct waiting){ rq, rs, s };
    isolated_delete(s, on_gone, w);
    http_defer(rq);
    return 0;
}

/* Released agents have neither, and clients ask first (contract/newest.md 3.3). */
int isolated_unsupported(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)rs;
    if (!isolated_of(app, rq, e))
        return -1;
    return err_api(e, ERRC_BUSY, "NOT_SUPPORTED",
                   "this agent neither compares nor commits upper layers (commit_supported and "
                   "diff_supported are false); read the files of the session instead");
}
