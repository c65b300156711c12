/* What a shell of a session leaves: anyone in the sandbox may write there. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "execd/exec/session_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session_state st;
    struct err e = { 0 };
    size_t i;

    if (session_state_parse((const char *)data, size, &st, &e) < 0) {
        MUST(e.msg[0] && !st.cwd && !st.env.n);
        return 0;
    }
    MUST(!st.cwd || st.cwd[0] == '/');
    MUST(st.env.n <= ENV_VARS_MAX);
    for (i = 0; i < st.env.n; i++)
        MUST(session_state_lasting(st.env.vars[i]));
    session_state_free(&st);
    return 0;
}
