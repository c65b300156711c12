/* Bodies of the agent's API: every table that decodes one, over the same bytes. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/base/macros.h"
#include "common/json/jx.h"
#include "execd/api/api.h"

enum { TARGET_MAX = 512 };

static const struct api_table *const tables[] = {
    &claim_table,        &mount_table,        &command_table,        &session_add_table,
    &session_run_table,  &wish_table,         &move_table,           &replace_table,
    &upload_table,       &deadline_table,     &code_table,           &context_table,
    &pty_table,          &isolated_table,     &isolated_mount_table, &isolated_bind_table,
    &isolated_env_table, &isolated_run_table,
};

/* Whatever a table stores must lie in the struct it was written for; the largest is far smaller. */
static void decode(const struct api_table *t, const json_t *v)
{
    _Alignas(16) unsigned char out[TARGET_MAX] = { 0 };
    struct err e = { 0 };
    size_t i;

    for (i = 0; i < t->len; i++)
        MUST(t->fields[i].offset + sizeof(void *) <= sizeof(out));
    if (jx_decode(v, "", t->fields, t->len, false, out, &e) < 0)
        MUST(e.code == ERRC_INVALID && e.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct err e = { 0 };
    json_t *v = jx_parse(text, size, false, &e);
    size_t i;

    MUST(v || (e.code == ERRC_INVALID && e.msg[0]));
    for (i = 0; v && i < ARRAY_LEN(tables); i++)
        decode(tables[i], v);
    json_decref(v);
    free(text);
    return 0;
}
