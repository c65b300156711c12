#include "gateway/domain/diagnostics.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/domain/lines.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Ends the line that begins at from. What sandboxes, engines and clients said stays on it, and moves
 * no cursor of who reads it. */
static int end_line(struct buf *out, size_t from)
{
    size_t i;

    for (i = from; i < out->len; i++)
        if ((unsigned char)out->data[i] < ' ' || out->data[i] == 0x7f)
            out->data[i] = ' ';
    return buf_append(out, "\n", 1);
}

/* ---- output ---- */

/* What was kept when the sandbox ended. */
static int kept_output(struct lifecycle *lc, const char *id, const struct diagnostics_logs *q,
                       struct buf *out, bool *cut, struct err *e)
{
    AUTO_FREE char *text = NULL;
    const char *from;
    const char *last;

    if (sandbox_store_logs(lc->db, id, &text, e) < 0)
        return -1;
    from = lines_since(text, q->since_ms);
    last = lines_last(from, strlen(from), q->tail);
    *cut = last > from;
    return buf_puts(out, last) < 0 ? err_nomem(e) : 0;
}

/* One line more than asked for tells whether there were more. */
static int live_output(struct lifecycle *lc, const char *id, const struct diagnostics_logs *q,
                       struct buf *out, bool *cut, struct err *e)
{
    struct runtime_log_query rq = { .tail = q->tail + 1,
                                    .since_ms = q->since_ms,
                                    .timestamps = true };
    AUTO_BUF struct buf all = BUF_INIT(DIAGNOSTICS_MAX);
    const char *last;

    *cut = false;
    if (runtime_logs(lc->rt, id, &rq, &all, cut, e) < 0)
        return -1;
    if (!all.len)
        return 0;
    last = lines_last(all.data, all.len, q->tail);
    *cut |= last > all.data;
    if (buf_append(out, last, all.len - (size_t)(last - all.data)) < 0)
        return err_nomem(e);
    return 0;
}

static int output_of(struct lifecycle *lc, const struct sandbox *sb,
                     const struct diagnostics_logs *q, struct buf *out, bool *cut, struct err *e)
{
    struct err why = { 0 };

    *cut = false;
    if (sb->ended_ms)
        return kept_output(lc, sb->id, q, out, cut, e);
    if (live_output(lc, sb->id, q, out, cut, &why) == 0)
        return 0;
    if (why.code != ERRC_NOT_FOUND) {
        *e = why;
        if (!e->api_code && e->code != ERRC_UNSUPPORTED)
            e->api_code = "DOCKER::SANDBOX_QUERY_FAILED";
        return -1;
    }
    /* it is being made, or ended since it was looked up */
    if (kept_output(lc, sb->id, q, out, cut, &why) < 0 && why.code != ERRC_NOT_FOUND) {
        *e = why;
        return -1;
    }
    return 0;
}

int diagnostics_logs(struct lifecycle *lc, const char *id, const struct diagnostics_logs *q,
                     struct buf *out, bool *cut, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (lifecycle_find(lc, id, &sb, e) < 0)
        return -1;
    return output_of(lc, &sb, q, out, cut, e);
}

/* ---- events ---- */

static int put_event(struct buf *out, const struct event *ev)
{
    char when[CLOCK_TEXT];
    size_t from = out->len;

    clock_format_ms(ev->at_ms, when);
    if (buf_printf(out, "%s  %-9s  %-10s  %s%s%s", when,
                   ev->source == EVENT_RUNTIME ? "runtime" : "lifecycle", ev->type, ev->reason,
                   ev->reason[0] && ev->message[0] ? ": " : "", ev->message) < 0)
        return -1;
    return end_line(out, from);
}

static int events_of(struct lifecycle *lc, const char *id, enum diagnostics_events which, int max,
                     struct buf *out, bool *cut, struct err *e)
{
    AUTO_EVENTS struct event_list list = { 0 };
    int source = which == DIAGNOSTICS_RUNTIME     ? EVENT_RUNTIME
                 : which == DIAGNOSTICS_LIFECYCLE ? EVENT_LIFECYCLE
                                                  : -1;
    size_t i;

    if (event_store_list(lc->db, id, source, (size_t)max + 1, &list, e) < 0)
        return -1;
    *cut = list.len > (size_t)max;
    for (i = *cut; i < list.len; i++)
        if (put_event(out, &list.items[i]) < 0)
            return err_nomem(e);
    return 0;
}

int diagnostics_events(struct lifecycle *lc, const char *id, enum diagnostics_events which, int max,
                       struct buf *out, bool *cut, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (lifecycle_find(lc, id, &sb, e) < 0)
        return -1;
    return events_of(lc, id, which, max, out, cut, e);
}

/* ---- what it is ---- */

static void put_line(struct buf *out, const char *name, const char *value)
{
    size_t from = out->len;

    if (value[0] && buf_printf(out, "%s: %s", name, value) == 0)
        (void)end_line(out, from);
}

static void put_time(struct buf *out, const char *name, int64_t ms)
{
    char text[CLOCK_TEXT];

    if (!ms)
        return;
    clock_format_ms(ms, text);
    put_line(out, name, text);
}

static bool names_a_secret(const char *name)
{
    return strcasestr(name, "SECRET") || strcasestr(name, "TOKEN") ||
           strcasestr(name, "PASSWORD") || strcasestr(name, "KEY");
}

/* A JSON object of strings, a line each. */
static void put_entries(struct buf *out, const char *what, const char *json)
{
    json_t *map = json_loads(json, 0, NULL);
    const char *name;
    json_t *v;

    json_object_foreach(map, name, v) {
        size_t from = out->len;

        if (buf_printf(out, "%s %s: %s", what, name,
                       names_a_secret(name) ? "***" : json_string_value(v)) == 0)
            (void)end_line(out, from);
    }
    json_decref(map);
}

static void put_record(struct buf *out, const struct sandbox *sb)
{
    char code[16] = "";

    if (sb->exit_code != SANDBOX_NO_EXIT_CODE)
        (void)snprintf(code, sizeof(code), "%d", sb->exit_code);
    put_line(out, "id", sb->id);
    put_line(out, "state", sandbox_state_to_string(sb->state));
    put_line(out, "reason", sb->reason);
    put_line(out, "message", sb->message);
    put_time(out, "last transition", sb->transition_ms);
    put_line(out, "image", sb->image);
    put_line(out, "snapshot", sb->snapshot_id);
    put_line(out, "platform os", sb->platform_os);
    put_line(out, "platform arch", sb->platform_arch);
    put_line(out, "entrypoint", sb->entrypoint);
    put_time(out, "created", sb->created_ms);
    put_time(out, "expires", sb->expires_ms);
    put_time(out, "ended", sb->ended_ms);
    put_line(out, "exit code", code);
    put_entries(out, "metadata", sb->metadata);
    put_entries(out, "extension", sb->extensions);
}

/* Best effort: that the engine is away is part of the picture. */
static void inspect(struct lifecycle *lc, const struct sandbox *sb, struct buf *out)
{
    AUTO_BUF struct buf container = BUF_INIT(DIAGNOSTICS_MAX);
    struct err e = { 0 };

    put_record(out, sb);
    if (sb->ended_ms)
        put_line(out, "container", "removed");
    else if (runtime_describe(lc->rt, sb->id, &container, &e) < 0)
        put_line(out, "container", e.code == ERRC_NOT_FOUND ? "none" : e.msg);
    else
        (void)buf_printf(out, "container:\n%s", container.len ? container.data : "");
}

int diagnostics_inspect(struct lifecycle *lc, const char *id, struct buf *out, struct err *e)
{
    AUTO_SANDBOX struct sandbox sb = { 0 };

    if (lifecycle_find(lc, id, &sb, e) < 0)
        return -1;
    inspect(lc, &sb, out);
    return 0;
}

static void section(struct buf *out, const char *name)
{
    static const char dashes[] = "----------------------------------------";

    (void)buf_printf(out, "%s\n%s\n%s\n", dashes, name, dashes);
}

/* What was written to out since it had len bytes: a word when it is nothing, and an end of line. */
static void close_section(struct buf *out, size_t len, const char *nothing, const struct err *e)
{
    if (e->code)
        (void)buf_printf(out, "(not available: %s)\n", e->msg);
    else if (out->len == len)
        (void)buf_printf(out, "%s\n", nothing);
    else if (out->data[out->len - 1] != '\n')
        (void)buf_puts(out, "\n");
}

int diagnostics_summary(struct lifecycle *lc, const char *id, int tail, int max_events,
                        struct buf *out, struct err *e)
{
    const struct diagnostics_logs q = { .tail = tail };
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err why = { 0 };
    size_t len;
    bool cut;

    if (lifecycle_find(lc, id, &sb, e) < 0)
        return -1;
    (void)buf_printf(out, "Sandbox %s: %s\n", sb.id, sandbox_state_to_string(sb.state));
    section(out, "INSPECT");
    inspect(lc, &sb, out);
    section(out, "EVENTS");
    len = out->len;
    (void)events_of(lc, id, DIAGNOSTICS_ALL, max_events, out, &cut, &why);
    close_section(out, len, "(no events)", &why);
    section(out, "LOGS");
    len = out->len;
    why = (struct err){ 0 };
    (void)output_of(lc, &sb, &q, out, &cut, &why);
    close_section(out, len, "(no logs)", &why);
    return 0;
}
