/* What a Jupyter server and its kernels say: the first byte picks a message (text or with buffers) or an answer of the
 * REST API. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/json/utf8.h"
#include "execd/code/jupyter_replies.h"

#include <string.h>

static void message(bool text, const char *data, size_t len)
{
    struct jupyter_msg m;
    struct err e = { 0 };

    if (jupyter_msg_parse(text, data, len, &m, &e) < 0) {
        MUST(e.code == ERRC_INVALID && e.msg[0]);
        return;
    }
    MUST(m.value && m.parent && m.session && m.text && m.ename && m.evalue && m.count >= 0);
    MUST(m.text_len == strlen(m.text) && utf8_valid_len(m.text, m.text_len) == m.text_len);
    MUST(strlen(m.evalue) <= JUPYTER_TEXT_MAX);
    MUST((m.type != JUPYTER_RESULT && m.type != JUPYTER_DISPLAY) || json_is_object(m.data));
    MUST(!m.traceback || json_is_array(m.traceback));
    jupyter_msg_free(&m);
    MUST(!m.value);
}

static void answer(unsigned kind, const char *data, size_t len)
{
    char spec[JUPYTER_SPEC_TEXT];
    struct jupyter_ids ids;
    struct err e = { 0 };
    char said[32];

    if (kind == 2 && jupyter_choose_spec(data, len, "python", spec, &e) == 0)
        MUST(spec[0]);
    else if (kind == 3 && jupyter_read_session(data, len, &ids, &e) == 0)
        MUST(ids.session[0] && ids.kernel[0] && !strchr(ids.session, '/') &&
             !strpbrk(ids.kernel, "/?%"));
    else if (kind == 4)
        (void)jupyter_read_kernel(data, len);
    jupyter_read_error(data, len, said, sizeof(said));
    MUST(!e.code || e.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned kind;
    char *text;

    if (!size)
        return 0;
    kind = data[0] % 5;
    text = fuzz_text(data + 1, size - 1);
    if (kind < 2)
        message(kind == 0, text, size - 1);
    else
        answer(kind, text, size - 1);
    free(text);
    return 0;
}
