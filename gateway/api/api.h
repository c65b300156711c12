/* The lifecycle API: decoding, encoding, routes (contract/lifecycle.md). Knows HTTP and the
 * domain; knows no SQL and no engine. */
#pragma once
#include "common/http/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct create_req;
struct jobs;
struct lifecycle;
struct loop;
struct relays;
struct sandbox;
struct sandbox_page;
struct api_page;
struct snapshots;

enum {
    API_BODY_MAX = 1 << 20,  /* any JSON body */
    API_PAGE_SIZE_MAX = 200, /* contract 4.3 */
    API_PAGE_SIZE_DEFAULT = 20,
    API_ENTRYPOINT_MAX = 1024,       /* items */
    API_MAP_MAX = 1024,              /* entries of env, metadata, extensions, resourceLimits */
    API_STRING_MAX = 128 * 1024 - 1, /* one env value or item of a command: Linux' MAX_ARG_STRLEN */
    API_IMAGE_MAX = 512,
    API_METRICS_MAX = 256 * 1024,
    API_REPLY_MAX = 256 << 20, /* of records: a page of the largest ones */
    API_TAIL_MAX = 10000,      /* contract 9: lines of output */
    API_EVENTS_MAX = 500,      /* and events, in one answer */
    API_HOOKS_MAX = 64,        /* periodic hooks */
    API_HOOK_NAME_MAX = 128,   /* bytes */
    API_SCHEDULE_MAX = 256,
    API_PRE_START_MAX_S = 10800, /* these three: contract/newest.md 3.5 */
    API_PERIODIC_MAX_S = 300,
    API_HOOK_DEFAULT_S = 60,
    API_KEY_MAX = 255,   /* Idempotency-Key */
    API_STATES_MAX = 64, /* of one list's filter */
};

/* What the handlers work on; one per process. */
struct api {
    struct lifecycle *lc;
    struct snapshots *snapshots;
    const char *key;            /* NULL: open (insecure mode) */
    const char *signing_key;    /* of signed routes: domain/signed.h */
    const char *eip;            /* public host of endpoints; NULL: from the request */
    const char *publish_host;   /* where agents are published */
    const char *const *trusted; /* proxies whose X-Forwarded-Proto counts; NULL: none */
    void (*metrics)(void *arg, struct buf *out); /* of the data plane; loop's thread */
    void *metrics_arg;
    struct loop *loop; /* where metrics is called and answers that waited for a job go out */
    struct jobs *jobs;
    struct relays *relays;  /* NULL: no relays */
    const char *relay_host; /* where they listen */
};

extern const struct http_route api_routes[];
extern const size_t api_routes_len;
extern const char *const api_codes[ERRC_MAX_]; /* default "code" per error class */

/* auth.c: the hook of http_service; app is a struct api. Who may ask at all (no sandbox, no web page
 * of strangers) is decided before, in proxy/proxy.c. */
int api_authorize(void *app, struct http_req *rq, struct err *e);

/* create_body.c: the caller owns *doc, which rq borrows from. */
int api_decode_create(const struct http_req *rq, json_t **doc, struct create_req *out,
                      struct err *e);

/* event_body.c: what an SDK reports (contract 10). */
struct api_event {
    bool create; /* of a sandbox; other kinds may come */
    bool success;
    int64_t duration_ms;
};
int api_decode_event(const struct http_req *rq, struct api_event *out, struct err *e);

/* encode.c: answers. The texts of JSON members are in the record as they go out: they are not parsed. */
int api_reply_sandbox(struct http_resp *rs, int status, const struct sandbox *sb, bool with_image,
                      struct err *e);
int api_reply_page(struct http_resp *rs, const struct sandbox_page *p, const struct api_page *at,
                   struct err *e);
/* hooks_body.c: the member "lifecycle" (NULL: none), checked and completed; what out borrows of it is
 * kept by doc. */
int api_decode_hooks(json_t *doc, const json_t *lifecycle, struct create_req *out, struct err *e);

/* Serialises and drops v. */
int api_reply(struct http_resp *rs, int status, json_t *v, struct err *e);
/* text/plain; takes what out holds. */
int api_reply_text(struct http_resp *rs, struct buf *out, struct err *e);
/* Parses the body as one JSON object; the caller owns it. */
json_t *api_body(const struct http_req *rq, struct err *e);

/* The page of a list that the client asks for: page and pageSize (contract 4.3). */
struct api_page {
    int64_t page; /* from 1 */
    int64_t size;
};
int api_query_page(struct http_req *rq, struct api_page *out, struct err *e);
/* state, repeatable: a JSON array that the caller frees, NULL when there is none. */
int api_query_states(struct http_req *rq, char **out, struct err *e);
/* The body of a list; takes items. */
json_t *api_page_json(const struct api_page *at, json_t *items, int64_t total);

/* Handlers; the routes name them. */
int api_sandbox_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_pause(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_resume(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_renew(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_sandbox_metadata(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_snapshot_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_snapshot_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_snapshot_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_snapshot_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_endpoint_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_health(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_version(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_diagnostics_logs(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_diagnostics_events(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_diagnostics_inspect(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_diagnostics_summary(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_pool_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_pool_change(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_pool_other(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_template_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_template_other(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_metrics(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int api_metrics_event(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
