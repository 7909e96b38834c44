/* launch_context — what runs this process: a pod of Kubernetes, a Slurm job, a container, or (most
 * often) a person's shell.
 *
 * A pure function of what it is given, beside a look for two files. It must not know settings, nor
 * what follows. */
#ifndef CONVOY_CONF_LAUNCH_CONTEXT_H
#define CONVOY_CONF_LAUNCH_CONTEXT_H

#include <stdbool.h>

struct launch_context {
    char **environment;
    const char *root; /* of the file system: "" for the real one */
    int pid, parent;  /* of this process, and of the one that started it */
    bool is_terminal; /* a person watches the output */
};

/* launch_context_here — this process. */
struct launch_context launch_context_here(char **environment);
/* launch_context_name — "Kubernetes", "Slurm", "container"; NULL: a terminal, or a shell on a
 * machine or in a container. */
const char *launch_context_name(const struct launch_context *context);

#endif
