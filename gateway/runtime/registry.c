#include "common/base/err.h"
#include "common/base/macros.h"
#include "gateway/runtime/docker/docker.h"
#include "gateway/runtime/runtime.h"

#include <string.h>

/* The backends, by the value of runtime.type in the configuration. */
static const struct {
    const char *type;
    int (*open)(const struct runtime_config *cfg, struct runtime **out, struct err *e);
} backends[] = {
    { "docker", docker_open },
};

int runtime_open(const char *type, const struct runtime_config *cfg, struct runtime **out,
                 struct err *e)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(backends); i++)
        if (strcmp(backends[i].type, type) == 0)
            return backends[i].open(cfg, out, e);
    return err_set(e, ERRC_INVALID, "runtime.type \"%.40s\" is not known; use \"docker\"", type);
}
