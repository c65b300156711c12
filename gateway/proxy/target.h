/* The proxy's paths, below /v1 and bare: /sandboxes/{id}/proxy/{port}[/rest][?query] and
 * /signed/{id}/{port}/{expires}/{signature}[/rest][?query]. Pure. */
#pragma once
#include "gateway/domain/signed.h"
#include "gateway/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum target_kind {
    TARGET_OTHER, /* not the proxy's: the API answers */
    TARGET_PROXY,
    TARGET_TRAVERSAL, /* a dot segment, literal or encoded: refused */
};

struct target {
    char id[RUNTIME_ID];
    uint16_t port;
    char expires[SIGNED_EXP_TEXT]; /* "" when the path is not a signed one */
    char signature[SIGNED_SIG_TEXT];
    size_t prefix_len; /* of all before the rest, mount included: what Location gets back */
    const char *rest;  /* raw, from its '/', or from '?'; "" when there is none */
    size_t rest_len;
};

/* path is a raw request path with its query. *out is filled for TARGET_PROXY only. */
enum target_kind target_parse(const char *path, size_t len, struct target *out);
