/* launcher — what Slurm, Kubernetes, LeaderWorkerSet, SkyPilot, torchrun and Open MPI already say
 * about this node, read from their variables.
 *
 * Pure functions of an environment. Two launchers that contradict each other are refused, never
 * guessed between. It must not know the table of settings: conf.c puts the answers in. */
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
    LAUNCHER_WORKERS, /* of this node: GPUs */
    LAUNCHER_N
};

struct launcher_value {
    const char *name; /* the variable, static text; NULL: no launcher says anything */
    char text[256];   /* what it says, as a setting's value */
};

/* launcher_read — fill said[] for the keys that are wanted (those that nobody set explicitly).
 * ST_BAD_SETTING: a variable that cannot be read, two that contradict (both names and values), or a
 * second copy of convoy on this node. */
enum status launcher_read(char **environment, const bool is_wanted[LAUNCHER_N],
                          struct launcher_value said[LAUNCHER_N]);

/* launcher_find — a variable's value, borrowed from the environment; NULL when it is unset or
 * empty. */
const char *launcher_find(char **environment, const char *name);

/* launcher_is_known — variables of launchers, containers, libraries: no mistyped settings of
 * ours. */
bool launcher_is_known(const char *name);

/* launcher_host — host number index of a Slurm host list such as "gpu[001-003,7],b4" (several
 * brackets in a name: the last counts fastest). Returns false when the list is malformed anywhere,
 * has no such host, or the name does not fit. */
bool launcher_host(const char *list, int64_t index, char *out, size_t cap);
int64_t launcher_hosts(const char *list); /* how many; -1: malformed, or over a million */

/* launcher_line — the first line of a list of addresses, one a line, as SkyPilot has it: name or
 * address, IPv4 or IPv6. False: it is empty, does not fit, or has bytes that no address has. */
bool launcher_line(const char *list, char *out, size_t cap);

#endif
