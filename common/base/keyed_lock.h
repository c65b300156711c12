/* One lock per key (a sandbox id, an image): operations on the same key run one after another,
 * different keys do not wait for each other. Fair enough: waiters of a key are woken in order of
 * the mutex. Safe from any thread; may block, so never call it on an I/O thread. */
#pragma once

struct keyed_locks;
struct keyed_lock;

struct keyed_locks *keyed_locks_new(void); /* NULL: out of memory */
void keyed_locks_free(struct keyed_locks *ks);

/* Waits for the key and returns the held lock; NULL when memory is out. */
struct keyed_lock *keyed_lock_take(struct keyed_locks *ks, const char *key);
/* Does not wait: NULL when somebody holds it (or memory is out). */
struct keyed_lock *keyed_lock_try(struct keyed_locks *ks, const char *key);
void keyed_lock_release(struct keyed_lock *l); /* takes NULL */

#define AUTO_KEYED __attribute__((cleanup(auto_keyed)))
static inline void auto_keyed(struct keyed_lock **l)
{
    keyed_lock_release(*l);
}
