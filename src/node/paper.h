/* paper — what a package carries beside the program: the manual page convoy(1), completion for
 * shells. Made from the table of commands and from conf.def, so that neither can differ from the
 * program. Must not know what a command does. */
#ifndef CONVOY_NODE_PAPER_H
#define CONVOY_NODE_PAPER_H

#include <stdbool.h>

#include "base/text.h"

struct paper_command {
    const char *name, *words, *help; /* help NULL: not for people, left out */
};

void paper_man(const struct paper_command *commands, int n, struct text *out);
/* paper_completion — for bash, zsh or fish; false: no such shell is known. */
bool paper_completion(const char *shell, const struct paper_command *commands, int n,
                      struct text *out);

#endif
