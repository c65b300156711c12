/* GET /sandboxes/{id}/endpoints/{port}: where a port of a sandbox is reached from the client's
 * place (contract 7, design decision 9). */
#include "common/agent/wire.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/app.h"
#include "gateway/config.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/relays.h"
#include "gateway/domain/signed.h"

#include <string.h>
#include <strings.h>

struct endpoint_query {
    int64_t port;
    bool proxied;
    int64_t expires_s; /* of a signed route; 0: none asked for */
};

/* The spellings that upstream takes (contract 1.3). */
static int take_bool(const char *name, const char *text, bool *out, struct err *e)
{
    static const char *const words[][2] = {
        { "true", "false" }, { "1", "0" }, { "on", "off" },
        { "yes", "no" },     { "t", "f" }, { "y", "n" },
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(words); i++) {
        *out = strcasecmp(text, words[i][0]) == 0;
        if (*out || strcasecmp(text, words[i][1]) == 0)
            return 0;
    }
    return err_set(e, ERRC_INVALID, "%s: must be true or false", name);
}

static int take_query(struct http_req *rq, struct endpoint_query *q, struct err *e)
{
    const char *text;
    int rc;

    if (num_parse_i64(rq->params[1], 1, 65535, &q->port) < 0)
        return err_api(e, ERRC_INVALID, "DOCKER::INVALID_PORT",
                       "port: must be a number from 1 to 65535");
    rc = http_req_query(rq, "expires", 0, &text, e);
    if (rc < 0)
        return -1;
    if (rc > 0 && (num_parse_i64(text, 1, INT64_MAX, &q->expires_s) < 0 ||
                   q->expires_s <= clock_wall_ms() / 1000))
        return err_set(e, ERRC_INVALID, "expires: must be a future time in epoch seconds");
    rc = http_req_query(rq, "use_server_proxy", 0, &text, e);
    return rc > 0 ? take_bool("use_server_proxy", text, &q->proxied, e) : rc;
}

static bool loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

/* Of host[:port][/path] the host alone. */
static const char *host_alone(struct http_req *rq, const char *s)
{
    const char *end = *s == '[' ? strchr(s, ']') : NULL;

    return arena_strndup(&rq->arena, s, end ? (size_t)(end + 1 - s) : strcspn(s, ":/"));
}

/* The Host header without its port, "localhost" when there is none. */
static const char *host_of(struct http_req *rq)
{
    const char *host = http_req_header(rq, "Host");

    return host && *host ? host_alone(rq, host) : "localhost";
}

/* server.eip without its scheme; it is set. */
static const char *eip_of(const struct api *api)
{
    const char *after = strstr(api->eip, "://");

    return after ? after + 3 : api->eip;
}

/* host:port or host[:port]/path of the gateway itself, as the client calls it. */
static const char *own_base(const struct api *api, struct http_req *rq)
{
    const char *host = http_req_header(rq, "Host");

    if (api->eip)
        return eip_of(api);
    return host && *host ? host : "localhost";
}

/* Without slashes at its end. */
static size_t base_len(const struct api *api, struct http_req *rq)
{
    const char *base = own_base(api, rq);
    size_t len = strlen(base);

    while (len && base[len - 1] == '/')
        len--;
    return len;
}

/* The proxy form keeps the mount that was asked (contract 7). */
static const char *proxy_form(const struct api *api, struct http_req *rq, const struct sandbox *sb,
                              int64_t port)
{
    return arena_printf(&rq->arena, "%.*s%s/sandboxes/%s/proxy/%d", (int)base_len(api, rq),
                        own_base(api, rq), rq->mount, sb->id, (int)port);
}

static const char *signed_form(const struct api *api, struct http_req *rq, const struct sandbox *sb,
                               const struct endpoint_query *q)
{
    char exp[SIGNED_EXP_TEXT];
    char sig[SIGNED_SIG_TEXT];

    signed_make(api->signing_key, sb->id, (uint16_t)q->port, q->expires_s, exp, sig);
    return arena_printf(&rq->arena, "%.*s%s/signed/%s/%d/%s/%s", (int)base_len(api, rq),
                        own_base(api, rq), rq->mount, sb->id, (int)q->port, exp, sig);
}

/* The host part of a relay's address as this client reaches it; NULL: it does not. */
static const char *relay_host(const struct api *api, struct http_req *rq)
{
    const char *asked = host_of(rq);

    if (!api->relays || !asked)
        return NULL;
    if (loopback(api->relay_host))
        return loopback(asked) ? api->relay_host : NULL;
    return api->eip ? host_alone(rq, eip_of(api)) : asked;
}

/* NULL: the client cannot reach what is published, so it gets the proxy form (design decision 9). */
static const char *direct_host(const struct api *api, struct http_req *rq)
{
    const char *asked = host_of(rq);

    if (api->eip)
        return loopback(api->publish_host) ? NULL : host_alone(rq, eip_of(api));
    if (!loopback(api->publish_host))
        return asked;
    /* published on IPv4 loopback: "localhost" and "[::1]" could lead elsewhere */
    return asked && loopback(asked) ? api->publish_host : NULL;
}

static int relay_form(const struct api *api, struct http_req *rq, const struct sandbox *sb,
                      const struct endpoint_query *q, const char *host, const char **out,
                      struct err *e)
{
    uint16_t port;

    if (relays_port(api->relays, sb->id, (uint16_t)q->port, &port, e) < 0)
        return -1;
    *out = arena_printf(&rq->arena, "%s:%u", host, port);
    return *out ? 0 : err_nomem(e);
}

/* Behind a proxy that terminates TLS a published port cannot be meant: it speaks plain HTTP. */
static bool through_tls(const struct api *api, struct http_req *rq)
{
    const char *peer = http_req_header(rq, APP_PEER_HEADER);
    const char *proto = http_req_header(rq, "X-Forwarded-Proto");

    return peer && proto && config_list_has(api->trusted, peer) && strcasecmp(proto, "https") == 0;
}

/* Still being made: where its agent will be published is not known. */
static bool has_no_place(const struct sandbox *sb)
{
    return sb->state == SANDBOX_PENDING && !sb->place.host_port;
}

/* The client gets an address of the gateway, whatever is published. */
static bool goes_through(const struct api *api, struct http_req *rq, const struct sandbox *sb,
                         const struct endpoint_query *q)
{
    return q->proxied || sb->secure_token[0] || through_tls(api, rq) ||
           (!sb->place.host_port && !has_no_place(sb));
}

/* SDKs repeat the look-up for this code alone. */
static int not_yet(const struct sandbox *sb, struct err *e)
{
    return err_api(e, ERRC_NOT_FOUND, "KUBERNETES::POD_IP_NOT_AVAILABLE",
                   "Sandbox %s has no address yet: it is being made (%s)", sb->id, sb->message);
}

static int endpoint_text(const struct api *api, struct http_req *rq, const struct sandbox *sb,
                         const struct endpoint_query *q, const char **out, struct err *e)
{
    bool through = goes_through(api, rq, sb, q);
    const char *host = through ? NULL : direct_host(api, rq);
    const char *relay = through || q->port == AGENT_PORT ? NULL : relay_host(api, rq);

    if (q->expires_s) {
        *out = signed_form(api, rq, sb, q);
        return *out ? 0 : err_nomem(e);
    }
    if ((host || relay) && has_no_place(sb))
        return not_yet(sb, e);
    if (relay)
        return relay_form(api, rq, sb, q, relay, out, e);
    if (host)
        *out = arena_printf(&rq->arena, "%s:%u/proxy/%d", host, sb->place.host_port, (int)q->port);
    else
        *out = proxy_form(api, rq, sb, q->port);
    return *out ? 0 : err_nomem(e);
}

static json_t *endpoint_json(const struct sandbox *sb, const struct endpoint_query *q,
                             const char *endpoint)
{
    const char *token = q->port == AGENT_PORT ? sb->token : NULL;
    const char *secure = sb->secure_token[0] && !q->expires_s ? sb->secure_token : NULL;
    json_t *headers =
        json_pack("{s:s*, s:s*}", AGENT_TOKEN_HEADER, token, "OpenSandbox-Secure-Access", secure);

    if (!json_object_size(headers)) {
        json_decref(headers);
        headers = NULL;
    }
    return json_pack("{s:s, s:o*}", "endpoint", endpoint, "headers", headers);
}

int api_endpoint_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct endpoint_query q = { 0 };
    const char *text = NULL;

    if (take_query(rq, &q, e) < 0 || lifecycle_get(api->lc, rq->params[0], &sb, e) < 0)
        return -1;
    if (q.expires_s && q.proxied)
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "use_server_proxy and expires exclude each other");
    if (endpoint_text(api, rq, &sb, &q, &text, e) < 0)
        return -1;
    return api_reply(rs, 200, endpoint_json(&sb, &q, text), e);
}
