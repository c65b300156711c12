#include "gateway/domain/relays.h"

#include "common/base/err.h"
#include "common/base/listen.h"
#include "common/base/log.h"
#include "gateway/store/relay_store.h"

#include <stdlib.h>
#include <unistd.h>

enum { RELAY_BACKLOG = 128 };

struct relays {
    struct relays_config cfg;
};

struct relays *relays_new(const struct relays_config *cfg, struct err *e)
{
    struct relays *r = calloc(1, sizeof(*r));

    if (r)
        r->cfg = *cfg;
    else
        (void)err_nomem(e);
    return r;
}

void relays_free(struct relays *r)
{
    free(r);
}

static void restore_one(struct relays *r, const struct relay_row *row)
{
    struct err e = { 0 };
    uint16_t bound;
    int fd;

    if (listen_tcp(r->cfg.host, row->listen_port, RELAY_BACKLOG, &fd, &bound, &e) == 0) {
        r->cfg.open(r->cfg.arg, row->id, row->port, fd);
        return;
    }
    log_warn("relay given up: its port is taken", LOG_S("id", row->id),
             LOG_N("port", row->listen_port), LOG_S("error", e.msg));
    (void)relay_store_forget(r->cfg.db, row, NULL);
}

int relays_restore(struct relays *r, struct err *e)
{
    struct relay_rows rows;
    size_t i;

    if (relay_store_all(r->cfg.db, &rows, e) < 0)
        return -1;
    for (i = 0; i < rows.len; i++)
        restore_one(r, &rows.items[i]);
    free(rows.items);
    return 0;
}

/* Two askers may both listen; the record decides whose socket stays. A crash after the record is
 * written is made good at the next start. */
static int make(struct relays *r, const char *id, uint16_t port, uint16_t *listen_port,
                struct err *e)
{
    struct relay_row row = { .port = port };
    uint16_t on_record;
    int fd;

    (void)snprintf(row.id, sizeof(row.id), "%s", id);
    if (listen_tcp(r->cfg.host, 0, RELAY_BACKLOG, &fd, &row.listen_port, e) < 0)
        return -1;
    if (relay_store_claim(r->cfg.db, &row, &on_record, e) < 0) {
        (void)close(fd);
        return -1;
    }
    if (on_record == row.listen_port)
        r->cfg.open(r->cfg.arg, id, port, fd);
    else
        (void)close(fd);
    *listen_port = on_record;
    return 0;
}

int relays_port(struct relays *r, const char *id, uint16_t port, uint16_t *listen_port,
                struct err *e)
{
    struct err why = { 0 };

    if (relay_store_get(r->cfg.db, id, port, listen_port, &why) == 0)
        return 0;
    if (why.code != ERRC_NOT_FOUND) {
        *e = why;
        return -1;
    }
    return make(r, id, port, listen_port, e);
}
