#include "gateway/runtime/docker/info.h"

#include "common/base/err.h"
#include "gateway/runtime/docker/engine.h"

#include <string.h>

#define FAILED "DOCKER::INITIALIZATION_ERROR"

static bool is_set(const char *s)
{
    return s && *s;
}

static int check_runtime(const json_t *info, const char *name, struct err *e)
{
    if (json_object_get(json_object_get(info, "Runtimes"), name))
        return 0;
    return err_api(
        e, ERRC_INTERNAL, FAILED,
        "the container engine has no runtime \"%.64s\", which [secure_runtime] asks for: "
        "install it and add it to the engine's configuration, or take secure_runtime "
        "out",
        name);
}

/* An engine without AppArmor takes any profile and applies none. */
static int check_apparmor(const json_t *info, const char *profile, struct err *e)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(info, "SecurityOptions"), i, item) {
        const char *s = json_string_value(item);

        if (s && strstr(s, "apparmor"))
            return 0;
    }
    return err_api(e, ERRC_INTERNAL, FAILED,
                   "docker.apparmor_profile = \"%.64s\": the container engine has no AppArmor, so "
                   "no sandbox would be confined by it; enable AppArmor on the host or take the "
                   "key out",
                   profile);
}

int info_check(const struct runtime_config *cfg, struct engine *en, struct err *e)
{
    const struct engine_call c = { .method = "GET", .path = "/info" };
    bool apparmor =
        is_set(cfg->apparmor_profile) && strcmp(cfg->apparmor_profile, "unconfined") != 0;
    json_auto_t *info = NULL;

    if (!is_set(cfg->docker_runtime) && !apparmor)
        return 0;
    if (engine_do(en, &c, "ask the engine what it can do", &info, e) < 0)
        return -1;
    if (is_set(cfg->docker_runtime) && check_runtime(info, cfg->docker_runtime, e) < 0)
        return -1;
    return apparmor ? check_apparmor(info, cfg->apparmor_profile, e) : 0;
}
