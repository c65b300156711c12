#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/base/rand.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/api/volume_body.h"
#include "gateway/domain/lifecycle.h"

#include <stdio.h>
#include <string.h>

#define SB_INVALID "SANDBOX::INVALID_PARAMETER"

/* The request body, field by field (contract 3.1). */
struct body {
    json_t *image;
    const char *snapshot_id;
    const char *template_id;
    json_t *platform;
    int64_t timeout_s;
    json_t *resources;
    json_t *requests;
    json_t *env;
    json_t *metadata;
    json_t *entrypoint;
    json_t *network_policy;
    json_t *credential_proxy;
    bool secure_access;
    json_t *volumes;
    json_t *extensions;
    json_t *lifecycle;
};

#define F(n, k, f, fl, lo, hi, len)                                                                \
    {                                                                                              \
        n, k, offsetof(struct body, f), fl, lo, hi, len                                            \
    }

static const struct jx_field body_fields[] = {
    F("image", JX_OBJ, image, JX_NULLABLE, 0, 0, 0),
    F("snapshotId", JX_STR, snapshot_id, JX_NULLABLE, 0, 0, 128),
    F("templateId", JX_STR, template_id, JX_NULLABLE | JX_NONEMPTY, 0, 0, 128),
    F("platform", JX_OBJ, platform, JX_NULLABLE, 0, 0, 0),
    F("timeout", JX_I64, timeout_s, JX_NULLABLE | JX_LAX, LIFECYCLE_TIMEOUT_MIN_S, INT64_MAX, 0),
    F("resourceLimits", JX_STR_MAP, resources, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("resourceRequests", JX_STR_MAP, requests, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("env", JX_STR_MAP, env, JX_NULLABLE | JX_NULL_VALUES, 0, API_MAP_MAX, API_STRING_MAX),
    F("metadata", JX_STR_MAP, metadata, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("entrypoint", JX_STR_LIST, entrypoint, JX_NULLABLE, 1, API_ENTRYPOINT_MAX, API_STRING_MAX),
    F("networkPolicy", JX_OBJ, network_policy, JX_NULLABLE, 0, 0, 0),
    F("credentialProxy", JX_OBJ, credential_proxy, JX_NULLABLE, 0, 0, 0),
    F("secureAccess", JX_BOOL, secure_access, JX_NULLABLE | JX_LAX, 0, 0, 0),
    F("volumes", JX_LIST, volumes, JX_NULLABLE, 0, VOLUMES_MAX, 0),
    F("extensions", JX_STR_MAP, extensions, JX_NULLABLE, 0, API_MAP_MAX, 4096),
    F("lifecycle", JX_OBJ, lifecycle, JX_NULLABLE, 0, 0, 0),
};

struct image_body {
    const char *uri;
    json_t *auth;
};

static const struct jx_field image_fields[] = {
    { "uri", JX_STR, offsetof(struct image_body, uri), JX_REQUIRED, 0, 0, API_IMAGE_MAX },
    { "auth", JX_OBJ, offsetof(struct image_body, auth), JX_NULLABLE, 0, 0, 0 },
};

static const struct jx_field auth_fields[] = {
    { "username", JX_STR, offsetof(struct create_req, registry_user), JX_REQUIRED, 0, 0, 1024 },
    { "password", JX_STR, offsetof(struct create_req, registry_password), JX_REQUIRED, 0, 0,
      65536 },
};

static const struct jx_field platform_fields[] = {
    { "os", JX_STR, offsetof(struct create_req, platform_os), JX_REQUIRED, 0, 0, 32 },
    { "arch", JX_STR, offsetof(struct create_req, platform_arch), JX_REQUIRED, 0, 0, 32 },
};

static bool blank(const char *s)
{
    return !s || !s[strspn(s, " \t\r\n")];
}

static int take_snapshot(const struct body *b, struct create_req *out, struct err *e)
{
    if (b->template_id)
        return err_api(e, ERRC_INVALID, "SANDBOX::API_NOT_SUPPORTED",
                       "templateId: templates are not available on this runtime");
    if (json_is_object(b->image) != blank(b->snapshot_id))
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "Exactly one of image or snapshotId must be provided.");
    out->snapshot_id = blank(b->snapshot_id) ? NULL : b->snapshot_id;
    return 0;
}

/* What this version cannot do must be said, not dropped. */
static int refuse_unsupported(const struct body *b, struct err *e)
{
    bool vault = false;
    static const struct jx_field enabled[] = { { "enabled", JX_BOOL, 0, JX_LAX, 0, 0, 0 } };

    if (jx_decode(b->credential_proxy, "credentialProxy", enabled, 1, false, &vault, e) < 0)
        return -1;
    if (b->network_policy || vault)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "networkPolicy and credentialProxy are not available in this version");
    return 0;
}

static int take_image(const struct body *b, struct create_req *out, struct err *e)
{
    struct image_body image = { 0 };

    if (!b->image)
        return 0;
    if (jx_decode(b->image, "image", image_fields, ARRAY_LEN(image_fields), false, &image, e) < 0)
        return -1;
    if (blank(image.uri))
        return err_api(e, ERRC_INVALID, SB_INVALID, "image.uri: must not be blank");
    out->image = image.uri;
    if (!image.auth)
        return 0;
    return jx_decode(image.auth, "image.auth", auth_fields, ARRAY_LEN(auth_fields), false, out, e);
}

static int take_platform(const struct body *b, struct create_req *out, struct err *e)
{
    if (!b->platform)
        return 0;
    return jx_decode(b->platform, "platform", platform_fields, ARRAY_LEN(platform_fields), false,
                     out, e);
}

/* extensions "proxy.login.ports" = "3000, 8080" becomes ",3000,8080,", in out. */
static int take_login_ports(const struct body *b, struct create_req *out, struct err *e)
{
    const char *text = json_string_value(json_object_get(b->extensions, "proxy.login.ports"));
    AUTO_BUF struct buf list = BUF_INIT(SANDBOX_PORTS - 1);
    const char *p;
    size_t len;
    int64_t port;
    char one[8];

    for (p = text; p && *p; p += len + (p[len] == ',')) {
        p += strspn(p, " ");
        len = strcspn(p, ", ");
        (void)snprintf(one, sizeof(one), "%.*s", (int)(len < 7 ? len : 7), p);
        len = strcspn(p, ",");
        if (num_parse_i64(one, 1, 65535, &port) < 0 ||
            buf_printf(&list, "%s%d,", list.len ? "" : ",", (int)port) < 0)
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "extensions.proxy.login.ports: must be up to 20 port numbers joined by "
                           "commas");
    }
    (void)snprintf(out->login_ports, sizeof(out->login_ports), "%s", list.len ? list.data : "");
    return 0;
}

static const char *extension(const struct body *b, const char *name)
{
    return json_string_value(json_object_get(b->extensions, name));
}

static int take_renewal(const struct body *b, struct create_req *out, struct err *e)
{
    static const char blanks[] = " \t\r\n";
    const char *text = extension(b, "access.renew.extend.seconds");
    char number[16];
    size_t len;

    if (!text)
        return 0;
    text += strspn(text, blanks);
    len = strcspn(text, blanks);
    (void)snprintf(number, sizeof(number), "%.*s", (int)(len < sizeof(number) ? len : 0), text);
    if (num_parse_i64(number, 300, 86400, &out->renew_s) < 0 || !blank(text + len))
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "extensions.access.renew.extend.seconds: must be 300 to 86400");
    return 0;
}

/* Kept are opensandbox.extensions.*; the others are instructions or dropped (contract 3.6). */
static int take_extensions(const struct body *b, struct create_req *out, struct err *e)
{
    static const char kept[] = "opensandbox.extensions.";
    const char *isolation = extension(b, "bootstrap.execd.isolation");
    const char *key;
    json_t *v;
    void *next;

    out->isolation = isolation && strcmp(isolation, "enable") == 0;
    if (take_renewal(b, out, e) < 0 || take_login_ports(b, out, e) < 0)
        return -1;
    json_object_foreach_safe(b->extensions, next, key, v) {
        if (strncmp(key, kept, sizeof(kept) - 1) != 0 && strcmp(key, "poolRef") != 0)
            (void)json_object_del(b->extensions, key);
    }
    out->extensions = b->extensions;
    return 0;
}

static int take_pool(const struct body *b, struct err *e)
{
    if (!blank(extension(b, "poolRef")))
        return err_api(e, ERRC_INVALID, "SANDBOX::UNSUPPORTED_POOL_REF",
                       "extensions.poolRef: no pools are configured on this server");
    (void)json_object_del(b->extensions, "poolRef");
    return 0;
}

/* A snapshot holds no command of its own: one that keeps it running is the default. */
static int take_entrypoint(json_t *doc, const struct body *b, struct create_req *out, struct err *e)
{
    const json_t *list = b->entrypoint;

    if (!list && out->snapshot_id) {
        if (json_object_set_new(doc, "entrypoint",
                                json_pack("[s,s,s]", "tail", "-f", "/dev/null")) < 0)
            return err_nomem(e);
        list = json_object_get(doc, "entrypoint");
    }
    if (!list)
        return err_api(e, ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT",
                       "entrypoint: is required; for example [\"tail\",\"-f\",\"/dev/null\"]");
    if (!*json_string_value(json_array_get(list, 0)))
        return err_api(e, ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT",
                       "entrypoint[0]: must not be empty");
    out->entrypoint = list;
    return 0;
}

/* In the order of contract 3.2; what is left of it is the domain's. A request for a pool needs no
 * image, so that is looked at first (contract/newest 1.1). */
static int take_body(json_t *doc, const struct body *b, struct create_req *out, struct err *e)
{
    if (take_extensions(b, out, e) < 0 || take_pool(b, e) < 0 || take_snapshot(b, out, e) < 0 ||
        api_decode_hooks(doc, b->lifecycle, out, e) < 0 || take_image(b, out, e) < 0 ||
        take_entrypoint(doc, b, out, e) < 0 || take_platform(b, out, e) < 0)
        return -1;
    out->metadata = b->metadata;
    out->resources = b->resources;
    out->env = b->env;
    out->timeout_s = b->timeout_s;
    out->timeout_unsaid = !json_object_get(doc, "timeout"); /* null means: never expires */
    out->secure_access = b->secure_access;
    if (refuse_unsupported(b, e) < 0)
        return -1;
    return volume_body_decode(b->volumes, &out->volumes, e);
}

/* Names the request by its content: the order of members and blanks do not count. */
static int take_hash(const json_t *doc, char out[RAND_SECRET_TEXT], struct err *e)
{
    AUTO_FREE char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return err_nomem(e);
    sha256_hex(text, strlen(text), out);
    explicit_bzero(text, strlen(text)); /* it holds registry credentials */
    return 0;
}

int api_decode_create(const struct http_req *rq, json_t **doc, struct create_req *out,
                      struct err *e)
{
    struct create_req made = { 0 };
    struct body b = { 0 };
    json_t *v = api_body(rq, e);

    if (!v)
        return -1;
    if (take_hash(v, made.body_sha256, e) < 0 ||
        jx_decode(v, "", body_fields, ARRAY_LEN(body_fields), false, &b, e) < 0 ||
        take_body(v, &b, &made, e) < 0) {
        json_decref(v);
        return -1;
    }
    *out = made;
    *doc = v;
    return 0;
}
