/* The JSON of lifecycle hooks: every byte string is decoded or refused, and what is decoded keeps the
 * limits. */
#include "tests/fuzz/fuzz.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/json/jx.h"
#include "execd/exec/lifecycle.h"

static void check_hook(const struct lifecycle_hook *h, int64_t timeout_max_s)
{
    size_t i;

    MUST(h->n_argv >= 1 && h->n_argv <= LIFECYCLE_ARGS_MAX && h->argv[0][0]);
    for (i = 0; i < h->n_argv; i++)
        MUST(h->argv[i]);
    MUST(!h->argv[h->n_argv]);
    MUST(h->timeout_s >= 1 && h->timeout_s <= timeout_max_s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct lifecycle lc;
    struct err e = { 0 };
    json_t *v;
    size_t i;

    log_set_level(LOG_OFF);
    v = jx_parse(text, size, true, &e);
    if (v && lifecycle_decode(v, "lifecycle", "UTC+1", &lc, &e) == 0) {
        json_decref(v);
        v = NULL;
        if (lc.has_pre_start)
            check_hook(&lc.pre_start, LIFECYCLE_PRE_START_MAX_S);
        MUST(lc.n_periodic <= LIFECYCLE_PERIODIC_MAX);
        for (i = 0; i < lc.n_periodic; i++) {
            check_hook(&lc.periodic[i], LIFECYCLE_PERIODIC_MAX_S);
            MUST(lc.periodic[i].name[0] && strlen(lc.periodic[i].name) <= LIFECYCLE_NAME_MAX);
        }
        lifecycle_free(&lc);
    } else {
        MUST(e.code == ERRC_INVALID && e.msg[0]);
    }
    json_decref(v);
    free(text);
    return 0;
}
