/* The agent's HTTP routes. Handlers get the app as their first argument. */
#pragma once
#include "common/http/http.h"

struct app;
struct jx_field;

/* The tables that decode request bodies, for tests/fuzz/fuzz_agent_body.c. */
struct api_table {
    const struct jx_field *fields;
    size_t len;
};
extern const struct api_table claim_table;
extern const struct api_table code_table;
extern const struct api_table context_table;
extern const struct api_table command_table;
extern const struct api_table session_add_table;
extern const struct api_table session_run_table;
extern const struct api_table mount_table;
extern const struct api_table wish_table;
extern const struct api_table move_table;
extern const struct api_table replace_table;
extern const struct api_table pty_table;
extern const struct api_table upload_table;
extern const struct api_table isolated_table;
extern const struct api_table isolated_mount_table;
extern const struct api_table isolated_bind_table;
extern const struct api_table isolated_env_table;
extern const struct api_table isolated_run_table;

extern const struct http_route api_routes[];
extern const size_t api_n_routes;
extern const char *const api_codes[]; /* by enum errc */

/* Held, stopping, token: for http_service.authorize. */
int api_authorize(void *app, struct http_req *rq, struct err *e);

/* When a sandbox's time is over, as a claim and POST /internal/deadline have it: Unix ms, the sender's
 * clock. Zeroed: never. */
struct deadline {
    int64_t at_ms;
    int64_t now_ms; /* 0: not said */
};
#define DEADLINE_MAX INT64_C(253402300799999) /* the year 9999 */
int64_t deadline_left_ms(const struct deadline *d);
extern const struct api_table deadline_table;

/* Handlers, one file per subject. */
int deadline_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int claim_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

int command_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int command_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int command_status(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int command_resume(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int command_logs(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
/* The body of rs is a stream of events. */
/* As command_post for a command without any options. */
int command_text(struct app *app, struct http_req *rq, const char *text, bool background,
                 struct http_resp *rs, struct err *e);

int code_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int code_context_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int code_context_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int code_context_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int code_contexts_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int code_contexts_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
/* For DELETE /command and /code, which take ids of any kind. *found: it is a context's. */
int code_interrupt(struct app *app, const char *id, bool *found, struct err *e);

int session_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int session_run_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int session_remove(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

/* The response is this stream. stream.c */
void stream_begin(struct http_resp *rs, struct http_stream *stream);
/* A stream whose end is known already: init, and how it ended. failure NULL: it is started. */
int stream_short(const char *id, const char *failure, struct http_resp *rs, struct err *e);

int metrics_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int metrics_watch(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
/* From the first on the use of the CPU is known; stop ends the streams. */
int metrics_begin(struct app *app, struct err *e);
void metrics_stop(struct app *app);
void metrics_free(struct app *app);

int files_info(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_delete(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_download(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_search(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_move(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_permissions(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int files_replace(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

int dirs_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int dirs_make(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int dirs_remove(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

int pty_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int pty_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int pty_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int pty_end(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int pty_ws(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

int isolated_capabilities(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_list(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_get(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_remove(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_run_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_run_status(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_run_logs(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
int isolated_unsupported(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);

extern const struct http_sink upload_sink;
int upload_post(void *app, struct http_req *rq, struct http_resp *rs, struct err *e);
