#include "gateway/runtime/docker/describe.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/macros.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_MAX = 512 };

/* One line; a value cannot begin another. A full buffer gets no half lines. */
static void put(struct buf *out, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put(struct buf *out, const char *name, const char *fmt, ...)
{
    char value[VALUE_MAX];
    va_list ap;
    char *c;

    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    for (c = value; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    (void)buf_printf(out, "%s: %s\n", name, value);
}

static const char *text(json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}

static void put_text(struct buf *out, const char *name, json_t *obj, const char *key)
{
    if (*text(obj, key))
        put(out, name, "%s", text(obj, key));
}

/* Zero means that there is no limit. */
static void put_number(struct buf *out, const char *name, json_t *obj, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(obj, key));

    if (n)
        put(out, name, "%" JSON_INTEGER_FORMAT, n);
    else
        put(out, name, "none");
}

static void put_state(struct buf *out, json_t *state)
{
    bool ended =
        strcmp(text(state, "Status"), "exited") == 0 || strcmp(text(state, "Status"), "dead") == 0;

    put_text(out, "state", state, "Status");
    put_text(out, "error", state, "Error");
    put_text(out, "started", state, "StartedAt");
    if (!ended)
        return;
    put_text(out, "finished", state, "FinishedAt");
    put(out, "exit code", "%" JSON_INTEGER_FORMAT,
        json_integer_value(json_object_get(state, "ExitCode")));
    put(out, "out of memory", "%s",
        json_is_true(json_object_get(state, "OOMKilled")) ? "yes" : "no");
}

static void put_limits(struct buf *out, json_t *host)
{
    put_number(out, "memory limit (bytes)", host, "Memory");
    put_number(out, "memory and swap limit (bytes)", host, "MemorySwap");
    put_number(out, "cpu limit (billionths)", host, "NanoCpus");
    put_number(out, "process limit", host, "PidsLimit");
    put_text(out, "disk limit (bytes)", json_object_get(host, "StorageOpt"), "size");
    put_text(out, "runtime", host, "Runtime");
    put(out, "read-only root", "%s",
        json_is_true(json_object_get(host, "ReadonlyRootfs")) ? "yes" : "no");
}

static void put_network(struct buf *out, json_t *settings)
{
    const char *key;
    json_t *v;
    json_t *binding;
    size_t i;

    json_object_foreach(json_object_get(settings, "Networks"), key, v)
        put(out, "network", "%s, address %s", key,
            *text(v, "IPAddress") ? text(v, "IPAddress") : "none");
    json_object_foreach(json_object_get(settings, "Ports"), key, v)
        json_array_foreach(v, i, binding)
            put(out, "port", "%s at %s:%s", key, text(binding, "HostIp"),
                text(binding, "HostPort"));
}

static void put_mounts(struct buf *out, json_t *mounts)
{
    json_t *m;
    size_t i;

    json_array_foreach(mounts, i, m) {
        const char *what = text(m, "Name"); /* not a bind's source: paths of the host are its own */

        put(out, "mount", "%s%s%s at %s (%s)", text(m, "Type"), *what ? " " : "", what,
            text(m, "Destination"), json_is_true(json_object_get(m, "RW")) ? "rw" : "ro");
    }
}

static bool sounds_secret(const char *name, size_t len)
{
    static const char *const words[] = { "SECRET", "TOKEN", "PASSW", "PWD", "KEY", "CREDENTIAL" };
    char upper[VALUE_MAX];
    size_t i;

    if (len >= sizeof(upper))
        return true;
    if (len == 3 && strncmp(name, "PWD", 3) == 0) /* the shell's directory */
        return false;
    for (i = 0; i < len; i++)
        upper[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 32 : name[i]);
    upper[len] = '\0';
    for (i = 0; i < ARRAY_LEN(words); i++)
        if (strstr(upper, words[i]))
            return true;
    return false;
}

static void put_config(struct buf *out, json_t *config)
{
    const char *key;
    json_t *v;
    size_t i;

    json_object_foreach(json_object_get(config, "Labels"), key, v)
        put(out, "label", "%s=%s", key, json_string_value(v) ? json_string_value(v) : "");
    json_array_foreach(json_object_get(config, "Env"), i, v) {
        const char *s = json_string_value(v) ? json_string_value(v) : "";
        size_t len = strcspn(s, "=");

        put(out, "env", "%.*s=%s", (int)len, s,
            sounds_secret(s, len) ? "***" : s + len + (s[len] == '='));
    }
}

int describe_container(json_t *about, struct buf *out, struct err *e)
{
    json_t *config = json_object_get(about, "Config");
    json_t *state = json_object_get(about, "State");

    if (!json_is_object(config) || !json_is_object(state))
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine described a container oddly");
    put_text(out, "container", about, "Id");
    put_text(out, "image", config, "Image");
    put_text(out, "image id", about, "Image");
    put_text(out, "platform", about, "Platform");
    put_text(out, "created", about, "Created");
    put_state(out, state);
    put_limits(out, json_object_get(about, "HostConfig"));
    put_network(out, json_object_get(about, "NetworkSettings"));
    put_mounts(out, json_object_get(about, "Mounts"));
    put_config(out, config);
    return 0;
}
