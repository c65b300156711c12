/* Path arguments of the file routes (contract/execd.md 3): variables and "~" of the agent's
 * environment, or of the account that a request names (10.5); cleaned by name. */
#pragma once

#include <sys/types.h>

struct env;
struct err;
struct stat;

/* What a path argument is read against. */
struct path_from {
    const struct env *vars;
    const char *cwd; /* absolute, for relative paths; NULL: the agent's working directory */
};

/* 0: *out is a fresh absolute path the caller frees. -1: ERRC_INTERNAL (a variable is not set, or
 * the path is too long), ERRC_INVALID when it is empty. A name that exists just as it was given is
 * taken literally although it looks like a variable. */
int path_resolve(const char *arg, const struct path_from *from, char **out, struct err *e);

/* Removes "." and "..", double and trailing slashes from an absolute path, by name and in place. */
void path_clean(char *path);
/* Follows links in the last component, also to a name that does not exist yet: the name a writer
 * through the link would write to. A fresh string. */
int path_final(const char *path, char **out, struct err *e);
/* The directory part of an absolute, cleaned path: a fresh string, NULL when memory is out. */
char *path_parent(const char *path);
/* mkdir -p with this mode minus umask. */
int path_make(const char *dir, mode_t mode, struct err *e);
/* A failed system call on path: ERRC_NOT_FOUND with code FILE_NOT_FOUND when it is not there. */
int path_fail(struct err *e, int errnum, const char *doing, const char *path);
/* Opens a regular file for reading, links followed, without ever waiting: what is something else is
 * ERRC_INTERNAL. *st is its status. The caller owns the descriptor; -1: err set. */
int path_open_regular(const char *path, const char *doing, struct stat *st, struct err *e);
