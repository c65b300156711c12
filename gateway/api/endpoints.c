/* GET /sandboxes/{id}/endpoints/{port}: where a port of a sandbox is reached from the client's
 * place (contract 7, design decision 9). */
#include "common/agent/wire.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>
#include <strings.h>

struct endpoint_query {
    int64_t port;
    bool proxied;
    bool expires;
};

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
    q->expires = rc;
    rc = http_req_query(rq, "use_server_proxy", 0, &text, e);
    q->proxied = rc > 0 && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
    return rc < 0 ? -1 : 0;
}

static bool loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

/* The Host header without its port, "localhost" when there is none. */
static const char *host_of(struct http_req *rq)
{
    const char *host = http_req_header(rq, "Host");
    const char *end;

    if (!host || !*host)
        return "localhost";
    end = *host == '[' ? strchr(host, ']') : NULL;
    return arena_strndup(&rq->arena, host, end ? (size_t)(end + 1 - host) : strcspn(host, ":"));
}

/* The name under which the published ports are reached: the configured one, or what the client
 * itself used when that leads to where agents are published. */
static int public_host(const struct api *api, struct http_req *rq, const char **out, struct err *e)
{
    const char *asked = host_of(rq);

    if (!asked)
        return err_nomem(e);
    if (api->eip) {
        *out = api->eip;
        return 0;
    }
    if (loopback(api->publish_host) && !loopback(asked))
        return err_api(e, ERRC_INTERNAL, "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",
                       "sandboxes are published on %s only, which '%.80s' does not lead to; set "
                       "docker.publish_host and server.eip",
                       api->publish_host, asked);
    /* published on IPv4 loopback: "localhost" and "[::1]" could lead elsewhere */
    *out = loopback(asked) && loopback(api->publish_host) ? api->publish_host : asked;
    return 0;
}

static json_t *endpoint_json(const struct sandbox *sb, const struct endpoint_query *q,
                             const char *endpoint)
{
    json_t *v = json_pack("{s:s}", "endpoint", endpoint);

    if (q->port == AGENT_PORT)
        (void)json_object_set_new(v, "headers", json_pack("{s:s}", AGENT_TOKEN_HEADER, sb->token));
    return v;
}

int api_endpoint_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct endpoint_query q = { 0 };
    const char *host = NULL;
    const char *text;

    if (take_query(rq, &q, e) < 0 || lifecycle_get(api->lc, rq->params[0], &sb, e) < 0)
        return -1;
    if (q.expires || q.proxied)
        return err_api(e, ERRC_INVALID, "SANDBOX::API_NOT_SUPPORTED",
                       "%s is not available in this version",
                       q.expires ? "a signed endpoint (expires)" : "use_server_proxy");
    if (!sb.place.host_port)
        return err_api(e, ERRC_INTERNAL, "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE",
                       "Sandbox %s has no published port (it is %s)", sb.id,
                       sandbox_state_to_string(sb.state));
    if (public_host(api, rq, &host, e) < 0)
        return -1;
    text = arena_printf(&rq->arena, "%s:%u/proxy/%d", host, sb.place.host_port, (int)q.port);
    return text ? api_reply(rs, 200, endpoint_json(&sb, &q, text), e) : err_nomem(e);
}
