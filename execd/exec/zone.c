#include "execd/exec/zone.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ZONE_DIR "/usr/share/zoneinfo/"
#define ZONE_LOCAL "/etc/localtime"

enum { OFFSET_HOURS_MAX = 14 };

/* A regular file with the right beginning: what the C library would silently take for UTC must not
 * pass, and nothing that blocks may be opened by it. */
static bool is_zone_file(const char *path)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char magic[4];

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
           memcmp(magic, "TZif", 4) == 0;
}

static void use_file(struct zone *z, const char *path)
{
    (void)snprintf(z->var, sizeof(z->var), "TZ=:%s", path);
}

static bool is_name(const char *name)
{
    const char *p;

    for (p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_+-/", *p))
            return false;
    return *name && *name != '/' && strlen(name) + sizeof(ZONE_DIR) <= ZONE_PATH_MAX;
}

/* One or two digits. */
static bool read_digits(const char **p, int *out)
{
    int n = 0;

    for (*out = 0; n < 2 && isdigit((unsigned char)**p); n++)
        *out = *out * 10 + (*(*p)++ - '0');
    return n > 0;
}

/* UTC, GMT, UTC+h, UTC-hh:mm. */
static bool read_fixed(const char *name, int *out)
{
    const char *p;
    int hours = 0;
    int minutes = 0;
    int sign;

    if (strcmp(name, "UTC") == 0 || strcmp(name, "GMT") == 0) {
        *out = 0;
        return true;
    }
    if (strncmp(name, "UTC", 3) != 0 || (name[3] != '+' && name[3] != '-'))
        return false;
    sign = name[3] == '-' ? -1 : 1;
    p = name + 4;
    if (!read_digits(&p, &hours))
        return false;
    if (*p == ':') {
        p++;
        if (!read_digits(&p, &minutes))
            return false;
    }
    if (*p || hours > OFFSET_HOURS_MAX || minutes > 59)
        return false;
    *out = sign * (hours * 3600 + minutes * 60);
    return true;
}

int zone_open(struct zone *z, const char *name, struct err *e)
{
    char path[ZONE_PATH_MAX];

    *z = (struct zone){ 0 };
    if (read_fixed(name, &z->offset_s))
        return 0;
    if (!is_name(name))
        return err_set(e, ERRC_INVALID, "time zone %.64s is not a name", name);
    (void)snprintf(path, sizeof(path), ZONE_DIR "%s", name);
    if (!is_zone_file(path))
        return err_set(e, ERRC_INVALID,
                       "time zone %.64s is not in this image (%.128s is no zone file); "
                       "UTC and offsets such as UTC+2 always work",
                       name, path);
    use_file(z, path);
    return 0;
}

void zone_open_local(struct zone *z, const char *tz)
{
    struct err e;

    *z = (struct zone){ 0 };
    if (tz && *tz) {
        if (zone_open(z, *tz == ':' ? tz + 1 : tz, &e) < 0) {
            log_warn("TZ names no zone of this image, schedules are in UTC", LOG_S("error", e.msg));
            *z = (struct zone){ 0 };
        }
    } else if (is_zone_file(ZONE_LOCAL)) {
        use_file(z, ZONE_LOCAL);
    }
}

int zone_offset(void *zone, int64_t at_s)
{
    struct zone *z = zone;
    time_t t = (time_t)at_s;
    char **saved;
    struct tm tm;
    bool ok;

    if (!z->var[0])
        return z->offset_s;
    if (!is_zone_file(z->var + strlen("TZ=:")))
        return 0;
    z->env[0] = z->var;
    saved = environ;
    environ = z->env;
    tzset();
    ok = localtime_r(&t, &tm) != NULL;
    environ = saved;
    return ok ? (int)tm.tm_gmtoff : 0;
}
