/* command_help — what `convoy help COMMAND` shows behind the command's words: the settings that
 * matter for it, and examples.
 *
 * A table by the command's name; the settings' rows come from conf.def. Must not know what a
 * command does. */
#ifndef CONVOY_NODE_COMMAND_HELP_H
#define CONVOY_NODE_COMMAND_HELP_H

#include "base/text.h"

/* command_help_write — append settings and examples of this command; nothing for one that has
 * none. */
void command_help_write(const char *command, struct text *out);

#endif
