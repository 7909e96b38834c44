/* generations — a worker's way from generation to generation of the job.
 *
 * A generation is a set of processes that train together. When one of them is lost the others don't
 * end: they close what joined them, pack a new address, say on the board that they are ready, wait
 * for the next world (everybody's addresses), and go on from the last checkpoint. With one rank
 * there is one life, and nobody to wait for. What a life is for, it is told; it must not know
 * models, steps or settings. */
#ifndef CONVOY_NODE_GENERATIONS_H
#define CONVOY_NODE_GENERATIONS_H

#include "base/board.h"
#include "comm/core/comm.h"

struct generations_config {
    struct board *board;
    int worker_i;
    struct comm_place place;
    enum comm_kind kind; /* of several ranks */
    enum comm_net net;   /* as comm_config, like data_addr and master */
    const char *data_addr, *master;
    struct dev *dev; /* as comm_config, like shm_fd */
    int shm_fd;
    int64_t timeout_ms; /* of a call of communication */
    /* a call may be so much longer than the silence that this node's workers are allowed by then */
    int64_t extra_ms;
    /* fingerprints: the same on all ranks, or ST_DISAGREE; val_data 0: none */
    uint64_t data, val_data;
    /* one life; ST_PEER, or any failure that only time heals once the generation is over: another
     * one follows */
    enum status (*run)(void *arg, struct comm *comm, int64_t generation);
    /* before run, of several ranks; NULL allowed */
    void (*connected)(void *arg, const struct comm *comm);
    void (*wait)(void *arg, bool is_first); /* called often while waiting for a world */
    enum status (*stopped)(void *arg);      /* asked while waiting: not ST_OK ends it all */
    void *arg;
};

/* generations_run — until a life ends well, or badly in a way that another one would not heal. */
enum status generations_run(const struct generations_config *config);

/* generations_same_data — have the workers with these addresses, of these nodes, the same data?
 * false: how they differ, for people. Pure; addresses may be any bytes. */
bool generations_same_data(const struct board_address *one, int one_node,
                           const struct board_address *other, int other_node, char *out,
                           size_t cap);

#endif
