/* print — write a command's answer to stdout, whole or with a failure: a full disk behind a
 * redirection counts. Everything else that a command reports goes to the log. */
#ifndef CONVOY_NODE_PRINT_H
#define CONVOY_NODE_PRINT_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* print_bytes — ST_STORE with the system's text when not all was written. */
enum status print_bytes(const void *bytes, size_t n);
/* print_text — write a text and free it. A text that was cut is ST_RETRY; then nothing is
 * written. */
enum status print_text(struct text *text);
/* print_usage — write to stderr, for a call without a command; ignores failures. Frees the text. */
void print_usage(struct text *text);

#endif
