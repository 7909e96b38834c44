/* command_help — the settings and examples that `convoy help COMMAND` shows, in a table by the
 * command's name. The settings' rows come from conf.def. Must not know what a command does. */
#ifndef CONVOY_NODE_COMMAND_HELP_H
#define CONVOY_NODE_COMMAND_HELP_H

#include "base/text.h"

/* command_help_write — append the settings and examples of a command; nothing when it has none. */
void command_help_write(const char *command, struct text *out);

#endif
