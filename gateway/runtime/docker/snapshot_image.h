/* What a snapshot's image is: the layers that the engine committed, under a configuration of our
 * own making. Pure. */
#pragma once
#include <jansson.h>

struct buf;

/* Labels and command of a container that is committed, made meaningless as far as the engine lets:
 * the body of POST /commit. The engine fills in what is empty from the container. */
json_t *snapshot_image_blank(void);

/* The image's configuration (OCI image specification, config.json) from GET /images/{name}/json of
 * the committed image and of the image that the sandbox was made from; base is NULL when that is
 * gone. Has the base's environment, user, directory, command and labels, and nothing of the
 * sandbox: without a base no command, no health check and not the agent's port. NULL: not such
 * replies, or out of memory. */
json_t *snapshot_image_config(json_t *committed, json_t *base);

/* The archive for POST /images/load: the configuration under that name, and no layers, because
 * the engine takes those that it has by their ids. 0, or -1: out of memory. */
int snapshot_image_archive(const json_t *config, const char *name, struct buf *out);
