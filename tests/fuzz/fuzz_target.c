/* Paths of the data plane: the gateway's /sandboxes/{id}/proxy/{port} and /signed/..., the agent's
 * /proxy/{port}. Whatever is taken must be made of the bytes that came. */
#include "tests/fuzz/fuzz.h"

#include "execd/proxy/port_path.h"
#include "gateway/proxy/target.h"

static void gateway_path(const char *path, size_t len)
{
    struct target t = { 0 };

    if (target_parse(path, len, &t) != TARGET_PROXY)
        return;
    MUST(t.port > 0 && t.id[0] && strlen(t.id) < sizeof(t.id));
    MUST(t.rest == path + t.prefix_len && t.rest_len == len - t.prefix_len);
    MUST(!t.rest_len || *t.rest == '/' || *t.rest == '?');
    MUST(!t.expires[0] == !t.signature[0]);
    MUST(memmem(path, t.prefix_len, t.id, strlen(t.id)));
}

static void agent_path(const char *path, size_t len)
{
    struct port_path at = { 0 };

    if (port_path_parse(path, len, &at) != PORT_PATH_PORT)
        return;
    MUST(at.port > 0);
    MUST(at.rest >= path && at.rest + at.rest_len == path + len);
    MUST(!at.rest_len || *at.rest == '/' || *at.rest == '?');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1); /* no terminator: a read past the end shows */

    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    gateway_path(copy, size);
    agent_path(copy, size);
    free(copy);
    return 0;
}
