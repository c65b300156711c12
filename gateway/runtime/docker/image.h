/* Images by the name that a client or a snapshot gives them. Knows the form of references and
 * platforms; pulls nothing (pull.h does). Safe from any thread. */
#pragma once
#include "gateway/runtime/runtime.h"

struct engine;
struct err;

enum {
    IMAGE_REF = 512, /* bytes of a reference; the engine's own bound for a name is 255 */
    IMAGE_PLATFORM = 64,
};

/* The name to ask the engine for: the reference, or the image of the snapshot. Checks it, since it
 * becomes part of a path. -1: ERRC_INVALID with SANDBOX::INVALID_PARAMETER. */
int image_name(const struct runtime_image *image, char out[IMAGE_REF], struct err *e);

/* "linux/arm64" as the engine spells it, from what a client or an image calls it; "" when os or
 * arch is NULL or empty. Pure. */
void image_platform(const char *os, const char *arch, char out[IMAGE_PLATFORM]);

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
