/* The env file and the expansion of $NAME in values and paths. */
#include "tests/fuzz/fuzz.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/exec/envfile.h"
#include "execd/fs/env.h"
#include "execd/fs/expand.h"

static void check(const struct env *v)
{
    size_t i;

    for (i = 0; i < v->n; i++) {
        const char *eq = strchr(v->vars[i], '=');

        MUST(eq && eq != v->vars[i]);
    }
    MUST(v->n <= ENV_VARS_MAX && (!v->vars || !v->vars[v->n]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct buf b = BUF_INIT(1 << 20);
    struct env base = { 0 };
    struct env out = { 0 };
    struct err e = { 0 };
    unsigned skipped = 0;
    char *path = NULL;

    MUST(env_put(&base, "HOME=/root") == 0);
    MUST(env_put(&base, "PATH=/usr/bin:/bin") == 0);
    MUST(env_put(&base, "X=$HOME") == 0);
    (void)envfile_apply(text, &base, &out, &skipped);
    check(&base);
    check(&out);
    (void)expand_value(text, &base, &b);
    if (expand_path(text, &base, &path, &e) == 0)
        MUST(path);
    else
        MUST(e.msg[0] && !path);
    free(path);
    buf_free(&b);
    env_free(&base);
    env_free(&out);
    free(text);
    return 0;
}
