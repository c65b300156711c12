#include "gateway/domain/teller.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "gateway/domain/crew.h"
#include "gateway/domain/lifecycle.h"
#include "gateway/store/sandbox_store.h"

enum {
    TELLER_THREADS = 2,
    TELLER_IDS_MAX = 1 << 17,
    TELLER_ANSWER_MS = 2000, /* for an agent's answer */
    TELLER_RETRY_MS = 500,   /* doubles with each */
    TELLER_RETRY_MAX_MS = 30000,
    TELLER_DOUBLINGS = 6,
};

struct teller {
    struct lifecycle *lc;
    struct crew *crew;
};

/* Of the crew. Paused ones hear of it when they are resumed: their agents do not answer. */
static int64_t tell(void *arg, const char *id, unsigned tries)
{
    struct lifecycle *lc = ((struct teller *)arg)->lc;
    AUTO_SANDBOX struct sandbox sb = { 0 };
    struct err e = { 0 };
    int64_t again = TELLER_RETRY_MS << (tries < TELLER_DOUBLINGS ? tries : TELLER_DOUBLINGS);

    if (sandbox_store_get(lc->db, id, &sb, &e) < 0) {
        if (e.code == ERRC_NOT_FOUND)
            return CREW_DONE;
    } else if (sb.ended_ms || sb.state != SANDBOX_RUNNING || !sb.expires_ms) {
        return CREW_DONE;
    } else if (runtime_tell_deadline(lc->rt, &sb.place, sb.token, sb.expires_ms,
                                     lc->clock->wall_ms(), TELLER_ANSWER_MS, &e) == 0 ||
               e.code == ERRC_UNSUPPORTED) {
        return CREW_DONE;
    }
    if ((tries & (tries - 1)) == 0)
        log_info("an agent was not told its deadline yet", LOG_S("id", id), LOG_S("error", e.msg));
    return again < TELLER_RETRY_MAX_MS ? again : TELLER_RETRY_MAX_MS;
}

struct teller *teller_new(struct lifecycle *lc, struct err *e)
{
    struct teller *t = calloc(1, sizeof(*t));

    if (!t) {
        (void)err_nomem(e);
        return NULL;
    }
    t->lc = lc;
    t->crew = crew_new(TELLER_THREADS, TELLER_IDS_MAX, tell, t, e);
    if (!t->crew) {
        free(t);
        return NULL;
    }
    return t;
}

void teller_want(struct teller *t, const char *id)
{
    struct err e;

    if (t && crew_want(t->crew, id, 0, &e) < 0)
        log_warn("an agent is not told its deadline", LOG_S("id", id), LOG_S("error", e.msg));
}

void teller_free(struct teller *t)
{
    if (!t)
        return;
    crew_free(t->crew);
    free(t);
}
