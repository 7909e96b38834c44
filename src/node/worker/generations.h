/* generations — a worker's loop over the generations of the job.
 *
 * A generation is a set of processes that train together. When one of them is lost, the others do
 * not exit. Each of them
 *   1. closes its communicator and opens a new one, which has a new address
 *   2. publishes on the board that it is ready, with that address
 *   3. waits for the next world (the addresses of all ranks)
 *   4. connects to the other ranks and goes on from the last checkpoint
 *
 * With one rank there is one generation and nothing to wait for; the supervisor restarts that
 * worker.
 *
 * The caller supplies the function that runs in a generation. Must not know models, steps or
 * settings. */
#ifndef CONVOY_NODE_GENERATIONS_H
#define CONVOY_NODE_GENERATIONS_H

#include "base/board.h"
#include "comm/core/comm.h"

struct generations_config {
    struct board *board;
    int worker_i;
    /* The communicator of each generation. Its place is among all nodes, although a generation may
     * have fewer; its kind is for several ranks. limit_ms, is_aborted, arg and secret are not
     * read. */
    struct comm_config comm;
    /* MASTER_ADDR is loopback on this node, which is node 0, and DATA_ADDR is not set: the workers
     * listen at the address at which other nodes have reached this one (board_node.reached). */
    bool needs_reached;
    /* comm_open_host is called: host memory is sent while devices execute the comm's calls */
    bool opens_host;
    int64_t join_timeout_ms; /* time for which a worker looks for a network address */
    /* A collective may last longer by this than the silence that this node's workers are allowed at
     * that time. */
    int64_t extra_ms;
    /* fingerprints; ST_DISAGREE unless all ranks have the same; val_data 0: none */
    uint64_t data, val_data;
    /* Runs one generation. Another one follows after ST_PEER and, if the supervisor has ended this
     * generation, after any other failure that time heals. */
    enum status (*run)(void *arg, struct comm *comm, int64_t generation);
    /* called before run, with several ranks; may be NULL */
    void (*connected)(void *arg, const struct comm *comm);
    void (*wait)(void *arg, bool is_first); /* called often while the worker waits for a world */
    /* called while the worker waits; any status but ST_OK ends the loop */
    enum status (*stopped)(void *arg);
    void *arg;
};

/* generations_run — runs generations until one ends with ST_OK, or with a failure that another
 * generation would not heal. */
enum status generations_run(const struct generations_config *config);

/* generations_same_data — returns true if the workers with these addresses, on these nodes, have
 * the same data. If not, out explains how they differ. Pure; addresses may hold any bytes. */
bool generations_same_data(const struct board_address *one, int one_node,
                           const struct board_address *other, int other_node, char *out,
                           size_t cap);

#endif
