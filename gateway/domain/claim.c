#include "gateway/domain/claim.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/resources.h"
#include "gateway/domain/words.h"

#include <stdio.h>
#include <string.h>

#define SB_INVALID "SANDBOX::INVALID_PARAMETER"
#define EGRESS "OPENSANDBOX_EGRESS_"

_Static_assert(CLAIM_RESERVE >= VOLUMES_MAX * (2 * HOST_PATH + 128), "paths may be escaped");

/* For programs that size their pools by the machine's CPUs and cannot see a quota. */
static const char *const hints[] = {
    "OMP_NUM_THREADS",     "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",    "BLIS_NUM_THREADS",
    "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS",    "LOKY_MAX_CPU_COUNT", "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",   "GOMAXPROCS",           "PYTHON_CPU_COUNT",   "DOTNET_PROCESSOR_COUNT",
};

/* ---- environment ---- */

static bool is_egress(const char *key)
{
    return strncmp(key, EGRESS, sizeof(EGRESS) - 1) == 0;
}

/* Those that a sidecar would get (contract 3.5). */
static bool is_known_egress(const char *key)
{
    static const char *const names[] = {
        "LOG_LEVEL",
        "DNS_UPSTREAM_TIMEOUT",
        "MITMPROXY_SSL_INSECURE",
        "MITMPROXY_TRANSPARENT",
        "MITMPROXY_EXTRA_PORTS",
        "DENY_WEBHOOK",
        "METRICS_EXTRA_ATTRS",
        "CREDENTIAL_VAULT_REQUIRE_TLS",
        "CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH",
        "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS",
        "POLICY_FILE",
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(key + sizeof(EGRESS) - 1, names[i]) == 0)
            return true;
    return false;
}

int claim_check_env(const json_t *env, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)env, key, v) {
        if (!*key || strchr(key, '='))
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "env: '%.80s' is not a variable name (empty, or holds '=')", key);
        if (strcmp(key, "OPENSANDBOX_LIFECYCLE") == 0)
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "env.OPENSANDBOX_LIFECYCLE: is reserved; use the field lifecycle");
        if (strlen(key) + 1 + json_string_length(v) > CLAIM_VARIABLE_MAX)
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "env.%.80s: name and value may have %d bytes together; put a long text "
                           "into a file",
                           key, CLAIM_VARIABLE_MAX - 1);
        if (json_is_string(v) && is_egress(key) && !is_known_egress(key))
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "env.%.80s: names that begin with " EGRESS
                           " are reserved for the egress sidecar, which does not know this one",
                           key);
    }
    return 0;
}

/* The request's own; null means: leave it out. */
static int add_request_env(json_t *env, const json_t *own, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)own, key, v) {
        if (!json_is_string(v))
            continue;
        if (is_egress(key)) { /* there is no sidecar without a policy */
            log_info("egress variable is dropped: the sandbox has no network policy",
                     LOG_S("name", key));
            continue;
        }
        if (json_object_set_new(env, key, json_string(json_string_value(v))) < 0)
            return err_nomem(e);
    }
    return 0;
}

static int add_hints(json_t *env, int cpus, struct err *e)
{
    char text[16];
    size_t i;

    (void)snprintf(text, sizeof(text), "%d", cpus);
    for (i = 0; i < ARRAY_LEN(hints); i++) {
        if (json_object_get(env, hints[i]))
            continue;
        if (json_object_set_new(env, hints[i], json_string(text)) < 0)
            return err_nomem(e);
    }
    return 0;
}

static json_t *make_env(const struct lifecycle *lc, const struct create_req *rq,
                        const struct resources *res, struct err *e)
{
    json_t *env = lc->env ? json_deep_copy(lc->env) : json_object();
    int cpus = lc->cpu_hints ? resources_whole_cpus(res) : 0;

    if (!env) {
        (void)err_nomem(e);
        return NULL;
    }
    if (add_request_env(env, rq->env, e) < 0 || (cpus && add_hints(env, cpus, e) < 0)) {
        json_decref(env);
        return NULL;
    }
    return env;
}

/* ---- entrypoint ---- */

/* One item with a space is a command line (contract 11.1). */
static json_t *make_argv(const json_t *entrypoint, struct err *e)
{
    const char *only = json_string_value(json_array_get(entrypoint, 0));
    json_t *argv = NULL;

    if (json_array_size(entrypoint) != 1 || !strchr(only, ' ')) {
        argv = json_deep_copy(entrypoint);
        if (!argv)
            (void)err_nomem(e);
        return argv;
    }
    argv = words_split(only, e);
    if (!argv && e->code == ERRC_INVALID) {
        e->api_code = "DOCKER::INVALID_ENTRYPOINT";
        (void)err_wrap(e, "entrypoint[0] has a space and is read as a command line, but");
    }
    return argv;
}

/* ---- the whole ---- */

int claim_make(const struct lifecycle *lc, const struct create_req *rq, const struct resources *res,
               const char *secret, const char *token, json_t **out, struct err *e)
{
    json_t *argv = make_argv(rq->entrypoint, e);
    json_t *env = argv ? make_env(lc, rq, res, e) : NULL;
    json_t *hooks = rq->hooks ? json_deep_copy(rq->hooks) : NULL;
    json_t *claim;
    size_t len;

    if (!env) {
        json_decref(argv);
        json_decref(hooks);
        return -1;
    }
    claim = json_pack("{s:s, s:s, s:s, s:b, s:o, s:o, s:o*}", "secret", secret, "token", token,
                      "lineEndings", lc->line_endings, "closedPorts", rq->secure_access,
                      "entrypoint", argv, "env", env, "lifecycle", hooks);
    if (!claim)
        return err_nomem(e);
    len = json_dumpb(claim, NULL, 0, JSON_COMPACT);
    if (len > AGENT_CLAIM_MAX - CLAIM_RESERVE) {
        json_decref(claim);
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "env, entrypoint and lifecycle have %zu bytes together; %d is the most", len,
                       AGENT_CLAIM_MAX - CLAIM_RESERVE);
    }
    *out = claim;
    return 0;
}
