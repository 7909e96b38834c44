/* man_page — the manual page convoy(1), made from the table of commands and from conf.def, so that
 * it cannot differ from the program. Must not know what a command does. */
#ifndef CONVOY_NODE_MAN_PAGE_H
#define CONVOY_NODE_MAN_PAGE_H

#include "base/text.h"

struct man_page_command {
    const char *name, *words, *help; /* words: how it is called; help NULL: not for people */
};

void man_page_write(const struct man_page_command *commands, int n, struct text *out);

#endif
