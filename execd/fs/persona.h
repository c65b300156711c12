/* Working with the file rights of another account for a while: one thread, not the process
 * (contract/execd.md 10.5). The effective and the file system ids change, the supplementary groups
 * become those of the account, and without uid 0 no capability is in force; the kernel then decides
 * about every path. The real and saved ids stay the agent's: the account's own programs could send
 * signals to the thread otherwise, and the way back needs them. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;
struct identity;

/* What a thread was before; on the caller's stack. */
struct persona {
    bool switched;
    bool regrouped;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    int n_groups;
    unsigned caps[2];
};

/* The calling thread is id from here on. -1: it is what it was, and err says FILESYSTEM_IDENTITY_
 * UNAVAILABLE (503). */
int persona_enter(struct persona *old, const struct identity *id, struct err *e);
/* Back again, on the same thread. The process ends if that fails: a thread with rights that nobody
 * expects must not go on. Harmless when nothing was entered. */
void persona_leave(struct persona *old);
