/* generations — a worker's loop over the generations of the job.
 *
 * A generation is a set of processes that train together. When one of them is lost, the others do
 * not exit. Each of them
 *   1. closes its communicator and opens a new one, which has a new address
 *   2. publishes on the board that it is ready, with that address
 *   3. waits for the next world (the addresses of all ranks)
 *   4. connects to the other ranks and goes on from the last checkpoint
 * With one rank there is one generation and nothing to wait for; the supervisor restarts that
 * worker.
 *
 * What runs in a generation is the caller's function. Must not know models, steps or settings. */
#ifndef CONVOY_NODE_GENERATIONS_H
#define CONVOY_NODE_GENERATIONS_H

#include "base/board.h"
#include "comm/core/comm.h"

struct generations_config {
    struct board *board;
    int worker_i;
    struct comm_place place; /* among all nodes; a generation may have fewer */
    enum comm_kind kind;     /* with several ranks */
    enum comm_net net;       /* as in comm_config, like data_addr, master, dev and shm_fd */
    const char *data_addr, *master;
    /* MASTER_ADDR is loopback on this node, which is node 0, and DATA_ADDR is not set: the workers
     * listen at the address where other nodes have reached this one (board_node.reached). */
    bool needs_reached;
    int64_t join_timeout_ms; /* how long a worker looks for a network address */
    int device_sms;
    struct dev *dev;
    int shm_fd;
    int64_t timeout_ms; /* of a collective */
    /* A collective may take longer by this than the silence that this node's workers are allowed at
     * that time. */
    int64_t extra_ms;
    /* fingerprints: the same on all ranks, or ST_DISAGREE; val_data 0: none */
    uint64_t data, val_data;
    /* Runs one generation. Another one follows after ST_PEER, and after any other failure that
     * time heals once this generation is over. */
    enum status (*run)(void *arg, struct comm *comm, int64_t generation);
    /* called before run, with several ranks; may be NULL */
    void (*connected)(void *arg, const struct comm *comm);
    void (*wait)(void *arg, bool is_first); /* called often while waiting for a world */
    /* called while waiting; anything but ST_OK ends the loop */
    enum status (*stopped)(void *arg);
    void *arg;
};

/* generations_run — blocks until a generation ends with ST_OK, or with a failure that another
 * generation would not heal. */
enum status generations_run(const struct generations_config *config);

/* generations_same_data — do the workers with these addresses, on these nodes, have the same data?
 * False: out says how they differ. Pure; addresses may hold any bytes. */
bool generations_same_data(const struct board_address *one, int one_node,
                           const struct board_address *other, int other_node, char *out,
                           size_t cap);

#endif
