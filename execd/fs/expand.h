/* $NAME, ${NAME} and ~ in paths and in values of the env file (contract/execd.md 3 and 6.6).
 * Pure: looks only at the environment it is given. */
#pragma once

struct buf;
struct env;
struct err;

/* Appends s to out with $NAME and ${NAME} replaced; a '$' that begins neither stays as it is.
 * What is not set becomes nothing. -1: out is full. */
int expand_value(const char *s, const struct env *vars, struct buf *out);

/* A path: variables, then a leading "~" or "~/" as HOME ("/" when that is unset).
 * 0: *out is a fresh string the caller frees. -1: ERRC_INVALID naming every variable that is not
 * set, in order of their names. */
int expand_path(const char *path, const struct env *vars, char **out, struct err *e);
