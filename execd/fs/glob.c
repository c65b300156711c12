#include "execd/fs/glob.h"

#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <stdint.h>
#include <string.h>

/* A pattern becomes a small machine whose states are all followed at once, so nothing is ever
 * tried again. */
enum op {
    OP_CHAR,  /* one character, x */
    OP_ANY,   /* any character */
    OP_CLASS, /* ranges x to y (not included) of glob->ranges; negated: OP_OTHER */
    OP_OTHER,
    OP_SPLIT, /* goes on at x and at y */
    OP_JUMP,  /* goes on at x */
    OP_FAIL,
    OP_MATCH,
};

struct step {
    enum op op;
    uint32_t x;
    uint32_t y;
};

struct range {
    uint32_t first;
    uint32_t last;
};

/* Every byte of a pattern makes at most three steps, and braces one more. */
enum { STEPS_MAX = 4 * GLOB_PATTERN_MAX + 8, NO_CHAR = 0x110000 };

/* Steps of one moment, each once, in a sparse set. */
struct set {
    uint32_t n;
    uint32_t *list;
    uint32_t *at; /* where in list a step is, if it is */
};

struct glob {
    bool negated;
    uint32_t n;
    uint32_t n_ranges;
    struct step steps[STEPS_MAX];
    struct range ranges[GLOB_PATTERN_MAX];
};

struct parser {
    struct glob *g;
    const char *p;
    const char *end;
    const char *fault;
    unsigned nest;
};

/* ---- characters ---- */

/* How many bytes a character has that begins with this one; 0: none does. */
static size_t char_bytes(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xe0)
        return c < 0xc0 ? 0 : 2;
    return c < 0xf0 ? 3 : c < 0xf8 ? 4 : 0;
}

/* The character at s and how many bytes it has. A byte that begins none is a character of its own,
 * outside of Unicode, so that it equals itself only. */
static uint32_t next_char(const char *s, size_t left, size_t *len)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char c = (unsigned char)s[0];
    size_t n = char_bytes(c);
    uint32_t v = n < 2 ? c : c & (0x7fU >> n);
    size_t i;

    *len = 1;
    if (!n || n > left)
        return NO_CHAR + c;
    for (i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return NO_CHAR + c;
        v = v << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if (v < least[n] || v >= NO_CHAR || (v >= 0xd800 && v < 0xe000))
        return NO_CHAR + c;
    *len = n;
    return v;
}

/* ---- compiling ---- */

static uint32_t emit(struct parser *ps, enum op op, uint32_t x, uint32_t y)
{
    ps->g->steps[ps->g->n] = (struct step){ op, x, y };
    return ps->g->n++;
}

static bool fault(struct parser *ps, const char *what)
{
    ps->fault = what;
    return false;
}

/* One character of the pattern, which a backslash may hide. */
static bool take_char(struct parser *ps, uint32_t *out)
{
    size_t len;

    if (*ps->p == '\\' && ++ps->p == ps->end)
        return fault(ps, "a backslash hides nothing");
    *out = next_char(ps->p, (size_t)(ps->end - ps->p), &len);
    ps->p += len;
    return true;
}

static bool take_range(struct parser *ps)
{
    struct range r;

    if (!take_char(ps, &r.first))
        return false;
    r.last = r.first;
    if (ps->end - ps->p > 1 && ps->p[0] == '-' && ps->p[1] != ']') {
        ps->p++;
        if (!take_char(ps, &r.last))
            return false;
    }
    if (r.last < r.first)
        return fault(ps, "a range goes backwards");
    ps->g->ranges[ps->g->n_ranges++] = r;
    return true;
}

/* Behind the '['. */
static bool take_class(struct parser *ps)
{
    bool other = ps->p < ps->end && (*ps->p == '!' || *ps->p == '^');
    uint32_t first = ps->g->n_ranges;

    ps->p += other;
    while (ps->p < ps->end && *ps->p != ']')
        if (!take_range(ps))
            return false;
    if (ps->p == ps->end)
        return fault(ps, "[ has no ]");
    if (ps->g->n_ranges == first)
        return fault(ps, "[] holds nothing");
    ps->p++;
    (void)emit(ps, other ? OP_OTHER : OP_CLASS, first, ps->g->n_ranges);
    return true;
}

static void take_star(struct parser *ps)
{
    uint32_t at;

    while (ps->p < ps->end && *ps->p == '*')
        ps->p++;
    at = emit(ps, OP_SPLIT, ps->g->n + 1, ps->g->n + 3);
    (void)emit(ps, OP_ANY, 0, 0);
    (void)emit(ps, OP_JUMP, at, 0);
}

static bool take_sequence(struct parser *ps);

/* Behind the '{'. The ends of the alternatives are linked through their jumps until the end of all
 * is known. */
static bool take_braces(struct parser *ps)
{
    uint32_t ends = UINT32_MAX;
    uint32_t split;
    uint32_t next;

    if (++ps->nest > GLOB_NEST_MAX)
        return fault(ps, "braces are nested too deeply");
    for (;;) {
        split = emit(ps, OP_SPLIT, ps->g->n + 1, 0);
        if (!take_sequence(ps))
            return false;
        if (ps->p == ps->end)
            return fault(ps, "{ has no }");
        ends = emit(ps, OP_JUMP, ends, 0);
        ps->g->steps[split].y = ps->g->n;
        if (*ps->p++ == '}')
            break;
    }
    (void)emit(ps, OP_FAIL, 0, 0);
    for (; ends != UINT32_MAX; ends = next) {
        next = ps->g->steps[ends].x;
        ps->g->steps[ends].x = ps->g->n;
    }
    ps->nest--;
    return true;
}

static bool take_one(struct parser *ps)
{
    uint32_t c;

    switch (*ps->p) {
    case '*':
        take_star(ps);
        return true;
    case '?':
        ps->p++;
        (void)emit(ps, OP_ANY, 0, 0);
        return true;
    case '[':
        ps->p++;
        return take_class(ps);
    case '{':
        ps->p++;
        return take_braces(ps);
    default:
        if (!take_char(ps, &c))
            return false;
        (void)emit(ps, OP_CHAR, c, 0);
        return true;
    }
}

/* To the end, or within braces to what ends the alternative. */
static bool take_sequence(struct parser *ps)
{
    while (ps->p < ps->end && !(ps->nest && (*ps->p == ',' || *ps->p == '}')))
        if (!take_one(ps))
            return false;
    return true;
}

/* !(p): only around all of the pattern. */
static bool take_negation(struct parser *ps)
{
    if (ps->p == ps->end || *ps->p != '!')
        return true;
    if (ps->end - ps->p < 3 || ps->p[1] != '(' || ps->end[-1] != ')')
        return fault(ps, "! must stand before a group around all of the rest: !(...)");
    ps->g->negated = true;
    ps->p += 2;
    ps->end--;
    return true;
}

struct glob *glob_compile(const char *pattern, struct err *e)
{
    size_t len = strlen(pattern);
    struct parser ps = { .p = pattern, .end = pattern + len };
    struct glob *g;

    if (len > GLOB_PATTERN_MAX) {
        (void)err_set(e, ERRC_INTERNAL, "error searching files. bad pattern: longer than %d bytes",
                      GLOB_PATTERN_MAX);
        return NULL;
    }
    g = calloc(1, sizeof(*g));
    if (!g) {
        (void)err_nomem(e);
        return NULL;
    }
    ps.g = g;
    while (strncmp(ps.p, "**/", 3) == 0) /* no directory at all is one of those it means */
        ps.p += 3;
    if (take_negation(&ps) && take_sequence(&ps)) {
        (void)emit(&ps, OP_MATCH, 0, 0);
        return g;
    }
    (void)err_set(e, ERRC_INTERNAL, "error searching files. bad pattern: %s", ps.fault);
    glob_free(g);
    return NULL;
}

void glob_free(struct glob *g)
{
    free(g);
}

/* ---- matching ---- */

static bool has(const struct set *s, uint32_t step)
{
    return s->at[step] < s->n && s->list[s->at[step]] == step;
}

static void add(struct set *s, uint32_t step)
{
    if (has(s, step))
        return;
    s->at[step] = s->n;
    s->list[s->n++] = step;
}

/* Adds what can be reached without a character: the list grows while it is read. */
static bool close_set(const struct glob *g, struct set *s)
{
    bool matched = false;
    uint32_t i;

    for (i = 0; i < s->n; i++) {
        const struct step *st = &g->steps[s->list[i]];

        matched = matched || st->op == OP_MATCH;
        if (st->op == OP_JUMP || st->op == OP_SPLIT)
            add(s, st->x);
        if (st->op == OP_SPLIT)
            add(s, st->y);
    }
    return matched;
}

static bool in_ranges(const struct glob *g, const struct step *st, uint32_t c)
{
    uint32_t i;

    for (i = st->x; i < st->y; i++)
        if (c >= g->ranges[i].first && c <= g->ranges[i].last)
            return true;
    return false;
}

static bool accepts(const struct glob *g, const struct step *st, uint32_t c)
{
    switch (st->op) {
    case OP_CHAR:
        return c == st->x;
    case OP_ANY:
        return true;
    case OP_CLASS:
        return in_ranges(g, st, c);
    case OP_OTHER:
        return !in_ranges(g, st, c);
    default:
        return false;
    }
}

bool glob_match(const struct glob *g, const char *name)
{
    uint32_t space[4 * STEPS_MAX];
    struct set now = { 0, space, space + STEPS_MAX };
    struct set then = { 0, space + (size_t)2 * STEPS_MAX, space + (size_t)3 * STEPS_MAX };
    size_t left = strlen(name);
    size_t len;
    bool matched;

    if (left > GLOB_NAME_MAX)
        return false;
    memset(now.at, 0, g->n * sizeof(*now.at));
    memset(then.at, 0, g->n * sizeof(*then.at));
    add(&now, 0);
    matched = close_set(g, &now);
    for (; left; name += len, left -= len) {
        uint32_t c = next_char(name, left, &len);
        struct set swap = now;
        uint32_t i;

        then.n = 0;
        for (i = 0; i < now.n; i++)
            if (accepts(g, &g->steps[now.list[i]], c))
                add(&then, now.list[i] + 1);
        matched = close_set(g, &then);
        now = then;
        then = swap;
    }
    return matched != g->negated;
}
