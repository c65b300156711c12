/* TOML text to JSON, the one place that knows toml++ (C++). */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parses text. Returns malloc'ed JSON: a flat array of
 *     {"key": "server.port", "line": 3, "value": <JSON value>}
 * one per leaf (arrays and inline tables of strings count as leaves; an empty table is none).
 * NULL: err_text says what is wrong and in which line. Dates are not used and are refused. */
char *config_toml_to_json(const char *text, size_t len, char *err_text, size_t err_len);

#ifdef __cplusplus
}
#endif
