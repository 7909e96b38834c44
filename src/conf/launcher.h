/* launcher — reads this node's number, the number of nodes and node 0's address from the variables
 * of Slurm, Kubernetes, LeaderWorkerSet, SkyPilot, torchrun and Open MPI.
 *
 * Launchers that contradict each other are refused. It also detects the environment that started
 * this process: a Kubernetes pod, a Slurm job, a container, or (most often) a shell. The functions
 * depend only on their arguments and, for containers, on two files. It must not know the table of
 * settings (conf.c sets the values), nor the consequences of its results. */
#ifndef CONVOY_CONF_LAUNCHER_H
#define CONVOY_CONF_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum launcher_key {
    LAUNCHER_NODE_ID,
    LAUNCHER_N_NODES,
    LAUNCHER_MASTER_ADDR,
    LAUNCHER_MASTER_PORT,
    LAUNCHER_WORKERS, /* number of GPUs of this node */
    LAUNCHER_N
};

struct launcher_value {
    const char *name; /* name of the variable, static text; NULL: no launcher sets this */
    char text[256];   /* its value, in the form of a setting */
};

/* launcher_read — fills said[] for the wanted keys, which neither an argument nor the environment
 * sets. ST_BAD_SETTING: a variable cannot be parsed, two contradict each other (with names and
 * values), or a second copy of convoy runs on this node. */
enum status launcher_read(char **environment, const bool is_wanted[LAUNCHER_N],
                          struct launcher_value said[LAUNCHER_N]);

/* launcher_find — returns a variable's value, borrowed from the environment; NULL: unset or
 * empty. */
const char *launcher_find(char **environment, const char *name);

/* launcher_is_known — returns true for variables of launchers, containers and libraries: they are
 * not mistyped settings. */
bool launcher_is_known(const char *name);

/* launcher_host — writes host `index` of a Slurm host list such as "gpu[001-003,7],b4". With
 * several brackets in a name, the last one counts fastest. Returns false if the list is malformed
 * or has no such host, or if the name does not fit. Public for tests. */
bool launcher_host(const char *list, int64_t index, char *out, size_t cap);
/* launcher_hosts — returns the number of hosts in a list; -1: malformed, or over a million. Public
 * for tests. */
int64_t launcher_hosts(const char *list);

/* launcher_line — writes the first line of a list of addresses, one per line, as SkyPilot sets it:
 * a name, IPv4 or IPv6 address. Returns false if it is empty, does not fit, or has bytes that no
 * address has. Public for tests. */
bool launcher_line(const char *list, char *out, size_t cap);

struct launcher_context {
    char **environment;
    const char *root; /* root of the file system; "": the real one */
    int pid, parent;  /* process ids of this process and of its parent */
    bool is_terminal; /* the output goes to a terminal */
};

/* launcher_context_here — returns the context of this process. */
struct launcher_context launcher_context_here(char **environment);
/* launcher_context_name — returns "Kubernetes", "Slurm" or "container"; NULL: a terminal, or a
 * shell on a machine or in a container. */
const char *launcher_context_name(const struct launcher_context *context);
/* launcher_context_is_container — returns true in a container or a pod, also in a shell there. */
bool launcher_context_is_container(const struct launcher_context *context);

#endif
