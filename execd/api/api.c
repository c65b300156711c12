#include "execd/api/api.h"

#include "common/agent/wire.h"
#include "common/base/macros.h"
#include "common/base/rand.h"
#include "execd/api/scope.h"
#include "execd/app.h"

enum {
    COMMAND_BODY_MAX = 4 << 20,
    SESSION_BODY_MAX = 64 << 10,
    DIRS_BODY_MAX = 1 << 20,
    REPLACE_BODY_MAX = 4 << 20,
    CONTEXT_BODY_MAX = 64 << 10,
    DEADLINE_BODY_MAX = 1024,
    PTY_BODY_MAX = 1 << 20,
    ISOLATED_BODY_MAX = 1 << 20,
};

/* Answers at any time, to anyone: the gateway and the SDK wait with it for the agent. */
static int ping_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)rs, (void)e;
    return 0;
}

/* contract/execd.md 12.5. What starts us there is POST /internal/init; here it is the claim, which knows a secret. */
static int ready_get(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct app *app = arg;
    const bool open = app->state == APP_OPEN;
    json_t *v = open ? json_pack("{s:b,s:s,s:i}", "initialized", 1, "sandboxId", app->opt.id,
                                 "generation", 1)
                     : json_pack("{s:b}", "initialized", 0);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

    (void)rq;
    json_decref(v);
    return http_resp_json(rs, open ? 200 : 503, text, e);
}

/* As the agent, as an account and in a session: the handler looks at its route (scope.h). */
#define FILE_ROUTE(method, path, handler, max_body, sink)                                          \
    { method, path, handler, HTTP_BLOCKING, max_body, sink },                                      \
        { method, SCOPE_PREFIX path, handler, HTTP_BLOCKING, max_body, sink },                     \
    {                                                                                              \
        method, SCOPE_SESSION path, handler, HTTP_BLOCKING, max_body, sink                         \
    }

const struct http_route api_routes[] = {
    { "GET", "/ping", ping_get, HTTP_OPEN, 0, NULL },
    { "GET", "/ready", ready_get, HTTP_OPEN, 0, NULL },
    { "POST", AGENT_CLAIM_PATH, claim_post, HTTP_OPEN, AGENT_CLAIM_MAX, NULL },
    { "POST", AGENT_DEADLINE_PATH, deadline_post, 0, DEADLINE_BODY_MAX, NULL },
    { "POST", "/command", command_post, 0, COMMAND_BODY_MAX, NULL },
    { "DELETE", "/command", command_delete, 0, 0, NULL },
    { "GET", "/command/status/{id}", command_status, 0, 0, NULL },
    { "GET", "/command/{id}/resume", command_resume, 0, 0, NULL },
    { "GET", "/command/{id}/logs", command_logs, 0, 0, NULL },
    { "POST", "/session", session_post, 0, SESSION_BODY_MAX, NULL },
    { "POST", "/session/{id}/run", session_run_post, 0, COMMAND_BODY_MAX, NULL },
    { "DELETE", "/session/{id}", session_remove, 0, 0, NULL },
    FILE_ROUTE("GET", "/files/info", files_info, 0, NULL),
    FILE_ROUTE("DELETE", "/files", files_delete, 0, NULL),
    FILE_ROUTE("GET", "/files/download", files_download, 0, NULL),
    FILE_ROUTE("POST", "/files/upload", upload_post, 0, &upload_sink),
    FILE_ROUTE("GET", "/files/search", files_search, 0, NULL),
    FILE_ROUTE("POST", "/files/mv", files_move, DIRS_BODY_MAX, NULL),
    FILE_ROUTE("POST", "/files/permissions", files_permissions, DIRS_BODY_MAX, NULL),
    FILE_ROUTE("POST", "/files/replace", files_replace, REPLACE_BODY_MAX, NULL),
    FILE_ROUTE("GET", "/directories/list", dirs_list, 0, NULL),
    FILE_ROUTE("POST", "/directories", dirs_make, DIRS_BODY_MAX, NULL),
    FILE_ROUTE("DELETE", "/directories", dirs_remove, 0, NULL),
    { "GET", "/metrics", metrics_get, 0, 0, NULL },
    { "GET", "/metrics/watch", metrics_watch, 0, 0, NULL },
    { "POST", "/code", code_post, 0, COMMAND_BODY_MAX, NULL },
    { "DELETE", "/code", command_delete, 0, 0, NULL },
    { "POST", "/code/context", code_context_post, 0, CONTEXT_BODY_MAX, NULL },
    { "GET", "/code/contexts", code_contexts_get, 0, 0, NULL },
    { "DELETE", "/code/contexts", code_contexts_delete, 0, 0, NULL },
    { "GET", "/code/contexts/{id}", code_context_get, 0, 0, NULL },
    { "DELETE", "/code/contexts/{id}", code_context_delete, 0, 0, NULL },
    { "POST", "/pty", pty_post, 0, PTY_BODY_MAX, NULL },
    { "GET", "/pty", pty_list, 0, 0, NULL },
    { "GET", "/pty/{id}", pty_get, 0, 0, NULL },
    { "DELETE", "/pty/{id}", pty_end, 0, 0, NULL },
    { "GET", "/pty/{id}/ws", pty_ws, 0, 0, NULL },
    /* without the token: contract/newest.md 2.6 asks from inside, and it tells nothing secret */
    { "GET", "/v1/isolated/capabilities", isolated_capabilities, HTTP_OPEN | HTTP_BLOCKING, 0,
      NULL },
    { "GET", "/v1/isolated/sessions", isolated_list, 0, 0, NULL },
    { "POST", "/v1/isolated/session", isolated_post, 0, ISOLATED_BODY_MAX, NULL },
    { "GET", SCOPE_SESSION, isolated_get, 0, 0, NULL },
    { "DELETE", SCOPE_SESSION, isolated_remove, 0, 0, NULL },
    { "POST", SCOPE_SESSION "/run", isolated_run_post, 0, COMMAND_BODY_MAX, NULL },
    { "GET", SCOPE_SESSION "/runs/{run}", isolated_run_status, 0, 0, NULL },
    { "GET", SCOPE_SESSION "/runs/{run}/logs", isolated_run_logs, 0, 0, NULL },
    { "GET", SCOPE_SESSION "/diff", isolated_unsupported, 0, 0, NULL },
    { "POST", SCOPE_SESSION "/commit", isolated_unsupported, 0, ISOLATED_BODY_MAX, NULL },
};
const size_t api_n_routes = ARRAY_LEN(api_routes);

/* contract/execd.md 3 */
const char *const api_codes[ERRC_MAX_] = {
    [ERRC_INVALID] = "INVALID_REQUEST_BODY",
    [ERRC_INTERNAL] = "RUNTIME_ERROR",
    [ERRC_NOMEM] = "RUNTIME_ERROR",
    [ERRC_SYS] = "RUNTIME_ERROR",
    [ERRC_RANGE] = "UNKNOWN",
    [ERRC_UNSUPPORTED] = "NOT_SUPPORTED",
    [ERRC_BUSY] = "SERVICE_UNAVAILABLE",
};

int api_authorize(void *arg, struct http_req *rq, struct err *e)
{
    const struct app *app = arg;
    const char *given = http_req_header(rq, AGENT_TOKEN_HEADER);

    if (app->state == APP_HELD)
        return err_set(e, ERRC_BUSY, "this sandbox is not claimed yet");
    if (app->state == APP_STARTING)
        return err_set(e, ERRC_BUSY, "this sandbox is starting: its preStart hook runs");
    if (app->state == APP_STOPPING) /* /proxy needs no token, and is told so, too */
        return err_set(e, ERRC_BUSY, "this sandbox is stopping");
    if (app->token[0] && (!given || !secret_equal(app->token, given)))
        return err_set(e, ERRC_UNAUTHORIZED, "missing or wrong " AGENT_TOKEN_HEADER);
    return 0;
}
