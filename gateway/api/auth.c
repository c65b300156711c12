#include "common/base/rand.h"
#include "gateway/api/api.h"

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
