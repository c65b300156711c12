#include "common/base/keyed_lock.h"

#include "common/base/cleanup.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct keyed_lock {
    struct keyed_locks *set;
    struct keyed_lock *next;
    pthread_mutex_t held;
    unsigned users; /* holder and waiters; guarded by set->guard */
    char key[];
};

struct keyed_locks {
    pthread_mutex_t guard; /* guards the list and every users count */
    struct keyed_lock *head;
};

struct keyed_locks *keyed_locks_new(void)
{
    struct keyed_locks *ks = calloc(1, sizeof(*ks));

    if (ks)
        (void)pthread_mutex_init(&ks->guard, NULL);
    return ks;
}

void keyed_locks_free(struct keyed_locks *ks)
{
    if (!ks)
        return;
    (void)pthread_mutex_destroy(&ks->guard);
    free(ks);
}

static struct keyed_lock *find_or_add(struct keyed_locks *ks, const char *key)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&ks->guard);
    struct keyed_lock *l;
    size_t len = strlen(key) + 1;

    for (l = ks->head; l; l = l->next)
        if (strcmp(l->key, key) == 0)
            break;
    if (!l) {
        l = calloc(1, sizeof(*l) + len);
        if (!l)
            return NULL;
        memcpy(l->key, key, len);
        l->set = ks;
        (void)pthread_mutex_init(&l->held, NULL);
        l->next = ks->head;
        ks->head = l;
    }
    l->users++;
    return l;
}

struct keyed_lock *keyed_lock_take(struct keyed_locks *ks, const char *key)
{
    struct keyed_lock *l = find_or_add(ks, key);

    if (l)
        (void)pthread_mutex_lock(&l->held);
    return l;
}

static void leave(struct keyed_lock *l)
{
    AUTO_UNLOCK pthread_mutex_t *held = mutex_lock(&l->set->guard);
    struct keyed_lock **at;

    if (--l->users > 0)
        return;
    for (at = &l->set->head; *at != l;)
        at = &(*at)->next;
    *at = l->next;
    (void)pthread_mutex_destroy(&l->held);
    free(l);
}

struct keyed_lock *keyed_lock_try(struct keyed_locks *ks, const char *key)
{
    struct keyed_lock *l = find_or_add(ks, key);

    if (l && pthread_mutex_trylock(&l->held) != 0) {
        leave(l);
        return NULL;
    }
    return l;
}

void keyed_lock_release(struct keyed_lock *l)
{
    if (!l)
        return;
    (void)pthread_mutex_unlock(&l->held);
    leave(l);
}
