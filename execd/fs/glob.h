/* Patterns for names of files (contract/execd.md 10.1): * ? [a-z] [!x] {a,b} \ and a leading
 * "**"-slash; !(p) around the whole. Matches one name without its directory, characters being UTF-8
 * (a byte that is none counts as one). Time grows with pattern length times name length, whatever
 * the pattern. Pure; a compiled pattern is read-only, for any thread. */
#pragma once
#include <stdbool.h>

struct err;
struct glob;

enum {
    GLOB_PATTERN_MAX = 1024, /* bytes */
    GLOB_NEST_MAX = 32,      /* braces within braces */
    GLOB_NAME_MAX = 255,     /* longer names match nothing */
};

/* NULL: err set (ERRC_INTERNAL: a bad pattern is 500 when it meets a name). */
struct glob *glob_compile(const char *pattern, struct err *e);
bool glob_match(const struct glob *g, const char *name);
void glob_free(struct glob *g); /* takes NULL */
