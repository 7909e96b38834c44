/* check_host — the name of each node in its scheduler, and the command that takes a node out of
 * service.
 *
 * Each node sends its name as a row of the agreement stage, so every rank, check_judge and all
 * reports receive it without a message of their own. */
#ifndef CONVOY_CHECK_CHECK_HOST_H
#define CONVOY_CHECK_CHECK_HOST_H

#include <stddef.h>

#include "check/check_row.h"

/* The scheduler of a node, and the source of the node's name. */
enum check_scheduler {
    CHECK_SCHEDULER_NONE,       /* name of the host */
    CHECK_SCHEDULER_SLURM,      /* SLURMD_NODENAME */
    CHECK_SCHEDULER_KUBERNETES, /* name of the node, if it was passed to the pod */
    CHECK_SCHEDULER_POD         /* name of the pod, which is its host name */
};

/* check_host_row — returns the row that carries the name of node `node`; its verdict is PASS. */
struct check_row check_host_row(int node, enum check_scheduler scheduler, const char *name);

struct check_host {
    enum check_scheduler scheduler;
    char name[64];
};

/* The nodes of a check; zero-initialised is valid and has no names. */
struct check_hosts {
    struct check_host *host;
    int n;
    bool is_ambiguous; /* two nodes have the same name, or two have none */
};
/* check_host_collect — collects the names from the rows. */
void check_host_collect(const struct check_rows *rows, struct check_hosts *out);
/* check_host_free — frees the names and zeroes the struct. Accepts a zeroed struct. */
void check_host_free(struct check_hosts *hosts);
/* check_host_name — returns the name of a node: "gpu-17"; "": unknown. */
const char *check_host_name(const struct check_hosts *hosts, int node);
/* check_host_remedy — writes the command that drains the node, such as `kubectl cordon gpu-17` or
 * `scontrol update NodeName=gpu-17 State=DRAIN Reason="convoy check: link latency"`. Without a
 * scheduler it writes the advice to repair the node, with the setting or command to go on. reason:
 * such as a row's name; only its first 40 bytes are used. A name that a shell could misread is
 * never written into a command. */
void check_host_remedy(const struct check_hosts *hosts, int node, const char *reason, char *out,
                       size_t cap);

#endif
