/* What the server counts, for Prometheus, and what the SDKs report (contract 10). */
#include "gateway/domain/metrics.h"
#include "common/base/buf.h"
#include "common/base/jobs.h"
#include "common/base/loop.h"
#include "common/base/macros.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>
#include <strings.h>

/* ---- GET /metrics ---- */

/* The counters of the data plane belong to the loop's thread, the store must not be asked there: the
 * handler writes the former, a job the rest, and the answer goes out from the loop again. Lives in the
 * request's arena. */
struct scrape {
    struct api *api;
    struct http_req *rq;
    struct http_resp *rs;
    struct buf out;
    struct err err;
    int rc;
    struct loop_call done;
};

static void finish_scrape(void *arg)
{
    struct scrape *s = arg;

    if (s->rc == 0)
        s->rc = http_resp_json(s->rs, 200, buf_take(&s->out), &s->err);
    buf_free(&s->out);
    s->rs->content_type = "text/plain; version=0.0.4; charset=utf-8";
    http_complete(s->rq, s->rc < 0 ? &s->err : NULL);
}

static void read_rest(void *arg)
{
    struct scrape *s = arg;
    struct lifecycle *lc = s->api->lc;

    if (lc->metrics)
        metrics_write(lc->metrics, &s->out);
    s->rc = metrics_write_state(lc, &s->out, &s->err);
    loop_post(s->api->loop, &s->done);
}

int api_metrics(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct api *api = app;
    struct scrape *s = arena_alloc(&rq->arena, sizeof(*s));

    if (!s)
        return err_nomem(e);
    *s = (struct scrape){ .api = api, .rq = rq, .rs = rs, .out = BUF_INIT(API_METRICS_MAX) };
    s->done = (struct loop_call){ .fn = finish_scrape, .arg = s };
    if (api->metrics)
        api->metrics(api->metrics_arg, &s->out);
    http_defer(rq);
    if (jobs_post(api->jobs, read_rest, s, &s->err) < 0) {
        s->rc = -1;
        finish_scrape(s);
    }
    return 0;
}

/* ---- POST /v1/metrics/events ---- */

/* "OpenSandbox-<Lang>-SDK/<version>" */
static enum metrics_sdk sdk_of(const struct http_req *rq)
{
    static const struct {
        const char *lang;
        enum metrics_sdk sdk;
    } known[] = {
        { "Python", METRICS_SDK_PYTHON }, { "JS", METRICS_SDK_JS },
        { "Go", METRICS_SDK_GO },         { "Kotlin", METRICS_SDK_KOTLIN },
        { "Java", METRICS_SDK_KOTLIN },   { "CSharp", METRICS_SDK_CSHARP },
        { "CLI", METRICS_SDK_CLI },
    };
    static const char front[] = "OpenSandbox-";
    const char *agent = http_req_header(rq, "User-Agent");
    size_t len;
    size_t i;

    if (!agent || strncasecmp(agent, front, sizeof(front) - 1) != 0)
        return METRICS_SDK_OTHER;
    agent += sizeof(front) - 1;
    len = strcspn(agent, "-/ ");
    for (i = 0; i < ARRAY_LEN(known); i++)
        if (strlen(known[i].lang) == len && strncasecmp(known[i].lang, agent, len) == 0)
            return known[i].sdk;
    return METRICS_SDK_OTHER;
}

/* Sent by the SDKs after every create. Cheap on purpose; what it says is a stranger's word. */
int api_metrics_event(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    const struct api *api = app;
    struct api_event ev;

    if (api_decode_event(rq, &ev, e) < 0)
        return -1;
    if (ev.create)
        metrics_client_create(api->lc->metrics, sdk_of(rq), ev.success, ev.duration_ms);
    rs->status = 204;
    return 0;
}
