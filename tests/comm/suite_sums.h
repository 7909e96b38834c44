/* suite_sums — the results of every call, bit for bit. Part of suite.h. */
#ifndef CONVOY_TESTS_COMM_SUITE_SUMS_H
#define CONVOY_TESTS_COMM_SUITE_SUMS_H

static const int64_t suite_counts[] = {0,  1,   4,    5,    9,    15,   16,    17,
                                       33, 255, 1023, 2049, 4096, 5001, 70001, 1000000};
#define SUITE_COUNTS_N ((int)(sizeof(suite_counts) / sizeof(suite_counts[0])))
#define SUITE_ELEMS_MAX 1000000
static const enum dtype suite_dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16};

static void suite_places_rank(struct suite_rank *me)
{
    const struct comm_place *place = comm_place(me->comm);
    CHECK(memcmp(place, &me->place, sizeof(*place)) == 0, "rank %d", place->rank);
    CHECK(strstr(comm_name(me->comm), me->job->suite->name) != NULL, "%s", comm_name(me->comm));
    CHECK(strncmp(comm_name(me->comm), comm_backend(me->comm), strlen(comm_backend(me->comm))) == 0,
          "%s", comm_backend(me->comm));
    void *data;
    CHECK_OK(comm_alloc(me->comm, 3000001, &data));
    CHECK((uintptr_t)data % (2 << 20) == 0, "%p", data);
    for (int i = 0; i < 3000001; i++)
        CHECK(((char *)data)[i] == 0, "byte %d", i);
    CHECK_OK(comm_barrier(me->comm));
}
static void suite_places(void **state) { suite_each(20000, 1, suite_places_rank); }

static void suite_put(void *data, enum dtype dtype, int64_t i, double x)
{
    if (dtype == DTYPE_F64)
        ((double *)data)[i] = x;
    else if (dtype == DTYPE_F32)
        ((float *)data)[i] = (float)x;
    else
        ((uint16_t *)data)[i] =
            dtype == DTYPE_BF16 ? bf16_from_float((float)x) : f16_from_float((float)x);
}

/* Element i of rank r: a whole number, so that sums are exact in every dtype, or a random one. */
static double suite_value(bool is_exact, int r, int64_t i)
{
    if (is_exact)
        return (double)((i * 7 + r * 3) % 13 - 6);
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)(r + 1) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return ldexp((double)(int32_t)(uint32_t)x, -20 - (int)(x >> 32 & 15));
}

static void suite_fill(void *data, enum dtype dtype, int64_t n, bool is_exact, int r)
{
    for (int64_t i = 0; i < n; i++)
        suite_put(data, dtype, i, suite_value(is_exact, r, i));
}

/* out[i] = the sum of element i over all ranks, in the order of sum.h. */
static void suite_sum(void *out, enum dtype dtype, int64_t i, bool is_exact, int nodes, int locals)
{
    struct sum_tree_step steps[SUITE_RANKS_MAX];
    double wide[SUITE_RANKS_MAX];
    float f32[SUITE_RANKS_MAX];
    int n = nodes * locals;
    sum_tree_plan_nodes(nodes, locals, steps);
    for (int r = 0; r < n; r++) {
        wide[r] = suite_value(is_exact, r, i);
        f32[r] = (float)wide[r];
        if (dtype == DTYPE_BF16)
            f32[r] = bf16_to_float(bf16_from_float(f32[r]));
        else if (dtype == DTYPE_F16)
            f32[r] = f16_to_float(f16_from_float(f32[r]));
    }
    for (int k = 0; k < n - 1; k++) {
        wide[steps[k].to] += wide[steps[k].from];
        f32[steps[k].to] += f32[steps[k].from];
    }
    suite_put(out, dtype, i, dtype == DTYPE_F64 ? wide[0] : f32[0]);
}

struct suite_buffers {
    char *in, *out, *want; /* in: may come from comm_alloc */
    enum dtype dtype;
    int64_t n;
    size_t each;
};

static void suite_expect(const struct suite_buffers *b, const char *what, const void *got,
                         int64_t first, int64_t elems, int rank)
{
    for (int64_t i = 0; i < elems; i++)
        CHECK(memcmp((const char *)got + (size_t)i * b->each,
                     b->want + (size_t)(first + i) * b->each, b->each) == 0,
              "%s: rank %d: element %lld of %lld differs, dtype %d", what, rank,
              (long long)(first + i), (long long)b->n, b->dtype);
}

static void suite_all_sums(struct suite_rank *me, struct suite_buffers *b, bool is_exact)
{
    struct tensor in = {b->in, b->dtype}, out = {b->out, b->dtype};
    int rank = me->place.rank;
    struct part_extent part = part_extent(b->n, me->place.ranks, rank);
    for (int64_t i = 0; i < b->n; i++)
        suite_sum(b->want, b->dtype, i, is_exact, me->job->nodes, me->job->locals);
    suite_fill(b->in, b->dtype, b->n, is_exact, rank);
    memset(b->out, 0xee, (size_t)b->n * b->each + 8);
    CHECK_OK(comm_all_reduce(me->comm, out, in, b->n));
    suite_expect(b, "all_reduce", b->out, 0, b->n, rank);
    CHECK((unsigned char)b->out[(size_t)b->n * b->each] == 0xee, "all_reduce wrote too far: %lld",
          (long long)b->n);
    CHECK_OK(comm_all_reduce(me->comm, in, in, b->n));
    suite_expect(b, "all_reduce in place", b->in, 0, b->n, rank);
    suite_fill(b->in, b->dtype, b->n, is_exact, rank);
    memset(b->out, 0xee, (size_t)b->n * b->each + 8);
    CHECK_OK(comm_reduce_scatter(me->comm, out, in, b->n));
    suite_expect(b, "reduce_scatter", b->out, part.first, part.elems, rank);
    CHECK((unsigned char)b->out[(size_t)part.elems * b->each] == 0xee,
          "reduce_scatter wrote too far: %lld", (long long)b->n);
    suite_fill(b->in, b->dtype, b->n, is_exact, rank);
    CHECK_OK(comm_reduce_scatter(me->comm, tensor_at(in, part.first), in, b->n));
    CHECK_OK(comm_all_gather(me->comm, in, tensor_at(in, part.first), b->n));
    suite_expect(b, "reduce_scatter, all_gather in place", b->in, 0, b->n, rank);
    memmove(b->in, b->in + (size_t)part.first * b->each, (size_t)part.elems * b->each);
    memset(b->out, 0xee, (size_t)b->n * b->each + 8);
    CHECK_OK(comm_all_gather(me->comm, out, in, b->n));
    suite_expect(b, "all_gather", b->out, 0, b->n, rank);
}

static void suite_sums_rank(struct suite_rank *me, bool is_exact)
{
    void *shared, *own = NULL;
    if (me->job->suite->is_discrete)
        shared = own = malloc(SUITE_ELEMS_MAX * 8 + 64);
    else
        CHECK_OK(comm_alloc(me->comm, SUITE_ELEMS_MAX * 8 + 64, &shared));
    char *in = malloc(SUITE_ELEMS_MAX * 8 + 64), *out = malloc(SUITE_ELEMS_MAX * 8 + 64),
         *want = malloc(SUITE_ELEMS_MAX * 8 + 64);
    for (int k = 0; k < SUITE_COUNTS_N; k++)
        for (int d = 0; d < 4; d++) {
            bool is_huge = suite_counts[k] > 100000;
            if (is_huge && (d == 1 || is_exact) && me->place.ranks > 2)
                continue;
            struct suite_buffers b = {.in = (k + d) % 2 ? shared : in,
                                      .out = out,
                                      .want = want,
                                      .dtype = suite_dtypes[d],
                                      .n = suite_counts[k],
                                      .each = dtype_bytes(suite_dtypes[d])};
            suite_all_sums(me, &b, is_exact);
        }
    CHECK_OK(comm_barrier(me->comm));
    free(in), free(out), free(want), free(own);
}
static void suite_exact_rank(struct suite_rank *me) { suite_sums_rank(me, true); }
static void suite_order_rank(struct suite_rank *me) { suite_sums_rank(me, false); }
static void suite_exact(void **state) { suite_each(20000, 1, suite_exact_rank); }
static void suite_order(void **state) { suite_each(20000, 1, suite_order_rank); }

static void suite_copies_rank(struct suite_rank *me)
{
    int rank = me->place.rank, n = me->place.ranks;
    uint8_t *data = malloc(SUITE_ELEMS_MAX);
    for (int k = 0; k < SUITE_COUNTS_N; k++) {
        int root = k % n;
        memset(data, 100 + rank, (size_t)suite_counts[k]);
        CHECK_OK(comm_broadcast(me->comm, (struct tensor){data, DTYPE_U8}, suite_counts[k], root));
        for (int64_t i = 0; i < suite_counts[k]; i++)
            CHECK(data[i] == 100 + root, "broadcast: element %lld is %d", (long long)i, data[i]);
        memset(data, 100 + rank, (size_t)suite_counts[k]);
        struct part_extent part = part_extent(suite_counts[k], n, rank);
        struct tensor all = {data, DTYPE_U8};
        CHECK_OK(comm_all_gather(me->comm, all, tensor_at(all, part.first), suite_counts[k]));
        for (int r = 0; r < n; r++)
            for (int64_t i = 0; i < part_extent(suite_counts[k], n, r).elems; i++)
                CHECK(data[part_extent(suite_counts[k], n, r).first + i] == 100 + r,
                      "all_gather of bytes: %lld", (long long)i);
    }
    for (int k = 0; k < SUITE_COUNTS_N; k++) {
        int64_t part = suite_counts[k] / n;
        uint8_t *out = malloc((size_t)part * (size_t)n + 1);
        for (int64_t i = 0; i < part * n; i++)
            data[i] = (uint8_t)(rank * 50 + i / (part > 0 ? part : 1));
        out[part * n] = 99;
        CHECK_OK(comm_all_to_all(me->comm, (struct tensor){out, DTYPE_U8},
                                 (struct tensor){data, DTYPE_U8}, part));
        for (int64_t i = 0; i < part * n; i++)
            CHECK(out[i] == (uint8_t)(i / part * 50 + rank), "all_to_all: element %lld is %d",
                  (long long)i, out[i]);
        CHECK(out[part * n] == 99, "all_to_all wrote too far: %lld", (long long)part);
        free(out);
    }
    CHECK_OK(comm_barrier(me->comm));
    free(data);
}
static void suite_copies(void **state) { suite_each(20000, 1, suite_copies_rank); }

/* A message to the next rank in a ring. Even ranks send first, odd ranks receive first. */
static void suite_messages_rank(struct suite_rank *me)
{
    int rank = me->place.rank, n = me->place.ranks, to = (rank + 1) % n, from = (rank + n - 1) % n;
    int32_t *mine = malloc(SUITE_ELEMS_MAX * 4), *theirs = malloc(SUITE_ELEMS_MAX * 4);
    for (int k = 0; k < SUITE_COUNTS_N; k++) {
        struct tensor out = {mine, DTYPE_I32}, in = {theirs, DTYPE_I32};
        for (int64_t i = 0; i < suite_counts[k]; i++)
            mine[i] = (int32_t)(i * 31 + rank * 1000 + k);
        for (int turn = 0; turn < 2; turn++)
            if ((rank % 2 == turn && rank != n - 1) || (rank == n - 1 && turn == 1))
                CHECK_OK(comm_send(me->comm, out, suite_counts[k], to));
            else
                CHECK_OK(comm_recv(me->comm, in, suite_counts[k], from));
        for (int64_t i = 0; i < suite_counts[k]; i++)
            CHECK(theirs[i] == (int32_t)(i * 31 + from * 1000 + k), "rank %d: element %lld", rank,
                  (long long)i);
    }
    CHECK_OK(comm_barrier(me->comm));
    free(mine), free(theirs);
}
static void suite_messages(void **state) { suite_each(20000, 2, suite_messages_rank); }

/* Many calls in the queue, blocking calls between them, and waits in any order. */
static void suite_queued_rank(struct suite_rank *me)
{
    enum { CALLS = 40, ELEMS = 3001 };
    int n = me->place.ranks;
    float *data = malloc(sizeof(float) * CALLS * ELEMS), one = 1;
    struct comm_ticket tickets[CALLS];
    for (int round = 0; round < 5; round++) {
        for (int c = 0; c < CALLS; c++) {
            for (int i = 0; i < ELEMS; i++)
                data[c * ELEMS + i] = (float)(me->place.rank + c + i % 7);
            struct tensor t = {data + c * ELEMS, DTYPE_F32};
            struct part_extent part = part_extent(ELEMS, n, me->place.rank);
            if (c % 3 == 0) {
                CHECK_OK(comm_reduce_scatter_begin(me->comm, tensor_at(t, part.first), t, ELEMS,
                                                   &tickets[c]));
                struct comm_ticket inner = tickets[c];
                CHECK_OK(comm_all_gather_begin(me->comm, t, tensor_at(t, part.first), ELEMS,
                                               &tickets[c]));
                CHECK_OK(comm_wait(me->comm, inner));
            } else {
                CHECK_OK(comm_all_reduce_begin(me->comm, t, t, ELEMS, &tickets[c]));
            }
            if (c % 11 == 5) {
                one = 1;
                CHECK_OK(comm_all_reduce(me->comm, (struct tensor){&one, DTYPE_F32},
                                         (struct tensor){&one, DTYPE_F32}, 1));
                CHECK(one == (float)n, "%g", (double)one);
            }
        }
        for (int k = 0; k < CALLS; k++) {
            int c = (k * 17 + round) % CALLS;
            CHECK_OK(comm_wait(me->comm, tickets[c]));
            for (int i = 0; i < ELEMS; i++)
                CHECK(data[c * ELEMS + i] == (float)(n * (n - 1) / 2 + n * (c + i % 7)),
                      "call %d element %d: %g", c, i, (double)data[c * ELEMS + i]);
        }
    }
    struct comm_times times;
    comm_times(me->comm, &times);
    CHECK(times.busy_ms > 0 && times.wait_ms > 0, "%g %g", times.busy_ms, times.wait_ms);
    comm_times(me->comm, &times);
    CHECK(times.busy_ms == 0 && times.bytes_sent == 0, "%g %lld", times.busy_ms,
          (long long)times.bytes_sent);
    CHECK_OK(comm_barrier(me->comm));
    free(data);
}
static void suite_queued(void **state) { suite_each(20000, 1, suite_queued_rank); }

/* Jobs make blocking calls on the queue thread, in their order among the queued calls. */
struct suite_job_arg {
    struct suite_rank *me;
    float x[3];
    bool fails;
};
static enum status suite_job_run(void *arg)
{
    struct suite_job_arg *a = arg;
    struct comm_ticket ticket;
    for (int i = 0; i < 3; i++) {
        struct tensor t = {&a->x[i], DTYPE_F32};
        enum status st = comm_all_reduce(a->me->comm, t, t, 1);
        if (st != ST_OK)
            return st;
        a->x[i] += 1;
    }
    CHECK(comm_job_begin(a->me->comm, suite_job_run, arg, &ticket) == ST_BUG, "a job within a job");
    return a->fails ? status_fail_at(__FILE__, __LINE__, ST_RETRY, "as asked") : ST_OK;
}
static void suite_jobs_rank(struct suite_rank *me)
{
    float y[5];
    struct suite_job_arg args[5];
    struct comm_ticket jobs[5], calls[5];
    for (int k = 0; k < 5; k++) {
        args[k] = (struct suite_job_arg){.me = me, .x = {1, 2, 3}, .fails = k == 4};
        y[k] = 7;
        struct tensor t = {&y[k], DTYPE_F32};
        CHECK_OK(comm_job_begin(me->comm, suite_job_run, &args[k], &jobs[k]));
        if (k < 4)
            CHECK_OK(comm_all_reduce_begin(me->comm, t, t, 1, &calls[k]));
        if (k < 4 && k % 2 == 0)
            CHECK_OK(comm_barrier(me->comm));
        if (k == 3)
            CHECK_OK(comm_wait(me->comm, calls[k]));
    }
    for (int k = 0; k < 4; k++)
        CHECK(args[k].x[2] == 3.0f * (float)me->place.ranks + 1 &&
                  y[k] == 7.0f * (float)me->place.ranks,
              "%g %g", (double)args[k].x[2], (double)y[k]);
    CHECK(comm_wait(me->comm, jobs[4]) == ST_RETRY && strstr(status_message(), "as asked") != NULL,
          "%s", status_message());
    CHECK(comm_barrier(me->comm) == ST_RETRY, "%s", status_message());
}
static void suite_jobs(void **state) { suite_each(20000, 1, suite_jobs_rank); }

static void suite_one_split(struct suite_rank *me, const int *ranks, int n)
{
    struct comm *split;
    CHECK_OK(comm_split(me->comm, ranks, n, &split));
    const struct comm_place *place = comm_place(split);
    CHECK(place->ranks == n && ranks[place->rank] == me->place.rank, "rank %d of %d", place->rank,
          n);
    enum { ELEMS = 20011 };
    float *data = malloc(sizeof(float) * ELEMS), *want = malloc(sizeof(float) * ELEMS);
    struct sum_tree_step steps[SUITE_RANKS_MAX];
    sum_tree_plan_nodes(place->nodes, place->locals, steps);
    for (int i = 0; i < ELEMS; i++) {
        float sum[SUITE_RANKS_MAX];
        data[i] = (float)suite_value(false, me->place.rank, i);
        for (int r = 0; r < n; r++)
            sum[r] = (float)suite_value(false, ranks[r], i);
        for (int k = 0; k < n - 1; k++)
            sum[steps[k].to] += sum[steps[k].from];
        want[i] = sum[0];
    }
    struct tensor t = {data, DTYPE_F32};
    CHECK_OK(comm_all_reduce(split, t, t, ELEMS));
    CHECK(memcmp(data, want, sizeof(float) * ELEMS) == 0, "a split of %d", n);
    float few[3] = {1, 2, 3};
    CHECK_OK(comm_all_reduce(split, (struct tensor){few, DTYPE_F32},
                             (struct tensor){few, DTYPE_F32}, 3));
    CHECK(few[2] == 3.0f * (float)n, "%g", (double)few[2]);
    CHECK_OK(comm_barrier(split));
    comm_close(split);
    free(data), free(want);
}

/* Splits one after the other: all ranks, each node, each rail, odd and even ranks. */
static void suite_splits_rank(struct suite_rank *me)
{
    const struct comm_place *p = &me->place;
    int ranks[SUITE_RANKS_MAX], n;
    for (int round = 0; round < 2; round++) {
        for (n = 0; n < p->ranks; n++)
            ranks[n] = n;
        suite_one_split(me, ranks, n);
        for (n = 0; n < p->locals; n++)
            ranks[n] = p->node * p->locals + n;
        suite_one_split(me, ranks, n);
        for (n = 0; n < p->nodes; n++)
            ranks[n] = n * p->locals + p->local;
        suite_one_split(me, ranks, n);
        n = 0;
        for (int r = p->rank % 2; r < p->ranks; r += 2)
            ranks[n++] = r;
        suite_one_split(me, ranks, n);
        if (p->ranks > 2 && p->rank != 1) { /* unequal nodes: all ranks but rank 1 */
            n = 0;
            for (int r = 0; r < p->ranks; r++)
                if (r != 1)
                    ranks[n++] = r;
            suite_one_split(me, ranks, n);
        }
    }
    CHECK_OK(comm_barrier(me->comm));
}
static void suite_splits(void **state) { suite_each(20000, 1, suite_splits_rank); }
#endif
