/* print — a command's answer on stdout, whole, or why not: a full disk behind a redirection is a
 * failure too. What is told beside the answer goes to the log. */
#ifndef CONVOY_NODE_PRINT_H
#define CONVOY_NODE_PRINT_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum status print_bytes(const void *bytes, size_t n); /* ST_STORE: the system's text */
/* print_text — and frees it. Text that was cut is ST_RETRY, nothing is written. */
enum status print_text(struct text *text);
/* to stderr, for a call that asked for nothing: as much as goes; frees it */
void print_usage(struct text *text);

#endif
