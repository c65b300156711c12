/* Time zones for schedules. UTC and fixed offsets are always there; named zones need the image's
 * /usr/share/zoneinfo. The C library reads those files, with TZ set for the moment of the call: all
 * functions are for the loop's thread, no other thread of the agent asks for local time. */
#pragma once
#include <stdint.h>

struct err;

enum { ZONE_PATH_MAX = 128 };

struct zone {
    int offset_s;                /* of a fixed zone */
    char var[ZONE_PATH_MAX + 8]; /* "TZ=:<file>"; "": fixed */
    char *env[2];
};

/* UTC, GMT, UTC+2, UTC-03:30 (as in ISO 8601, + is east) or a name below /usr/share/zoneinfo.
 * -1: there is no such zone here. *z must stay where it is. */
int zone_open(struct zone *z, const char *name, struct err *e);
/* The sandbox's own: tz (its variable TZ, NULL when not set), else /etc/localtime, else UTC. */
void zone_open_local(struct zone *z, const char *tz);
/* For cron_next; zone is a struct zone. A file that is no longer there counts as UTC. */
int zone_offset(void *zone, int64_t at_s);
