/* manual — what `convoy help COMMAND` shows behind the command's words: the settings that matter
 * for it, and examples.
 *
 * A table by the command's name; the settings' rows come from conf.def. Must not know what a
 * command does. */
#ifndef CONVOY_NODE_MANUAL_H
#define CONVOY_NODE_MANUAL_H

#include "base/text.h"

/* manual_write — append settings and examples of this command; nothing for one that has none. */
void manual_write(const char *command, struct text *out);

#endif
