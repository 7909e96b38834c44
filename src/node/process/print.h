/* print — writes a command's output to stdout. It is complete, or the command fails: for example,
 * if stdout is redirected to a full disk. All other reports of a command go to the log. */
#ifndef CONVOY_NODE_PRINT_H
#define CONVOY_NODE_PRINT_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* print_bytes — writes the bytes. ST_STORE with the system's error text: not all bytes could be
 * written. */
enum status print_bytes(const void *bytes, size_t n);
/* print_text — writes a text and frees it. ST_RETRY: the text was cut; then nothing is written. */
enum status print_text(struct text *text);
/* print_usage — writes a text to stderr, for a call without a command. Ignores failures. Frees the
 * text. */
void print_usage(struct text *text);

#endif
