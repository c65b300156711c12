#include "gateway/proxy/proxy.h"

#include "common/agent/wire.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/rand.h"
#include "common/front/front.h"
#include "common/http/http.h"
#include "gateway/app.h"
#include "gateway/config.h"
#include "gateway/domain/places.h"
#include "gateway/domain/renewer.h"
#include "gateway/proxy/relay.h"
#include "gateway/proxy/target.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

enum {
    REQUEST_ID_MAX = 128,
    KEY_MAX = 512,
    BASE_MAX = 256, /* path of server.eip */
    PREFIX_MAX = BASE_MAX + 256,
    FORWARDED_MAX = 1024,  /* longer lists of hops are not believed */
    START_WAIT_MS = 10000, /* for a sandbox that is just being made */
    START_LOOK_MS = 20,
};

#define KEY_HEADER "OPEN-SANDBOX-API-KEY"

/* Never reach a backend (contract 8.1). */
static const char *const drop_always[] = {
    KEY_HEADER,
    "OpenSandbox-Secure-Access",
    "OpenSandbox-Access-Renew",
    AGENT_TOKEN_HEADER,
    "Authorization",
    "Cookie",
    NULL,
};
static const char *const drop_login_ok[] = {
    KEY_HEADER, "OpenSandbox-Secure-Access", "OpenSandbox-Access-Renew", AGENT_TOKEN_HEADER, NULL,
};
/* To the agent: the caller's own token passes. */
static const char *const drop_agent[] = {
    KEY_HEADER, "OpenSandbox-Secure-Access", "OpenSandbox-Access-Renew", "Authorization", "Cookie",
    NULL,
};
static const char *const drop_response[] = { "X-Request-ID", NULL };

struct proxy {
    struct proxy_config cfg;
    struct loop *loop;
    struct front *front;
    struct waiting *waiting;
    char base_path[BASE_MAX]; /* of server.eip: below it we are reached from outside */
    struct access *open;      /* requests under way that renew their sandbox */
    struct loop_timer look;
};

/* What hangs at front_req.user: nothing, one that waits, or one that renews. */
enum user_kind { USER_WAITING, USER_ACCESS };

/* A request that renews its sandbox, for as long as it lasts. */
struct access {
    enum user_kind kind;
    struct proxy *proxy;
    char id[RUNTIME_ID];
    struct access *prev;
    struct access *next;
};

/* A request for a sandbox that is just being made. */
struct waiting {
    enum user_kind kind;
    struct proxy *proxy;
    struct front_req *rq;
    struct target target;
    struct loop_timer timer;
    char *path; /* the target's text */
    struct waiting *next;
};

/* ---- what the head says ---- */

static bool field_text(const struct head *h, const char *name, char *out, size_t size)
{
    const struct head_field *f = head_find(h, name, 0);

    if (!f || f->value.len >= size)
        return false;
    memcpy(out, head_text(h, f->value), f->value.len);
    out[f->value.len] = '\0';
    return true;
}

static bool id_ok(const char *s)
{
    for (; *s; s++)
        if (*s < 0x21 || *s > 0x7e)
            return false;
    return true;
}

/* The client's own, else a fresh one (contract 1.4). */
static void request_id(const struct head *h, char out[REQUEST_ID_MAX + 1])
{
    if (!field_text(h, "X-Request-ID", out, REQUEST_ID_MAX + 1) || !*out || !id_ok(out))
        rand_hex(out, 16);
}

static bool has_key(const struct proxy *p, const struct head *h)
{
    char key[KEY_MAX];

    return p->cfg.key && field_text(h, KEY_HEADER, key, sizeof(key)) &&
           secret_equal(p->cfg.key, key);
}

static bool has_secure_token(const struct head *h, const struct place *place)
{
    char token[SANDBOX_TOKEN];

    return !place->secure_token[0] ||
           (field_text(h, "OpenSandbox-Secure-Access", token, sizeof(token)) &&
            secret_equal(place->secure_token, token));
}

/* ---- answers ---- */

static void answer(struct front_req *rq, int status, const char *code, const char *message)
{
    char id[REQUEST_ID_MAX + 1];
    const struct rules_field retry = { "Retry-After", status == 503 ? "1" : NULL };
    struct rules_field add[] = { { "X-Request-ID", id }, retry };
    struct front_answer a = {
        .status = status, .code = code, .message = message, .add = add, .n_add = ARRAY_LEN(add)
    };

    request_id(rq->head, id);
    front_answer(rq, &a);
}

static bool loopback_name(const char *s)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t i;

    for (i = 0; i < ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);

        if (strncasecmp(s, names[i], len) == 0 && (!s[len] || s[len] == ':'))
            return true;
    }
    return false;
}

static void answer_no_key(struct front_req *rq)
{
    const struct head_field *sent = head_find(rq->head, KEY_HEADER, 0);

    if (sent && sent->value.len)
        answer(rq, 401, "INVALID_API_KEY", "The API key in " KEY_HEADER " is not valid.");
    else
        answer(rq, 401, "MISSING_API_KEY",
               "This proxy needs the API key: send the header " KEY_HEADER ".");
}

/* The client's address: ours to see, or what a trusted proxy in front of us says. */
static const char *client_of(const struct proxy *p, const struct front_req *rq, char *out,
                             size_t size)
{
    if (!config_list_has(p->cfg.trusted, rq->peer_text) ||
        !field_text(rq->head, "X-Forwarded-For", out, size))
        return NULL; /* the front puts the peer's */
    return out;
}

/* Does the request come from a sandbox, directly or through the proxy in front of us? */
static bool is_from_sandbox(const struct proxy *p, const struct front_req *rq)
{
    char hops[FORWARDED_MAX];
    const char *last;

    if (runtime_is_sandbox_address(p->cfg.rt, rq->peer_text))
        return true;
    if (!client_of(p, rq, hops, sizeof(hops)))
        return false;
    last = strrchr(hops, ','); /* what the trusted proxy itself has seen */
    last = last ? last + 1 : hops;
    return runtime_is_sandbox_address(p->cfg.rt, last + strspn(last, " "));
}

/* Without a key a web page could drive us from the user's browser (design decision 20): the name
 * asked for must be ours, and no foreign page may ask. */
static bool is_local_use(const struct head *h)
{
    char host[256];
    char origin[256];
    const char *after;

    if (!field_text(h, "Host", host, sizeof(host)) || !loopback_name(host))
        return false;
    if (!head_find(h, "Origin", 0))
        return true;
    after = field_text(h, "Origin", origin, sizeof(origin)) ? strstr(origin, "://") : NULL;
    return after && loopback_name(after + 3);
}

/* For every request, the API's as well. False when it was answered. */
static bool may_enter(const struct proxy *p, struct front_req *rq)
{
    if (is_from_sandbox(p, rq)) { /* design decision 10 */
        answer(rq, 403, "GENERAL::FORBIDDEN", "sandboxes may not use this server");
        return false;
    }
    if (!p->cfg.key && !is_local_use(rq->head)) {
        answer(rq, 403, "GENERAL::FORBIDDEN",
               "this server runs without an API key: it answers only to localhost and to no web "
               "page of another site; set server.api_key to use another name");
        return false;
    }
    return true;
}

/* For requests to sandboxes. False when it was answered. */
static bool may_pass(const struct proxy *p, struct front_req *rq, const struct target *t)
{
    if (t->signature[0]) {
        if (signed_check(p->cfg.signing_key, t->id, t->port, t->expires, t->signature,
                         clock_wall_ms() / 1000))
            return true;
        answer(rq, 403, "GENERAL::FORBIDDEN", "this signed address is not valid or has expired");
        return false;
    }
    if (p->cfg.require_key && p->cfg.key && !has_key(p, rq->head)) {
        answer_no_key(rq);
        return false;
    }
    return true;
}

/* ---- to the sandbox ---- */

/* Do programs behind this port get Authorization and Cookie? */
static bool passes_login(const struct proxy *p, const struct place *place, uint16_t port)
{
    char want[8];

    (void)snprintf(want, sizeof(want), ",%u,", port);
    return p->cfg.pass_login || strstr(place->login_ports, want) != NULL;
}

static const char *const *drops(const struct proxy *p, const struct place *place, uint16_t port,
                                bool own_token)
{
    if (port == place->at.agent_port)
        return own_token ? drop_agent : drop_always;
    return passes_login(p, place, port) ? drop_login_ok : drop_always;
}

/* "https" when a proxy in front of us that is trusted says so (design decision 22). */
static const char *scheme_of(const struct proxy *p, const struct front_req *rq)
{
    char proto[8];

    return config_list_has(p->cfg.trusted, rq->peer_text) &&
                   field_text(rq->head, "X-Forwarded-Proto", proto, sizeof(proto)) &&
                   strcasecmp(proto, "https") == 0
               ? "https"
               : "http";
}

static void forward(struct proxy *p, struct front_req *rq, const struct target *t,
                    const struct place *place)
{
    const struct head *h = rq->head;
    bool agent = t->port == place->at.agent_port;
    bool own_token = head_find(h, AGENT_TOKEN_HEADER, 0) != NULL;
    bool v6 = strchr(place->at.address, ':') != NULL;
    char id[REQUEST_ID_MAX + 1];
    char host[RUNTIME_ADDR + 16];
    char prefix[PREFIX_MAX];
    char path[HEAD_TARGET_MAX + 2];
    char client[FORWARDED_MAX];
    struct rules_field token = { AGENT_TOKEN_HEADER, place->token };
    struct rules_field add = { "X-Request-ID", id };
    struct front_addr to;
    struct front_proxy fp = {
        .to = &to,
        .request = { .host = host,
                     .edit = { .drop = drops(p, place, t->port, own_token) },
                     .forwarded_for = client_of(p, rq, client, sizeof(client)),
                     .forwarded_proto = scheme_of(p, rq),
                     .upgrade = true },
        .response = { .drop = drop_response, .add = &add, .n_add = 1 },
        .location_prefix = prefix,
    };

    if (front_addr_ip(&to, place->at.address, t->port) < 0) {
        answer(rq, 502, "BACKEND_CONNECTION_FAILED", "the sandbox has no address");
        return;
    }
    request_id(h, id);
    (void)snprintf(host, sizeof(host), "%s%s%s:%u", v6 ? "[" : "", place->at.address, v6 ? "]" : "",
                   t->port);
    (void)snprintf(prefix, sizeof(prefix), "%s%.*s", p->base_path, (int)t->prefix_len,
                   t->rest - t->prefix_len);
    (void)snprintf(path, sizeof(path), "%s%.*s", t->rest_len && *t->rest == '/' ? "" : "/",
                   (int)t->rest_len, t->rest);
    fp.request.target = path;
    fp.request.target_len = strlen(path);
    if (agent && !own_token && has_key(p, h)) { /* design decision 8 */
        fp.request.edit.add = &token;
        fp.request.edit.n_add = 1;
    }
    front_proxy(rq, &fp);
}

/* ---- renewal by access (contract 8.3) ---- */

/* Health probes are no use of a sandbox (pains X7), nor is what says so itself. */
static bool is_use(const struct front_req *rq, const struct target *t, const struct place *place)
{
    char skip[8];

    if (t->port == place->at.agent_port && t->rest_len == 5 && memcmp(t->rest, "/ping", 5) == 0)
        return false;
    return !field_text(rq->head, "OpenSandbox-Access-Renew", skip, sizeof(skip)) ||
           strcmp(skip, "skip") != 0;
}

static void note_access(struct proxy *p, struct front_req *rq, const struct target *t,
                        const struct place *place)
{
    struct access *a;

    if (!p->cfg.renewer || !place->renew_s || !is_use(rq, t, place))
        return;
    renewer_note(p->cfg.renewer, t->id);
    a = calloc(1, sizeof(*a));
    if (!a)
        return; /* it will not renew while it lasts, only now */
    a->kind = USER_ACCESS;
    a->proxy = p;
    memcpy(a->id, t->id, sizeof(a->id));
    a->next = p->open;
    if (a->next)
        a->next->prev = a;
    p->open = a;
    rq->user = a;
    if (!p->look.at_mono_ms)
        (void)loop_timer_set(p->loop, &p->look, clock_mono_ms() + p->cfg.renew_look_ms);
}

static void end_access(struct access *a)
{
    if (a->prev)
        a->prev->next = a->next;
    else
        a->proxy->open = a->next;
    if (a->next)
        a->next->prev = a->prev;
    free(a);
}

/* Long streams and WebSocket sessions go on being accesses. */
static void on_renew_look(struct loop_timer *timer)
{
    struct proxy *p = CONTAINER_OF(timer, struct proxy, look);
    struct access *a;

    for (a = p->open; a; a = a->next)
        renewer_note(p->cfg.renewer, a->id);
    if (p->open)
        (void)loop_timer_set(p->loop, &p->look, clock_mono_ms() + p->cfg.renew_look_ms);
}

/* The place decides; false: it is still being made. */
static bool resolve(struct proxy *p, struct front_req *rq, const struct target *t)
{
    char text[128];
    struct place place;

    if (!places_get(p->cfg.places, t->id, &place)) {
        (void)snprintf(text, sizeof(text), "Sandbox %s not found.", t->id);
        answer(rq, 404, "DOCKER::SANDBOX_NOT_FOUND", text);
        return true;
    }
    if (place.state == SANDBOX_PENDING)
        return false;
    if (place.state != SANDBOX_RUNNING) {
        (void)snprintf(text, sizeof(text), "Sandbox %s is %s, not Running.", t->id,
                       sandbox_state_to_string(place.state));
        answer(rq, 409, "DOCKER::SANDBOX_NOT_RUNNING", text);
        return true;
    }
    if (!t->signature[0] && !has_secure_token(rq->head, &place)) {
        answer(rq, 401, "MISSING_OR_INVALID_SECURE_ACCESS",
               "This sandbox needs the header OpenSandbox-Secure-Access of its endpoint answer.");
        return true;
    }
    note_access(p, rq, t, &place);
    forward(p, rq, t, &place);
    return true;
}

/* ---- waiting for a sandbox that is being made ---- */

static void stop_waiting(struct waiting *w)
{
    struct waiting **at = &w->proxy->waiting;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    loop_timer_clear(w->proxy->loop, &w->timer);
    free(w->path);
    free(w);
}

static void on_look(struct loop_timer *timer)
{
    struct waiting *w = CONTAINER_OF(timer, struct waiting, timer);
    struct front_req *rq = w->rq;

    rq->user = NULL; /* resolve may hang something else there, or end the request */
    if (resolve(w->proxy, rq, &w->target)) {
        stop_waiting(w);
        return;
    }
    rq->user = w;
    (void)loop_timer_set(w->proxy->loop, &w->timer, clock_mono_ms() + START_LOOK_MS);
}

static void wait_for_start(struct proxy *p, struct front_req *rq, const struct target *t)
{
    struct waiting *w = calloc(1, sizeof(*w));
    size_t len = t->prefix_len + t->rest_len;

    if (w)
        w->path = strndup(t->rest - t->prefix_len, len);
    if (!w || !w->path) {
        free(w);
        answer(rq, 503, "GENERAL::SERVICE_UNAVAILABLE", "out of memory; try again");
        return;
    }
    w->kind = USER_WAITING;
    w->proxy = p;
    w->rq = rq;
    w->target = *t;
    w->target.rest = w->path + t->prefix_len;
    w->timer.on_fire = on_look;
    w->next = p->waiting;
    p->waiting = w;
    rq->user = w;
    front_park(rq, START_WAIT_MS);
    (void)loop_timer_set(p->loop, &w->timer, clock_mono_ms() + START_LOOK_MS);
}

/* ---- the front's callbacks ---- */

static void on_decide(void *owner, struct front_req *rq)
{
    struct proxy *p = owner;
    const struct head *h = rq->head;
    struct target t;

    if (!may_enter(p, rq))
        return;
    switch (target_parse(head_text(h, h->path), h->path.len, &t)) {
    case TARGET_OTHER:
        front_internal(rq, NULL);
        return;
    case TARGET_TRAVERSAL:
        answer(rq, 400, "SANDBOX::INVALID_PARAMETER",
               "the path has a segment of dots; resolve it before sending");
        return;
    case TARGET_PROXY:
        break;
    }
    if (may_pass(p, rq, &t) && !resolve(p, rq, &t))
        wait_for_start(p, rq, &t);
}

static void on_done(void *owner, struct front_req *rq, const struct front_result *result)
{
    enum user_kind *kind = rq->user;

    (void)owner, (void)result;
    if (kind && *kind == USER_WAITING)
        stop_waiting(rq->user);
    else if (kind)
        end_access(rq->user);
}

static int on_internal(void *owner, struct err *e)
{
    struct proxy *p = owner;

    return http_server_connect(p->cfg.api, e);
}

static size_t on_stamp(void *owner, char *out, size_t cap)
{
    char id[REQUEST_ID_MAX + 1];
    int n;

    (void)owner;
    rand_hex(id, 16);
    n = snprintf(out, cap, "X-Request-ID: %s\r\n", id);
    return n > 0 && (size_t)n < cap ? (size_t)n : 0;
}

static const struct front_ops ops = {
    .decide = on_decide, .done = on_done, .internal = on_internal, .stamp = on_stamp
};

/* ---- places that go ---- */

struct gone {
    struct loop_call call;
    struct proxy *proxy;
    struct front_addr addr;
};

static void forget_there(void *arg)
{
    struct gone *g = arg;

    front_forget(g->proxy->front, &g->addr);
    free(g);
}

/* Any thread: its address may be another sandbox's soon, so no kept connection may survive. */
static void on_drop(void *arg, const char *id, const struct place *was)
{
    struct proxy *p = arg;
    struct gone *g;

    if (p->cfg.relay)
        relay_close(p->cfg.relay, id);
    if (!was->at.address[0])
        return;
    g = calloc(1, sizeof(*g));
    if (!g || front_addr_ip(&g->addr, was->at.address, 0) < 0) {
        free(g);
        return;
    }
    g->proxy = p;
    g->call = (struct loop_call){ .fn = forget_there, .arg = g };
    loop_post(p->loop, &g->call);
}

/* ---- life ---- */

static void take_base_path(struct proxy *p)
{
    const char *host = p->cfg.eip ? strstr(p->cfg.eip, "://") : NULL;
    const char *path;
    size_t len;

    host = host ? host + 3 : p->cfg.eip;
    path = host ? strchr(host, '/') : NULL;
    len = path ? strlen(path) : 0;
    while (len && path[len - 1] == '/')
        len--;
    if (len < sizeof(p->base_path))
        (void)snprintf(p->base_path, sizeof(p->base_path), "%.*s", (int)len, path ? path : "");
}

struct proxy *proxy_new(struct loop *l, const struct proxy_config *cfg, struct err *e)
{
    struct front_options options = {
        .peer_header = APP_PEER_HEADER,
        .max_clients = cfg->max_connections,
        .idle_timeout_ms = (int)cfg->idle_timeout_s * 1000,
    };
    struct proxy *p = calloc(1, sizeof(*p));

    if (!p) {
        (void)err_nomem(e);
        return NULL;
    }
    p->cfg = *cfg;
    p->loop = l;
    take_base_path(p);
    p->look.on_fire = on_renew_look;
    p->front = front_new(l, &ops, p, &options, e);
    if (!p->front) {
        free(p);
        return NULL;
    }
    places_on_drop(cfg->places, on_drop, p);
    return p;
}

int proxy_listen(struct proxy *p, int fd, struct err *e)
{
    return front_listen(p->front, fd, NULL, e);
}

void proxy_drain(struct proxy *p)
{
    front_drain(p->front);
}

bool proxy_busy(const struct proxy *p)
{
    return front_stats(p->front)->clients > 0;
}

void proxy_free(struct proxy *p)
{
    if (!p)
        return;
    places_on_drop(p->cfg.places, NULL, NULL);
    front_free(p->front); /* done comes for each open request */
    loop_timer_clear(p->loop, &p->look);
    free(p);
}

void proxy_metrics(const struct proxy *p, struct buf *out)
{
    const struct front_stats *st = front_stats(p->front);
    const struct {
        const char *name;
        const char *type;
        uint64_t value;
    } rows[] = {
        { "connections_accepted_total", "counter", st->accepted },
        { "connections_turned_away_total", "counter", st->turned_away },
        { "requests_total", "counter", st->requests },
        { "requests_refused_total", "counter", st->refused },
        { "requests_oversized_total", "counter", st->oversized },
        { "requests_slow_total", "counter", st->slow },
        { "requests_proxied_total", "counter", st->proxied },
        { "requests_api_total", "counter", st->internal },
        { "requests_answered_total", "counter", st->answered },
        { "requests_aborted_total", "counter", st->aborted },
        { "proxied_request_bytes_total", "counter", st->request_bytes },
        { "proxied_response_bytes_total", "counter", st->response_bytes },
        { "backend_connects_total", "counter", st->connects },
        { "backend_retries_total", "counter", st->retries },
        { "connections", "gauge", st->clients },
        { "backend_connections", "gauge", st->backends },
        { "tunnels", "gauge", st->tunnels },
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(rows); i++)
        (void)buf_printf(out, "# TYPE sandgate_%s %s\nsandgate_%s %" PRIu64 "\n", rows[i].name,
                         rows[i].type, rows[i].name, rows[i].value);
}
