#include "gateway/domain/metadata.h"

#include "common/base/err.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LABEL_MAX = 63, PREFIX_MAX = 253 };

static const char reserved[] = "opensandbox.io/";

static int bad(struct err *e, const char *key, const char *what)
{
    return err_api(e, ERRC_INVALID, "SANDBOX::INVALID_METADATA_LABEL", "metadata key '%.80s': %s",
                   key, what);
}

static bool label_ok(const char *s, size_t len)
{
    size_t i;

    if (!len || len > LABEL_MAX || !isalnum((unsigned char)s[0]) ||
        !isalnum((unsigned char)s[len - 1]))
        return false;
    for (i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

/* A lower-case DNS subdomain: labels of letters, digits and '-', joined by dots. */
static bool subdomain_ok(const char *s, size_t len)
{
    char before = '.';
    size_t i;

    if (!len || len > PREFIX_MAX)
        return false;
    for (i = 0; i < len; i++) {
        bool alnum = islower((unsigned char)s[i]) || isdigit((unsigned char)s[i]);

        if (!alnum && (before == '.' || before == '-') && s[i] == '.')
            return false;
        if (!alnum && (s[i] != '-' || before == '.') && s[i] != '.')
            return false;
        before = s[i];
    }
    return before != '.' && before != '-';
}

static bool is_reserved(const char *key)
{
    return strncmp(key, reserved, sizeof(reserved) - 1) == 0;
}

int metadata_check_entry(const char *key, const char *value, struct err *e)
{
    const char *slash = strchr(key, '/');
    const char *name = slash ? slash + 1 : key;

    if (is_reserved(key))
        return bad(e, key, "keys under opensandbox.io/ are reserved");
    if (!value)
        return 0;
    if (slash && !subdomain_ok(key, (size_t)(slash - key)))
        return bad(e, key, "the prefix before '/' must be a lower-case DNS name");
    if (!label_ok(name, strlen(name)))
        return bad(e, key,
                   "the name must have 1 to 63 letters, digits, '-', '_' or '.', and begin and end "
                   "with a letter or digit");
    if (*value && !label_ok(value, strlen(value)))
        return bad(e, key,
                   "the value must be empty or have up to 63 letters, digits, '-', '_' or '.', and "
                   "begin and end with a letter or digit");
    return 0;
}

int metadata_check(const json_t *metadata, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)metadata, key, v) {
        if (metadata_check_entry(key, json_string_value(v), e) < 0)
            return -1;
    }
    return 0;
}

int metadata_check_patch(const json_t *patch, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)patch, key, v) {
        if (metadata_check_entry(key, json_string_value(v), e) == 0)
            continue;
        if (e && is_reserved(key))
            e->api_code = "INVALID_METADATA_LABEL";
        return -1;
    }
    return 0;
}
