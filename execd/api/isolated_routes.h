/* Between the two files of /v1/isolated. */
#pragma once
#include <jansson.h>

struct app;
struct err;
struct http_req;
struct http_resp;
struct isolated_session;

/* Of the path's first parameter. NULL: 503 where there can be none, 404. */
struct isolated_session *isolated_of(struct app *app, const struct http_req *rq, struct err *e);
int isolated_reply(struct http_resp *rs, int status, json_t *v, struct err *e); /* v is consumed */
