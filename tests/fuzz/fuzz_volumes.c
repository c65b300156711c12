/* The `volumes` of a create request: what is accepted keeps the promises that mounting relies on. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/json/jx.h"
#include "gateway/api/volume_body.h"
#include "gateway/domain/volume_rules.h"

static void must_be_clean(const char *path, int absolute)
{
    MUST(!strstr(path, "//") && !strstr(path, "/../") && strlen(path) < HOST_PATH);
    MUST(absolute ? path[0] == '/' && path[1] : path[0] != '/');
    MUST(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0);
    MUST(strncmp(path, "../", 3) != 0 && strcmp(path, "..") != 0);
}

static void must_hold(const struct volume_req *v)
{
    struct volume_paths p;
    struct err e = { 0 };
    json_t *item;
    size_t i;

    MUST(volume_rules_paths(v, &p, &e) == 0);
    must_be_clean(p.target, 1);
    must_be_clean(p.sub, 0);
    MUST(!host_path_within("/proc", p.target) && !host_path_within("/opt/opensandbox", p.target));
    MUST(!host_path_within(p.target, "/opt/opensandbox"));
    MUST(!strchr(v->name, '/') && *v->name);
    if (v->backend == VOLUME_NAMED)
        MUST(*v->claim && !strpbrk(v->claim, "/.:"));
    if (v->backend == VOLUME_HOST)
        MUST(v->host_path[0] == '/');
    if (v->backend != VOLUME_OSSFS)
        return;
    MUST(!strpbrk(v->ossfs.endpoint, ", \n\r") && !strpbrk(v->ossfs.key_id, ":\n"));
    MUST(!strchr(v->ossfs.key_secret, '\n') && !strpbrk(v->ossfs.bucket, ":/.\n"));
    json_array_foreach((json_t *)v->ossfs.options, i, item) {
        MUST(!strpbrk(json_string_value(item), "/,\n ") && json_string_value(item)[0] != '-');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct volume_list list;
    struct err e = { 0 };
    json_t *v = jx_parse((const char *)data, size, true, &e);
    size_t i;

    if (!json_is_array(v)) {
        json_decref(v);
        return 0;
    }
    if (volume_body_decode(v, &list, &e) == 0) {
        for (i = 0; i < list.len; i++)
            must_hold(&list.items[i]);
    } else {
        MUST(e.code == ERRC_INVALID && e.msg[0]);
    }
    json_decref(v);
    return 0;
}
