/* rank_devices — a CUDA device without a GPU (guarded.h) for each rank of a test of several ranks
 * (mesh/ranks.h), opened when the rank first asks for it. */
#ifndef CONVOY_TESTS_RANK_DEVICES_H
#define CONVOY_TESTS_RANK_DEVICES_H
#include "mesh/ranks.h"

#include "tests/cuda/guarded.h"

static struct dev *rank_devices[RANKS_MAX];

static struct dev *rank_device(int rank)
{
    if (!rank_devices[rank])
        rank_devices[rank] = open_device();
    return rank_devices[rank];
}

/* Before the first run of ranks. */
static inline void rank_devices_open(void)
{
    ranks_own_dev = rank_device;
    open_once(rank_device(0));
}

static inline void rank_devices_close(void)
{
    for (int i = 0; i < RANKS_MAX; i++)
        dev_close(rank_devices[i]);
}
#endif
