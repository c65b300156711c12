#include "common/front/internal.h"

/* Fields and the prefix for the response go to the front of the block. */
static void put_response_edits(struct caller *c, const struct rules_edit *edit, const char *prefix,
                               struct rules_out *o)
{
    size_t i;

    for (i = 0; edit && i < edit->n_add; i++)
        if (edit->add[i].value)
            rules_put_field(o, edit->add[i].name, edit->add[i].value);
    c->added_len = o->len;
    if (prefix)
        rules_puts(o, prefix);
    c->prefix_len = o->len - c->added_len;
    if (o->len > FRONT_ADDED_MAX)
        o->full = true;
}

/* Writes edits and head into a block of the size. -1: it does not fit, or there is no memory. */
static int fill_block(struct caller *c, size_t size, const struct rules_request *r,
                      const struct rules_edit *edit, const char *prefix)
{
    struct block *b = block_get(c->front, size);
    struct rules_out o = { 0 };

    if (!b)
        return -1;
    o.data = b->data;
    o.cap = b->cap;
    put_response_edits(c, edit, prefix, &o);
    c->request_start = c->request_off = o.len;
    rules_request(c->rq.head, r, &o);
    c->request_len = o.len;
    if (o.full) {
        block_put(c->front, b);
        return -1;
    }
    c->block = b;
    c->drop = edit ? edit->drop : NULL;
    return 0;
}

static void start(struct caller *c, struct pool *p, const struct rules_request *r,
                  const struct rules_edit *edit, const char *prefix)
{
    if (!p) {
        answer_error(c, 503, NULL, "the server is out of memory");
        return;
    }
    if (fill_block(c, BLOCK_SMALL, r, edit, prefix) < 0 &&
        fill_block(c, BLOCK_LARGE, r, edit, prefix) < 0) {
        c->added_len = 0;
        answer_error(c, 431, NULL, "the request head is too long to be passed on");
        return;
    }
    c->upgrade = r->upgrade && rules_upgrades(c->rq.head);
    exchange_start(c, p);
}

void front_proxy(struct front_req *rq, const struct front_proxy *p)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);
    struct front *f = c->front;
    struct rules_request r = p->request;

    f->stats.proxied++;
    r.peer_header = f->opt.peer_header;
    r.peer_value = NULL;
    if (!r.forwarded_for && rq->peer->sa_family != AF_UNIX)
        r.forwarded_for = c->peer_text;
    c->refused = p->refused;
    start(c, pool_of(f, p->to), &r, &p->response, p->location_prefix);
}

static void to_internal(struct front_req *rq, const struct rules_edit *edit, const char *loan)
{
    struct caller *c = CONTAINER_OF(rq, struct caller, rq);
    struct front *f = c->front;
    const char *const drop[] = { f->opt.body_header, NULL };
    const struct rules_field add = { f->opt.body_header, loan };
    struct rules_request r = {
        .edit = { .drop = drop, .add = &add, .n_add = 1 },
        .no_body = loan,
        .peer_header = f->opt.peer_header,
        .peer_value = c->peer_text,
        .keep_forwarded = true,
        .upgrade = true,
    };

    f->stats.internal++;
    c->internal = true;
    start(c, &f->internal, &r, edit, NULL);
}

void front_internal(struct front_req *rq, const struct rules_edit *edit)
{
    to_internal(rq, edit, NULL);
}

void front_internal_lent(struct front_req *rq, const struct rules_edit *edit, const char *name)
{
    to_internal(rq, edit, name);
}
