/* Health and version. */
#include "gateway/api/api.h"

#include <string.h>

int api_health(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{\"status\":\"healthy\"}"), e);
}

int api_version(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq;
    return http_resp_json(rs, 200, strdup("{\"version\":\"" SANDGATE_VERSION "\"}"), e);
}
