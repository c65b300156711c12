/* Pools of the server and templates (contract 10). They belong to cluster runtimes; a request is
 * checked first, so that a client sees its own mistake before it sees that this runtime has none. */
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"

#include <ctype.h>
#include <string.h>

enum { POOL_NAME_MAX = 253 }; /* of Kubernetes */

struct pool_body {
    const char *name;
    json_t *template;
    json_t *capacity;
};

struct capacity {
    int64_t buffer_max;
    int64_t buffer_min;
    int64_t pool_max;
    int64_t pool_min;
};

#define CAPACITY(n, f)                                                                             \
    {                                                                                              \
        n, JX_I64, offsetof(struct capacity, f), JX_REQUIRED | JX_LAX, 0, INT32_MAX, 0             \
    }

static const struct jx_field capacity_fields[] = {
    CAPACITY("bufferMax", buffer_max),
    CAPACITY("bufferMin", buffer_min),
    CAPACITY("poolMax", pool_max),
    CAPACITY("poolMin", pool_min),
};

static const struct jx_field create_fields[] = {
    { "name", JX_STR, offsetof(struct pool_body, name), JX_REQUIRED, 0, 0, POOL_NAME_MAX },
    { "template", JX_OBJ, offsetof(struct pool_body, template), JX_REQUIRED, 0, 0, 0 },
    { "capacitySpec", JX_OBJ, offsetof(struct pool_body, capacity), JX_REQUIRED, 0, 0, 0 },
};

static const struct jx_field change_fields[] = {
    { "capacitySpec", JX_OBJ, offsetof(struct pool_body, capacity), JX_REQUIRED, 0, 0, 0 },
};

static int no_pools(struct err *e)
{
    return err_api(e, ERRC_UNSUPPORTED, "KUBERNETES::POOL_NOT_SUPPORTED",
                   "Pools of the server need a Kubernetes runtime and this server runs Docker: "
                   "create sandboxes directly, or use the SDK's client-side pool.");
}

static int no_templates(struct err *e)
{
    return err_api(e, ERRC_UNSUPPORTED, "FSB::API_NOT_SUPPORTED",
                   "Templates need a Kubernetes runtime and this server runs Docker: create "
                   "sandboxes from an image, or from a snapshot of a prepared sandbox.");
}

static bool dns_label(const char *s)
{
    size_t i;

    for (i = 0; s[i]; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) &&
            (s[i] != '-' || i == 0 || !s[i + 1]))
            return false;
    return i > 0;
}

static int check(const struct http_req *rq, const struct jx_field *fields, size_t n, struct err *e)
{
    struct pool_body body = { .name = "none" };
    struct capacity capacity;
    json_t *doc = api_body(rq, e);
    int rc;

    if (!doc)
        return -1;
    rc = jx_decode(doc, "", fields, n, false, &body, e);
    if (rc == 0)
        rc = jx_decode(body.capacity, "capacitySpec", capacity_fields, ARRAY_LEN(capacity_fields),
                       false, &capacity, e);
    if (rc == 0 && !dns_label(body.name))
        rc = err_set(e, ERRC_INVALID,
                     "name: must have lower-case letters, digits and '-', and begin and end with "
                     "a letter or digit");
    json_decref(doc);
    return rc;
}

int api_pool_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rs;
    return check(rq, create_fields, ARRAY_LEN(create_fields), e) < 0 ? -1 : no_pools(e);
}

int api_pool_change(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rs;
    return check(rq, change_fields, ARRAY_LEN(change_fields), e) < 0 ? -1 : no_pools(e);
}

int api_pool_other(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)rs;
    return no_pools(e);
}

int api_template_create(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    json_t *doc = api_body(rq, e);

    (void)app, (void)rs;
    if (!doc)
        return -1;
    json_decref(doc);
    return no_templates(e);
}

int api_template_other(void *app, struct http_req *rq, struct http_resp *rs, struct err *e)
{
    (void)app, (void)rq, (void)rs;
    return no_templates(e);
}
