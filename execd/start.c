#include "execd/start.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "execd/api/api.h"
#include "execd/app.h"
#include "execd/exec/hooks.h"
#include "execd/exec/supervise.h"
#include "execd/exec/watchdog.h"

enum { EXIT_NOT_STARTED = 127 }; /* as a shell has it for "command not found" */

static int fail(struct app *app, int status, const struct err *e)
{
    log_error("the sandbox cannot be started", LOG_S("error", e->msg));
    supervisor_end(app->supervisor, status);
    return -1;
}

static int begin(struct start *s, struct err *e)
{
    struct app *app = s->app;

    if (metrics_begin(app, e) < 0 || app_open_code(app, e) < 0 ||
        hooks_schedule(app->hooks, e) < 0 ||
        (s->n && app_start_entrypoint(app, s->argv, s->n, e) < 0))
        return fail(app, EXIT_NOT_STARTED, e);
    if (app->has_deadline)
        watchdog_set(app->watchdog, app->deadline_left_ms);
    app->state = APP_OPEN;
    app_open_probe(app);
    return 0;
}

static void on_pre_start_done(void *arg, const struct hooks_result *result)
{
    struct start *s = arg;
    struct app *app = s->app;
    struct err e = { 0 };
    int rc;

    if (app->state == APP_STOPPING) {
        (void)err_set(&e, ERRC_BUSY, "this sandbox was stopped while its preStart hook ran");
        rc = fail(app, result->status ? result->status : HOOKS_STATUS_STOPPED, &e);
    } else if (result->status != 0) {
        (void)err_api(&e, ERRC_INVALID, AGENT_PRE_START_FAILED, "lifecycle.preStart: %s",
                      result->text);
        rc = fail(app, result->status, &e);
    } else {
        rc = begin(s, &e);
    }
    s->done(s, rc < 0 ? &e : NULL);
}

int start_run(struct start *s, struct lifecycle *lc, struct err *e)
{
    struct app *app = s->app;
    int rc;

    app->state = APP_STARTING;
    hooks_set(app->hooks, lc);
    rc = hooks_pre_start(app->hooks, on_pre_start_done, s, e);
    if (rc < 0) {
        e->api_code = AGENT_PRE_START_FAILED;
        return fail(app, HOOKS_STATUS_NOT_STARTED, e);
    }
    return rc ? 1 : begin(s, e);
}
