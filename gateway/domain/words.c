#include "gateway/domain/words.h"

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#include <string.h>

enum { WORD_MAX = 1 << 20 }; /* more than a request body can hold */

static const char blanks[] = " \t\r\n";

static int add(struct buf *word, const char *s, size_t len, struct err *e)
{
    return len && buf_append(word, s, len) < 0 ? err_nomem(e) : 0;
}

/* *p is behind the opening quote and ends up behind the closing one. */
static int quoted(const char **p, char quote, struct buf *word, struct err *e)
{
    const char *s = *p;
    size_t len;

    for (;;) {
        len = strcspn(s, quote == '"' ? "\"\\" : "'");
        if (add(word, s, len, e) < 0)
            return -1;
        s += len;
        if (!*s)
            return err_set(e, ERRC_INVALID, "a %c is not closed", quote);
        if (*s == quote)
            break;
        if (s[1] == '"' || s[1] == '\\') /* elsewhere within " it is a character like others */
            s++;
        if (*s && add(word, s++, 1, e) < 0)
            return -1;
    }
    *p = s + 1;
    return 0;
}

static int escaped(const char **p, struct buf *word, struct err *e)
{
    if (!**p)
        return err_set(e, ERRC_INVALID, "it ends with a '\\'");
    return add(word, (*p)++, 1, e);
}

/* One word; *p begins with no blank. */
static int take_word(const char **p, struct buf *word, struct err *e)
{
    size_t len;
    int rc = 0;

    while (rc == 0 && **p && !strchr(blanks, **p)) {
        len = strcspn(*p, " \t\r\n'\"\\");
        rc = add(word, *p, len, e);
        *p += len;
        if (rc < 0 || !**p || strchr(blanks, **p))
            break;
        if (*(*p)++ == '\\')
            rc = escaped(p, word, e);
        else
            rc = quoted(p, (*p)[-1], word, e);
    }
    return rc;
}

static int take_words(json_t *list, const char *text, struct err *e)
{
    const char *p = text + strspn(text, blanks);

    while (*p) {
        AUTO_BUF struct buf word = BUF_INIT(WORD_MAX);

        if (take_word(&p, &word, e) < 0)
            return -1;
        if (json_array_append_new(list, json_stringn(word.data ? word.data : "", word.len)) < 0)
            return err_nomem(e);
        p += strspn(p, blanks);
    }
    return json_array_size(list) ? 0 : err_set(e, ERRC_INVALID, "it holds no word");
}

json_t *words_split(const char *text, struct err *e)
{
    json_t *list = json_array();

    if (!list) {
        (void)err_nomem(e);
        return NULL;
    }
    if (take_words(list, text, e) == 0)
        return list;
    json_decref(list);
    return NULL;
}
