/* time — step times against closed forms: products, memory, calls within and between nodes,
 * what hides behind computation, and pipelines against a simulation of their order. */
#include "harness.h"

#include "mesh/pipe/pipe.h"
#include "plan/plan_compare.h"

/* A device of 1 TFLOP/s and 100 GB/s in nodes of 4; links of 10 and 1 GB/s. */
static struct plan_cluster machine(void)
{
    struct plan_cluster c = {.is_gpu = true,
                             .locals = 4,
                             .memory_bytes_per_second = 1e11,
                             .memory_share = 0.5,
                             .optimizer_share = 0.25};
    c.peak[PLAN_PRECISION_BF16] = 1e12;
    c.inside.bytes_per_second = 1e10;
    c.across.bytes_per_second = 1e9;
    return c;
}

static struct plan_op product(double ms, double per_pass)
{
    return (struct plan_op){
        .op = OP_KIND_matmul_fwd, .cost = {.flops = (int64_t)(ms * 1e9)}, .per_pass = per_pass};
}

static struct plan_time time_of(struct plan_op *op, int ops_n, struct plan_call *call, int calls_n,
                                int64_t passes, const struct plan_cluster *c)
{
    struct plan_ops ops = {
        .op = op, .ops_n = ops_n, .call = call, .calls_n = calls_n, .passes = passes, .stages = 1};
    struct plan_time time;
    plan_time_make(&ops, 1, PLAN_PRECISION_BF16, c, 0, &time);
    return time;
}

static void near(double got, double want) { assert_float_equal(got, want, 1e-9 * (1 + want)); }

TEST(test_operations)
{
    struct plan_cluster c = machine();
    struct plan_op ops[] = {
        product(2, 3),
        {.op = OP_KIND_attention_bwd, .cost = {.flops = 4000000000}, .per_pass = 1},
        {.op = OP_KIND_norm_fwd,
         .cost = {.bytes_read = 30000000, .bytes_written = 20000000},
         .per_pass = 2},
        {.op = OP_KIND_adamw, .cost = {.bytes_read = 100000000}, .per_step = 1},
    };
    c.operation_us = 100;
    c.step_us = 5000;
    c.attention = (struct plan_share){.n = 1, .point = {{1e9, 0.5}}};
    struct plan_time t = time_of(ops, 4, NULL, 0, 10, &c);
    near(t.ms[PLAN_TIME_PRODUCTS], 60);
    near(t.ms[PLAN_TIME_ATTENTION], 80);
    near(t.ms[PLAN_TIME_MEMORY], 20);
    near(t.ms[PLAN_TIME_OPTIMIZER], 4);
    near(t.ms[PLAN_TIME_LAUNCH], 0.1 * (60 + 1) + 5);
    near(t.step_ms, 60 + 80 + 20 + 4 + 11.1);
}

/* A product that memory limits, and one of a size between two points. */
TEST(test_products)
{
    struct plan_cluster c = machine();
    struct plan_op thin = {.op = OP_KIND_matmul_bwd_w,
                           .cost = {.flops = 1000000, .bytes_read = 200000000},
                           .per_pass = 1},
                   middle = product(1, 1);
    near(time_of(&thin, 1, NULL, 0, 1, &c).step_ms, 2);
    c.product[PLAN_PRECISION_BF16] =
        (struct plan_share){.n = 2, .point = {{1e8, 0.25}, {1e10, 0.75}}};
    near(time_of(&middle, 1, NULL, 0, 1, &c).step_ms, 2);
    c.peak[PLAN_PRECISION_BF16] = 0;
    assert_true(isinf(time_of(&middle, 1, NULL, 0, 1, &c).step_ms));
}

/* A CPU's products by rows and the narrower width; of layers wider than 4096, with those that are
 * 16384 wide, by the logarithm. */
TEST(test_rows)
{
    struct plan_cluster c = machine();
    struct plan_op op = product(1, 1);
    op.rows = 64, op.in = 128, op.out = 512;
    c.product_rows.n = c.product_wide.n = 1;
    c.product_rows.width[0] =
        (struct plan_rows_width){128, {.n = 2, .point = {{64, 0.5}, {256, 1}}}};
    c.product_wide.width[0] = (struct plan_rows_width){128, {.n = 1, .point = {{64, 0.25}}}};
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_PRODUCTS], 2);
    op.rows = 256;
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_PRODUCTS], 1);
    op.out = 50257;
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_PRODUCTS], 4);
    op.in = 8192, op.out = 128;
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_PRODUCTS], 1 / 0.625);
    c.product_wide.n = 0;
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_PRODUCTS], 1);
}

/* Of heads of other widths with as many FLOPs, narrow ones take longer. */
TEST(test_attention_width)
{
    struct plan_cluster c = machine();
    struct plan_op op = {
        .op = OP_KIND_attention_fwd, .cost = {.flops = 1000000000}, .width = 64, .per_pass = 1};
    c.attention = (struct plan_share){.n = 1, .point = {{1e9, 0.5}}};
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_ATTENTION], 2);
    c.attention_width = (struct plan_share){.n = 2, .point = {{32, 0.25}, {128, 1}}};
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_ATTENTION], 2 / 0.625);
    op.width = 16;
    near(time_of(&op, 1, NULL, 0, 1, &c).ms[PLAN_TIME_ATTENTION], 8);
}

/* Own kernels have rates of their own in each direction. Without them the time is that of the key
 * attention, and the direction is named. */
TEST(test_own_attention)
{
    struct plan_cluster c = machine();
    struct plan_op op[] = {
        {.op = OP_KIND_attention_fwd, .cost = {.flops = 1000000000}, .width = 64, .per_pass = 1},
        {.op = OP_KIND_attention_bwd, .cost = {.flops = 2000000000}, .width = 64, .per_pass = 1}};
    c.attention = (struct plan_share){.n = 1, .point = {{1e9, 0.5}}};
    c.attention_own_forward = (struct plan_share){.n = 1, .point = {{1e9, 0.25}}};
    c.attention_own_backward = (struct plan_share){.n = 1, .point = {{1e9, 0.125}}};
    struct plan_time t = time_of(op, 2, NULL, 0, 1, &c);
    near(t.ms[PLAN_TIME_ATTENTION], 2 + 4);
    assert_false(t.lacks_own_forward || t.lacks_own_backward);
    op[1].is_own = true;
    near(time_of(op, 2, NULL, 0, 1, &c).ms[PLAN_TIME_ATTENTION], 2 + 16);
    op[0].is_own = true;
    t = time_of(op, 2, NULL, 0, 1, &c);
    near(t.ms[PLAN_TIME_ATTENTION], 4 + 16);
    assert_false(t.lacks_own_forward || t.lacks_own_backward);
    c.attention_own_backward.n = 0;
    t = time_of(op, 2, NULL, 0, 1, &c);
    near(t.ms[PLAN_TIME_ATTENTION], 4 + 4);
    assert_true(!t.lacks_own_forward && t.lacks_own_backward);
    c.attention_own_forward.n = 0;
    t = time_of(op, 1, NULL, 0, 1, &c);
    near(t.ms[PLAN_TIME_ATTENTION], 2);
    assert_true(t.lacks_own_forward && !t.lacks_own_backward);
}

static struct plan_call call_of(enum plan_call_kind kind, int ranks, int inside, double bytes)
{
    return (struct plan_call){.kind = kind,
                              .axis = MESH_AXIS_DATA,
                              .ranks = ranks,
                              .ranks_inside = inside,
                              .bytes = bytes,
                              .per_step = 1};
}

static double call_ms(const struct plan_cluster *c, enum plan_call_kind kind, int ranks, int inside,
                      double bytes)
{
    struct plan_call call = call_of(kind, ranks, inside, bytes);
    return plan_time_call_ms(c, &call);
}

TEST(test_calls)
{
    struct plan_cluster c = machine();
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 1, 1, 1e9), 0);
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 4, 4, 1e8), 15); /* 2·3/4·10 */
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 4, 4, 1e8), 7.5);
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 8, 4, 1e8), 87.5); /* 7/8·100: the link between nodes */
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 2, 1, 1e8), 200);  /* a quarter of that link */
    near(call_ms(&c, PLAN_CALL_MESSAGE, 2, 2, 1e8), 10);
    near(call_ms(&c, PLAN_CALL_MESSAGE, 2, 1, 1e8), 400);
    near(call_ms(&c, PLAN_CALL_BROADCAST, 4, 4, 1e8), 10);
    near(call_ms(&c, PLAN_CALL_ALL_TO_ALL, 4, 4, 1e8), 7.5);
    /* a tree of two nodes: each way once, where a ring has 2·7/8 */
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 8, 4, 1e8), 100);
    c.is_gpu = false; /* 7.5 inside, then half of the bytes between the nodes */
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 8, 4, 1e8), 57.5);
    c.inside.scatter_ratio = 0.75; /* of 15 ms; between nodes 57.5 ms still */
    c.inside.gather_ratio = 0.6;
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 4, 4, 1e8), 11.25);
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 4, 4, 1e8), 9);
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 4, 4, 1e8), 15);
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 8, 4, 1e8), 57.5);
    c.across.gather_ratio = 0.8; /* of 100 ms, by the tree; two rings would take 115 */
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 8, 4, 1e8), 100);
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 8, 4, 1e8), 80);
    c.across.bytes_per_second = 0;
    assert_true(isinf(call_ms(&c, PLAN_CALL_ALL_GATHER, 8, 4, 1e8)));
    assert_true(isfinite(call_ms(&c, PLAN_CALL_ALL_GATHER, 4, 4, 1e8)));
}

/* Small calls: hops. A ring of 4 has 3, twice; a tree 2 up and 2 down. Two levels on 4 nodes: 3 and
 * 3 hops, where a ring has 11 and 4. */
TEST(test_latency)
{
    struct plan_cluster c = machine();
    c.inside.latency_us = 10;
    c.across.latency_us = 100;
    near(call_ms(&c, PLAN_CALL_ALL_REDUCE, 4, 4, 1e-3), 0.04);
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 4, 4, 1e-3), 0.03);
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 16, 4, 1e-3), 0.51);
    c.is_gpu = false;
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 16, 4, 1e-3), 0.33);
    c.inside.scatter_ratio = 0.6; /* of the tree's 0.04 ms, not of the ring's 0.06 */
    c.inside.gather_ratio = 0.5;
    near(call_ms(&c, PLAN_CALL_REDUCE_SCATTER, 4, 4, 1e-3), 0.024);
    near(call_ms(&c, PLAN_CALL_ALL_GATHER, 4, 4, 1e-3), 0.02);
}

TEST(test_hidden)
{
    struct plan_cluster c = machine();
    struct plan_op ops[] = {product(10, 1), product(20, 1)};
    struct plan_call call = call_of(PLAN_CALL_REDUCE_SCATTER, 4, 4, 1e7); /* 0.75 ms */
    ops[1].is_backward = true;
    call.per_step = 10;
    near(time_of(ops, 2, &call, 1, 4, &c).ms[PLAN_TIME_COMM_EXPOSED], 7.5);
    call.is_hidden = true;
    struct plan_time t = time_of(ops, 2, &call, 1, 4, &c);
    near(t.ms[PLAN_TIME_COMM_EXPOSED], 0.75); /* the last call */
    near(t.comm_hidden_ms, 6.75);
    near(t.axis_ms[MESH_AXIS_DATA], 7.5);
    near(t.step_ms, 120.75);
    call.bytes = 1e8; /* 75 ms beside 20 ms, of which the first tenth has no call beside it */
    near(time_of(ops, 2, &call, 1, 4, &c).ms[PLAN_TIME_COMM_EXPOSED], 75 - 18);
    c.overlap_cost = 0.5;
    t = time_of(ops, 2, &call, 1, 4, &c);
    near(t.ms[PLAN_TIME_COMM_EXPOSED], 57);
    near(t.ms[PLAN_TIME_OVERLAP], 9);
    near(t.step_ms, 120 + 57 + 9);
}

/* Gathered in each pass: half beside 10 ms forward, half beside 20 ms backward. */
TEST(test_hidden_each_pass)
{
    struct plan_cluster c = machine();
    struct plan_op ops[] = {product(10, 1), product(20, 1)};
    struct plan_call call = call_of(PLAN_CALL_ALL_GATHER, 4, 4, 4e7); /* 3 ms */
    ops[1].is_backward = true;
    call.is_hidden = true;
    call.per_step = 0;
    call.per_pass = 6; /* 9 and 9 ms */
    near(time_of(ops, 2, &call, 1, 4, &c).step_ms, 120);
    call.per_pass = 10; /* 15 and 15 ms: 5 show */
    near(time_of(ops, 2, &call, 1, 4, &c).step_ms, 140);
    call.per_pass = 20; /* 30 and 30 ms: 20 and 10 show */
    near(time_of(ops, 2, &call, 1, 4, &c).step_ms, 240);
}

/* ---- pipelines ---- */

#define STAGES 4

/* simulate — the time of a schedule where stage r takes forward[r] and backward[r] a chunk. */
static double simulate(const struct pipe *pipe, const double *forward, const double *backward)
{
    static double done[STAGES][4096];
    int at[STAGES] = {0}, left = pipe->stages * pipe_ops_n(pipe);
    double clock[STAGES] = {0}, last = 0;
    for (int stage = 0; left > 0; stage = (stage + 1) % pipe->stages) {
        while (at[stage] < pipe_ops_n(pipe)) {
            struct pipe_op op = pipe_op_at(pipe, stage, at[stage]), source;
            int from, i = 0;
            double ready = 0;
            if (pipe_source(pipe, stage, op, &from, &source)) {
                for (; i < at[from]; i++) {
                    struct pipe_op other = pipe_op_at(pipe, from, i);
                    if (memcmp(&other.chunk, &source.chunk, 2 * sizeof(int)) == 0 &&
                        other.is_backward == source.is_backward)
                        break;
                }
                if (i == at[from])
                    break; /* not made yet */
                ready = done[from][i];
            }
            clock[stage] =
                fmax(clock[stage], ready) + (op.is_backward ? backward[stage] : forward[stage]);
            done[stage][at[stage]++] = clock[stage];
            last = fmax(last, clock[stage]);
            left--;
        }
    }
    return last;
}

/* planned — the same by plan_time: of a node that has a worker for each stage. */
static struct plan_time planned_on(const struct plan_cluster *c, const struct pipe *pipe,
                                   const double *forward, const double *backward)
{
    struct plan_op op[STAGES][2];
    struct plan_ops ops[STAGES];
    struct plan_time time;
    for (int i = 0; i < pipe->stages; i++) {
        op[i][0] = product(forward[i], pipe->chunks);
        op[i][1] = product(backward[i], pipe->chunks);
        op[i][1].is_backward = true;
        ops[i] = (struct plan_ops){.op = op[i],
                                   .ops_n = 2,
                                   .passes = pipe->micros,
                                   .stages = pipe->stages,
                                   .stage = i,
                                   .chunks = pipe->chunks,
                                   .nodes = 1,
                                   .locals = pipe->stages};
    }
    plan_time_make(ops, pipe->stages, PLAN_PRECISION_BF16, c, 0, &time);
    return time;
}

static struct plan_time planned(const struct pipe *pipe, const double *forward,
                                const double *backward)
{
    const struct plan_cluster c = machine();
    return planned_on(&c, pipe, forward, backward);
}

TEST(test_pipeline_even)
{
    const double forward[STAGES] = {1, 1, 1, 1}, backward[STAGES] = {2, 2, 2, 2};
    for (int micros = 4; micros <= 16; micros += 4) {
        const struct pipe plain = {STAGES, micros, 1}, chunked = {STAGES, micros, 3};
        near(planned(&plain, forward, backward).step_ms, 3 * (micros + STAGES - 1));
        near(planned(&plain, forward, backward).ms[PLAN_TIME_BUBBLE], 3 * (STAGES - 1));
        near(simulate(&plain, forward, backward), 3 * (micros + STAGES - 1));
        near(planned(&chunked, forward, backward).step_ms, 3 * (3 * micros + STAGES - 1));
        near(simulate(&chunked, forward, backward), 3 * (3 * micros + STAGES - 1));
    }
}

/* The slowest stage decides: exact where forward and backward have one ratio. */
TEST(test_pipeline_uneven)
{
    const double forward[STAGES] = {1, 1, 1, 1.5}, backward[STAGES] = {2, 2, 2, 3};
    const struct pipe plain = {STAGES, 12, 1};
    struct plan_time time = planned(&plain, forward, backward);
    near(time.step_ms, 12 * 4.5 + 9);
    near(time.ms[PLAN_TIME_BUBBLE], 9);
    assert_float_equal(simulate(&plain, forward, backward), time.step_ms, 0.02 * time.step_ms);
    const double first[STAGES] = {1.5, 1, 1, 1.2}, then[STAGES] = {3, 2, 2, 2.1};
    const struct pipe chunked = {STAGES, 12, 2};
    double most = planned(&chunked, first, then).step_ms, real = simulate(&chunked, first, then);
    assert_true(real <= most && real > 0.9 * most); /* a slow first stage waits less */
}

/* A stage in the simulation of shared cores. */
struct sharer {
    int at;      /* its operation */
    double left; /* ms of it; 0: not begun */
};

static bool is_made(const struct pipe *pipe, const struct sharer *s, int stage)
{
    struct pipe_op source;
    int from;
    if (!pipe_source(pipe, stage, pipe_op_at(pipe, stage, s[stage].at), &from, &source))
        return true;
    for (int i = 0; i < s[from].at; i++) {
        struct pipe_op other = pipe_op_at(pipe, from, i);
        if (memcmp(&other.chunk, &source.chunk, 2 * sizeof(int)) == 0 &&
            other.is_backward == source.is_backward)
            return true;
    }
    return false;
}

/* advance — until the next stage is done with its operation; the ms that took. What is given takes
 * so long while all stages compute; those that do have the cores alone, one each at most. */
static double advance(const struct pipe *pipe, struct sharer *s, int cores)
{
    double least = INFINITY;
    int active = 0, stages = pipe->stages;
    for (int i = 0; i < stages; i++)
        if (s[i].left > 0) {
            active++;
            least = fmin(least, s[i].left);
        }
    assert_true(active > 0);
    for (int i = 0; i < stages; i++)
        if (s[i].left > 0 && (s[i].left -= least) < 1e-9) {
            s[i].left = 0;
            s[i].at++;
        }
    return least * fmax(active, cores) / stages;
}

/* simulate_shared — stages that have fewer cores than they are. */
static double simulate_shared(const struct pipe *pipe, const double *forward,
                              const double *backward, int cores)
{
    struct sharer s[STAGES] = {{0, 0}};
    double clock = 0;
    for (bool is_done = false; !is_done;) {
        is_done = true;
        for (int i = 0; i < pipe->stages; i++) {
            if (s[i].at == pipe_ops_n(pipe))
                continue;
            is_done = false;
            if (s[i].left == 0 && is_made(pipe, s, i))
                s[i].left = pipe_op_at(pipe, i, s[i].at).is_backward ? backward[i] : forward[i];
        }
        clock += is_done ? 0 : advance(pipe, s, cores);
    }
    return clock;
}

/* host — four workers of one thread each. */
static struct plan_cluster host(int cores)
{
    struct plan_cluster c = machine();
    c.is_gpu = false;
    c.threads_n = 1;
    c.cores = cores;
    return c;
}

/* check_shared — of the simulated time a plan may be so far off. */
static void check_shared(const double *forward, const double *backward, int micros, double off)
{
    const struct plan_cluster c = host(2);
    const struct pipe pipe = {STAGES, micros, 1};
    assert_true(plan_time_shares_cores(&c, STAGES));
    struct plan_time shared = planned_on(&c, &pipe, forward, backward);
    double real = simulate_shared(&pipe, forward, backward, c.cores), all = 0;
    if (fabs(shared.step_ms / real - 1) > off)
        fail_msg("%d micro-batches: %.3f ms planned, %.3f simulated", micros, shared.step_ms, real);
    for (int kind = 0; kind < PLAN_TIME_N; kind++)
        all += shared.ms[kind];
    near(all, shared.step_ms);
}

/* Four stages on two cores. What one waits for, another one computes in that time, exactly where
 * stages are equal; with as many cores as stages, nothing changes. */
TEST(test_shared_cores)
{
    const double even[STAGES] = {2, 2, 2, 2}, twice[STAGES] = {4, 4, 4, 4},
                 head[STAGES] = {1, 1, 1, 3}, head_twice[STAGES] = {2, 2, 2, 6};
    for (int micros = 4; micros <= 32; micros *= 2) {
        check_shared(even, twice, micros, 1e-9);
        check_shared(head, head_twice, micros, 0.1);
    }
    const struct plan_cluster c = host(4);
    const struct pipe pipe = {STAGES, 8, 1};
    assert_false(plan_time_shares_cores(&c, STAGES));
    near(planned_on(&c, &pipe, even, twice).step_ms, planned(&pipe, even, twice).step_ms);
}

/* The workers of the job count, not those of the file: two of four have a core each. */
TEST(test_shared_by_job)
{
    const struct plan_cluster c = host(2);
    const double forward[] = {2, 2}, backward[] = {4, 4};
    const struct pipe pipe = {2, 8, 1};
    assert_true(plan_time_shares_cores(&c, 4) && plan_time_shares_cores(&c, 3));
    assert_false(plan_time_shares_cores(&c, 2));
    struct plan_time time = planned_on(&c, &pipe, forward, backward);
    near(time.step_ms, 6 * (8 + 1));
    near(time.ms[PLAN_TIME_BUBBLE], 6);
}

/* Stages of 20, 20, 20 and 60 ms on two cores: a step is shorter than the last stage alone at these
 * rates, and so are its calls, hidden and exposed. */
TEST(test_shared_calls)
{
    const struct plan_cluster c = host(2);
    struct plan_op op[STAGES];
    struct plan_ops ops[STAGES];
    struct plan_call call[] = {call_of(PLAN_CALL_ALL_TO_ALL, 4, 4, 4e7), /* 3 ms */
                               call_of(PLAN_CALL_REDUCE_SCATTER, 4, 4, 4e7)};
    struct plan_time time;
    for (int i = 0; i < 2; i++) {
        call[i].per_step = 0;
        call[i].per_pass = 1;
    }
    call[0].axis = MESH_AXIS_TENSOR;
    call[1].is_hidden = true;
    for (int i = 0; i < STAGES; i++) {
        op[i] = product(i == STAGES - 1 ? 57 : 17, 1);
        op[i].is_backward = true;
        ops[i] = (struct plan_ops){.op = &op[i],
                                   .ops_n = 1,
                                   .call = call,
                                   .calls_n = 2,
                                   .passes = 8,
                                   .stages = STAGES,
                                   .stage = i,
                                   .nodes = 1,
                                   .locals = STAGES};
    }
    plan_time_make(ops, STAGES, PLAN_PRECISION_BF16, &c, 0, &time);
    near(time.step_ms, (8 * 60 + 20 + 20 + 20) / 2.0);
    near(time.ms[PLAN_TIME_COMM_EXPOSED], 8 * 3 * 270 / 480.0);
    near(time.axis_ms[MESH_AXIS_TENSOR], 8 * 3 * 270 / 480.0);
    near(time.axis_ms[MESH_AXIS_DATA], 8 * 3 * 270 / 480.0);
    near(time.comm_hidden_ms, 8 * 3 * 270 / 480.0);
}

/* compare — the text for a run whose steps take this long, of which `waits` of 10 ms planned is for
 * communication. */
static void compare(double step_ms, double waits, const char *expected)
{
    struct plan_compare seen = {.seen_n = 0};
    struct plan_time planned = {.step_ms = 107};
    struct text text = {.data = NULL};
    planned.ms[PLAN_TIME_PRODUCTS] = 85;
    planned.ms[PLAN_TIME_OVERLAP] = 5; /* computation too */
    planned.ms[PLAN_TIME_COMM_EXPOSED] = 10;
    planned.ms[PLAN_TIME_CHECKPOINT] = 7;
    for (int i = 0; i < PLAN_COMPARE_SKIPPED + PLAN_COMPARE_STEPS; i++) {
        bool is_new = i < PLAN_COMPARE_SKIPPED;
        struct plan_compare_step step = {.step_ms = is_new ? 1e6 : step_ms + (i % 3 - 1)};
        step.ms[PLAN_COMPARE_COMMUNICATION] = waits;
        step.ms[PLAN_COMPARE_COMPUTATION] = step_ms - waits;
        assert_int_equal(plan_compare_add(&seen, &step),
                         i == PLAN_COMPARE_SKIPPED + PLAN_COMPARE_STEPS - 1);
    }
    plan_compare_text(&seen, &planned, true, &text);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

TEST(test_compare)
{
    compare(104, 12, "a step takes 104 ms, 100 ms planned: 4 % more");
    compare(90, 12, "a step takes 90.0 ms, 100 ms planned: 10 % less");
    compare(150, 60,
            "a step takes 150 ms, 100 ms planned: 50 % more; most of it is communication 60.0 ms, "
            "10.0 ms planned; the rest: computation 90.0 ms, 90.0 ms planned");
}

/* terms — of a step of 100 ms, as plan_compare_terms has them. */
static void terms(struct step_result r, double computation, double communication, double optimizer,
                  double bubble)
{
    struct plan_compare_step step;
    const double expected[PLAN_COMPARE_N] = {computation, communication, optimizer, bubble};
    plan_compare_terms(100, &r, &step);
    for (int i = 0; i < PLAN_COMPARE_N; i++)
        near(step.ms[i], expected[i]);
    near(computation + communication + optimizer + bubble, 100);
}

TEST(test_terms)
{
    terms((struct step_result){.update_ms = 5}, 95, 0, 5, 0);
    /* PP=2, TP=2, CP=2: wait_ms has what these waited */
    terms((struct step_result){.wait_ms = 70, .pipe_wait_ms = 60, .update_ms = 5}, 25, 10, 5, 60);
    terms((struct step_result){.wait_ms = 70, .tensor_ms = 65, .update_ms = 5}, 25, 70, 5, 0);
    terms((struct step_result){.wait_ms = 70, .context_ms = 65, .update_ms = 5}, 25, 70, 5, 0);
    /* SHARD=optimizer waits inside its update */
    terms((struct step_result){.wait_ms = 70, .update_ms = 45, .update_wait_ms = 40}, 25, 70, 5, 0);
    /* clocks that were read a little later */
    terms((struct step_result){.wait_ms = 101, .pipe_wait_ms = 102, .update_ms = 5}, 0, 0, 0, 100);
    terms((struct step_result){.wait_ms = 60, .update_ms = 50}, 0, 60, 40, 0);
}

TEST(test_texts)
{
    struct plan_cluster c = machine();
    struct plan_op op = product(1, 1);
    struct plan_ops ops = {.op = &op, .ops_n = 1, .passes = 2, .stages = 1};
    struct plan_time time;
    plan_time_make(&ops, 1, PLAN_PRECISION_BF16, &c, 7, &time);
    near(time.ms[PLAN_TIME_CHECKPOINT], 7);
    near(time.step_ms, 9);
    assert_string_equal(plan_time_text(PLAN_TIME_BUBBLE), "pipeline bubble");
}

HARNESS_RUN_ALL()
