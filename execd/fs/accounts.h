/* Accounts and groups from /etc/passwd and /etc/group of the container, read by hand: a static
 * program has no name service. The parsers are pure; the look-ups read the files each time (they
 * are small, and the sandbox may change them). Safe from any thread. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

struct err;

enum {
    ACCOUNTS_FILE_MAX = 1 << 20, /* bytes of either file that are looked at */
    ACCOUNT_GROUPS_MAX = 256,    /* supplementary groups of one account */
    ACCOUNT_TEXT = 256,          /* longest name or home directory, with the terminator */
};

struct account {
    uid_t uid;
    gid_t gid;
    char name[ACCOUNT_TEXT];
    char home[ACCOUNT_TEXT];
};

/* ---- pure: over the text of the file, NUL-terminated ---- */

/* 1: *out is the first account with that name (or, name NULL, that uid); 0: there is none. */
int accounts_find(const char *passwd, const char *name, uid_t uid, struct account *out);
/* 1: the first group of that name. */
int groups_find(const char *group, const char *name, gid_t *out);
/* 1: the name of the group with that id. */
int groups_name(const char *group, gid_t gid, char out[ACCOUNT_TEXT]);
/* The groups that list name as a member; at most max of them. Returns how many. */
size_t groups_of(const char *group, const char *name, gid_t *out, size_t max);

/* ---- with the container's files ---- */

/* The text of /etc/passwd or /etc/group; "" when there is none. NULL: out of memory. */
char *accounts_read(const char *path);

/* As accounts_read, but a file that is there and cannot be read is an error. */
int accounts_load(const char *path, char **out, struct err *e);

/* What a command with this uid (and gid, when has_gid) runs as. An account that is not listed has
 * no supplementary groups and the group with its own number, never the agent's group. */
struct identity {
    uid_t uid;
    gid_t gid;
    gid_t groups[ACCOUNT_GROUPS_MAX];
    size_t n_groups;
    struct account account; /* name is "" when uid is not listed */
};
/* -1: the account files cannot be read: nothing may be done with half of an identity. */
int identity_look_up(uid_t uid, int has_gid, gid_t gid, struct identity *out, struct err *e);
