/* verify_child — runs `convoy train` once, as a process of its own, with settings from arguments
 * alone. It must not know what it trains. */
#ifndef CONVOY_NODE_VERIFY_CHILD_H
#define CONVOY_NODE_VERIFY_CHILD_H

#include <signal.h>

#include "base/status.h"

/* verify_child_environment — the variables that are no settings, NULL behind the last one: the
 * user's own settings are of other runs. The strings are borrowed; the caller frees the list. */
enum status verify_child_environment(char **environment, char ***out);

/* Signals that end a program are held back in between, and asked for: what is temporary can be
 * removed.
 * _hold: from here on. _release: lets them through as they were before.
 * _check: ST_INTERRUPTED or ST_TERMINATED once one has come. */
void verify_child_hold(sigset_t *before);
void verify_child_release(const sigset_t *before);
enum status verify_child_check(void);

/* verify_child_run — blocks until it ends; stdout is dropped. A signal ends it and its workers at
 * once, before this returns. Call between _hold and _release. Else: the status of its exit. */
enum status verify_child_run(char *const *args, int args_n, char **environment,
                             const sigset_t *before);

#endif
