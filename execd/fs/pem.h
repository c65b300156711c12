/* Certificates as text (RFC 7468): taken apart, checked for form and written anew. What they say and
 * who signed them is for the programs that trust them. Pure. */
#pragma once
#include <stddef.h>

struct buf;
struct err;

enum {
    PEM_TEXT_MAX = 64 * 1024,
    PEM_CERTIFICATES_MAX = 16,
};

/* Appends the certificates of text to out, in lines of 64. Text around them is left out. The number
 * of them, 1 to PEM_CERTIFICATES_MAX, or -1: err says what is wrong. */
int pem_certificates(const char *text, struct buf *out, struct err *e);
