#include "gateway/domain/volume_rules.h"

#include "common/agent/wire.h"
#include "common/base/err.h"
#include "common/base/macros.h"

#include <ctype.h>
#include <string.h>

enum { BUCKET_MIN = 3, BUCKET_MAX = 63 };

#define BAD(e, code, v, ...) bad(e, "VOLUME::" code, (v)->name, __VA_ARGS__)

static int bad(struct err *e, const char *code, const char *name, const char *what)
{
    return err_api(e, ERRC_INVALID, code, "volume '%.63s': %s", name, what);
}

/* ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ */
static bool label_ok(const char *s, size_t max)
{
    size_t len = strlen(s);
    size_t i;

    if (!len || len > max || s[0] == '-' || s[len - 1] == '-')
        return false;
    for (i = 0; i < len; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '-')
            return false;
    return true;
}

/* Graphic ASCII without the characters in `but`. */
static bool word_ok(const char *s, const char *but)
{
    size_t len = strlen(s);
    size_t i;

    for (i = 0; i < len; i++)
        if (!isgraph((unsigned char)s[i]) || strchr(but, s[i]))
            return false;
    return len > 0 && len <= OSSFS_TEXT_MAX;
}

/* ---- where it is mounted ---- */

static int check_target(const struct volume_req *v, const char *target, struct err *e)
{
    /* what the server or the engine mounts itself, or the kernel shows */
    static const char *const kept[] = {
        AGENT_HOME, "/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
    };
    size_t i;

    if (strcmp(target, "/") == 0)
        return BAD(e, "INVALID_MOUNT_PATH", v, "mountPath must not be /");
    for (i = 0; i < ARRAY_LEN(kept); i++)
        if (host_path_within(kept[i], target))
            return err_api(e, ERRC_INVALID, "VOLUME::INVALID_MOUNT_PATH",
                           "volume '%s': mountPath must not be %s or below it", v->name, kept[i]);
    if (host_path_within(target, AGENT_HOME))
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_MOUNT_PATH",
                       "volume '%s': mountPath must not hide " AGENT_HOME ", which the agent uses",
                       v->name);
    return 0;
}

int volume_rules_paths(const struct volume_req *v, struct volume_paths *out, struct err *e)
{
    struct volume_paths p = { 0 };

    if (host_path_clean(v->mount_path, p.target) < 0)
        return BAD(e, "INVALID_MOUNT_PATH", v,
                   "mountPath must be an absolute path without '..' and control characters");
    if (v->sub_path && host_path_clean_relative(v->sub_path, p.sub) < 0)
        return BAD(e, "INVALID_SUB_PATH", v,
                   "subPath must be a relative path without '..' and control characters");
    if (check_target(v, p.target, e) < 0)
        return -1;
    *out = p;
    return 0;
}

/* ---- backends ---- */

/* ^(/|[A-Za-z]:[\\/]), no "..", no "//", no "/" at the end */
static int check_host(const struct volume_req *v, struct err *e)
{
    const char *s = v->host_path;
    char clean[HOST_PATH];
    size_t len = strlen(s);
    bool drive = isalpha((unsigned char)s[0]) && s[1] == ':' && (s[2] == '/' || s[2] == '\\');

    if (!drive && s[0] != '/')
        return BAD(e, "INVALID_HOST_PATH", v, "host.path must be absolute");
    if (strstr(s, "//") || (len > 1 && s[len - 1] == '/'))
        return BAD(e, "INVALID_HOST_PATH", v,
                   "host.path must have neither '//' nor a '/' at its end");
    if (drive) /* the form is right; no entry of the setting can hold it */
        return BAD(e, "HOST_PATH_NOT_ALLOWED", v, "host.path: the engine's host has no drives");
    if (host_path_clean(s, clean) < 0)
        return BAD(e, "INVALID_HOST_PATH", v,
                   "host.path must be without '..' and control characters, and not too long");
    return 0;
}

/* ^\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei)?$ */
static bool size_ok(const char *s)
{
    static const char *const units[] = { "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei" };
    size_t n = strspn(s, "0123456789");
    size_t i;

    if (!n)
        return false;
    s += n;
    if (*s == '.') {
        n = strspn(s + 1, "0123456789");
        if (!n)
            return false;
        s += 1 + n;
    }
    for (i = 0; i < ARRAY_LEN(units); i++)
        if (strcmp(s, units[i]) == 0)
            return true;
    return false;
}

static int check_named(const struct volume_req *v, struct err *e)
{
    if (!label_ok(v->claim, VOLUME_CLAIM_MAX))
        return BAD(e, "INVALID_PVC_NAME", v,
                   "pvc.claimName must be lower-case letters, digits and '-', at most 253, and "
                   "neither begin nor end with '-'");
    if (v->storage && !size_ok(v->storage))
        return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_PARAMETER",
                       "volume '%s': pvc.storage must be a size such as 1Gi or 512Mi", v->name);
    return 0;
}

/* Names of options that are the server's own, or would use files and credentials of its machine. */
static bool option_is_ours(const char *s)
{
    static const char *const names[] = {
        "url",         "passwd",   "oss_", "cred",   "ram_role",  "ecs",        "sts",
        "conf",        "ahbe",     "log",  "tmpdir", "use_cache", "profile",    "ibm",
        "use_session", "external", "dev",  "suid",   "modules",   "flag",       "mime",
        "ssl_client",  "proxy",    "host", "fd=",    "fromenv",   "tryfromenv",
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(names); i++)
        if (strncasecmp(s, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static int check_option(const struct volume_req *v, const char *s, struct err *e)
{
    if (!s || !word_ok(s, ";&|`$()<>,\\\"'") || s[0] == '-')
        return BAD(e, "INVALID_OSSFS_OPTION", v,
                   "ossfs.options: each must be one option without '-' in front, blanks, commas, "
                   "quotes and shell characters");
    if (strchr(s, '/') || option_is_ours(s))
        return BAD(e, "INVALID_OSSFS_OPTION", v,
                   "ossfs.options must not name files, servers or credentials");
    return 0;
}

static int check_options(const struct volume_req *v, struct err *e)
{
    const json_t *list = v->ossfs.options;
    json_t *item;
    size_t i;

    if (json_array_size(list) > OSSFS_OPTIONS_MAX)
        return BAD(e, "INVALID_OSSFS_OPTION", v, "ossfs.options: too many");
    json_array_foreach((json_t *)list, i, item) {
        if (check_option(v, json_string_value(item), e) < 0)
            return -1;
    }
    return 0;
}

/* Host name or address with an optional scheme, port and path: it becomes part of an option. */
static bool endpoint_ok(const char *s)
{
    static const char *const schemes[] = { "https://", "http://" };
    size_t i;

    for (i = 0; i < ARRAY_LEN(schemes); i++)
        if (strncmp(s, schemes[i], strlen(schemes[i])) == 0) {
            s += strlen(schemes[i]);
            break;
        }
    for (i = 0; s[i]; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr(".:-_/[]", s[i]))
            return false;
    return !strstr(s, "//") && (isalnum((unsigned char)s[0]) || s[0] == '[');
}

static int check_ossfs(const struct volume_req *v, struct err *e)
{
    const struct ossfs_req *o = &v->ossfs;

    if (strcmp(o->version, "1.0") != 0 && strcmp(o->version, "2.0") != 0)
        return BAD(e, "INVALID_OSSFS_VERSION", v, "ossfs.version must be 1.0 or 2.0");
    if (strlen(o->bucket) < BUCKET_MIN || !label_ok(o->bucket, BUCKET_MAX))
        return BAD(e, "INVALID_OSSFS_BUCKET", v,
                   "ossfs.bucket must be 3 to 63 lower-case letters, digits and '-'");
    if (strlen(o->endpoint) > OSSFS_TEXT_MAX || !endpoint_ok(o->endpoint))
        return BAD(e, "INVALID_OSSFS_ENDPOINT", v,
                   "ossfs.endpoint must be a host name, with http:// or https:// if you like");
    if (!o->key_id || !o->key_secret || !word_ok(o->key_id, ":") || !word_ok(o->key_secret, ""))
        return BAD(e, "INVALID_OSSFS_CREDENTIALS", v,
                   "ossfs.accessKeyId and ossfs.accessKeySecret are both needed, without blanks");
    return check_options(v, e);
}

static int check_one(const struct volume_req *v, struct err *e)
{
    struct volume_paths p;

    if (!label_ok(v->name, VOLUME_NAME_MAX))
        return BAD(e, "INVALID_NAME", v,
                   "name must be 1 to 63 lower-case letters, digits and '-', and neither begin nor "
                   "end with '-'");
    if (volume_rules_paths(v, &p, e) < 0)
        return -1;
    switch (v->backend) {
    case VOLUME_HOST:
        return check_host(v, e);
    case VOLUME_NAMED:
        return check_named(v, e);
    case VOLUME_OSSFS:
        break;
    }
    return check_ossfs(v, e);
}

static int check_pair(const struct volume_req *a, const struct volume_req *b, struct err *e)
{
    struct volume_paths pa;
    struct volume_paths pb;

    if (strcmp(a->name, b->name) == 0)
        return BAD(e, "DUPLICATE_NAME", b, "two volumes have this name");
    if (volume_rules_paths(a, &pa, e) < 0 || volume_rules_paths(b, &pb, e) < 0)
        return -1;
    if (strcmp(pa.target, pb.target) == 0)
        return err_api(e, ERRC_INVALID, "VOLUME::INVALID_MOUNT_PATH",
                       "volumes '%s' and '%s' have the same mountPath", a->name, b->name);
    return 0;
}

int volume_rules_check(const struct volume_list *list, struct err *e)
{
    size_t i;
    size_t k;

    for (i = 0; i < list->len; i++) {
        if (check_one(&list->items[i], e) < 0)
            return -1;
        for (k = 0; k < i; k++)
            if (check_pair(&list->items[k], &list->items[i], e) < 0)
                return -1;
    }
    return 0;
}
