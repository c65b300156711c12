#include "gateway/api/api.h"

/* One row per operation of openapi.yaml; tests/unit/gateway/api/test_routes.c compares the two.
 * Rows without a mount flag answer below /v1 and bare (contract 1.1). What asks the engine is
 * HTTP_BLOCKING, what asks the store alone HTTP_BRIEF. */
const struct http_route api_routes[] = {
    { "POST", "/sandboxes", api_sandbox_create, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "GET", "/sandboxes", api_sandbox_list, HTTP_BRIEF, 0, NULL },
    { "GET", "/sandboxes/{id}", api_sandbox_get, HTTP_BRIEF, 0, NULL },
    { "DELETE", "/sandboxes/{id}", api_sandbox_delete, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "PATCH", "/sandboxes/{id}/metadata", api_sandbox_metadata, HTTP_BRIEF, API_BODY_MAX, NULL },
    { "POST", "/sandboxes/{id}/pause", api_sandbox_pause, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "POST", "/sandboxes/{id}/resume", api_sandbox_resume, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "POST", "/sandboxes/{id}/renew-expiration", api_sandbox_renew, HTTP_BRIEF, API_BODY_MAX,
      NULL },
    { "POST", "/sandboxes/{id}/snapshots", api_snapshot_create, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "GET", "/snapshots", api_snapshot_list, HTTP_BRIEF, 0, NULL },
    { "GET", "/snapshots/{id}", api_snapshot_get, HTTP_BRIEF, 0, NULL },
    { "DELETE", "/snapshots/{id}", api_snapshot_delete, HTTP_BLOCKING, API_BODY_MAX, NULL },
    { "GET", "/sandboxes/{id}/endpoints/{port}", api_endpoint_get, HTTP_BRIEF, 0, NULL },
    { "GET", "/sandboxes/{id}/diagnostics/logs", api_diagnostics_logs, HTTP_BLOCKING, 0, NULL },
    { "GET", "/sandboxes/{id}/diagnostics/events", api_diagnostics_events, HTTP_BRIEF, 0, NULL },
    { "GET", "/sandboxes/{id}/diagnostics/inspect", api_diagnostics_inspect, HTTP_BLOCKING, 0,
      NULL },
    { "GET", "/sandboxes/{id}/diagnostics/summary", api_diagnostics_summary, HTTP_BLOCKING, 0,
      NULL },
    { "POST", "/pools", api_pool_create, 0, API_BODY_MAX, NULL },
    { "GET", "/pools", api_pool_other, 0, 0, NULL },
    { "GET", "/pools/{name}", api_pool_other, 0, 0, NULL },
    { "PUT", "/pools/{name}", api_pool_change, 0, API_BODY_MAX, NULL },
    { "DELETE", "/pools/{name}", api_pool_other, 0, API_BODY_MAX, NULL },
    { "POST", "/templates", api_template_create, 0, API_BODY_MAX, NULL },
    { "GET", "/templates", api_template_other, 0, 0, NULL },
    { "GET", "/templates/{id}", api_template_other, 0, 0, NULL },
    { "DELETE", "/templates/{id}", api_template_other, 0, API_BODY_MAX, NULL },
    { "POST", "/metrics/events", api_metrics_event, HTTP_PREFIX_ONLY, API_BODY_MAX, NULL },
    { "GET", "/metrics", api_metrics, HTTP_BARE_ONLY, 0, NULL },
    { "GET", "/health", api_health, HTTP_OPEN | HTTP_BARE_ONLY, 0, NULL },
    { "GET", "/version", api_version, HTTP_OPEN | HTTP_BARE_ONLY, 0, NULL },
};

const size_t api_routes_len = sizeof(api_routes) / sizeof(api_routes[0]);

const char *const api_codes[ERRC_MAX_] = {
    [ERRC_INVALID] = "SANDBOX::INVALID_PARAMETER",
    [ERRC_UNAUTHORIZED] = "INVALID_API_KEY",
    [ERRC_FORBIDDEN] = "GENERAL::FORBIDDEN",
    [ERRC_NOT_FOUND] = "GENERAL::NOT_FOUND",
    [ERRC_METHOD] = "GENERAL::METHOD_NOT_ALLOWED",
    [ERRC_CONFLICT] = "GENERAL::CONFLICT",
    [ERRC_TOO_LARGE] = "GENERAL::PAYLOAD_TOO_LARGE",
    [ERRC_URI_LONG] = "GENERAL::URI_TOO_LONG",
    [ERRC_LIMIT] = "GENERAL::LIMIT_REACHED",
    [ERRC_INTERNAL] = "SANDBOX::INTERNAL_ERROR",
    [ERRC_NOMEM] = "SANDBOX::INTERNAL_ERROR",
    [ERRC_SYS] = "SANDBOX::INTERNAL_ERROR",
    [ERRC_UNSUPPORTED] = "SANDBOX::API_NOT_SUPPORTED",
    [ERRC_BAD_GATEWAY] = "BACKEND_CONNECTION_FAILED",
    [ERRC_BUSY] = "GENERAL::SERVICE_UNAVAILABLE",
    [ERRC_TIMEOUT] = "BACKEND_TIMEOUT",
};
