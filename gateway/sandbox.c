#include "gateway/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[SANDBOX_STATE_MAX_] = {
    [SANDBOX_PENDING] = "Pending",       [SANDBOX_RUNNING] = "Running",
    [SANDBOX_PAUSED] = "Paused",         [SANDBOX_STOPPING] = "Stopping",
    [SANDBOX_TERMINATED] = "Terminated", [SANDBOX_FAILED] = "Failed",
};

const char *sandbox_state_to_string(enum sandbox_state s)
{
    return (unsigned)s < SANDBOX_STATE_MAX_ ? names[s] : "Unknown";
}

int sandbox_state_parse(const char *s)
{
    int i;

    for (i = 0; i < SANDBOX_STATE_MAX_; i++)
        if (strcmp(names[i], s) == 0)
            return i;
    return -1;
}

void sandbox_done(struct sandbox *sb)
{
    free(sb->image);
    free(sb->entrypoint);
    free(sb->metadata);
    free(sb->extensions);
    *sb = (struct sandbox){ 0 };
}

void sandbox_set_state(struct sandbox *sb, enum sandbox_state state, const char *reason,
                       const char *message, int64_t now_ms)
{
    sb->state = state;
    sb->transition_ms = now_ms;
    (void)snprintf(sb->reason, sizeof(sb->reason), "%s", reason);
    (void)snprintf(sb->message, sizeof(sb->message), "%s", message);
}

void sandbox_page_done(struct sandbox_page *p)
{
    size_t i;

    for (i = 0; i < p->len; i++)
        sandbox_done(&p->items[i]);
    free(p->items);
    *p = (struct sandbox_page){ 0 };
}
