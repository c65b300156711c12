/* Path arguments of the file routes (contract/execd.md 3): variables and "~" of the agent's
 * environment, relative to the agent's working directory, cleaned by name. */
#pragma once

struct env;
struct err;

/* 0: *out is a fresh absolute path the caller frees. -1: ERRC_INTERNAL (a variable is not set, or
 * the path is too long), ERRC_INVALID when it is empty. A name that exists just as it was given is
 * taken literally although it looks like a variable. */
int path_resolve(const char *arg, const struct env *vars, char **out, struct err *e);

/* Removes "." and "..", double and trailing slashes from an absolute path, by name and in place. */
void path_clean(char *path);
/* Follows links in the last component, also to a name that does not exist yet: the name a writer
 * through the link would write to. A fresh string. */
int path_final(const char *path, char **out, struct err *e);
/* The directory part of an absolute, cleaned path: a fresh string, NULL when memory is out. */
char *path_parent(const char *path);
/* mkdir -p with mode 0777 minus umask. */
int path_make(const char *dir, struct err *e);
/* A failed system call on path: ERRC_NOT_FOUND with code FILE_NOT_FOUND when it is not there. */
int path_fail(struct err *e, int errnum, const char *doing, const char *path);
