/* Whether a client gets the line ends of command output (design decision 21). Pure. */
#pragma once
#include <stdbool.h>

enum lines { LINES_AUTO, LINES_KEEP, LINES_STRIP };

/* "auto", "keep", "strip"; -1 for anything else. */
int lines_parse(const char *s, enum lines *out);
/* auto looks at the User-Agent (may be NULL): official clients whose own text summary expects
 * stripped lines get them. */
bool lines_strip(enum lines mode, const char *user_agent);
