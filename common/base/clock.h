/* Time, as function pointers where a test wants to own it, and its text form on the wire.
 * Wall milliseconds (`*_ms`) are for records and the wire, monotonic ones (`*_mono_ms`) for
 * deadlines. */
#pragma once
#include <stdint.h>

struct clock {
    int64_t (*wall_ms)(void);
    int64_t (*mono_ms)(void);
};

extern const struct clock clock_system;

int64_t clock_wall_ms(void);
int64_t clock_mono_ms(void);

enum { CLOCK_TEXT = 40 };

/* RFC 3339, UTC, `Z`, a fraction of six digits only when it is not zero (contract/lifecycle.md 1.3):
 * 2025-01-01T00:00:00.123000Z. out holds CLOCK_TEXT bytes. Years 1..9999, else "" is written. */
void clock_format_ms(int64_t wall_ms, char out[CLOCK_TEXT]);
/* As above from seconds and nanoseconds; what is below a microsecond is cut. */
void clock_format_ts(int64_t sec, long nsec, char out[CLOCK_TEXT]);
/* RFC 3339 with `Z`, an offset or none (UTC), `T` or a space; any number of fraction digits
 * (cut to milliseconds). 0, or -1 for anything else. */
int clock_parse_ms(const char *s, int64_t *out_ms);
