/* completion — shell completion of commands, settings and their values, made from the table of
 * commands and from conf.def. Must not know what a command does. */
#ifndef CONVOY_NODE_COMPLETION_H
#define CONVOY_NODE_COMPLETION_H

#include <stdbool.h>

#include "node/man_page.h"

/* completion_write — for bash, zsh or fish; false: another shell. */
bool completion_write(const char *shell, const struct man_page_command *commands, int n,
                      struct text *out);

#endif
