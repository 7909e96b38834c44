/* ops — the operations and calls of a planned step are those of a real one: small models train
 * on CPU devices and threads whose tables count, and the counts of one step must be the plan's,
 * exactly: for each operation how often, its FLOPs and its bytes; for each kind of call, group and
 * size how often. A call that is planned as hidden is one that the step begins and does not wait
 * for.
 *
 * Counted is a step between two drains (store_drain), so that what a step defers to the next one is
 * in it once. */
#include "mesh/ranks.h"

#include "architectures.h"
#include "base/rand.h"
#include "plan/counts.h"
#include "plan/plan_ops.h"

#define SAMPLES 16
#define T 32

/* ---- a real step ---- */

/* What all ranks train; counted: one step of each. */
struct trial {
    struct step_config config;
    struct counts counted[RANKS_MAX];
};

/* run_steps — the third of three. A drain and a barrier before it: no rank is counted while another
 * one finishes the step before. */
static enum status run_steps(struct ranks_one *one, struct trial *t, struct step *step,
                             const struct batch *batch)
{
    struct step_result result;
    for (int i = 0; i < 3; i++) {
        TRY(step_drain(step));
        if (i == 2) {
            int rank = one->rank;
            pthread_mutex_lock(&counts_lock);
            memset(&counts[rank], 0, sizeof counts[rank]);
            pthread_mutex_unlock(&counts_lock);
        }
        TRY(step_run_batch(step, batch, i, i * t->config.global_samples, 1e-3, false, &result));
    }
    TRY(step_drain(step));
    t->counted[one->rank] = counts[one->rank];
    return ST_OK;
}

static enum status run_rank(struct ranks_one *one)
{
    struct trial *t = *(struct trial **)one->arg;
    struct step_config config = t->config;
    struct step *step = NULL;
    struct batch batch = {0};
    struct mesh mesh;
    enum status st;
    set_counting(one->comm);
    is_rank_thread = true;
    config.dev = one->dev;
    config.comm = one->comm;
    TRY(step_mesh(&config, one->ranks, &mesh));
    TRY_OR(step_open(&config, &step), out_close);
    TRY_OR(batch_init(&batch, config.dims.task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA,
                      config.global_samples / mesh.size[MESH_AXIS_DATA], config.seq_tokens),
           out_close);
    /* Tokens of a micro-batch differ, or all of the vocabulary are there. */
    int64_t seq = t->config.seq_tokens, n = batch.samples * seq;
    for (int64_t i = 0; i < n; i++) {
        batch.host.tokens[i] = (int32_t)(i % t->config.dims.vocab);
        if (batch.host.targets)
            batch.host.targets[i] = (int32_t)(i * 7 % t->config.dims.vocab);
        if (batch.host.mask)
            batch.host.mask[i] = 1;
    }
    for (int64_t i = 0; i < batch.samples && batch.host.starts; i++)
        batch.host.starts[i] = batch.host.ends[i] = (int32_t)(i % seq);
    TRY_OR(run_steps(one, t, step, &batch), out_close);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

/* ---- compared with the plan ---- */

static const struct {
    enum plan_call_kind planned;
    enum comm_call_kind counted;
} call_kinds[] = {{PLAN_CALL_ALL_REDUCE, COMM_CALL_ALL_REDUCE},
                  {PLAN_CALL_REDUCE_SCATTER, COMM_CALL_REDUCE_SCATTER},
                  {PLAN_CALL_ALL_GATHER, COMM_CALL_ALL_GATHER},
                  {PLAN_CALL_ALL_TO_ALL, COMM_CALL_ALL_TO_ALL},
                  {PLAN_CALL_BROADCAST, COMM_CALL_BROADCAST},
                  {PLAN_CALL_MESSAGE, COMM_CALL_SEND}};

/* whole — what must be a whole number, but for the rounding of a mean. */
static int64_t whole(double n, const char *what)
{
    if (fabs(n - round(n)) > 1e-6)
        fail_msg("%s: %.9g times in a step", what, n);
    return (int64_t)round(n);
}

static void count_plan(const struct plan_ops *plan, const char *name, struct counts *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < plan->ops_n; i++) {
        const struct plan_op *row = &plan->op[i];
        int64_t n = whole(row->per_pass * (double)plan->passes + row->per_step, name);
        out->op[row->op].n += n;
        out->op[row->op].flops += n * row->cost.flops;
        out->op[row->op].bytes += n * (row->cost.bytes_read + row->cost.bytes_written);
    }
    for (int i = 0; i < plan->calls_n; i++) {
        const struct plan_call *row = &plan->call[i];
        int64_t n = whole(row->per_pass * (double)plan->passes + row->per_step, name);
        add_call(out, (struct counted_call){.kind = call_kinds[row->kind].counted,
                                            .ranks = row->ranks,
                                            .inside = row->ranks_inside,
                                            .bytes = (int64_t)row->bytes,
                                            .n = n,
                                            .begun = row->is_hidden ? n : 0});
    }
}

static struct counted_call find_call(const struct counts *of, const struct counted_call *like)
{
    for (int i = 0; i < of->calls_n; i++)
        if (is_same(&of->call[i], like))
            return of->call[i];
    return (struct counted_call){.n = 0};
}

/* compare_calls — as many, and those planned as hidden were begun. One that is begun and waited for
 * at once is not hidden, so more may have been begun. */
static void compare_calls(const struct counts *planned, const struct counts *counted, int rank,
                          const char *name)
{
    const struct counts *both[2] = {planned, counted};
    assert_true(planned->calls_n < CALLS_MAX && counted->calls_n < CALLS_MAX);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < both[side]->calls_n; i++) {
            const struct counted_call *c = &both[side]->call[i];
            struct counted_call want = find_call(planned, c), got = find_call(counted, c);
            if (want.n != got.n || want.begun > got.begun)
                fail_msg("%s, rank %d: %s of %lld bytes between %d ranks (%d on its node): planned "
                         "%lld, %lld of them hidden; made %lld, %lld of them begun",
                         name, rank, transport_call_name(c->kind), (long long)c->bytes, c->ranks,
                         c->inside, (long long)want.n, (long long)want.begun, (long long)got.n,
                         (long long)got.begun);
        }
}

/* forget_coded_bytes — the bytes of a coded message follow from its numbers, so only how many
 * messages there are is compared. The gathers of their lengths keep their size. */
static void forget_coded_bytes(struct counts *c)
{
    struct counts all = *c;
    c->calls_n = 0;
    for (int i = 0; i < all.calls_n; i++) {
        struct counted_call call = all.call[i];
        bool is_lengths = call.bytes == call.ranks * GRAD_COMPRESS_LENGTH_BYTES;
        if (call.kind == COMM_CALL_ALL_TO_ALL || (call.kind == COMM_CALL_ALL_GATHER && !is_lengths))
            call.bytes = 0;
        add_call(c, call);
    }
}

static struct memory_plan_place place_of(int rank, int nodes, int locals)
{
    return (struct memory_plan_place){.at = {.rank = rank,
                                             .ranks = nodes * locals,
                                             .node = rank / locals,
                                             .nodes = nodes,
                                             .local = rank % locals,
                                             .locals = locals},
                                      .threads_n = 1};
}

/* check — trains on nodes × locals ranks; each rank's plan is what it did. */
static void check(const struct step_config *config, int nodes, int locals, const char *name)
{
    struct trial *t = calloc(1, sizeof *t), *args[RANKS_MAX];
    struct trainer_config trainer = {.step = *config};
    t->config = *config;
    locals_now = locals;
    ranks_own_dev = counting_dev;
    for (int rank = 0; rank < nodes * locals; rank++)
        args[rank] = t;
    ranks_run(nodes, locals, run_rank, args, sizeof *args);
    for (int rank = 0; rank < nodes * locals; rank++) {
        struct plan_ops plan;
        struct counts planned;
        const struct memory_plan_place place = place_of(rank, nodes, locals);
        if (plan_ops_make(&trainer, &place, &plan) != ST_OK)
            fail_msg("%s, rank %d: %s", name, rank, status_message());
        count_plan(&plan, name, &planned);
        if (grad_compress_is_coded(config->store.compress)) {
            forget_coded_bytes(&planned);
            forget_coded_bytes(&t->counted[rank]);
        }
        for (int op = 0; op < OP_KIND_N; op++) {
            struct counted_op want = planned.op[op], got = t->counted[rank].op[op];
            if (memcmp(&want, &got, sizeof want) != 0)
                fail_msg(
                    "%s, rank %d: %s: planned %lld times, %lld FLOPs, %lld bytes; done %lld, %lld, "
                    "%lld",
                    name, rank, op_cost_name((enum op_kind)op), (long long)want.n,
                    (long long)want.flops, (long long)want.bytes, (long long)got.n,
                    (long long)got.flops, (long long)got.bytes);
        }
        compare_calls(&planned, &t->counted[rank], rank, name);
        plan_ops_free(&plan);
    }
    free(t);
}

/* ---- one rank: architectures, RECOMPUTE, accumulation, optimisers ---- */

static struct step_config config_of(const struct model_dims *dims, int64_t batch, int64_t micros)
{
    struct step_config c = {.batch_samples = batch,
                            .global_samples = batch * micros,
                            .seq_tokens = T,
                            .seed = 3,
                            .store.bucket_elems_min = 1,
                            .dims = *dims,
                            .optim = {.kind = OPTIM_KIND_ADAMW,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .grad_clip = 1}};
    c.dims.context = T + 3;
    return c;
}

static struct model_dims gpt2_dims(enum model_task task)
{
    return (struct model_dims){
        .name = "gpt2", .task = task, .layers = 3, .heads = 2, .embed = 24, .vocab = 211};
}

static void check_alone(const struct model_dims *dims, int recompute, int micros)
{
    struct step_config c = config_of(dims, 2, micros);
    char name[160], way[32];
    bool is_odd = (recompute + micros) % 2 != 0;
    c.recompute = model_recompute_nth(dims->layers, recompute);
    c.dropout = is_odd ? 0.1f : 0;
    if (is_odd)
        c.optim = (struct optim_config){.kind = OPTIM_KIND_SGD, .momentum = micros > 1 ? 0.9 : 0};
    text_format(name, sizeof name, "%s, task %d, RECOMPUTE=%s, %d micro-batches%s", dims->name,
                (int)dims->task, model_recompute_text(c.recompute, way, sizeof way), micros,
                is_odd ? ", dropout, sgd" : "");
    check(&c, 1, 1, name);
}

TEST(test_architectures)
{
    struct model_dims lm = gpt2_dims(MODEL_TASK_LM), qa = gpt2_dims(MODEL_TASK_QA);
    for (int micros = 1; micros <= 4; micros *= 2) {
        for (int i = 0; i <= 3 * (int)lm.layers; i++) {
            check_alone(&lm, i, micros);
            check_alone(&qa, i, micros);
        }
        for (int arch = 0; arch < ARCHITECTURES_N; arch++)
            for (int i = 0; i <= 3 * (int)architectures[arch].layers; i++)
                check_alone(&architectures[arch], i, micros);
    }
}

/* ---- several ranks ---- */

struct form {
    int data, context, tensor, stages, chunks;
};
static const struct form forms[] = {
    {2, 1, 1, 1, 1}, {4, 1, 1, 1, 1}, {8, 1, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 4, 1, 1},
    {1, 1, 1, 2, 1}, {1, 1, 1, 4, 1}, {1, 1, 1, 2, 2}, {2, 1, 2, 1, 1}, {2, 1, 1, 2, 1},
    {2, 1, 1, 2, 2}, {1, 1, 2, 2, 1}, {1, 1, 2, 2, 2}, {2, 1, 2, 2, 1}, {1, 2, 1, 1, 1},
    {1, 4, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 2, 2, 1, 1}, {1, 2, 1, 2, 1}, {2, 2, 2, 1, 1},
    {2, 2, 1, 2, 1}, {1, 2, 2, 2, 1}};
#define FORMS_N (int)(sizeof forms / sizeof forms[0])

/* A row of the table of all combinations. */
struct combination {
    struct form form;
    int model, micros, shard, recompute, extra, nodes;
};
enum { EXTRA_NONE, EXTRA_BF16, EXTRA_ROWS, EXTRA_INT8, EXTRA_CODED, EXTRAS_N };

static int ranks_of(const struct form *f) { return f->data * f->context * f->tensor * f->stages; }

static struct model_dims mesh_dims(int model)
{
    static const struct model_dims rest = {.name = "tiny",
                                           .layers = 4,
                                           .heads = 4,
                                           .kv_heads = 4,
                                           .embed = 32,
                                           .ffn = 128,
                                           .vocab = 64};
    struct model_dims d = rest;
    d.task = model == 1 ? MODEL_TASK_QA : MODEL_TASK_LM;
    if (model < 2)
        return d;
    d.arch = architectures[model - 2].arch;
    d.features = architectures[model - 2].features;
    d.kv_heads = d.arch == MODEL_ARCH_NEOX || d.arch == MODEL_ARCH_GPT2 ? 4 : 2;
    return d;
}
#define MODELS_N (2 + ARCHITECTURES_N)

static bool has_model_shards(const struct form *f)
{
    return f->context > 1 || f->tensor > 1 || f->stages > 1;
}

/* allows — settings refuse the others. */
static bool allows(const struct combination *c)
{
    const struct form *f = &c->form;
    if (SAMPLES / f->data % c->micros != 0 || ranks_of(f) % c->nodes != 0)
        return false;
    if (f->chunks > 1 && c->micros % f->stages != 0)
        return false;
    if (c->shard == LAYOUT_SHARD_HYBRID &&
        (has_model_shards(f) || f->data < 4 || c->extra >= EXTRA_INT8))
        return false;
    return !has_model_shards(f) || c->extra < EXTRA_INT8;
}

static struct step_config mesh_config(const struct combination *c)
{
    struct model_dims dims = mesh_dims(c->model);
    struct step_config config = config_of(&dims, SAMPLES / c->form.data / c->micros, 1);
    config.global_samples = SAMPLES;
    config.dropout = c->recompute % 2 ? 0.1f : 0;
    config.recompute = model_recompute_nth(dims.layers, c->recompute);
    config.store.shard = (enum layout_shard)c->shard;
    config.store.group_ranks = c->shard == LAYOUT_SHARD_HYBRID ? 2 : 0;
    config.store.bucket_elems_min = c->recompute % 2 ? 1 : 20000;
    config.store.compress = c->extra == EXTRA_CODED  ? GRAD_COMPRESS_KIND_INT8_ZSTD
                            : c->extra == EXTRA_INT8 ? GRAD_COMPRESS_KIND_INT8
                            : c->extra == EXTRA_BF16 ? GRAD_COMPRESS_KIND_BF16
                                                     : GRAD_COMPRESS_KIND_NONE;
    if (c->extra == EXTRA_ROWS) /* of a table so large that rows are fewer bytes */
        config.dims.vocab = 4096;
    config.axis_ranks[MESH_AXIS_TENSOR] = c->form.tensor;
    config.axis_ranks[MESH_AXIS_CONTEXT] = c->form.context;
    config.axis_ranks[MESH_AXIS_PIPELINE] = c->form.stages;
    config.pipe_chunks = c->form.chunks;
    return config;
}

static void check_mesh(const struct combination *c)
{
    struct step_config config = mesh_config(c);
    char name[200];
    text_format(name, sizeof name,
                "data %d x context %d x tensor %d x stages %d (%d chunks) on %d nodes, model %d, "
                "%d micro-batches, shard %d, recompute %d, extra %d",
                c->form.data, c->form.context, c->form.tensor, c->form.stages, c->form.chunks,
                c->nodes, c->model, c->micros, c->shard, c->recompute, c->extra);
    check(&config, c->nodes, ranks_of(&c->form) / c->nodes, name);
}

/* draw — combination number i. */
static struct combination draw(uint64_t i)
{
    uint64_t at = i * 8;
    struct combination c = {.form = forms[rand_below(7, RAND_STREAM(TEST, 0), at, FORMS_N)]};
    c.model = (int)rand_below(7, RAND_STREAM(TEST, 0), at + 1, MODELS_N);
    c.micros = 1 << rand_below(7, RAND_STREAM(TEST, 0), at + 2, 5);
    c.shard = (int)rand_below(7, RAND_STREAM(TEST, 0), at + 3, LAYOUT_SHARD_HYBRID + 1);
    c.recompute = (int)rand_below(7, RAND_STREAM(TEST, 0), at + 4, 13);
    c.extra = (int)rand_below(7, RAND_STREAM(TEST, 0), at + 5, EXTRAS_N);
    c.nodes = 1 << rand_below(7, RAND_STREAM(TEST, 0), at + 6, 2);
    return c;
}

/* test_forms — each form of a mesh, with the first settings drawn that allow it. */
TEST(test_forms)
{
    for (int form = 0; form < FORMS_N; form++) {
        uint64_t i = (uint64_t)form * 1000000;
        struct combination c;
        do {
            c = draw(i++);
            c.form = forms[form];
        } while (!allows(&c));
        check_mesh(&c);
    }
}

/* test_coded — messages of COMPRESS=int8-zstd, and the gathers of their lengths. */
TEST(test_coded)
{
    for (int shard = 0; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int micros = 1; micros <= 2; micros++)
            for (int form = 0; form < 2; form++)
                check_mesh(&(struct combination){.form = forms[form],
                                                 .micros = micros,
                                                 .shard = shard,
                                                 .recompute = micros,
                                                 .extra = EXTRA_CODED,
                                                 .nodes = 1});
}

/* test_exact — EXACT=layout: additions of virtual shards, their norm, and the exchanges of ranks
 * that sum them along the tree. */
TEST(test_exact)
{
    for (int shard = 0; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int data = 1; data <= 4; data *= 2)
            for (int context = 1; context <= 2; context++) {
                const struct combination c = {
                    .form = {data, context, 1, 1, 1}, .micros = 16 / data, .shard = shard};
                struct step_config config = mesh_config(&c);
                char name[96];
                config.shards = SAMPLES;
                text_format(name, sizeof name, "exact: data %d x context %d, shard %d", data,
                            context, shard);
                check(&config, 1, ranks_of(&c.form), name);
            }
}

TEST(test_meshes)
{
    int wanted = getenv("TORTURE") != NULL ? 5000 : 16, tried = 0;
    for (uint64_t i = 0; tried < wanted; i++) {
        struct combination c = draw(i);
        if (!allows(&c))
            continue;
        check_mesh(&c);
        tried++;
    }
}

/* ---- large models ---- */

#define LARGE_ROWS_MAX 100

/* test_large — a plan of 70 billion parameters on 1,024 ranks: what a plan takes follows from the
 * rows of its lists, which do not grow with the ranks or the micro-batches. */
TEST(test_large)
{
    struct trainer_config trainer = {.step = config_of(&architectures[0], 1, 1)};
    struct step_config *c = &trainer.step;
    c->dims = (struct model_dims){.name = "70B",
                                  .arch = MODEL_ARCH_LLAMA,
                                  .layers = 80,
                                  .heads = 64,
                                  .kv_heads = 8,
                                  .embed = 8192,
                                  .ffn = 28672,
                                  .context = 8192,
                                  .vocab = 128256,
                                  .features = architectures[0].features};
    c->seq_tokens = 8192;
    c->global_samples = 2048;
    c->axis_ranks[MESH_AXIS_TENSOR] = 8;
    c->axis_ranks[MESH_AXIS_PIPELINE] = 8;
    c->store.dtype = DTYPE_BF16;
    c->store.shard = LAYOUT_SHARD_OPTIMIZER;
    double flops = 0;
    for (int stage = 0; stage < 8; stage++) {
        struct memory_plan_place place = place_of(stage * 128, 128, 8);
        struct plan_ops plan;
        place.is_discrete = place.stays_on_device = true;
        assert_int_equal(plan_ops_make(&trainer, &place, &plan), ST_OK);
        assert_int_equal(plan.passes, 128);
        assert_int_equal(plan.stages, 8);
        assert_int_equal(plan.stage, stage);
        assert_in_range(plan.ops_n, 10, LARGE_ROWS_MAX);
        assert_in_range(plan.calls_n, 3, LARGE_ROWS_MAX);
        for (int i = 0; i < plan.ops_n; i++)
            flops += (plan.op[i].per_pass * 128 + plan.op[i].per_step) *
                     (double)plan.op[i].cost.flops * 128;
        if (stage == 0)
            assert_true(plan.tokens == 2048.0 * 8192);
        /* causal attention computes half of all pairs and the diagonal, and 7 products for the 6
         * that count */
        if (stage == 7 && (flops / plan.model_flops < 1 || flops / plan.model_flops > 1.05))
            fail_msg("%.4g FLOPs, %.4g of the model", flops, plan.model_flops);
        plan_ops_free(&plan);
    }
}

/* ---- where a row belongs ---- */

static double flops_of(const struct plan_ops *plan, bool is_again, bool is_backward)
{
    double flops = 0;
    for (int i = 0; i < plan->ops_n; i++)
        if (plan->op[i].is_again == is_again && plan->op[i].is_backward == is_backward)
            flops += plan->op[i].per_pass * (double)plan->op[i].cost.flops;
    return flops;
}

/* plan_of — two data ranks of two tensor ranks, with so many micro-batches. */
static void plan_of(int micros, bool recomputes, struct plan_ops *out)
{
    const struct model_dims dims = mesh_dims(0);
    struct trainer_config trainer = {.step = config_of(&dims, 2, 2 * micros)};
    const struct memory_plan_place place = place_of(0, 1, 4);
    trainer.step.axis_ranks[MESH_AXIS_TENSOR] = 2;
    trainer.step.recompute = model_recompute_nth(dims.layers, recomputes ? 3 * dims.layers : 0);
    assert_int_equal(plan_ops_make(&trainer, &place, out), ST_OK);
}

/* Work of a micro-batch and that of a step, from a plan with two and one with four: what grows with
 * them is in per_pass. Optimisers are of a step. */
TEST(test_passes)
{
    struct plan_ops two, four;
    plan_of(2, false, &two);
    plan_of(4, false, &four);
    assert_int_equal(two.passes, 2);
    assert_int_equal(four.passes, 4);
    assert_float_equal(flops_of(&two, false, false), flops_of(&four, false, false), 1);
    assert_true(flops_of(&two, false, true) > flops_of(&two, false, false));
    for (int i = 0; i < two.ops_n; i++) {
        const struct plan_op *row = &two.op[i];
        bool is_update = row->op == OP_KIND_adamw || row->op == OP_KIND_sgd;
        assert_true(!is_update || (row->per_pass == 0 && row->per_step > 0));
        assert_true(row->width == 8 ||
                    (row->op != OP_KIND_attention_fwd && row->op != OP_KIND_attention_bwd));
    }
    plan_ops_free(&two);
    plan_ops_free(&four);
}

/* Calls along the tensor axis are made in each pass, those of gradients along the data axis once a
 * step. */
TEST(test_axes)
{
    struct plan_ops plan;
    double passes[MESH_AXES] = {0}, steps[MESH_AXES] = {0};
    plan_of(2, false, &plan);
    for (int i = 0; i < plan.calls_n; i++)
        if (plan.call[i].bytes > 1024) { /* not the counts and norms of all ranks */
            passes[plan.call[i].axis] += plan.call[i].per_pass;
            steps[plan.call[i].axis] += plan.call[i].per_step;
            assert_int_equal(plan.call[i].ranks, 2);
        }
    assert_true(passes[MESH_AXIS_TENSOR] > 0 && steps[MESH_AXIS_DATA] > 0);
    assert_true(passes[MESH_AXIS_DATA] == 0 && passes[MESH_AXIS_PIPELINE] == 0);
    plan_ops_free(&plan);
}

/* RECOMPUTE=block computes the blocks' forward pass again, which is all of it but the head's. */
TEST(test_again)
{
    struct plan_ops none, block;
    plan_of(2, false, &none);
    plan_of(2, true, &block);
    double again = flops_of(&block, true, true) + flops_of(&block, true, false);
    assert_true(flops_of(&none, true, true) + flops_of(&none, true, false) == 0);
    assert_float_equal(flops_of(&block, false, true), flops_of(&none, false, true), 1);
    assert_float_equal(flops_of(&block, false, false), flops_of(&none, false, false), 1);
    assert_true(again > 0 && again <= flops_of(&none, false, false));
    plan_ops_free(&none);
    plan_ops_free(&block);
}

/* Returns the directions of attention in a plan that own kernels compute: 1 forward, 2 backward. */
static int own_directions(const struct trainer_config *trainer, bool is_gpu)
{
    struct memory_plan_place place = place_of(0, 1, 1);
    struct plan_ops plan;
    int own = 0, seen = 0;
    place.is_discrete = is_gpu;
    assert_int_equal(plan_ops_make(trainer, &place, &plan), ST_OK);
    for (int i = 0; i < plan.ops_n; i++) {
        const struct plan_op *row = &plan.op[i];
        int direction = row->op == OP_KIND_attention_fwd   ? 1
                        : row->op == OP_KIND_attention_bwd ? 2
                                                           : 0;
        seen |= direction;
        own |= row->is_own ? direction : 0;
        assert_true(direction > 0 || !row->is_own);
    }
    assert_int_equal(seen, 3);
    plan_ops_free(&plan);
    return own;
}

/* Which form computes attention follows ATTENTION, DETERMINISTIC, the type and what cuDNN is never
 * asked for; a CPU has one form only. */
TEST(test_attention_forms)
{
    struct model_dims dims = gpt2_dims(MODEL_TASK_LM);
    struct trainer_config trainer = {.step = config_of(&dims, 1, 1)};
    struct step_config *c = &trainer.step;
    c->dims.embed = 128, c->dims.heads = 2, c->dims.context = c->seq_tokens = 512;
    c->store.dtype = DTYPE_BF16;
    static const struct {
        enum dev_cuda_attention by;
        bool is_atomic;
        int own;
    } rows[] = {{DEV_CUDA_ATTENTION_AUTO, false, 2},
                {DEV_CUDA_ATTENTION_AUTO, true, 0},
                {DEV_CUDA_ATTENTION_OWN, false, 3},
                {DEV_CUDA_ATTENTION_OWN, true, 3},
                {DEV_CUDA_ATTENTION_CUDNN, false, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trainer.attention = rows[i].by;
        trainer.is_atomic = rows[i].is_atomic;
        assert_int_equal(own_directions(&trainer, true), rows[i].own);
        assert_int_equal(own_directions(&trainer, false), 0);
        c->dropout = 0.1f;
        assert_int_equal(own_directions(&trainer, true), 3);
        c->dropout = 0;
    }
    trainer.attention = DEV_CUDA_ATTENTION_AUTO;
    trainer.is_atomic = true;
    c->store.dtype = DTYPE_F32;
    assert_int_equal(own_directions(&trainer, true), 3);
    c->store.dtype = DTYPE_BF16;
    c->seq_tokens = 511; /* below the table's rows */
    assert_int_equal(own_directions(&trainer, true), 3);
}

/* Bytes that checksums read in each step, on the first of two ranks. */
static double checksum_bytes(const struct trainer_config *trainer, bool is_discrete)
{
    struct memory_plan_place place = place_of(0, 1, 2);
    struct plan_ops plan;
    double bytes = 0;
    place.is_discrete = is_discrete;
    assert_int_equal(plan_ops_make(trainer, &place, &plan), ST_OK);
    for (int i = 0; i < plan.ops_n; i++)
        if (plan.op[i].op == OP_KIND_checksum) {
            assert_true(plan.op[i].per_pass == 0);
            bytes += plan.op[i].per_step * (double)plan.op[i].cost.bytes_read;
        }
    plan_ops_free(&plan);
    return bytes;
}

/* SENTINEL_EVERY: replicas read their whole state, and an adapter's ranks its state and the frozen
 * parameters, each by its share of a step. */
TEST(test_comparisons)
{
    const struct model_dims dims = gpt2_dims(MODEL_TASK_LM);
    struct trainer_config trainer = {.step = config_of(&dims, 1, 2)};
    struct param_table table;
    for (int is_discrete = 0; is_discrete < 2; is_discrete++) {
        assert_int_equal(step_mesh_whole_table(&trainer.step, 2, is_discrete, &table), ST_OK);
        const double all = 12.0 * (double)table.total_elems;
        param_table_free(&table);
        trainer.step.sentinel_every = 0;
        assert_true(checksum_bytes(&trainer, is_discrete) == 0);
        trainer.step.sentinel_every = 1;
        const double each = checksum_bytes(&trainer, is_discrete);
        assert_true(each >= all && each < 1.01 * all);
        trainer.step.sentinel_every = 4;
        assert_float_equal(checksum_bytes(&trainer, is_discrete), each / 4, 1);
        trainer.step.store.shard = LAYOUT_SHARD_FULL;
        assert_true(checksum_bytes(&trainer, is_discrete) == 0);
        trainer.step.dims.adapter =
            (struct model_adapter){.r = 2, .alpha = 4, .targets = MODEL_TARGETS_ALL};
        assert_true(checksum_bytes(&trainer, is_discrete) > 0);
        trainer.step.dims.adapter = (struct model_adapter){0};
        trainer.step.store.shard = LAYOUT_SHARD_NONE;
    }
}

TEST(test_refused)
{
    struct model_dims dims = gpt2_dims(MODEL_TASK_LM);
    struct trainer_config trainer = {.step = config_of(&dims, 4, 1)};
    struct memory_plan_place place = place_of(0, 1, 8);
    struct plan_ops plan;
    assert_int_equal(plan_ops_make(&trainer, &place, &plan), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "GLOBAL_BATCH=4 gives 8"));
    trainer.step.axis_ranks[MESH_AXIS_TENSOR] = 3;
    assert_int_equal(plan_ops_make(&trainer, &place, &plan), ST_BAD_SETTING);
    place = place_of(0, 1, 1);
    trainer.step.axis_ranks[MESH_AXIS_TENSOR] = 1;
    assert_int_equal(plan_ops_make(&trainer, &place, &plan), ST_OK);
    plan_ops_free(&plan);
    plan_ops_free(&plan);
}

HARNESS_RUN_ALL()
