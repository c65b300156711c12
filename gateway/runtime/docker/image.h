/* Images by the name that a client or a snapshot gives them. Knows the form of references and
 * platforms (image_ref.h); pulls nothing (pull.h does). Safe from any thread. */
#pragma once
#include "gateway/runtime/docker/image_ref.h"

enum { IMAGE_LABELS_MAX = 128 << 10 }; /* bytes; many times what labels are used for */

struct engine;
struct err;

/* What is on the engine under a name. */
struct image_found {
    bool there;
    bool fits;                     /* there, and of the platform that was asked for */
    char platform[IMAGE_PLATFORM]; /* of what is there */
};

/* One engine call. */
int image_look(struct engine *en, const struct runtime_image *image, struct image_found *out,
               struct err *e);
/* ERRC_CONFLICT with SNAPSHOT::INVALID_RESTORE_CONFIG; why: the engine's words. Returns -1. */
int image_no_snapshot(const struct runtime_image *image, const char *why, struct err *e);
