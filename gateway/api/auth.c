#include "common/base/rand.h"
#include "gateway/api/api.h"
#include "gateway/app.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>

static bool loopback_name(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t i;
    size_t len;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        len = strlen(names[i]);
        if (strncmp(host, names[i], len) == 0 && (!host[len] || host[len] == ':'))
            return true;
    }
    return false;
}

/* Without a key a web page could drive the API from the user's browser (design decision 20): the
 * name asked for must be ours, and no foreign page may ask. */
static int admit_open(const struct http_req *rq, struct err *e)
{
    const char *host = http_req_header(rq, "Host");
    const char *origin = http_req_header(rq, "Origin");
    const char *after = origin ? strstr(origin, "://") : NULL;

    if (!host || !loopback_name(host))
        return err_set(e, ERRC_FORBIDDEN,
                       "this server runs without an API key and answers only to localhost; set "
                       "server.api_key to use another name");
    if (origin && (!after || !loopback_name(after + 3)))
        return err_set(e, ERRC_FORBIDDEN,
                       "this server runs without an API key and refuses requests from web pages");
    return 0;
}

int api_admit(void *app, struct http_req *rq, struct err *e)
{
    const struct api *api = app;
    const char *addr = http_req_header(rq, APP_PEER_HEADER);

    /* design decision 10: sandboxes are no API clients */
    if (!addr || runtime_is_sandbox_address(api->lc->rt, addr))
        return err_set(e, ERRC_FORBIDDEN, "sandboxes may not use this API");
    return api->key ? 0 : admit_open(rq, e);
}

int api_authorize(void *app, struct http_req *rq, struct err *e)
{
    const struct api *api = app;
    const char *key = http_req_header(rq, "OPEN-SANDBOX-API-KEY");

    if (!api->key)
        return 0;
    if (!key || !*key)
        return err_api(e, ERRC_UNAUTHORIZED, "MISSING_API_KEY",
                       "Authentication required: send the header OPEN-SANDBOX-API-KEY.");
    if (!secret_equal(api->key, key))
        return err_api(e, ERRC_UNAUTHORIZED, "INVALID_API_KEY",
                       "The key in the header OPEN-SANDBOX-API-KEY is not valid.");
    return 0;
}
