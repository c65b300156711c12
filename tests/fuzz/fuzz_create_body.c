/* Bodies of the lifecycle API: create and telemetry, by the decoders that serve them. */
#include "tests/fuzz/fuzz.h"

#include "gateway/api/api.h"
#include "gateway/domain/lifecycle.h"

#include <string.h>

static void create(const struct http_req *rq)
{
    struct create_req out = { 0 };
    struct err e = { 0 };
    json_t *doc = NULL;

    if (api_decode_create(rq, &doc, &out, &e) < 0) {
        MUST(!doc && e.code == ERRC_INVALID && e.msg[0]);
        return;
    }
    MUST(out.snapshot_id ? *out.snapshot_id && !out.image : out.image && *out.image);
    MUST(json_array_size(out.entrypoint) > 0 && out.volumes.len <= VOLUMES_MAX);
    MUST(out.timeout_s == 0 || out.timeout_s >= LIFECYCLE_TIMEOUT_MIN_S);
    MUST(!out.registry_user == !out.registry_password);
    MUST(!out.platform_os == !out.platform_arch);
    MUST(out.pre_start_s >= 0 && out.pre_start_s <= API_PRE_START_MAX_S);
    MUST(out.hooks ? json_object_size(out.hooks) > 0 : out.pre_start_s == 0);
    MUST(strlen(out.body_sha256) == 64);
    json_decref(doc);
}

static void event(const struct http_req *rq)
{
    struct api_event ev;
    struct err e = { 0 };

    if (api_decode_event(rq, &ev, &e) == 0)
        MUST(ev.duration_ms >= 0 && ev.duration_ms <= INT32_MAX);
    else
        MUST(e.code == ERRC_INVALID && e.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct http_req rq = { .body = text, .body_len = size };

    create(&rq);
    event(&rq);
    free(text);
    return 0;
}
