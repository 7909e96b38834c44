/* test_p2p_gpu — collectives between GPU buffers that UCX moves directly, over real UCX on the
 * loopback device. The GPU is a fake_device.h, whose memory faults when the host touches it. Three
 * calls of UCX are replaced: it reports CUDA support, and it finds GPU memory where it really
 * is. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the suite is used here */
#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include "comm/suite.h"

#include "suite_device.h"

#include "nccl_world.h"

static unsigned lacking;                      /* ranks whose UCX has no CUDA, one bit each */
static _Thread_local int rank_here;           /* the rank of this thread */
static _Atomic int64_t gpu_sends, host_sends; /* longer than a header */

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    (void)context;
    attr->memory_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    if (!(lacking >> rank_here & 1))
        attr->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    return UCS_OK;
}

/* The memory type given to UCX must be true. */
static void find(const void **data, ucp_request_param_t *param)
{
    bool is_gpu = param->memory_type == UCS_MEMORY_TYPE_CUDA;
    CHECK(fake_device_contains(*data) == is_gpu, "%p as memory type %d", *data,
          (int)param->memory_type);
    *data = fake_device_at(*data);
    param->memory_type = UCS_MEMORY_TYPE_HOST;
}

typedef ucs_status_ptr_t send_fn(ucp_ep_h ep, unsigned id, const void *header, size_t header_n,
                                 const void *data, size_t n, const ucp_request_param_t *param);
typedef ucs_status_ptr_t recv_fn(ucp_worker_h worker, void *descriptor, void *data, size_t n,
                                 const ucp_request_param_t *param);
static send_fn *real_send;
static recv_fn *real_recv;

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_n,
                                 const void *data, size_t n, const ucp_request_param_t *param)
{
    ucp_request_param_t mine = *param;
    *(param->memory_type == UCS_MEMORY_TYPE_CUDA ? &gpu_sends : &host_sends) += n > 64;
    if (n > 0)
        find(&data, &mine);
    return real_send(ep, id, header, header_n, data, n, &mine);
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *descriptor, void *data, size_t n,
                                      const ucp_request_param_t *param)
{
    ucp_request_param_t mine = *param;
    const void *at = data;
    if (n > 0)
        find(&at, &mine);
    return real_recv(worker, descriptor, (void *)(uintptr_t)at, n, &mine);
}

static enum status open_ucx(struct suite_rank *me, const struct comm_config *config)
{
    rank_here = me->place.rank;
    return nccl_world_open_ucx(me, config);
}

static const int layouts[][2] = {{2, 1}, {3, 1}, {2, 2}, {3, 3}};
static struct suite suite_direct = NCCL_WORLD_UCX("ucx, direct", layouts);

TEST(every_call)
{
    suite_this = &suite_direct;
    gpu_sends = 0;
    suite_device(state);
    assert_true(gpu_sends > 0);
}

/* Many chunks long; no byte passes through host memory. */
static void bits_rank(struct suite_rank *me)
{
    /* the second: a part has more chunks than slots */
    const int64_t elems = me->place.locals > 1 ? 1200007 : 10000003;
    const int64_t own = part_extent(elems, me->place.ranks, me->place.rank).elems;
    struct comm_times times;
    comm_times(me->comm, &times);
    int64_t carried = suite_device_bits(me, elems);
    comm_times(me->comm, &times);
    CHECK(carried == 0, "%lld bytes passed the host", (long long)carried);
    /* Each byte twice: contributions to the other parts, and its own part to all; between nodes. */
    if (me->place.locals == 1)
        CHECK(times.bytes_sent >= 2 * 4 * (elems - own + own * (me->place.ranks - 1)),
              "%lld bytes sent", (long long)times.bytes_sent);
}
TEST(bits)
{
    suite_run_on(&suite_direct, 2, 1, harness_patience_ms(20000), bits_rank);
    suite_run_on(&suite_direct, 3, 1, harness_patience_ms(20000), bits_rank);
    suite_run_on(&suite_direct, 3, 2, harness_patience_ms(20000), bits_rank);
}

/* The stream of the caller is late: what UCX gets is complete all the same. */
static void after_rank(struct suite_rank *me)
{
    enum { ELEMS = 40000 };
    void *a, *b;
    struct stream *s;
    struct comm_ticket ticket;
    CHECK_OK(comm_alloc(me->comm, ELEMS * 4, &a));
    CHECK_OK(comm_alloc(me->comm, ELEMS * 4, &b));
    CHECK_OK(dev_stream_open(suite_dev, &s));
    for (int round = 1; round < 4; round++) {
        for (int64_t i = 0; i < ELEMS; i++)
            ((float *)fake_device_at(a))[i] = (float)(me->place.rank + round);
        CHECK_OK(dev_copy(s, b, a, ELEMS * 4));
        CHECK_OK(comm_wait_stream(me->comm, s));
        CHECK_OK(comm_all_reduce_begin(me->comm, (struct tensor){b, DTYPE_F32},
                                       (struct tensor){b, DTYPE_F32}, ELEMS, &ticket));
        CHECK_OK(comm_wait(me->comm, ticket));
        for (int64_t i = 0; i < ELEMS; i++)
            CHECK(((float *)fake_device_at(b))[i] == (float)(3 + 3 * round),
                  "round %d, element %lld", round, (long long)i);
    }
    dev_stream_close(s);
}
TEST(after) { suite_run_on(&suite_direct, 3, 1, harness_patience_ms(20000), after_rank); }

/* A group split from a parent with GPU support has it too. */
static void groups_rank(struct suite_rank *me)
{
    const int pair[2] = {0, 2};
    struct comm *sub;
    void *data;
    CHECK_OK(comm_alloc(me->comm, 4 << 20, &data));
    suite_device_fill((struct tensor){data, DTYPE_F32}, me->place.rank, 0, 1 << 20);
    if (me->place.rank != 1) {
        CHECK_OK(comm_split(me->comm, pair, 2, &sub));
        int64_t carried = fake_device.carried;
        CHECK_OK(comm_all_reduce(sub, (struct tensor){data, DTYPE_F32},
                                 (struct tensor){data, DTYPE_F32}, 1 << 20));
        CHECK_OK(comm_barrier(sub));
        CHECK(fake_device.carried == carried, "%lld bytes passed the host",
              (long long)(fake_device.carried - carried));
        for (int64_t i = 0; i < 1 << 20; i++)
            CHECK(((float *)fake_device_at(data))[i] ==
                      (float)(suite_device_value(0, i) + suite_device_value(2, i)),
                  "element %lld", (long long)i);
        comm_close(sub);
    }
    CHECK_OK(comm_barrier(me->comm));
}
TEST(groups) { suite_run_on(&suite_direct, 3, 1, harness_patience_ms(20000), groups_rank); }

static void sums_rank(struct suite_rank *me)
{
    const int64_t n = 40000; /* longer than an eager message */
    void *a, *b;
    CHECK_OK(comm_alloc(me->comm, n * 4, &a));
    CHECK_OK(comm_alloc(me->comm, n * 4, &b));
    suite_device_sums(me, (struct tensor){a, DTYPE_F32}, (struct tensor){b, DTYPE_F32}, n);
    CHECK_OK(comm_barrier(me->comm));
}
static void lacks_run(void *arg)
{
    (void)arg;
    suite_run_on(&suite_direct, 3, 1, harness_patience_ms(20000), sums_rank);
}

/* One rank's UCX has no CUDA: then all ranks stage through host memory, and the log names that
 * rank. */
TEST(one_lacks)
{
    static const struct {
        unsigned lacking;
        const char *word;
    } cases[] = {
        {1, "rank 0's UCX"}, {2, "rank 1's UCX"}, {4, "rank 2's UCX"}, {7, "rank 0's UCX"}};
    suite_this = &suite_direct;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpu_sends = host_sends = 0;
        lacking = cases[i].lacking;
        assert_non_null(strstr(harness_log_of(lacks_run, NULL), cases[i].word));
        assert_int_equal(gpu_sends, 0);
        assert_true(host_sends > 0);
    }
    lacking = 0;
    assert_non_null(strstr(harness_log_of(lacks_run, NULL), "straight from its memory"));
    assert_true(gpu_sends > 0);
}

TEST(missing)
{
    suite_run_late(&suite_direct, 2, 1, 600, suite_device_missing_rank);
    suite_run_late(&suite_direct, 2, 2, 600, suite_device_missing_rank);
    assert_int_equal(fake_device.blocks_n, 0);
}

int main(void)
{
    real_send = (send_fn *)dlsym(RTLD_NEXT, "ucp_am_send_nbx");
    real_recv = (recv_fn *)dlsym(RTLD_NEXT, "ucp_am_recv_data_nbx");
    harness_loopback();
    suite_direct.open = open_ucx;
    suite_dev = fake_device_open();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    fake_device_close(suite_dev);
    return failed;
}
