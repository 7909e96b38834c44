/* say — a command's answer on stdout, whole, or why not: a full disk behind a redirection is a
 * failure too. What is told beside the answer goes to the log. */
#ifndef CONVOY_NODE_SAY_H
#define CONVOY_NODE_SAY_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum status say_bytes(const void *bytes, size_t n); /* ST_STORE: the system's text */
/* say_text — and frees it. Text that was cut is ST_RETRY, nothing is written. */
enum status say_text(struct text *text);
/* to stderr, for a call that asked for nothing: as much as goes; frees it */
void say_usage(struct text *text);

#endif
