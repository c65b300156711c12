#include "gateway/domain/captures.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/thread.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

struct captures {
    pthread_mutex_t guard; /* guards ids */
    pthread_cond_t ended;
    json_t *ids; /* id → true */
};

struct captures *captures_new(void)
{
    struct captures *cs = calloc(1, sizeof(*cs));

    if (cs)
        cs->ids = json_object();
    if (!cs || !cs->ids) {
        free(cs);
        return NULL;
    }
    (void)pthread_mutex_init(&cs->guard, NULL);
    thread_cond_init(&cs->ended);
    return cs;
}

void captures_free(struct captures *cs)
{
    if (!cs)
        return;
    json_decref(cs->ids);
    (void)pthread_cond_destroy(&cs->ended);
    (void)pthread_mutex_destroy(&cs->guard);
    free(cs);
}

int captures_begin(struct captures *cs, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    return json_object_set_new(cs->ids, id, json_true());
}

void captures_end(struct captures *cs, const char *id)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);

    (void)json_object_del(cs->ids, id);
    (void)pthread_cond_broadcast(&cs->ended);
}

bool captures_has(struct captures *cs, const char *id)
{
    if (!cs)
        return false;

    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    return json_object_get(cs->ids, id);
}

bool captures_wait(struct captures *cs, const char *id, int ms)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&cs->guard);
    const int64_t until = clock_mono_ms() + ms;

    while (json_object_get(cs->ids, id))
        if (!thread_wait_until(&cs->ended, &cs->guard, until))
            return !json_object_get(cs->ids, id);
    return true;
}
