/* Image references and platforms as texts: what a client calls an image, and what the engine wants to hear. Pure. */
#pragma once
#include "gateway/runtime/runtime.h"

struct err;

enum {
    IMAGE_REF = 512, /* bytes of a reference; the engine's own bound for a name is 255 */
    IMAGE_PLATFORM = 64,
};

/* The name to ask the engine for: the reference, or the image of the snapshot. Checks it, since it
 * becomes part of a path. -1: ERRC_INVALID with SANDBOX::INVALID_PARAMETER. */
int image_ref_name(const struct runtime_image *image, char out[IMAGE_REF], struct err *e);

/* "linux/arm64" as the engine spells it, from what a client or an image calls it; "" when os or
 * arch is NULL or empty. Pure. */
void image_ref_platform(const char *os, const char *arch, char out[IMAGE_PLATFORM]);

struct image_ref {
    char name[IMAGE_REF];
    char tag[IMAGE_REF]; /* or digest; without one "latest": the engine would pull every tag */
};
/* Splits a reference as the engine's API wants it. -1: too long or an image id. */
int image_ref_split(const char *ref, struct image_ref *out);
