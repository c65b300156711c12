#include "execd/options.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/base/rand.h"

#include <string.h>

const char options_usage[] =
    "usage: execd [--port=N] [--access-token=T] [--log-level=0..7] [--jupyter-host=URL]\n"
    "             [--jupyter-token=T] [--init -- PROGRAM [ARG...]]\n"
    "       execd --held --id=ID --claim-sha256=HEX [--port=N] [--isolation]\n"
    "The agent inside a sandbox. It serves its API on the port (44772); a held agent serves\n"
    "nothing but /ping until it is claimed. EXECD_ACCESS_TOKEN is the token when none is given\n"
    "here, JUPYTER_HOST and JUPYTER_TOKEN the Jupyter server whose kernels run code (none: those of\n"
    "the agent itself), EXECD_ENVS the env file, OPENSANDBOX_LIFECYCLE the hooks (JSON; not of a\n"
    "held agent).\n"
    "--isolation keeps CAP_SYS_ADMIN to isolated sessions: no other program gets it.\n";

enum flag {
    FLAG_HELD,
    FLAG_INIT,
    FLAG_HELP,
    FLAG_VERSION,
    FLAG_ISOLATION,
    FLAG_ID,
    FLAG_CLAIM,
    FLAG_PORT,
    FLAG_TOKEN,
    FLAG_LEVEL,
    FLAG_GRACE,
    FLAG_JUPYTER_HOST,
    FLAG_JUPYTER_TOKEN,
    FLAG_IGNORED,      /* upstream's, with a value */
    FLAG_IGNORED_BARE, /* upstream's, without */
};

static const struct {
    const char *name;
    enum flag flag;
} flags[] = {
    { "held", FLAG_HELD },
    { "init", FLAG_INIT },
    { "help", FLAG_HELP },
    { "version", FLAG_VERSION },
    { "isolation", FLAG_ISOLATION },
    { "id", FLAG_ID },
    { "claim-sha256", FLAG_CLAIM },
    { "port", FLAG_PORT },
    { "access-token", FLAG_TOKEN },
    { "log-level", FLAG_LEVEL },
    { "deadline-grace-ms", FLAG_GRACE },
    { "jupyter-host", FLAG_JUPYTER_HOST },
    { "jupyter-token", FLAG_JUPYTER_TOKEN },
    { "graceful-shutdown-timeout", FLAG_IGNORED },
    { "jupyter-idle-poll-interval", FLAG_IGNORED },
    { "isolation-config", FLAG_IGNORED },
    { "lifecycle-startup-status-file", FLAG_IGNORED },
    { "operation-capacity", FLAG_IGNORED },
    { "runtime-init", FLAG_IGNORED_BARE },
};

static bool has_value(enum flag f)
{
    return f != FLAG_HELD && f != FLAG_INIT && f != FLAG_HELP && f != FLAG_VERSION &&
           f != FLAG_ISOLATION && f != FLAG_IGNORED_BARE;
}

/* "-x", "--x", "--x=value" as Go's flag package reads them. -1: no such flag. */
static int find_flag(const char *arg, size_t *index, const char **value)
{
    size_t len;
    size_t i;

    arg += arg[1] == '-' ? 2 : 1;
    len = strcspn(arg, "=");
    *value = arg[len] ? arg + len + 1 : NULL;
    for (i = 0; i < ARRAY_LEN(flags); i++)
        if (strlen(flags[i].name) == len && strncmp(flags[i].name, arg, len) == 0) {
            *index = i;
            return 0;
        }
    return -1;
}

/* Upstream's levels: 0-2 fatal, 3 error, 4 warning, 5-6 info, 7 debug. */
static int set_level(const char *value, struct options *out, struct err *e)
{
    int64_t n;

    if (num_parse_i64(value, 0, 7, &n) < 0)
        return err_set(e, ERRC_INVALID, "--log-level must be 0 to 7, not %.40s", value);
    out->level = n <= 3 ? LOG_ERROR : n == 4 ? LOG_WARN : n <= 6 ? LOG_INFO : LOG_DEBUG;
    return 0;
}

static int set_value(enum flag f, const char *value, struct options *out, struct err *e)
{
    int64_t n;

    switch (f) {
    case FLAG_ID:
        out->id = value;
        return 0;
    case FLAG_CLAIM:
        out->claim_sha256 = value;
        return 0;
    case FLAG_TOKEN:
        out->access_token = value;
        return 0;
    case FLAG_JUPYTER_HOST:
        out->jupyter_host = value;
        return 0;
    case FLAG_JUPYTER_TOKEN:
        out->jupyter_token = value;
        return 0;
    case FLAG_LEVEL:
        return set_level(value, out, e);
    case FLAG_GRACE:
        if (num_parse_i64(value, 1, INT32_MAX, &out->deadline_grace_ms) < 0)
            return err_set(e, ERRC_INVALID, "--deadline-grace-ms must be 1 to %d, not %.40s",
                           INT32_MAX, value);
        return 0;
    case FLAG_PORT:
        if (num_parse_i64(value, 0, UINT16_MAX, &n) < 0)
            return err_set(e, ERRC_INVALID, "--port must be 0 to 65535, not %.40s", value);
        out->port = (uint16_t)n;
        return 0;
    default:
        return 0;
    }
}

static void set_bare(enum flag f, const char *value, struct options *out)
{
    bool on = !value || strcmp(value, "false") != 0;

    out->held = f == FLAG_HELD ? on : out->held;
    out->help = f == FLAG_HELP ? on : out->help;
    out->version = f == FLAG_VERSION ? on : out->version;
    out->isolation = f == FLAG_ISOLATION ? on : out->isolation;
}

static int check(const struct options *out, struct err *e)
{
    if (!out->held)
        return 0;
    if (!out->claim_sha256 || strlen(out->claim_sha256) != RAND_SECRET_TEXT - 1 ||
        strspn(out->claim_sha256, "0123456789abcdef") != RAND_SECRET_TEXT - 1)
        return err_set(e, ERRC_INVALID, "--held needs --claim-sha256 with 64 hex digits");
    if (!*out->id)
        return err_set(e, ERRC_INVALID, "--held needs --id");
    return 0;
}

int options_parse(const char *const *argv, struct options *out, struct err *e)
{
    const char *value;
    size_t at = 0;
    int i;

    *out = (struct options){ .id = "", .port = AGENT_PORT, .level = LOG_OFF };
    for (i = 1; argv[i]; i++) {
        if (strcmp(argv[i], "--") == 0) {
            out->entrypoint = argv[i + 1] ? &argv[i + 1] : NULL;
            break;
        }
        if (argv[i][0] != '-' || find_flag(argv[i], &at, &value) < 0)
            return err_set(e, ERRC_INVALID, "unknown argument %.80s", argv[i]);
        if (flags[at].flag == FLAG_IGNORED || flags[at].flag == FLAG_IGNORED_BARE)
            log_info("flag accepted and ignored", LOG_S("flag", flags[at].name));
        if (!has_value(flags[at].flag)) {
            set_bare(flags[at].flag, value, out);
            continue;
        }
        if (!value)
            value = argv[++i];
        if (!value)
            return err_set(e, ERRC_INVALID, "--%s needs a value", flags[at].name);
        if (set_value(flags[at].flag, value, out, e) < 0)
            return -1;
    }
    if (out->level == LOG_OFF) /* held: what the sandbox's program says is all of the log */
        out->level = out->held ? LOG_WARN : LOG_INFO;
    return check(out, e);
}
