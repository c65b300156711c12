/* The env file that commands.set_env of the SDK appends to (contract/execd.md 6.6): read again
 * for every command. */
#pragma once
#include <stddef.h>

struct env;
struct err;

enum { ENVFILE_MAX = 1 << 20 }; /* bytes; of a larger file the rest is not looked at */

/* Applies the entries of text (NUL-terminated) to out, later ones over earlier ones. Bare and
 * double-quoted values see the variables of base. *skipped counts what was not an entry.
 * -1: out of memory. */
int envfile_apply(const char *text, const struct env *base, struct env *out, unsigned *skipped);

/* Reads path and applies it. A file that is missing, no regular file or not readable is ignored
 * (the latter two with a warning in the log). -1: out of memory. */
int envfile_load(const char *path, const struct env *base, struct env *out, struct err *e);
