/* What a client may ask for as volumes, and the rules that need nothing but the words
 * (contract/lifecycle.md 5, and stricter where a mount would reach into the agent or the kernel).
 * Pure; safe from any thread. */
#pragma once
#include "gateway/domain/host_path.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

enum {
    VOLUMES_MAX = 64,     /* of one sandbox */
    VOLUME_NAME_MAX = 63, /* contract 5 */
    VOLUME_CLAIM_MAX = 253,
    OSSFS_OPTIONS_MAX = 32,
    OSSFS_TEXT_MAX = 255, /* of an option, endpoint, key */
};

enum volume_backend {
    VOLUME_HOST,
    VOLUME_NAMED, /* "pvc" */
    VOLUME_OSSFS,
};

/* A bucket of an object store, mounted by the server. */
struct ossfs_req {
    const char *bucket;
    const char *endpoint;
    const char *version;   /* "1.0", "2.0" */
    const json_t *options; /* array of strings; NULL: none */
    const char *key_id;    /* secrets: never in logs, errors, arguments */
    const char *key_secret;
};

/* One volume; strings are borrowed, NULL: absent. */
struct volume_req {
    const char *name;
    const char *mount_path;
    const char *sub_path;
    bool read_only;
    enum volume_backend backend;
    const char *host_path;    /* VOLUME_HOST */
    const char *claim;        /* VOLUME_NAMED: the volume's name */
    const char *storage;      /* its size: has no effect here, but must be one */
    bool create;              /* when it is missing */
    bool delete_with_sandbox; /* if this request made it */
    struct ossfs_req ossfs;   /* VOLUME_OSSFS */
};

struct volume_list {
    struct volume_req items[VOLUMES_MAX];
    size_t len;
};

/* A volume's paths as they are used: clean. */
struct volume_paths {
    char target[HOST_PATH];
    char sub[HOST_PATH]; /* "": none */
};

/* ERRC_INVALID with VOLUME::... for the first rule that is broken; the message names the volume and
 * what to change. */
int volume_rules_check(const struct volume_list *list, struct err *e);
/* The same for one volume alone; fills *out. */
int volume_rules_paths(const struct volume_req *v, struct volume_paths *out, struct err *e);
