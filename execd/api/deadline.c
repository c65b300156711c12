/* POST /internal/deadline: the gateway has moved the end of the sandbox (common/agent/wire.h). */
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/exec/watchdog.h"

static const struct jx_field fields[] = {
    { "deadline", JX_I64, offsetof(struct deadline, at_ms), JX_REQUIRED, 0, DEADLINE_MAX, 0 },
    { "now", JX_I64, offsetof(struct deadline, now_ms), JX_NULLABLE, 0, DEADLINE_MAX, 0 },
};

const struct api_table deadline_table = { fields, ARRAY_LEN(fields) };

int64_t deadline_left_ms(const struct deadline *d)
{
    return d->at_ms - (d->now_ms ? d->now_ms : clock_wall_ms());
}

int deadline_post(void *arg, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    struct app *app = arg;
    struct deadline d = { 0 };
    json_t *body = jx_parse(rq->body ? rq->body : "", rq->body_len, false, e);
    int rc = body ? jx_decode(body, "", fields, ARRAY_LEN(fields), false, &d, e) : -1;

    (void)rs;
    json_decref(body);
    if (rc < 0)
        return -1;
    if (d.at_ms)
        watchdog_set(app->watchdog, deadline_left_ms(&d));
    else
        watchdog_clear(app->watchdog);
    return 0;
}
