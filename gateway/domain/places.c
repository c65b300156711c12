#include "gateway/domain/places.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <search.h>
#include <string.h>

struct known {
    char id[RUNTIME_ID]; /* first: entries compare as their ids */
    struct place place;
};

struct places {
    pthread_mutex_t guard; /* guards all below */
    void *root;            /* tsearch(3) tree of struct known */
    struct listener {
        void (*fn)(void *arg, const char *id, const struct place *was);
        void *arg;
    } listener;
};

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct places *places_new(void)
{
    struct places *p = calloc(1, sizeof(*p));

    if (p)
        (void)pthread_mutex_init(&p->guard, NULL);
    return p;
}

void places_free(struct places *p)
{
    if (!p)
        return;
    tdestroy(p->root, free);
    (void)pthread_mutex_destroy(&p->guard);
    free(p);
}

static bool is_live(enum sandbox_state s)
{
    return s == SANDBOX_PENDING || s == SANDBOX_RUNNING || s == SANDBOX_PAUSED;
}

static int put(struct places *p, const struct sandbox *sb)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->guard);
    struct known **found = tfind(sb->id, &p->root, by_id);
    struct known *en = found ? *found : calloc(1, sizeof(*en));

    if (!en)
        return -1;
    en->place.state = sb->state;
    en->place.at = sb->place;
    en->place.renew_s = sb->renew_s;
    memcpy(en->place.login_ports, sb->login_ports, sizeof(en->place.login_ports));
    memcpy(en->place.secure_token, sb->secure_token, sizeof(en->place.secure_token));
    memcpy(en->place.token, sb->token, sizeof(en->place.token));
    if (found)
        return 0;
    memcpy(en->id, sb->id, sizeof(en->id));
    if (tsearch(en, &p->root, by_id))
        return 0;
    free(en);
    return -1;
}

int places_put(struct places *p, const struct sandbox *sb, struct err *e)
{
    if (!is_live(sb->state)) {
        places_drop(p, sb->id);
        return 0;
    }
    return put(p, sb) < 0 ? err_nomem(e) : 0;
}

static struct known *take(struct places *p, const char *id, struct listener *who)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->guard);
    struct known **found = tfind(id, &p->root, by_id);
    struct known *en = found ? *found : NULL;

    *who = p->listener;
    if (en)
        (void)tdelete(id, &p->root, by_id);
    return en;
}

void places_drop(struct places *p, const char *id)
{
    struct listener who;
    AUTO_FREE struct known *en = take(p, id, &who);

    if (en && who.fn)
        who.fn(who.arg, en->id, &en->place);
}

bool places_get(struct places *p, const char *id, struct place *out)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->guard);
    struct known **found = tfind(id, &p->root, by_id);

    if (found)
        *out = (*found)->place;
    return found != NULL;
}

void places_on_drop(struct places *p,
                    void (*fn)(void *arg, const char *id, const struct place *was), void *arg)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&p->guard);

    p->listener = (struct listener){ fn, arg };
}
