/* rehearse_flip — inverts a bit of a parameter in the memory of a running worker, as a failing
 * memory would: from outside, by the right that a process has over its descendants. Where the
 * parameters lie is in the workers' logs (train/feature/sentinel_line.h). Must not know when. */
#ifndef CONVOY_NODE_REHEARSE_FLIP_H
#define CONVOY_NODE_REHEARSE_FLIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REHEARSE_RANKS_MAX 1024

struct rehearse_replica {
    int node;
    int64_t pid, elems; /* pid 0: not known */
    uint64_t address;
};
struct rehearse_flips {
    struct rehearse_replica rank[REHEARSE_RANKS_MAX];
};

/* rehearse_flip_note — the message of a line of SENTINEL_LINE_MODULE. */
void rehearse_flip_note(struct rehearse_flips *flips, int node, int rank, const char *message);
/* rehearse_flip_forget — the workers of this node may have ended, or lie elsewhere. */
void rehearse_flip_forget(struct rehearse_flips *flips, int node);
/* rehearse_flip_refused — why no bit can be inverted whose worker would be named: "" where one can
 * be. */
const char *rehearse_flip_refused(const struct rehearse_flips *flips, char *out, size_t cap);
/* rehearse_flip — worker, element and bit by choice. Returns the worker's rank and what was done;
 * -1: no worker of the node is known, or it has ended. */
int rehearse_flip(const struct rehearse_flips *flips, int node, uint64_t choice, char *out,
                  size_t cap);
/* rehearse_flip_named — the rank that a supervisor's message names as the one that differs; -1:
 * none. */
int rehearse_flip_named(const char *message);

#endif
