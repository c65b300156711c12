#include "execd/api/wish.h"

#include "common/base/macros.h"
#include "common/json/jx.h"
#include "execd/api/api.h"
#include "execd/fs/perms.h"

struct wish {
    const char *owner;
    const char *group;
    int64_t mode;
};

static const struct jx_field fields[] = {
    { "owner", JX_STR, offsetof(struct wish, owner), JX_NULLABLE, 0, 0, 256 },
    { "group", JX_STR, offsetof(struct wish, group), JX_NULLABLE, 0, 0, 256 },
    { "mode", JX_I64, offsetof(struct wish, mode), JX_NULLABLE, 0, INT64_MAX, 0 },
};

const struct api_table wish_table = { fields, ARRAY_LEN(fields) };

int wish_decode(const json_t *v, const char *at, struct perms *out, struct err *e)
{
    struct wish w = { 0 };

    if (jx_decode(v, at, fields, ARRAY_LEN(fields), false, &w, e) < 0)
        return -1;
    return perms_resolve(w.mode, w.owner, w.group, out, e);
}
