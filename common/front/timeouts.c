#include "common/front/internal.h"

static void arm(struct front *f, int64_t at)
{
    int64_t in_ms = at - front_now(f);

    f->tick_at = at;
    /* without memory for a timer the next one that is set tries again */
    if (loop_timer_set(f->loop, &f->tick, clock_mono_ms() + (in_ms > 0 ? in_ms : 0)) < 0)
        f->tick_at = 0;
}

void timeout_set_ms(struct front *f, struct timed *t, enum timeout kind, int64_t ms)
{
    struct node *list = &f->deadlines[kind];
    struct node *at = list;

    timeout_clear(t);
    t->at_mono_ms = front_now(f) + ms;
    t->kind = kind;
    while (at->prev != list &&
           CONTAINER_OF(at->prev, struct timed, node)->at_mono_ms > t->at_mono_ms)
        at = at->prev;
    node_put_before(at, &t->node);
    if (!f->tick_at || t->at_mono_ms < f->tick_at)
        arm(f, t->at_mono_ms);
}

void timeout_set(struct front *f, struct timed *t, enum timeout kind)
{
    timeout_set_ms(f, t, kind, f->timeout_ms[kind]);
}

void timeout_clear(struct timed *t)
{
    node_take(&t->node);
}

static void expire_kind(struct front *f, struct node *list, int64_t now)
{
    struct timed *t;

    (void)f;
    while (list->next != list) {
        t = CONTAINER_OF(list->next, struct timed, node);
        if (t->at_mono_ms > now)
            return;
        node_take(&t->node);
        t->on_timeout(t);
    }
}

void front_expire(struct front *f)
{
    int64_t now = front_now(f);
    int64_t first = 0;
    int64_t at;
    int i;

    front_reap(f);
    for (i = 0; i < TIMEOUT_MAX_; i++)
        expire_kind(f, &f->deadlines[i], now);
    loop_timer_clear(f->loop, &f->tick);
    f->tick_at = 0;
    for (i = 0; i < TIMEOUT_MAX_; i++) {
        if (f->deadlines[i].next == &f->deadlines[i])
            continue;
        at = CONTAINER_OF(f->deadlines[i].next, struct timed, node)->at_mono_ms;
        if (!first || at < first)
            first = at;
    }
    if (first)
        arm(f, first);
}

static void on_tick(struct loop_timer *t)
{
    front_expire(CONTAINER_OF(t, struct front, tick));
}

static int or_else(int ms, int standard)
{
    return ms > 0 ? ms : standard;
}

void timeouts_init(struct front *f)
{
    const struct front_options *o = &f->opt;
    int i;

    for (i = 0; i < TIMEOUT_MAX_; i++)
        node_init(&f->deadlines[i]);
    f->tick.on_fire = on_tick;
    f->timeout_ms[TIMEOUT_HEAD] = or_else(o->head_timeout_ms, 30 * 1000);
    f->timeout_ms[TIMEOUT_IDLE] = or_else(o->idle_timeout_ms, 75 * 1000);
    f->timeout_ms[TIMEOUT_CONNECT] = or_else(o->connect_timeout_ms, 10 * 1000);
    f->timeout_ms[TIMEOUT_RESPONSE] = or_else(o->response_timeout_ms, 180 * 1000);
    f->timeout_ms[TIMEOUT_POOL] = or_else(o->pool_timeout_ms, 30 * 1000);
    f->timeout_ms[TIMEOUT_LINGER] = or_else(o->linger_timeout_ms, 5 * 1000);
    f->timeout_ms[TIMEOUT_HALF] = or_else(o->half_timeout_ms, 60 * 1000);
}
