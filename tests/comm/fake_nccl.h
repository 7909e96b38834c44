/* fake_nccl — the controls of the tests' own libnccl.so.2 (fake_nccl.c), found in it by name. */
#ifndef CONVOY_TESTS_COMM_FAKE_NCCL_H
#define CONVOY_TESTS_COMM_FAKE_NCCL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A stream as the fake library sees it.
 * post     appends work. run is called when it is the work's turn, again and again until it returns
 *          1; what comes behind it waits.
 * advance  does what can be done; returns how much is left. */
struct fake_stream {
    void (*post)(struct fake_stream *s, int (*run)(void *arg), void *arg);
    int (*advance)(struct fake_stream *s);
};

struct fake_nccl {
    /* Device addresses [base, base + bytes) are read and written at alias. */
    char *base, *alias;
    size_t bytes;
    /* ncclMemAlloc and ncclMemFree; NULL: the library's allocator fails. */
    void *(*mem_alloc)(size_t bytes);
    void (*mem_free)(void *data);
    atomic_int adds_in_ring; /* sums are added around a ring, not in a tree */
    /* Faults to inject. */
    atomic_int init_hangs;   /* the last rank is never connected */
    atomic_int is_lazy;      /* a communicator connects at its first call, when all have made it */
    atomic_int slow_us;      /* a call reaches its stream that much later at the earliest */
    atomic_int hangs;        /* collectives that all ranks have joined are not executed */
    atomic_int fail_result;  /* result that communicators get when… */
    atomic_int fail_after;   /* …so many more operations have been posted; -1: never */
    atomic_int refuses_next; /* result of the next call that is posted; 0: none */
    /* Counters. */
    atomic_int open_n, aborted_n, finalized_n, polled_n, misused_n, posted_n, registered_n;
    atomic_int under_way_most; /* calls of one communicator that were on a stream at a time */
    int max_ctas;              /* of the newest config; INT_MIN: not asked for */
};

struct fake_nccl *fake_nccl_knobs(void);

/* fake_nccl_find_as — the knobs of the library of this name in this folder, the one that
 * library_dir leads the program to. */
static inline struct fake_nccl *fake_nccl_find_as(const char *dir, const char *name)
{
    char path[800];
    struct fake_nccl *(*find)(void) = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        *(void **)(void *)&find = dlsym(handle, "fake_nccl_knobs");
    if (!find) {
        fprintf(stderr, "the tests' own NCCL: %s\n", dlerror());
        abort();
    }
    return find();
}

/* fake_nccl_find — the knobs of the library in the place of NCCL. */
static inline struct fake_nccl *fake_nccl_find(const char *dir)
{
    return fake_nccl_find_as(dir, "libnccl.so.2");
}

#endif
