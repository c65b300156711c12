/* Structured log: one JSON object per line on stderr. Safe from any thread; each line is one
 * write(2). Never pass keys, tokens, env values or file bodies; values are escaped and cut at
 * LOG_VALUE_MAX bytes, fields that no longer fit into the line are left out. The level is the only
 * mutable global of the project. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

enum { LOG_VALUE_MAX = 512 };

/* A field is a key and a text or a number; the list ends with a NULL key. */
struct log_field {
    const char *key;
    const char *text; /* NULL: num is written */
    int64_t num;
};

static inline struct log_field log_text(const char *key, const char *text)
{
    return (struct log_field){ key, text ? text : "", 0 };
}

#define LOG_S(k, v) log_text((k), (v))
#define LOG_N(k, v) ((struct log_field){ (k), 0, (v) })

void log_set_level(enum log_level level);
/* debug, info, warn(ing), error, critical, off in any case; -1 for anything else. */
int log_level_parse(const char *s);
void log_write(enum log_level level, const char *msg, const struct log_field *fields);

#define log_msg(level, msg, ...)                                                                   \
    log_write((level), (msg), (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(, ){ 0 } })
#define log_debug(msg, ...) log_msg(LOG_DEBUG, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_info(msg, ...) log_msg(LOG_INFO, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(msg, ...) log_msg(LOG_WARN, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_error(msg, ...) log_msg(LOG_ERROR, msg __VA_OPT__(, ) __VA_ARGS__)
