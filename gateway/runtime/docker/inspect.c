#include "gateway/runtime/docker/inspect.h"

#include "common/agent/wire.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/base/num.h"
#include "gateway/runtime/docker/names.h"

#include <stdio.h>
#include <string.h>

#define PORT_TEXT_(n) #n
#define PORT_TEXT(n) PORT_TEXT_(n)
#define AGENT_PORT_KEY PORT_TEXT(AGENT_PORT) "/tcp"

/* Docker's words for where a container is. "restarting" does not occur: no restart policy. */
static const struct {
    const char *word;
    enum runtime_state state;
} states[] = {
    { "created", RUNTIME_MADE },       { "running", RUNTIME_RUNNING },
    { "paused", RUNTIME_PAUSED },      { "exited", RUNTIME_ENDED },
    { "dead", RUNTIME_ENDED },         { "removing", RUNTIME_ENDED },
    { "restarting", RUNTIME_RUNNING },
};

static enum runtime_state state_of(const char *word)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(states); i++)
        if (strcmp(states[i].word, word) == 0)
            return states[i].state;
    return RUNTIME_UNKNOWN;
}

static void put(char *out, size_t size, const char *s)
{
    (void)snprintf(out, size, "%s", s);
}

/* The address in our network; empty when the container is not in it. networks may be NULL. */
static void take_address(json_t *networks, const char *network, struct runtime_place *out)
{
    json_t *end = json_object_get(networks, network);
    const char *addr = json_string_value(json_object_get(end, "IPAddress"));

    if (addr)
        put(out->address, sizeof(out->address), addr);
    out->agent_port = AGENT_PORT;
}

/* NetworkSettings.Ports: {"44772/tcp": [{"HostIp", "HostPort"}]}. */
static void take_binding(json_t *ports, struct runtime_place *out)
{
    json_t *first = json_array_get(json_object_get(ports, AGENT_PORT_KEY), 0);
    const char *ip = "";
    const char *port = "";
    int64_t n;

    if (json_unpack(first, "{s:s, s:s}", "HostIp", &ip, "HostPort", &port) < 0 ||
        num_parse_i64(port, 1, 65535, &n) < 0)
        return;
    put(out->host_address, sizeof(out->host_address), ip);
    out->host_port = (uint16_t)n;
}

int inspect_status(json_t *about, const char *network, struct runtime_status *out, struct err *e)
{
    struct runtime_status st = { 0 };
    const char *word;
    const char *finished = "";
    const char *id = "";
    int oom = 0;
    json_t *networks = NULL;
    json_t *ports = NULL;

    if (json_unpack(about, "{s:{s:s, s?i, s?b, s?s}, s?{s?{s?s}}, s?{s?o, s?o}}", "State", "Status",
                    &word, "ExitCode", &st.exit_code, "OOMKilled", &oom, "FinishedAt", &finished,
                    "Config", "Labels", LABEL_ID, &id, "NetworkSettings", "Networks", &networks,
                    "Ports", &ports) < 0)
        return err_set(e, ERRC_BAD_GATEWAY, "the container engine described a container oddly");
    put(st.id, sizeof(st.id), id);
    st.state = state_of(word);
    st.oom_killed = oom;
    if (clock_parse_ms(finished, &st.ended_ms) == 0 && st.ended_ms < 0)
        st.ended_ms = 0; /* year 1: it never ended */
    take_address(networks, network, &st.place);
    take_binding(ports, &st.place);
    *out = st;
    return 0;
}

/* The list's form of ports: [{"IP", "PrivatePort", "PublicPort", "Type"}]. */
static void take_listed_binding(json_t *ports, struct runtime_place *out)
{
    json_t *item;
    size_t i;

    json_array_foreach(ports, i, item) {
        const char *ip = "";
        const char *type = "";
        int inside = 0;
        int outside = 0;

        if (json_unpack(item, "{s?s, s:i, s?i, s?s}", "IP", &ip, "PrivatePort", &inside,
                        "PublicPort", &outside, "Type", &type) < 0 ||
            inside != AGENT_PORT || outside < 1 || outside > 65535 || strcmp(type, "tcp") != 0)
            continue;
        put(out->host_address, sizeof(out->host_address), ip);
        out->host_port = (uint16_t)outside;
        return;
    }
}

/* "Exited (137) 5 minutes ago": the list has the exit status in its text only. */
static int exit_code_of(const char *text)
{
    const char *open = strchr(text, '(');
    const char *close = open ? strchr(open, ')') : NULL;
    char digits[8];
    int64_t n;

    if (!close || (size_t)(close - open) > sizeof(digits))
        return 0;
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)(close - open - 1), open + 1);
    return num_parse_i64(digits, 0, 65535, &n) == 0 ? (int)n : 0;
}

/* A container of a committed image carries the labels too, but not the name. */
static bool has_our_name(json_t *names, const char *id)
{
    char want[sizeof("/" SANDBOX_NAME) + RUNTIME_ID];
    json_t *item;
    size_t i;

    (void)snprintf(want, sizeof(want), "/" SANDBOX_NAME "%s", id);
    json_array_foreach(names, i, item)
        if (strcmp(json_string_value(item) ? json_string_value(item) : "", want) == 0)
            return true;
    return false;
}

int inspect_item(json_t *item, const char *network, struct runtime_status *out, struct err *e)
{
    struct runtime_status st = { 0 };
    const char *word = "";
    const char *text = "";
    const char *id = NULL;
    json_t *names = NULL;
    json_t *networks = NULL;
    json_t *ports = NULL;

    if (json_unpack(item, "{s:s, s?s, s:{s:s}, s:o, s?o, s?{s?o}}", "State", &word, "Status", &text,
                    "Labels", LABEL_ID, &id, "Names", &names, "Ports", &ports, "NetworkSettings",
                    "Networks", &networks) < 0 ||
        strlen(id) >= sizeof(st.id) || !has_our_name(names, id))
        return err_set(e, ERRC_INVALID, "not a sandbox");
    put(st.id, sizeof(st.id), id);
    st.state = state_of(word);
    if (st.state == RUNTIME_ENDED)
        st.exit_code = exit_code_of(text);
    if (st.state == RUNTIME_RUNNING || st.state == RUNTIME_PAUSED) {
        take_address(networks, network, &st.place);
        take_listed_binding(ports, &st.place);
    }
    *out = st;
    return 0;
}
