#include "execd/pty/message.h"

#include "common/base/macros.h"
#include "common/json/jx.h"

#include <signal.h>
#include <string.h>

static int signal_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } rows[] = {
        { "SIGINT", SIGINT },   { "SIGTERM", SIGTERM }, { "SIGKILL", SIGKILL },
        { "SIGQUIT", SIGQUIT }, { "SIGHUP", SIGHUP },
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(name, rows[i].name) == 0)
            return rows[i].number;
    return 0;
}

static const char *text_of(const json_t *v, const char *name)
{
    const char *s = json_string_value(json_object_get(v, name));

    return s ? s : "";
}

/* 0: no number of columns or rows. */
static uint16_t side_of(const json_t *v, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(v, name));

    return n > 0 && n <= UINT16_MAX ? (uint16_t)n : 0;
}

static void parse_json(json_t *v, struct pty_message *out)
{
    const char *type = text_of(v, "type");
    const json_t *data = json_object_get(v, "data");

    if (strcmp(type, "ping") == 0) {
        out->ask = PTY_ASK_PING;
    } else if (strcmp(type, "stdin") == 0) {
        out->ask = PTY_ASK_INPUT;
        out->data = json_is_string(data) ? json_string_value(data) : "";
        out->len = json_string_length(data);
    } else if (strcmp(type, "resize") == 0) {
        out->ask = PTY_ASK_RESIZE;
        out->cols = side_of(v, "cols");
        out->rows = side_of(v, "rows");
    } else if (strcmp(type, "signal") == 0) {
        out->ask = PTY_ASK_SIGNAL;
        out->signal = signal_of(text_of(v, "signal"));
    } else {
        out->ask = PTY_ASK_UNKNOWN;
    }
}

void pty_parse(bool text, const char *data, size_t len, struct pty_message *out)
{
    *out = (struct pty_message){ 0 };
    if (text) {
        out->json = jx_parse(data, len, false, NULL);
        if (out->json)
            parse_json(out->json, out);
    } else if (len && data[0] == PTY_STDIN) {
        out->ask = PTY_ASK_INPUT;
        out->data = data + 1;
        out->len = len - 1;
    }
}
