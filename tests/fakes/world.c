#include "tests/fakes/world.h"

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/keyed_lock.h"
#include "common/base/log.h"
#include "gateway/domain/lifecycle_internal.h"
#include "gateway/domain/places.h"
#include "gateway/store/db.h"
#include "gateway/store/event_store.h"
#include "gateway/store/sandbox_store.h"
#include "tests/fakes/fake_runtime.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000 };

static void need(int rc, const struct err *e)
{
    if (rc == 0)
        return;
    (void)fprintf(stderr, "world: %s\n", e->msg);
    abort();
}

void world_open(struct world *w, const struct clock *clock)
{
    struct err e = { 0 };

    *w = (struct world){ .rt = fake_runtime_new(),
                         .locks = keyed_locks_new(),
                         .places = places_new() };
    need(db_open(":memory:", &w->db, &e), &e);
    w->lc = (struct lifecycle){ .db = w->db,
                                .rt = w->rt,
                                .locks = w->locks,
                                .places = w->places,
                                .clock = clock,
                                .started_ms = clock->wall_ms(),
                                .ready_timeout_ms = 1000,
                                .line_endings = "auto" };
    log_set_level(LOG_OFF);
}

void world_close(struct world *w)
{
    keyed_locks_free(w->locks);
    places_free(w->places);
    runtime_close(w->rt);
    db_close(w->db);
}

void world_add(struct world *w, const char *id, enum sandbox_state state, int64_t expires_ms)
{
    struct sandbox sb = { .state = state,
                          .created_ms = w->lc.clock->wall_ms(),
                          .transition_ms = w->lc.clock->wall_ms(),
                          .expires_ms = expires_ms,
                          .exit_code = SANDBOX_NO_EXIT_CODE,
                          .image = (char *)"img:1",
                          .entrypoint = (char *)"[\"x\"]",
                          .metadata = (char *)"{}",
                          .extensions = (char *)"{}",
                          .token = "t" };
    struct runtime_status st;
    struct err e = { 0 };

    (void)snprintf(sb.id, sizeof(sb.id), "%s", id);
    fake_runtime_put(w->rt, id, state == SANDBOX_PAUSED ? RUNTIME_PAUSED : RUNTIME_RUNNING, 0);
    need(runtime_status(w->rt, id, &st, &e), &e);
    sb.place = st.place;
    need(sandbox_store_insert(w->db, &sb, &e), &e);
    lifecycle_show(&w->lc, &sb);
}

struct sandbox world_find(struct world *w, const char *id)
{
    struct sandbox sb = { 0 };
    struct err e = { 0 };

    need(sandbox_store_find(w->db, id, &sb, &e), &e);
    return sb;
}

enum sandbox_state world_state(struct world *w, const char *id)
{
    AUTO_SANDBOX struct sandbox sb = world_find(w, id);

    return sb.state;
}

bool world_has_ended(struct world *w, const char *id)
{
    AUTO_SANDBOX struct sandbox sb = world_find(w, id);

    return sb.ended_ms > 0;
}

bool world_wait_ended(struct world *w, const char *id)
{
    int64_t until = clock_mono_ms() + WAIT_MS;

    while (!world_has_ended(w, id) && clock_mono_ms() < until)
        (void)poll(NULL, 0, 1);
    return world_has_ended(w, id);
}

bool world_wait_state(struct world *w, const char *id, enum sandbox_state state)
{
    int64_t until = clock_mono_ms() + WAIT_MS;

    while (world_state(w, id) != state && clock_mono_ms() < until)
        (void)poll(NULL, 0, 1);
    return world_state(w, id) == state;
}

int world_events(struct world *w, const char *id, const char *type)
{
    AUTO_EVENTS struct event_list l = { 0 };
    struct err e = { 0 };
    int n = 0;
    size_t i;

    need(event_store_list(w->db, id, EVENT_RUNTIME, EVENTS_PER_SANDBOX, &l, &e), &e);
    for (i = 0; i < l.len; i++)
        n += strcmp(l.items[i].type, type) == 0;
    return n;
}
