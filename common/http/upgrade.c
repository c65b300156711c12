#include "common/http/internal.h"

/* rs.upgrade stays set until one of its functions is called. */
static const struct http_upgrade_ops *take(struct exchange *x)
{
    const struct http_upgrade_ops *ops = x->rs.upgrade;

    x->rs.upgrade = NULL;
    return ops;
}

void upgrade_check(struct exchange *x)
{
    if (!x->rs.upgrade)
        return;
    if (!x->failed && x->head) {
        x->failed = true;
        (void)err_set(&x->err, ERRC_INVALID, "an upgrade needs the method GET");
    }
    if (x->failed)
        take(x)->on_lost(x->rs.upgrade_owner);
}

static void on_upgrade(void *cls, struct MHD_Connection *conn, void *con_cls, const char *early,
                       size_t len, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
    struct exchange *x = cls;
    struct peer *p = server_peer(conn);

    (void)con_cls;
    if (p) /* the owner watches it from here on */
        loop_del(x->server->loop, &p->watch);
    x->upgraded = urh;
    take(x)->on_open(x->rs.upgrade_owner, (struct http_upgraded *)x, fd, early, len);
}

struct MHD_Response *upgrade_response(struct exchange *x)
{
    return MHD_create_response_for_upgrade(on_upgrade, x);
}

void http_upgraded_close(struct http_upgraded *up)
{
    struct exchange *x = (struct exchange *)up;
    struct MHD_UpgradeResponseHandle *urh = x->upgraded;

    x->upgraded = NULL;
    x->server->resumed = true;
    (void)MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

void upgrade_conn_gone(struct exchange *x)
{
    if (x->rs.upgrade)
        take(x)->on_lost(x->rs.upgrade_owner);
}
