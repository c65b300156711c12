/* Mode, owner and group as the API has them: a mode is written in decimal digits that mean octal,
 * owner and group are names (contract/execd.md 10). */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

struct perms {
    bool has_mode;
    bool has_uid;
    bool has_gid;
    mode_t mode;
    uid_t uid;
    gid_t gid;
};

/* 755 is 0755; bits above 0777 are dropped. -1: a digit is 8 or 9, or it is negative. */
int perms_mode(int64_t digits, mode_t *out);
/* The permission bits as such digits. */
int64_t perms_digits(mode_t mode);
/* digits 0, owner and group NULL or "": leave as they are. A name that is not in the account files
 * is ERRC_INVALID, a bad digit ERRC_INTERNAL. */
int perms_resolve(int64_t digits, const char *owner, const char *group, struct perms *out,
                  struct err *e);
/* On an open file. */
int perms_apply_fd(int fd, const struct perms *p, struct err *e);
int perms_apply(const char *path, const struct perms *p, struct err *e);
