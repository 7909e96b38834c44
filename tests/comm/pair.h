/* pair — two ranks as threads, a comm over the network, which a test disturbs. */
#ifndef CONVOY_TESTS_COMM_PAIR_H
#define CONVOY_TESTS_COMM_PAIR_H

#include "harness.h"

#include <pthread.h>

#include "comm/core/comm.h"

struct pair {
    enum comm_net net;
    int64_t generation, timeout_ms;
    enum status (*work)(struct pair *p, int rank, struct comm *comm);
    /* in the test's thread, or NULL: before the ranks connect, and while they connect and work */
    void (*before)(struct pair *p), (*during)(struct pair *p);
    void *arg;
    char addresses[2][2][COMM_ADDRESS_MAX]; /* of each rank, as rank 0 and rank 1 see them */
    int64_t bytes[2];
    pthread_barrier_t line_up;
    /* outcome */
    enum status st[2];
    char message[2][512];
};

static inline enum status pair_open(struct pair *p, int rank, struct comm **comm)
{
    const struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .net = p->net,
        .secret = HARNESS_SECRET,
        .place = {.rank = rank, .ranks = 2, .node = rank, .nodes = 2, .locals = 1},
        .timeout_ms = p->timeout_ms,
        .shm_fd = -1};
    enum status st = comm_begin_open(&config, comm, p->addresses[0][rank], &p->bytes[rank]);
    pthread_barrier_wait(&p->line_up);
    pthread_barrier_wait(&p->line_up);
    return st == ST_OK ? comm_end_open(*comm, p->generation, p->addresses[rank], p->bytes) : st;
}

static inline void pair_rank(struct pair *p, int rank)
{
    struct comm *comm = NULL;
    p->st[rank] = pair_open(p, rank, &comm);
    if (p->st[rank] == ST_OK)
        p->st[rank] = p->work(p, rank, comm);
    snprintf(p->message[rank], sizeof p->message[rank], "%s", status_message());
    comm_close(comm);
}

static inline void *pair_rank_0(void *arg)
{
    pair_rank(arg, 0);
    return NULL;
}
static inline void *pair_rank_1(void *arg)
{
    pair_rank(arg, 1);
    return NULL;
}

/* pair_run — returns when both ranks are closed. */
static inline void pair_run(struct pair *p)
{
    pthread_t threads[2];
    pthread_barrier_init(&p->line_up, NULL, 3);
    pthread_create(&threads[0], NULL, pair_rank_0, p);
    pthread_create(&threads[1], NULL, pair_rank_1, p);
    pthread_barrier_wait(&p->line_up);
    memcpy(p->addresses[1], p->addresses[0], sizeof p->addresses[0]);
    if (p->before)
        p->before(p);
    pthread_barrier_wait(&p->line_up);
    if (p->during)
        p->during(p);
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
    pthread_barrier_destroy(&p->line_up);
}

#endif
