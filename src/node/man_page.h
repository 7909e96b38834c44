/* man_page — what a package carries beside the program: the manual page convoy(1), completion for
 * shells. Made from the table of commands and from conf.def, so that neither can differ from the
 * program. Must not know what a command does. */
#ifndef CONVOY_NODE_MAN_PAGE_H
#define CONVOY_NODE_MAN_PAGE_H

#include <stdbool.h>

#include "base/text.h"

struct man_page_command {
    const char *name, *words, *help; /* help NULL: not for people, left out */
};

void man_page_write(const struct man_page_command *commands, int n, struct text *out);
/* completion_write — for bash, zsh or fish; false: no such shell is known. */
bool completion_write(const char *shell, const struct man_page_command *commands, int n,
                      struct text *out);

#endif
