/* What a Jupyter server's REST API says (contract/execd.md 8.2), and what is asked of it. Pure: no descriptors. */
#pragma once
#include "execd/code/jupyter_msg.h"

enum { JUPYTER_SPEC_TEXT = 256 };

/* GET /api/kernelspecs: the kernelspec for a language (lower case): one that has its name, else any but "python3"
 * (the official image has a better one beside it), else that. out holds JUPYTER_SPEC_TEXT bytes.
 * -1: ERRC_INVALID and the languages that there are; ERRC_BAD_GATEWAY: malformed. */
int jupyter_choose_spec(const char *body, size_t len, const char *language, char *out,
                        struct err *e);

/* POST /api/sessions. The caller frees the text; NULL: out of memory. */
char *jupyter_session_request(const char *path, const char *name, const char *spec);

struct jupyter_ids {
    char session[JUPYTER_ID_TEXT]; /* of letters, digits, '-', '_' and '.' */
    char kernel[JUPYTER_ID_TEXT];
};

/* Its answer. -1: ERRC_BAD_GATEWAY. */
int jupyter_read_session(const char *body, size_t len, struct jupyter_ids *out, struct err *e);
/* GET /api/kernels/{id}: its state; JUPYTER_STATE_OTHER when it says none that matters. */
enum jupyter_state jupyter_read_kernel(const char *body, size_t len);
/* What the body of an error says, cut to out. "": nothing that can be read. */
void jupyter_read_error(const char *body, size_t len, char *out, size_t cap);
