/* print — see print.h. */
#include "node/process/print.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum status print_bytes(const void *bytes, size_t n)
{
    const char *at = bytes;
    size_t left = n;
    while (left > 0) {
        ssize_t done = write(STDOUT_FILENO, at, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return FAIL(
                ST_STORE,
                "cannot write to stdout: %s after %zu of %zu bytes; see where it was redirected to",
                strerror(done == 0 ? EIO : errno), n - left, n);
        at += done;
        left -= (size_t)done;
    }
    return ST_OK;
}

void print_usage(struct text *text)
{
    if (text->data)
        (void)!write(STDERR_FILENO, text->data, text->len);
    text_free(text);
}

enum status print_text(struct text *text)
{
    enum status st =
        text->overflow
            ? FAIL(ST_RETRY, "out of memory: the answer has no room; nothing was printed")
            : print_bytes(text->data, text->len);
    text_free(text);
    return st;
}
