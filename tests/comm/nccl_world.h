/* nccl_world — ranks as threads over the tests' own libnccl.so.2, with a fake device. Included
 * after suite.h and suite_device.h. */
#ifndef CONVOY_TESTS_COMM_NCCL_WORLD_H
#define CONVOY_TESTS_COMM_NCCL_WORLD_H

#include "dev/nvidia/library.h"

struct nccl_world {
    char addresses[SUITE_RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[SUITE_RANKS_MAX];
    int fds[SUITE_RANKS_MAX];
};

/* nccl_world_dir — the folder beside this program that holds a fake library. */
static const char *nccl_world_dir(const char *kind)
{
    static char dir[600];
    char exe[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    assert_true(n > 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    snprintf(dir, sizeof dir, "%s/%s", exe, kind);
    return dir;
}

static void *nccl_world_new(const struct suite_job *job)
{
    struct nccl_world *world = calloc(1, sizeof *world);
    for (int v = 0; v < SUITE_RANKS_MAX; v++)
        world->fds[v] = v < job->nodes ? memfd_create("test", MFD_CLOEXEC) : -1;
    return world;
}
static void nccl_world_free(void *world)
{
    for (int v = 0; v < SUITE_RANKS_MAX; v++)
        if (((struct nccl_world *)world)->fds[v] >= 0)
            close(((struct nccl_world *)world)->fds[v]);
    free(world);
}

static enum status nccl_world_open_as(struct suite_rank *me, const struct comm_config *config,
                                      enum comm_kind kind)
{
    struct nccl_world *world = me->job->world;
    struct comm_config mine = *config;
    mine.kind = kind;
    mine.dev = suite_dev;
    mine.secret = HARNESS_SECRET;
    mine.shm_fd = world->fds[me->place.node];
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[me->place.rank],
                             &world->bytes[me->place.rank]));
    pthread_barrier_wait(&me->job->line_up);
    return comm_end_open(me->comm, SUITE_GENERATION, world->addresses, world->bytes);
}

/* HOST over UCX: staging copies device memory, or UCX is told that it reaches it. */
static inline enum status nccl_world_open_ucx(struct suite_rank *me,
                                              const struct comm_config *config)
{
    return nccl_world_open_as(me, config, COMM_KIND_HOST);
}
#define NCCL_WORLD_UCX(name_, layouts_)                                                    \
    {                                                                                      \
        .name = (name_), .layouts_n = sizeof(layouts_) / sizeof *(layouts_),               \
        .layouts = (layouts_), .world_new = nccl_world_new, .world_free = nccl_world_free, \
        .open = nccl_world_open_ucx, .is_discrete = true, .late_ms = 600                   \
    }

/* NCCL's own allocator, of the tests' device. */
static void *nccl_world_alloc(size_t bytes)
{
    void *data = NULL;
    return fake_device_alloc(NULL, bytes, &data) == ST_OK ? data : NULL;
}
static void nccl_world_mem_free(void *data) { fake_device_free(NULL, data, 0); }

/* nccl_world_use — opens a library for the device; returns its controls. */
static struct fake_nccl *nccl_world_use(const char *kind, const char *name)
{
    library_dir(nccl_world_dir(kind));
    struct fake_nccl *knobs = fake_nccl_find_as(nccl_world_dir(kind), name);
    knobs->base = fake_device.base;
    knobs->alias = fake_device.alias;
    knobs->bytes = FAKE_DEVICE_BYTES;
    knobs->mem_alloc = nccl_world_alloc;
    knobs->mem_free = nccl_world_mem_free;
    return knobs;
}

/* nccl_world_begin — opens the device and the library; returns the controls. */
static struct fake_nccl *nccl_world_begin(void)
{
    suite_dev = fake_device_open();
    return nccl_world_use("nccl", "libnccl.so.2");
}

/* nccl_world_check_clean — nothing is left open, and no call broke a rule of NCCL. */
static inline void nccl_world_check_clean(const struct fake_nccl *knobs)
{
    assert_int_equal(atomic_load(&knobs->open_n), 0);
    assert_int_equal(atomic_load(&knobs->misused_n), 0);
    assert_int_equal(atomic_load(&knobs->registered_n), 0);
    assert_int_equal(fake_device.blocks_n, 0);
}

static inline enum status nccl_world_open(struct suite_rank *me, const struct comm_config *config)
{
    return nccl_world_open_as(me, config, COMM_KIND_NCCL);
}
#define NCCL_WORLD_NCCL(layouts_)                                                                  \
    {                                                                                              \
        .name = "nccl", .layouts_n = sizeof(layouts_) / sizeof *(layouts_), .layouts = (layouts_), \
        .world_new = nccl_world_new, .world_free = nccl_world_free, .open = nccl_world_open,       \
        .is_discrete = true                                                                        \
    }

#endif
