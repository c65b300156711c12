#include "common/base/buf.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "common/json/jx.h"
#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>
#include <strings.h>

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
    F("timeout", JX_I64, timeout_s, JX_NULLABLE | JX_LAX, LIFECYCLE_TIMEOUT_MIN_S, 9000000000, 0),
    F("resourceLimits", JX_STR_MAP, resources, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("resourceRequests", JX_STR_MAP, requests, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("env", JX_STR_MAP, env, JX_NULLABLE | JX_NULL_VALUES, 0, API_MAP_MAX, API_STRING_MAX),
    F("metadata", JX_STR_MAP, metadata, JX_NULLABLE, 0, API_MAP_MAX, 1024),
    F("entrypoint", JX_STR_LIST, entrypoint, JX_NULLABLE, 1, API_ENTRYPOINT_MAX, API_STRING_MAX),
    F("networkPolicy", JX_OBJ, network_policy, JX_NULLABLE, 0, 0, 0),
    F("credentialProxy", JX_OBJ, credential_proxy, JX_NULLABLE, 0, 0, 0),
    F("secureAccess", JX_BOOL, secure_access, JX_NULLABLE | JX_LAX, 0, 0, 0),
    F("volumes", JX_LIST, volumes, JX_NULLABLE, 0, 64, 0),
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

static bool present(const json_t *container)
{
    return json_object_size(container) || json_array_size(container);
}

/* What this version cannot do must be said, not dropped. */
static int refuse_unsupported(const struct body *b, struct err *e)
{
    bool vault = false;
    static const struct jx_field enabled[] = { { "enabled", JX_BOOL, 0, JX_LAX, 0, 0, 0 } };

    if (jx_decode(b->credential_proxy, "credentialProxy", enabled, 1, false, &vault, e) < 0)
        return -1;
    if (b->template_id)
        return err_api(e, ERRC_INVALID, "SANDBOX::API_NOT_SUPPORTED",
                       "templateId: templates are not available on this runtime");
    if (b->network_policy || vault)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "networkPolicy and credentialProxy are not available in this version");
    if (present(b->volumes))
        return err_api(e, ERRC_INVALID, "VOLUME::UNSUPPORTED_BACKEND",
                       "volumes are not available in this version");
    if (b->lifecycle)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "lifecycle hooks are not available in this version");
    if (!blank(json_string_value(json_object_get(b->extensions, "poolRef"))))
        return err_api(e, ERRC_INVALID, "SANDBOX::UNSUPPORTED_POOL_REF",
                       "extensions.poolRef: no pools are configured on this server");
    return 0;
}

static int take_image(const struct body *b, struct create_req *out, struct err *e)
{
    struct image_body image = { 0 };

    if (jx_decode(b->image, "image", image_fields, ARRAY_LEN(image_fields), false, &image, e) < 0)
        return -1;
    if (blank(image.uri))
        return err_api(e, ERRC_INVALID, SB_INVALID, "image.uri: must not be blank");
    out->image = image.uri;
    if (!image.auth)
        return 0;
    return jx_decode(image.auth, "image.auth", auth_fields, ARRAY_LEN(auth_fields), false, out, e);
}

static int take_source(const struct body *b, struct create_req *out, struct err *e)
{
    if (b->image)
        return take_image(b, out, e);
    out->snapshot_id = b->snapshot_id;
    return 0;
}

/* A restored sandbox only waits unless it is told otherwise (contract 3.1). doc owns it. */
static int default_entrypoint(struct body *b, json_t *doc, struct err *e)
{
    json_t *list;

    if (b->entrypoint || blank(b->snapshot_id))
        return 0;
    list = json_pack("[s, s, s]", "tail", "-f", "/dev/null");
    if (json_object_set_new(doc, "entrypoint", list) < 0)
        return err_nomem(e);
    b->entrypoint = list;
    return 0;
}

/* The canonical spelling of a platform word, NULL when it is none (contract 3.1). */
static const char *one_of(const char *s, const char *const words[2])
{
    size_t len;
    int i;

    s += strspn(s, " \t\r\n");
    len = strcspn(s, " \t\r\n");
    for (i = 0; i < 2; i++)
        if (strlen(words[i]) == len && strncasecmp(s, words[i], len) == 0 && blank(s + len))
            return words[i];
    return NULL;
}

static int take_platform(const struct body *b, struct create_req *out, struct err *e)
{
    static const char *const systems[2] = { "linux", "windows" };
    static const char *const archs[2] = { "amd64", "arm64" };

    if (!b->platform)
        return 0;
    if (jx_decode(b->platform, "platform", platform_fields, ARRAY_LEN(platform_fields), false, out,
                  e) < 0)
        return -1;
    out->platform_os = one_of(out->platform_os, systems);
    out->platform_arch = one_of(out->platform_arch, archs);
    if (!out->platform_os || !out->platform_arch)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "platform: os must be linux, arch must be amd64 or arm64");
    if (out->platform_os == systems[1])
        return err_api(e, ERRC_INVALID, SB_INVALID, "platform.os: windows is not supported");
    return 0;
}

/* Keys of the sandbox's environment; OPENSANDBOX_EGRESS_* are for a sidecar and have no use
 * without a network policy (contract 3.5). */
static int take_env(const struct body *b, struct create_req *out, struct err *e)
{
    static const char egress[] = "OPENSANDBOX_EGRESS_";
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(b->env, next, key, v) {
        if (!*key || strchr(key, '='))
            return err_api(e, ERRC_INVALID, SB_INVALID,
                           "env: '%.80s' is not a variable name (empty, or holds '=')", key);
        if (strcmp(key, "OPENSANDBOX_LIFECYCLE") == 0)
            return err_api(e, ERRC_INVALID, SB_INVALID, "env: OPENSANDBOX_LIFECYCLE is reserved");
        if (strncmp(key, egress, sizeof(egress) - 1) == 0)
            (void)json_object_del(b->env, key);
    }
    out->env = b->env;
    return 0;
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

/* Kept are opensandbox.extensions.*; the others are instructions or dropped (contract 3.6). */
static int take_extensions(const struct body *b, struct create_req *out, struct err *e)
{
    static const char kept[] = "opensandbox.extensions.";
    const char *renew =
        json_string_value(json_object_get(b->extensions, "access.renew.extend.seconds"));
    const char *key;
    json_t *v;
    void *next;
    int64_t n = 0;

    if (renew && num_parse_i64(renew, 300, 86400, &n) < 0)
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "extensions.access.renew.extend.seconds: must be 300 to 86400");
    out->renew_s = renew ? n : 0;
    if (take_login_ports(b, out, e) < 0)
        return -1;
    json_object_foreach_safe(b->extensions, next, key, v) {
        if (strncmp(key, kept, sizeof(kept) - 1) != 0)
            (void)json_object_del(b->extensions, key);
    }
    out->extensions = b->extensions;
    return 0;
}

static int take_body(const struct body *b, struct create_req *out, struct err *e)
{
    if (refuse_unsupported(b, e) < 0)
        return -1;
    if (json_is_object(b->image) != blank(b->snapshot_id))
        return err_api(e, ERRC_INVALID, SB_INVALID,
                       "Exactly one of image or snapshotId must be provided.");
    if (!b->entrypoint)
        return err_api(e, ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT",
                       "entrypoint: is required; for example [\"tail\",\"-f\",\"/dev/null\"]");
    if (!*json_string_value(json_array_get(b->entrypoint, 0)))
        return err_api(e, ERRC_INVALID, "DOCKER::INVALID_ENTRYPOINT",
                       "entrypoint[0]: must not be empty");
    out->entrypoint = b->entrypoint;
    out->metadata = b->metadata;
    out->resources = b->resources;
    out->timeout_s = b->timeout_s;
    out->secure_access = b->secure_access;
    if (take_source(b, out, e) < 0 || take_platform(b, out, e) < 0 || take_env(b, out, e) < 0)
        return -1;
    return take_extensions(b, out, e);
}

int api_decode_create(const struct http_req *rq, json_t **doc, struct create_req *out,
                      struct err *e)
{
    struct create_req made = { 0 };
    struct body b = { 0 };
    json_t *v = api_body(rq, e);

    if (!v)
        return -1;
    if (jx_decode(v, "", body_fields, ARRAY_LEN(body_fields), false, &b, e) < 0 ||
        default_entrypoint(&b, v, e) < 0 || take_body(&b, &made, e) < 0) {
        json_decref(v);
        return -1;
    }
    *out = made;
    *doc = v;
    return 0;
}
