/* ways — the three ways in which ranks of a test exchange numbers: host memory; memory of a fake
 * device (fake_device.h) that transports of host memory reach by copies; the same memory over the
 * tests' own NCCL. A program calls ways_begin first, ways_choose before each run, and ways_end at
 * its end. */
#ifndef CONVOY_TESTS_MESH_WAYS_H
#define CONVOY_TESTS_MESH_WAYS_H

#include "mesh/ranks.h"

#include "comm/fake_device.h"
#include "dev/nvidia/library.h"

enum way { WAY_HOST, WAY_STAGED, WAY_NCCL, WAY_N };
static const char *const way_name[WAY_N] = {"host", "device over host memory", "device over NCCL"};

static struct fake_nccl *ways_nccl; /* its knobs */
static struct dev *ways_devs[RANKS_MAX];
static struct dev *ways_dev(int rank)
{
    if (!ways_devs[rank]) {
        assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &ways_devs[rank]), ST_OK);
        fake_device_wrap(ways_devs[rank]);
    }
    return ways_devs[rank];
}

static char ways_addresses[RANKS_MAX][COMM_ADDRESS_MAX];
static int64_t ways_bytes[RANKS_MAX];
static pthread_barrier_t ways_apart;
static enum status ways_open_nccl(struct ranks_one *one, struct comm_config config)
{
    config.kind = COMM_KIND_NCCL;
    enum status st =
        comm_begin_open(&config, &one->comm, ways_addresses[one->rank], &ways_bytes[one->rank]);
    pthread_barrier_wait(&ways_apart);
    return st == ST_OK ? comm_end_open(one->comm, 1, ways_addresses, ways_bytes) : st;
}

/* ways_choose — how the next run of so many ranks goes; ways_done after it. */
static inline void ways_choose(enum way way, int ranks)
{
    ranks_own_dev = way == WAY_HOST ? NULL : ways_dev;
    ranks_own_open = way == WAY_NCCL ? ways_open_nccl : NULL;
    pthread_barrier_init(&ways_apart, NULL, (unsigned)ranks);
}
static inline void ways_done(void) { pthread_barrier_destroy(&ways_apart); }

static inline void ways_begin(void)
{
    char path[700];
    fake_device_map(true);
    ssize_t n = readlink("/proc/self/exe", path, 512);
    path[n > 0 ? n : 0] = 0;
    strcpy(strstr(path, "/mesh/"), "/comm/nccl");
    library_dir(path);
    ways_nccl = fake_nccl_find(path);
    ways_nccl->base = fake_device.base;
    ways_nccl->alias = fake_device.alias;
    ways_nccl->bytes = FAKE_DEVICE_BYTES;
}

static inline void ways_end(void)
{
    for (int i = 0; i < RANKS_MAX; i++)
        if (ways_devs[i]) {
            fake_device_unwrap(ways_devs[i]);
            dev_close(ways_devs[i]);
        }
}

#endif
