/* help — texts that `convoy help` prints, made from the table of commands and from conf.def, so
 * that they cannot differ from the program: the settings and examples of a command, the manual page
 * and shell completion. Must not know what a command does. */
#ifndef CONVOY_NODE_HELP_H
#define CONVOY_NODE_HELP_H

#include <stdbool.h>

#include "base/text.h"

struct help_command {
    const char *name, *words, *help; /* words: how it is called; help NULL: not for people */
};

/* Appends the settings and examples of a command; nothing if it has none. */
void help_examples(const char *command, struct text *out);
/* Appends the manual page convoy(1) in the man macros. */
void help_man_page(const struct help_command *commands, int n, struct text *out);
/* Appends the completion for bash, zsh or fish: commands, settings, the values of those that have a
 * list, presets for MODEL, files for settings with a path, folders and addresses for commands that
 * take them. false: another shell. */
bool help_completion(const char *shell, const struct help_command *commands, int n,
                     struct text *out);

#endif
