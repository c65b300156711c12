/* What the agent of a held sandbox is handed (common/agent/wire.h): environment, entrypoint, hooks.
 * Pure but for a log line. */
#pragma once
#include <jansson.h>

enum {
    CLAIM_RESERVE = 136 << 10, /* bytes left for the mounts, which are known later */
    CLAIM_VARIABLE_MAX =
        128 * 1024 - 1, /* bytes of "name=value": Linux' MAX_ARG_STRLEN has the NUL */
};

struct create_req;
struct err;
struct lifecycle;
struct resources;

/* Names and sizes of a request's environment (contract 3.5): SANDBOX::INVALID_PARAMETER names the bad one. */
int claim_check_env(const json_t *env, struct err *e);
/* A fresh value that shares nothing with rq. ERRC_INVALID when it is larger than an agent takes,
 * or when the entrypoint is one item with a space that no shell could split into words. */
int claim_make(const struct lifecycle *lc, const struct create_req *rq, const struct resources *res,
               const char *secret, const char *token, json_t **out, struct err *e);
