#include "gateway/api/volume_body.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "gateway/domain/volume_rules.h"

#include <stdio.h>

enum { AT = 32, PATH_MAX_LEN = HOST_PATH - 1, ACCESS_MODES_MAX = 16, WORD_MAX = 1024 };

struct volume_json {
    json_t *host;
    json_t *pvc;
    json_t *ossfs;
    const char *name;
    const char *mount_path;
    const char *sub_path;
    bool read_only;
};

#define F(n, k, f, fl, len)                                                                        \
    {                                                                                              \
        n, k, offsetof(struct volume_json, f), fl, 0, 0, len                                       \
    }
#define V(n, k, f, fl, hi, len)                                                                    \
    {                                                                                              \
        n, k, offsetof(struct volume_req, f), fl, 0, hi, len                                       \
    }

static const struct jx_field volume_fields[] = {
    F("name", JX_STR, name, JX_REQUIRED, WORD_MAX),
    F("mountPath", JX_STR, mount_path, JX_REQUIRED, PATH_MAX_LEN),
    F("subPath", JX_STR, sub_path, JX_NULLABLE, PATH_MAX_LEN),
    F("readOnly", JX_BOOL, read_only, JX_NULLABLE | JX_LAX, 0),
    F("host", JX_OBJ, host, JX_NULLABLE, 0),
    F("pvc", JX_OBJ, pvc, JX_NULLABLE, 0),
    F("ossfs", JX_OBJ, ossfs, JX_NULLABLE, 0),
};

static const struct jx_field host_fields[] = {
    V("path", JX_STR, host_path, JX_REQUIRED, 0, PATH_MAX_LEN),
};

/* What a cluster would make of them has no meaning for an engine's volume: types are checked only. */
struct unused {
    const char *storage_class;
    json_t *access_modes;
};

static const struct jx_field pvc_fields[] = {
    V("claimName", JX_STR, claim, JX_REQUIRED, 0, WORD_MAX),
    V("createIfNotExists", JX_BOOL, create, JX_NULLABLE | JX_LAX, 0, 0),
    V("deleteOnSandboxTermination", JX_BOOL, delete_with_sandbox, JX_NULLABLE | JX_LAX, 0, 0),
    V("storage", JX_STR, storage, JX_NULLABLE, 0, 64),
};

static const struct jx_field unused_fields[] = {
    { "storageClass", JX_STR, offsetof(struct unused, storage_class), JX_NULLABLE, 0, 0, 253 },
    { "accessModes", JX_STR_LIST, offsetof(struct unused, access_modes), JX_NULLABLE, 0,
      ACCESS_MODES_MAX, 64 },
};

static const struct jx_field ossfs_fields[] = {
    V("bucket", JX_STR, ossfs.bucket, JX_REQUIRED, 0, WORD_MAX),
    V("endpoint", JX_STR, ossfs.endpoint, JX_REQUIRED, 0, WORD_MAX),
    V("version", JX_STR, ossfs.version, JX_NULLABLE, 0, 16),
    V("options", JX_STR_LIST, ossfs.options, JX_NULLABLE, OSSFS_OPTIONS_MAX, WORD_MAX),
    V("accessKeyId", JX_STR, ossfs.key_id, JX_NULLABLE, 0, WORD_MAX),
    V("accessKeySecret", JX_STR, ossfs.key_secret, JX_NULLABLE, 0, WORD_MAX),
};

static int take_host(const json_t *obj, const char *at, struct volume_req *v, struct err *e)
{
    char where[AT + 8];

    (void)snprintf(where, sizeof(where), "%s.host", at);
    v->backend = VOLUME_HOST;
    return jx_decode(obj, where, host_fields, ARRAY_LEN(host_fields), false, v, e);
}

static int take_pvc(const json_t *obj, const char *at, struct volume_req *v, struct err *e)
{
    struct unused unused = { 0 };
    char where[AT + 8];

    (void)snprintf(where, sizeof(where), "%s.pvc", at);
    v->backend = VOLUME_NAMED;
    v->create = true;
    if (jx_decode(obj, where, unused_fields, ARRAY_LEN(unused_fields), false, &unused, e) < 0)
        return -1;
    return jx_decode(obj, where, pvc_fields, ARRAY_LEN(pvc_fields), false, v, e);
}

static int take_ossfs(const json_t *obj, const char *at, struct volume_req *v, struct err *e)
{
    char where[AT + 8];

    (void)snprintf(where, sizeof(where), "%s.ossfs", at);
    v->backend = VOLUME_OSSFS;
    v->ossfs.version = "2.0";
    return jx_decode(obj, where, ossfs_fields, ARRAY_LEN(ossfs_fields), false, v, e);
}

static int take_one(const json_t *obj, const char *at, struct volume_req *v, struct err *e)
{
    struct volume_json j = { 0 };

    if (json_is_null(obj))
        return err_set(e, ERRC_INVALID, "%s: must be an object", at);
    if (jx_decode(obj, at, volume_fields, ARRAY_LEN(volume_fields), false, &j, e) < 0)
        return -1;
    if (!!j.host + !!j.pvc + !!j.ossfs != 1)
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_BACKEND",
                       "%s: exactly one of host, pvc and ossfs must be given", at);
    v->name = j.name;
    v->mount_path = j.mount_path;
    v->sub_path = j.sub_path && *j.sub_path ? j.sub_path : NULL;
    v->read_only = j.read_only;
    if (j.host)
        return take_host(j.host, at, v, e);
    return j.pvc ? take_pvc(j.pvc, at, v, e) : take_ossfs(j.ossfs, at, v, e);
}

int volume_body_decode(const json_t *volumes, struct volume_list *out, struct err *e)
{
    size_t n = json_array_size(volumes);
    char at[AT];
    size_t i;

    *out = (struct volume_list){ 0 };
    if (n > VOLUMES_MAX)
        return err_set(e, ERRC_INVALID, "volumes: at most %d", VOLUMES_MAX);
    for (i = 0; i < n; i++) {
        (void)snprintf(at, sizeof(at), "volumes[%zu]", i);
        if (take_one(json_array_get(volumes, i), at, &out->items[i], e) < 0)
            return -1;
    }
    out->len = n;
    return volume_rules_check(out, e);
}
