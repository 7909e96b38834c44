/* suite_device — every collective on buffers in a device's memory that the host cannot touch
 * (fake_device.h): exact sums, all counts, in place and out of place. Included after suite.h by
 * programs whose ranks have config.dev = suite_dev. */
#ifndef CONVOY_TESTS_COMM_SUITE_DEVICE_H
#define CONVOY_TESTS_COMM_SUITE_DEVICE_H

#include "fake_device.h"

static struct dev *suite_dev;
static const int64_t suite_device_counts[] = {0, 1, 17, 96, 4800, 20001, 1500003};
#define SUITE_DEVICE_COUNTS_N ((int)(sizeof suite_device_counts / sizeof *suite_device_counts))
#define SUITE_DEVICE_MAX 1500003

static double suite_device_value(int rank, int64_t i) { return (double)(rank * 3 + i % 11); }
static double suite_device_sum(int ranks, int64_t i)
{
    return 3.0 * ranks * (ranks - 1) / 2 + (double)(ranks * (i % 11));
}

static void suite_device_fill(struct tensor t, int rank, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        suite_put(fake_device_at(t.data), t.dtype, first + i, suite_device_value(rank, first + i));
}

static double suite_device_get(struct tensor t, int64_t i)
{
    const void *p = fake_device_at(t.data);
    return t.dtype == DTYPE_F64   ? ((const double *)p)[i]
           : t.dtype == DTYPE_F32 ? (double)((const float *)p)[i]
           : t.dtype == DTYPE_F16 ? (double)f16_to_float(((const uint16_t *)p)[i])
                                  : (double)bf16_to_float(((const uint16_t *)p)[i]);
}

#define SUITE_DEVICE_SAME(t, i, want, what)                                                        \
    CHECK(suite_device_get((t), (i)) == (want), "%s of %lld elements: element %lld is %g, not %g", \
          what, (long long)n, (long long)(i), suite_device_get((t), (i)), (double)(want))

/* Sums of n elements of one dtype. */
static void suite_device_sums(struct suite_rank *me, struct tensor a, struct tensor b, int64_t n)
{
    int rank = me->place.rank, ranks = me->place.ranks;
    struct part_extent own = part_extent(n, ranks, rank);
    suite_device_fill(a, rank, 0, n);
    CHECK_OK(comm_all_reduce(me->comm, b, a, n));
    CHECK_OK(comm_all_reduce(me->comm, a, a, n));
    for (int64_t i = 0; i < n; i++) {
        SUITE_DEVICE_SAME(b, i, suite_device_sum(ranks, i), "all_reduce");
        SUITE_DEVICE_SAME(a, i, suite_device_sum(ranks, i), "all_reduce in place");
    }
    suite_device_fill(a, rank, 0, n);
    CHECK_OK(comm_reduce_scatter(me->comm, b, a, n));
    CHECK_OK(comm_reduce_scatter(me->comm, tensor_at(a, own.first), a, n));
    for (int64_t i = 0; i < own.elems; i++) {
        SUITE_DEVICE_SAME(b, i, suite_device_sum(ranks, own.first + i), "reduce_scatter");
        SUITE_DEVICE_SAME(a, own.first + i, suite_device_sum(ranks, own.first + i),
                          "reduce_scatter in place");
    }
    CHECK_OK(comm_all_gather(me->comm, a, tensor_at(a, own.first), n));
    for (int64_t i = 0; i < n; i++)
        SUITE_DEVICE_SAME(a, i, suite_device_sum(ranks, i), "all_gather in place");
}

static void suite_device_copies(struct suite_rank *me, struct tensor a, struct tensor b, int64_t n)
{
    int rank = me->place.rank, ranks = me->place.ranks;
    struct part_extent own = part_extent(n, ranks, rank);
    struct comm_ticket ticket;
    for (int64_t i = 0; i < own.elems; i++)
        suite_put(fake_device_at(b.data), b.dtype, i, suite_device_value(1, own.first + i));
    CHECK_OK(comm_all_gather_begin(me->comm, a, b, n, &ticket));
    CHECK_OK(comm_wait(me->comm, ticket));
    for (int64_t i = 0; i < n; i++)
        SUITE_DEVICE_SAME(a, i, suite_device_value(1, i), "all_gather");
    suite_device_fill(a, rank, 0, n);
    CHECK_OK(comm_broadcast(me->comm, a, n, ranks - 1));
    for (int64_t i = 0; i < n; i++)
        SUITE_DEVICE_SAME(a, i, suite_device_value(ranks - 1, i), "broadcast");
    int64_t part = n / ranks;
    for (int64_t i = 0; i < part * ranks; i++)
        suite_put(fake_device_at(a.data), a.dtype, i,
                  (double)(rank * 16 + i / part + i % part % 3));
    CHECK_OK(comm_all_to_all(me->comm, b, a, part));
    for (int64_t i = 0; i < part * ranks; i++)
        SUITE_DEVICE_SAME(b, i, (double)(i / part * 16 + rank + i % part % 3), "all_to_all");
}

/* From device memory of one rank to host memory of another, and back. */
static void suite_device_messages(struct suite_rank *me, struct tensor a, int64_t n)
{
    int rank = me->place.rank, last = me->place.ranks - 1;
    size_t bytes = (size_t)n * dtype_bytes(a.dtype);
    struct tensor host = {malloc(bytes + 1), a.dtype};
    if (rank == 0) {
        suite_device_fill(a, 5, 0, n);
        CHECK_OK(comm_send(me->comm, a, n, last));
        memset(fake_device_at(a.data), 0, bytes);
        CHECK_OK(comm_recv(me->comm, a, n, last));
        for (int64_t i = 0; i < n; i++)
            SUITE_DEVICE_SAME(a, i, suite_device_value(5, i), "send and recv");
    } else if (rank == last) {
        CHECK_OK(comm_recv(me->comm, host, n, 0));
        for (int64_t i = 0; i < n; i++)
            SUITE_DEVICE_SAME(host, i, suite_device_value(5, i), "recv");
        CHECK_OK(comm_send(me->comm, host, n, 0));
    }
    free(host.data);
}

static void suite_device_rank(struct suite_rank *me)
{
    void *a, *b;
    CHECK_OK(comm_alloc(me->comm, SUITE_DEVICE_MAX * 8, &a));
    CHECK_OK(comm_alloc(me->comm, SUITE_DEVICE_MAX * 8, &b));
    CHECK(dev_holds(suite_dev, a) && dev_holds(suite_dev, b), "%p", a);
    for (int k = 0; k < SUITE_DEVICE_COUNTS_N; k++)
        for (int d = 0; d < 4; d++) {
            struct tensor x = {a, suite_dtypes[d]}, y = {b, suite_dtypes[d]};
            if (d > 0 && suite_device_counts[k] == SUITE_DEVICE_MAX)
                continue;
            suite_device_sums(me, x, y, suite_device_counts[k]);
            suite_device_copies(me, x, y, suite_device_counts[k]);
            suite_device_messages(me, x, suite_device_counts[k]);
        }
    CHECK_OK(comm_barrier(me->comm));
}
static void suite_device(void **state)
{
    suite_each(20000, 2, suite_device_rank);
    assert_int_equal(fake_device.blocks_n, 0);
}

/* Random sums have the same bits as in host memory. Returns the bytes that were copied between the
 * two memories. */
static int64_t suite_device_bits(struct suite_rank *me, int64_t elems)
{
    void *data;
    float *host = malloc((size_t)elems * sizeof(float));
    CHECK_OK(comm_alloc(me->comm, elems * 4, &data));
    struct tensor t = {data, DTYPE_F32}, h = {host, DTYPE_F32};
    for (int64_t i = 0; i < elems; i++)
        host[i] = (float)suite_value(false, me->place.rank, i);
    memcpy(fake_device_at(data), host, (size_t)elems * sizeof(float));
    CHECK_OK(comm_barrier(me->comm));
    int64_t before = fake_device.carried, carried;
    CHECK_OK(comm_all_reduce(me->comm, t, t, elems));
    CHECK_OK(comm_barrier(me->comm));
    carried = fake_device.carried - before;
    CHECK_OK(comm_all_reduce(me->comm, h, h, elems));
    CHECK(memcmp(fake_device_at(data), host, (size_t)elems * sizeof(float)) == 0, "rank %d",
          me->place.rank);
    free(host);
    return carried;
}

/* A missing rank is named, also while a chunk is under way. */
static void suite_device_missing_rank(struct suite_rank *me)
{
    void *data;
    CHECK_OK(comm_alloc(me->comm, 20 << 20, &data));
    struct tensor t = {data, DTYPE_F32};
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank != me->place.ranks - 1) {
        CHECK(comm_all_reduce(me->comm, t, t, 5 << 20) == ST_PEER &&
                  strstr(status_message(), "has not entered all_reduce"),
              "%s", status_message());
        status_clear();
    }
    pthread_barrier_wait(&me->job->line_up);
}
#endif
