/* The record of a snapshot (contract/lifecycle.md 6): plain data shared by domain, store and api. */
#pragma once
#include "gateway/sandbox.h"

#include <stddef.h>
#include <stdint.h>

/* Creating → Ready or Failed; Ready → Failed when its image was removed behind our back; Ready or
 * Failed → Deleting → gone. Every step is a compare-and-set in the store. */
enum snapshot_state {
    SNAPSHOT_CREATING, /* intent is written, the files are being captured */
    SNAPSHOT_READY,
    SNAPSHOT_FAILED,
    SNAPSHOT_DELETING, /* intent is written, the image is being removed */
    SNAPSHOT_STATE_MAX_,
};

const char *snapshot_state_to_string(enum snapshot_state s); /* as on the wire: "Creating" */
int snapshot_state_parse(const char *s);                     /* exact; -1 when unknown */

enum { SNAPSHOT_NAME_MAX = 256 }; /* bytes */

struct snapshot {
    char id[RUNTIME_ID];
    char sandbox_id[RUNTIME_ID];      /* the source; it may be gone */
    char name[SNAPSHOT_NAME_MAX + 1]; /* "": none */
    enum snapshot_state state;
    char reason[SANDBOX_REASON];
    char message[SANDBOX_MESSAGE];
    int64_t transition_ms; /* wall */
    int64_t created_ms;
    int64_t size_bytes;   /* of what it adds to its image; 0: unknown */
    char platform_os[16]; /* the source's; "" when it did not ask for one */
    char platform_arch[16];
};

void snapshot_set_state(struct snapshot *s, enum snapshot_state state, const char *reason,
                        const char *message, int64_t now_ms);

/* What a list shows. NULL: any. */
struct snapshot_query {
    const char *sandbox_id;
    const char *name;
    const char *states; /* JSON array of names, compared exactly */
    int64_t offset;
    int64_t limit;
};

/* A page of a list; owns its items. */
struct snapshot_page {
    struct snapshot *items;
    size_t len;
    int64_t total; /* of all that match */
};
void snapshot_page_done(struct snapshot_page *p);
#define AUTO_SNAPSHOTS __attribute__((cleanup(snapshot_page_done)))
