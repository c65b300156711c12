/* Certificates that the programs of a sandbox are to trust besides what their image trusts
 * (contract/execd.md 12.2). Needs no program of the image. Blocks on disks.
 *
 * Where the image's files can be written, the certificates go into its bundles (Debian, Alpine, RHEL)
 * and to where its own tools pick them up when they make the bundle anew; programs that have other
 * ideas are led there by their environment. Else the environment names a merged copy. */
#pragma once

struct env;
struct err;

enum { CA_BUNDLE_MAX = 8 << 20 }; /* a larger bundle is left alone */

struct ca_paths {
    const char *root; /* what every path begins with: "" but in tests */
    const char
        *home; /* directory for our own copies, tried first; others are where it is not writable */
};

/* pem must have passed pem_certificates. A variable that env has is left as it is.
 * -1: no directory can be written; err names them. */
int ca_install(const struct ca_paths *where, const char *pem, struct env *env, struct err *e);
/* Takes out what ca_install has left in the files of an image that was made from a sandbox. */
void ca_forget(const struct ca_paths *where);
