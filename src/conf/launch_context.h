/* launch_context — what started this process: a Kubernetes pod, a Slurm job, a container, or (most
 * often) a shell.
 *
 * A function of its arguments and of two files. It must not know settings, nor what follows from
 * the answer. */
#ifndef CONVOY_CONF_LAUNCH_CONTEXT_H
#define CONVOY_CONF_LAUNCH_CONTEXT_H

#include <stdbool.h>

struct launch_context {
    char **environment;
    const char *root; /* of the file system; "": the real one */
    int pid, parent;  /* of this process and of its parent */
    bool is_terminal; /* the output goes to a terminal */
};

/* launch_context_here — the context of this process. */
struct launch_context launch_context_here(char **environment);
/* launch_context_name — "Kubernetes", "Slurm" or "container"; NULL: a terminal, or a shell on a
 * machine or in a container. */
const char *launch_context_name(const struct launch_context *context);
/* launch_context_is_container — Returns true in a container or a pod, also in a shell there. */
bool launch_context_is_container(const struct launch_context *context);

#endif
