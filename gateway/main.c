/* sandgate: the gateway's command line. */
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/json/jx.h"
#include "gateway/app.h"
#include "gateway/config.h"

#include <getopt.h>
#include <signal.h>
#include <string.h>

static const char usage[] =
    "usage: sandgate serve [--config FILE]\n"
    "       sandgate --version | --help\n"
    "\n"
    "serve   run the gateway in the foreground until SIGTERM; logs go to stderr as JSON lines\n"
    "        FILE is TOML (default: $SANDBOX_CONFIG_PATH, then ~/.sandbox.toml if it exists)\n"
    "        environment: OPENSANDBOX_SERVER_API_KEY, OPENSANDBOX_INSECURE_SERVER=YES, DOCKER_HOST\n";

/* One log line per note, so that they stay with the rest. */
static void print_notes(struct buf *notes)
{
    char *line = notes->data;
    char *end;

    for (; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        if (strncmp(line, "differs", 7) == 0)
            log_info("configuration", LOG_S("note", line));
        else
            log_warn("configuration", LOG_S("note", line));
    }
}

static int serve(const char *file)
{
    AUTO_BUF struct buf notes = BUF_INIT(65536);
    AUTO_FREE char *path = config_find(file);
    struct config cfg;
    struct err e = { 0 };
    int rc;

    if (config_load(path, &cfg, &notes, &e) < 0) {
        log_error("cannot start", LOG_S("error", e.msg));
        return 1;
    }
    log_set_level((enum log_level)log_level_parse(cfg.log_level));
    print_notes(&notes);
    rc = app_serve(&cfg, &e);
    if (rc < 0)
        log_error("cannot serve", LOG_S("error", e.msg));
    config_done(&cfg);
    return rc < 0 ? 1 : 0;
}

static int parse_serve(int argc, char **argv)
{
    static const struct option options[] = { { "config", required_argument, NULL, 'c' }, { 0 } };
    const char *file = NULL;
    int c;

    while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
        if (c != 'c')
            return 2;
        file = optarg;
    }
    if (optind < argc) {
        (void)fprintf(stderr, "sandgate: unexpected argument '%s'\n%s", argv[optind], usage);
        return 2;
    }
    return serve(file);
}

int main(int argc, char **argv)
{
    (void)sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    jx_init();
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return parse_serve(argc - 1, argv + 1);
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return printf("sandgate %s\n", SANDGATE_VERSION) < 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    (void)fputs(usage, stderr);
    return 2;
}
