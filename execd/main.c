/* execd: the agent inside a sandbox. */
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/json/jx.h"
#include "execd/app.h"
#include "execd/exec/session_state.h"
#include "execd/isolated/cage.h"
#include "execd/options.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

/* One arena and fixed thresholds: what a large transfer took goes back to the system. */
static void tune_memory(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
}

int main(int argc, char **argv)
{
    struct options opt;
    struct err e = { 0 };
    struct app *app;
    int status;

    if (argc > 2 && strcmp(argv[1], SESSION_STATE_VERB) == 0)
        return session_state_write(argv[2], environ);
    if (argc > 2 && strcmp(argv[1], CAGE_VERB) == 0)
        return cage_main(argv);
    tune_memory();
    if (options_parse((const char *const *)argv, &opt, &e) < 0) {
        log_error("bad arguments", LOG_S("error", e.msg));
        return EXIT_USAGE;
    }
    if (opt.help || opt.version) {
        (void)fputs(opt.help ? options_usage : "execd " SANDGATE_VERSION "\n", stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    log_set_level(opt.level);
    jx_init();
    app = app_new(&opt, environ, &e);
    if (opt.access_token) /* the app has its copy; anyone can read /proc/PID/cmdline */
        explicit_bzero((char *)opt.access_token, strlen(opt.access_token));
    status = app ? app_run(app, &e) : -1;
    if (status < 0)
        log_error("the agent cannot go on", LOG_S("error", e.msg));
    app_free(app);
    return status < 0 ? 1 : status;
}
