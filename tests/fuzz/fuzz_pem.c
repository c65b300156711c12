/* Certificates of a claim: what comes out is no larger than what went in by more than its form, and
 * goes in again unchanged. */
#include "tests/fuzz/fuzz.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "execd/fs/pem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf out = BUF_INIT(2 * PEM_TEXT_MAX);
    AUTO_BUF struct buf again = BUF_INIT(2 * PEM_TEXT_MAX);
    char *text = fuzz_text(data, size);
    struct err e = { 0 };
    int n = pem_certificates(text, &out, &e);

    if (n < 0) {
        MUST(e.code == ERRC_INVALID && e.msg[0]);
    } else {
        MUST(n >= 1 && n <= PEM_CERTIFICATES_MAX);
        MUST(pem_certificates(out.data, &again, &e) == n);
        MUST(strcmp(out.data, again.data) == 0);
    }
    free(text);
    return 0;
}
