#include "gateway/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[SNAPSHOT_STATE_MAX_] = {
    [SNAPSHOT_CREATING] = "Creating",
    [SNAPSHOT_READY] = "Ready",
    [SNAPSHOT_FAILED] = "Failed",
    [SNAPSHOT_DELETING] = "Deleting",
};

const char *snapshot_state_to_string(enum snapshot_state s)
{
    return (unsigned)s < SNAPSHOT_STATE_MAX_ ? names[s] : "Unknown";
}

int snapshot_state_parse(const char *s)
{
    int i;

    for (i = 0; i < SNAPSHOT_STATE_MAX_; i++)
        if (strcmp(names[i], s) == 0)
            return i;
    return -1;
}

void snapshot_set_state(struct snapshot *s, enum snapshot_state state, const char *reason,
                        const char *message, int64_t now_ms)
{
    s->state = state;
    s->transition_ms = now_ms > s->transition_ms ? now_ms : s->transition_ms;
    (void)snprintf(s->reason, sizeof(s->reason), "%s", reason);
    (void)snprintf(s->message, sizeof(s->message), "%s", message);
}

void snapshot_page_done(struct snapshot_page *p)
{
    free(p->items);
    *p = (struct snapshot_page){ 0 };
}
