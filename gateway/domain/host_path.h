/* Paths of the engine's host that sandboxes may mount (design decision 19). A path is resolved
 * beneath an open directory, so that nothing in it leads outside: no "..", no link that leaves the
 * directory, no magic link. What is found is told by device and inode: whoever uses the path later
 * can compare. Blocks on disks; safe from any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct err;
struct host_roots;

enum {
    HOST_PATH = 1024,     /* bytes of a path with its terminator: RUNTIME_PATH */
    HOST_PATH_PARTS = 64, /* components */
};

/* What a path led to. */
struct host_place {
    int fd;               /* O_PATH; as long as it is open the inode is not given away; -1: none */
    char path[HOST_PATH]; /* without links */
    dev_t dev;
    ino_t ino;
};
void host_place_done(struct host_place *p); /* closes; for a fresh one set fd to -1 first */

/* Something that no sandbox may reach; an allowed path may be neither it nor above it. */
struct host_secret {
    const char *what; /* "the engine's socket" */
    const char *path; /* NULL: there is none */
};

/* allowed: NULL-terminated, borrowed for the call; missing directories are made. ERRC_INVALID with
 * what to change for an entry that cannot be used. */
int host_roots_new(const char *const *allowed, const struct host_secret *secrets, size_t n_secrets,
                   struct host_roots **out, struct err *e);
void host_roots_free(struct host_roots *r); /* takes NULL */

/* path: absolute, as a client names it; sub: relative or NULL. With make: directories that are
 * missing are made, mode 0755, owned as what they are made in. Without: *out is filled only when
 * the whole path exists, else fd is -1 (what exists of it is allowed).
 * VOLUME::HOST_PATH_NOT_ALLOWED, HOST_PATH_NOT_FOUND (ERRC_INVALID), HOST_PATH_CREATE_FAILED. */
int host_roots_open(const struct host_roots *r, const char *path, const char *sub, bool make,
                    struct host_place *out, struct err *e);

/* The same below a directory of the server's own choice, which must exist. ERRC_FORBIDDEN: sub
 * leaves root, or is neither a directory nor a file. ERRC_NOT_FOUND: something on the way is not a
 * directory, or a link that leads nowhere. ERRC_UNSUPPORTED: root cannot be opened. ERRC_SYS else. */
int host_path_beneath(const char *root, const char *sub, bool make, struct host_place *out,
                      struct err *e);

/* True when a is b or lies above it, both absolute and without "..". */
bool host_path_within(const char *a, const char *b);
/* Absolute path without "//", "/./" and "/" at its end; -1: relative, has "..", control
 * characters, or does not fit. out holds HOST_PATH bytes. */
int host_path_clean(const char *path, char out[HOST_PATH]);
/* The same for a relative one, which may become "". */
int host_path_clean_relative(const char *path, char out[HOST_PATH]);

/* For tests: as on a kernel without openat2(2), where links are refused altogether. */
void host_roots_avoid_openat2(struct host_roots *r);
