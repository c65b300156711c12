/* Named volumes: verbs of runtime.h. */
#pragma once
#include "gateway/runtime/runtime.h"

/* When the engine cannot tell: VOLUME::PVC_INSPECT_FAILED with its words. path is "" for a local volume
 * with a device, too: it is mounted there only while a container uses it. */
int docker_volume_get(struct runtime *rt, const char *name, struct runtime_volume *out,
                      struct err *e);
int docker_volume_make(struct runtime *rt, const char *name, const char *sandbox_id, struct err *e);
int docker_volume_remove(struct runtime *rt, const char *name, const char *sandbox_id,
                         struct err *e);
