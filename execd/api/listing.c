#include "execd/api/listing.h"

#include "common/base/cleanup.h"
#include "common/http/http.h"
#include "common/json/jx.h"

int listing_begin(struct listing *l, const char *tmpdir, struct err *e)
{
    *l = (struct listing){ .text = SPILL_INIT(tmpdir) };
    return names_read(&l->names, e) < 0 ? -1 : spill_puts(&l->text, "[", e);
}

int listing_add(void *arg, const char *path, const struct stat *st, struct err *e)
{
    struct listing *l = arg;
    json_t *info = info_of(path, st, &l->names);
    AUTO_FREE char *text = info ? jx_dump(info, false) : NULL;
    bool first = l->text.len + l->text.mem.len == 1;

    json_decref(info);
    if (!text)
        return err_nomem(e);
    return !first && spill_puts(&l->text, ",", e) < 0 ? -1 : spill_puts(&l->text, text, e);
}

int listing_send(struct listing *l, struct http_resp *rs, struct err *e)
{
    if (spill_puts(&l->text, "]", e) < 0 || spill_end(&l->text, e) < 0)
        return -1;
    if (l->text.fd < 0)
        return http_resp_json(rs, 200, buf_take(&l->text.mem), e);
    rs->content_type = "application/json";
    rs->file_off = 0;
    rs->file_len = l->text.len;
    rs->file_fd = TAKE_FD(l->text.fd);
    return 0;
}

void listing_free(struct listing *l)
{
    spill_free(&l->text);
    names_free(&l->names);
}
