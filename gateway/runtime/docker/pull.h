/* Image pulls, one per reference at a time: whoever wants the same image waits for the pull that
 * runs. Safe from any thread. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct pulls;

struct pulls *pulls_new(int timeout_ms); /* NULL: out of memory */
void pulls_free(struct pulls *ps);       /* no pull may run any more; takes NULL */

/* Blocks until image->ref is on the engine. Callers share a pull only when image, platform and
 * credentials are the same. -1: DOCKER::SANDBOX_IMAGE_PULL_FAILED with the engine's words. */
int pulls_get(struct pulls *ps, struct engine *en, const struct runtime_image *image,
              struct err *e);

enum { PULL_REF = 512 };
struct pull_ref {
    char name[PULL_REF];
    char tag[PULL_REF]; /* or digest; never empty: without one the engine pulls every tag */
};
/* Splits an image reference as the engine's API wants it. Pure. -1: too long or an image id. */
int pull_split(const char *image, struct pull_ref *out);
