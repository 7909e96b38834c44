/* launcher — reads this node's number, the number of nodes and node 0's address from the variables
 * of Slurm, Kubernetes, LeaderWorkerSet, SkyPilot, torchrun and Open MPI.
 *
 * Launchers that contradict each other are refused. Also finds what started this process: a
 * Kubernetes pod, a Slurm job, a container, or (most often) a shell. Functions of their arguments
 * and, for containers, of two files. It must not know the table of settings (conf.c puts the values
 * in), nor what follows from the answers. */
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
    LAUNCHER_WORKERS, /* GPUs of this node */
    LAUNCHER_N
};

struct launcher_value {
    const char *name; /* the variable, static text; NULL: no launcher sets this */
    char text[256];   /* its value, as that of a setting */
};

/* launcher_read — fills said[] for the wanted keys, which no argument or setting of the environment
 * gives. ST_BAD_SETTING: a variable that cannot be parsed, two that contradict each other (with
 * names and values), or a second copy of convoy on this node. */
enum status launcher_read(char **environment, const bool is_wanted[LAUNCHER_N],
                          struct launcher_value said[LAUNCHER_N]);

/* launcher_find — a variable's value, borrowed from the environment; NULL: unset or empty. */
const char *launcher_find(char **environment, const char *name);

/* launcher_is_known — true for variables of launchers, containers and libraries: they are not
 * mistyped settings. */
bool launcher_is_known(const char *name);

/* Slurm's and SkyPilot's lists, public for tests.
 * launcher_host — host number index of a Slurm host list such as "gpu[001-003,7],b4". With several
 * brackets in a name, the last counts fastest. false: the list is malformed, has no such host, or
 * the name does not fit. */
bool launcher_host(const char *list, int64_t index, char *out, size_t cap);
/* the number of hosts; -1: malformed, or over a million */
int64_t launcher_hosts(const char *list);

/* launcher_line — public for tests: the first line of a list of addresses, one per line, as
 * SkyPilot has it: a name, IPv4 or IPv6 address. false: it is empty, does not fit, or has bytes
 * that no address has. */
bool launcher_line(const char *list, char *out, size_t cap);

struct launcher_context {
    char **environment;
    const char *root; /* of the file system; "": the real one */
    int pid, parent;  /* of this process and of its parent */
    bool is_terminal; /* the output goes to a terminal */
};

/* Returns the context of this process. */
struct launcher_context launcher_context_here(char **environment);
/* Returns "Kubernetes", "Slurm" or "container"; NULL: a terminal, or a shell on a machine or in a
 * container. */
const char *launcher_context_name(const struct launcher_context *context);
/* Returns true in a container or a pod, also in a shell there. */
bool launcher_context_is_container(const struct launcher_context *context);

#endif
