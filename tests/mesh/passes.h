/* passes — a training step's passes without the update, on one rank or on the ranks of a tensor and
 * a context group, and how their losses and gradients compare. Ranks are threads (ranks.h). Their
 * kernels are the plain ones, which sum in double, so that what differs is what the ranks add up in
 * another order; fast ones have a wider limit, as two of their levels would. A program defines
 * PASSES_T, the tokens of a sample. */
#ifndef CONVOY_TESTS_MESH_PASSES_H
#define CONVOY_TESTS_MESH_PASSES_H

#include "mesh/ranks.h"

#include "mesh/mesh_comm.h"
#include "mesh/tensor_axis.h"

#define B 3
#define T PASSES_T
#define N (B * T)
#define MICROS 2
#define LAYERS 3
#define VOCAB 211

/* A training step's passes without the update: of the whole model, or of each shard of it. */
struct passes {
    struct model_dims whole;
    int tensor, context; /* ranks of each group; 0: 1 */
    struct model_recomputed recompute;
    float dropout;
    bool is_eval;
    struct param_table t; /* of the whole */
    float *params;
    /* outcome */
    float *grads;
    float losses[RANKS_MAX][MICROS * N]; /* on each rank of a tensor group, of all positions */
    size_t acts_bytes, scratch_bytes;
    atomic_int copies_differ; /* elements in which two ranks that have the same disagree */
};

static struct model_dims dims_of(enum model_arch arch, int64_t kv_heads)
{
    struct model_dims dims = {.name = "tiny",
                              .arch = arch,
                              .layers = LAYERS,
                              .heads = 8,
                              .kv_heads = kv_heads,
                              .embed = 64,
                              .context = T + 3,
                              .vocab = VOCAB,
                              .features = model_arch_features(arch)};
    if (arch == MODEL_ARCH_LLAMA || arch == MODEL_ARCH_QWEN3)
        dims.head_dim = 12;
    if (arch != MODEL_ARCH_GPT2)
        dims.ffn = 88;
    return dims;
}

/* ---- devices ---- */

static bool is_fast;

static struct dev *own_dev(int rank)
{
    static struct dev *devs[2][RANKS_MAX];
    struct dev **dev = &devs[is_fast][rank];
    if (!*dev)
        assert_int_equal(dev_cpu_open(1, is_fast ? CPU_ISA_N : CPU_ISA_PLAIN, dev), ST_OK);
    return *dev;
}

/* ---- one rank ---- */

struct one_pass {
    struct pass p;
    struct param_table t;
    struct mesh_comm mesh;
    struct tensor_axis tensor, context;
    struct model_dims dims;
    struct attention_runs own; /* positions */
    void *memory[2];
    float *params, *grads;
    int32_t tokens[MICROS * N], targets[MICROS * N], starts[MICROS * B], ends[MICROS * B];
    uint8_t mask[MICROS * N];
    float losses[N];
};

static int ranks_of(const struct passes *s)
{
    return (s->tensor > 1 ? s->tensor : 1) * (s->context > 1 ? s->context : 1);
}

/* whole_at — the number of row `row` of a pass among all positions of its samples. */
static int64_t whole_at(const struct one_pass *o, int64_t row)
{
    return row / o->p.t * T + attention_position(&o->own, row % o->p.t);
}

/* make_batch — tokens and targets of own positions, the rest of whole samples. */
static void make_batch(struct one_pass *o)
{
    for (int64_t i = 0; i < MICROS * B * o->p.t; i++) {
        uint64_t at = (uint64_t)whole_at(o, i);
        o->tokens[i] = (int32_t)rand_below(5, RAND_STREAM(TEST, 0), at, VOCAB);
        o->targets[i] = at % 5 ? (int32_t)rand_below(5, RAND_STREAM(TEST, 1), at, VOCAB) : -1;
    }
    for (int i = 0; i < MICROS * N; i++)
        o->mask[i] = i % T < 5 || i % 7 != 0;
    for (int i = 0; i < MICROS * B; i++) {
        o->starts[i] = i * 5 % T;
        o->ends[i] = i * 7 % T;
    }
}

/* set_micro — the tensors of a micro-batch. */
static void set_micro(struct one_pass *o, int micro)
{
    bool is_lm = o->dims.task == MODEL_TASK_LM;
    int64_t first = micro * B * o->p.t;
    o->p.tokens = (struct tensor){o->tokens + first, DTYPE_I32};
    o->p.sample_first = 40 + micro * B;
    o->p.accumulate = micro > 0;
    o->p.losses = (struct tensor){o->losses, DTYPE_F32};
    if (is_lm) {
        o->p.targets = (struct tensor){o->targets + first, DTYPE_I32};
        return;
    }
    o->p.mask = (struct tensor){o->mask + micro * N, DTYPE_U8};
    o->p.starts = (struct tensor){o->starts + micro * B, DTYPE_I32};
    o->p.ends = (struct tensor){o->ends + micro * B, DTYPE_I32};
}

static enum status plan(struct one_pass *o, const struct passes *s, size_t bytes[2])
{
    struct arena arena[2];
    bytes[0] = bytes[1] = 0;
    for (int measured = 0; measured < 2; measured++) {
        for (int i = 0; i < 2; i++) {
            if (measured)
                o->memory[i] = aligned_alloc(64, (bytes[i] + 63) / 64 * 64);
            arena_init(&arena[i], i ? "scratch" : "acts", o->memory[i], bytes[i]);
        }
        model_plan_free(o->p.acts);
        TRY(model_plan(&o->dims, B, o->p.t, s->recompute, !s->is_eval, DTYPE_F32, &arena[0],
                       &arena[1], &o->p.acts));
        for (int i = 0; i < 2; i++)
            bytes[i] = arena[i].used_bytes;
    }
    return ST_OK;
}

/* read_params — this shard's of the whole's values. */
static void read_params(struct one_pass *o, const struct passes *s)
{
    o->params = calloc((size_t)o->t.total_elems, sizeof *o->params);
    o->grads = calloc((size_t)o->t.total_elems, sizeof *o->grads);
    for (int i = 0; i < o->t.params_n; i++) {
        const struct param *p = &o->t.param[i];
        const float *whole = s->params + s->t.param[p->whole_param].offset;
        int64_t at, run;
        for (int64_t first = 0; first < p->elems; first += run) {
            run = param_run(p, first, &at);
            memcpy(o->params + p->offset + first, whole + at, (size_t)run * sizeof *whole);
        }
    }
}

static enum status micro_run(const struct pass *p)
{
    const struct model_ops *model = model_ops(p->dims);
    int layers = (int)p->dims->layers;
    TRY(model->embed_fwd(p));
    for (int block = 0; block < layers; block++)
        TRY(model->block_fwd(p, block));
    TRY(model->head(p));
    for (int block = layers - 1; p->want_grad && block >= 0; block--)
        TRY(model->block_bwd(p, block));
    return p->want_grad ? model->embed_bwd(p) : ST_OK;
}

/* sum_partial — what the step does after the last micro-batch. */
static enum status sum_partial(struct one_pass *o)
{
    const struct model_axis *axis = o->p.tensor;
    for (int i = 0; i < o->t.params_n; i++) {
        const struct param *p = &o->t.param[i];
        struct tensor grad = {o->grads + p->offset, DTYPE_F32};
        if (p->grad_is_partial)
            TRY(axis->sum(axis->arg, o->p.stream, grad, p->elems, p->tensor_copies));
    }
    return ST_OK;
}

/* sum_context — what the store does: the gradients of all positions. */
static enum status sum_context(struct one_pass *o)
{
    struct tensor grads = {o->grads, DTYPE_F32};
    return o->mesh.context ? comm_all_reduce(o->mesh.context, grads, grads, o->t.total_elems)
                           : ST_OK;
}

/* give_losses — to the whole's; with QA every rank has those of whole samples. */
static void give_losses(struct one_pass *o, struct passes *s, int micro)
{
    float *whole = s->losses[o->dims.shard.tensor_rank] + micro * N;
    if (o->dims.task == MODEL_TASK_QA)
        memcpy(whole, o->losses, 2 * B * sizeof *whole);
    for (int64_t row = 0; o->dims.task == MODEL_TASK_LM && row < B * o->p.t; row++)
        whole[whole_at(o, row)] = o->losses[row];
}

/* give_grads — to the whole's: the first of those that share a tensor writes. */
static void give_grads(const struct one_pass *o, struct passes *s, bool is_writing)
{
    for (int i = 0; i < o->t.params_n; i++) {
        const struct param *p = &o->t.param[i];
        float *whole = s->grads + s->t.param[p->whole_param].offset;
        int64_t at, run;
        bool is_first = o->dims.shard.tensor_rank % p->tensor_copies == 0 &&
                        o->mesh.at.at[MESH_AXIS_CONTEXT] == 0;
        if (is_first != is_writing)
            continue;
        for (int64_t first = 0; first < p->elems; first += run) {
            const float *own = o->grads + p->offset + first;
            run = param_run(p, first, &at);
            if (is_writing)
                memcpy(whole + at, own, (size_t)run * sizeof *own);
            else if (memcmp(whole + at, own, (size_t)run * sizeof *own))
                atomic_fetch_add(&s->copies_differ, 1);
        }
    }
}

static enum status run_micros(struct ranks_one *one, struct one_pass *o, struct passes *s)
{
    for (int micro = 0; micro < MICROS; micro++) {
        set_micro(o, micro);
        TRY(micro_run(&o->p));
        give_losses(o, s, micro);
    }
    if (s->is_eval)
        return ST_OK;
    TRY(sum_partial(o));
    TRY(sum_context(o));
    give_grads(o, s, true);
    TRY(comm_barrier(one->comm));
    give_grads(o, s, false);
    return ST_OK;
}

static enum status open_pass(struct ranks_one *one, struct one_pass *o, struct passes *s)
{
    size_t bytes[2];
    struct mesh mesh;
    TRY(mesh_make(one->ranks, s->tensor > 1 ? s->tensor : 1, s->context > 1 ? s->context : 1, 1,
                  &mesh));
    TRY(mesh_comm_open(one->comm, &mesh, &o->mesh));
    int at = o->mesh.at.at[MESH_AXIS_CONTEXT], context_ranks = mesh.size[MESH_AXIS_CONTEXT];
    struct model_shard shard = {.tensor_rank = o->mesh.at.at[MESH_AXIS_TENSOR],
                                .tensor_ranks = mesh.size[MESH_AXIS_TENSOR],
                                .context_ranks = context_ranks};
    o->own = model_shard_runs(at, context_ranks, T);
    TRY(model_shard_dims(&s->whole, &shard, &o->dims));
    TRY(model_ops(&o->dims)->describe(&o->dims, &o->t));
    TRY(dev_stream_open(one->dev, &o->p.stream));
    TRY(tensor_axis_open(o->mesh.tensor, &o->dims, false, &o->tensor));
    TRY(tensor_axis_of_context(o->mesh.context, false, &o->context));
    o->p.dims = &o->dims;
    o->p.table = &o->t;
    o->p.b = B;
    TRY(model_shard_tokens(T, context_ranks, &o->p.t));
    o->p.op = dev_op(one->dev);
    o->p.tensor = &o->tensor.model;
    o->p.context = &o->context.model;
    o->p.want_grad = !s->is_eval;
    o->p.dropout = s->dropout;
    o->p.dropout_seed = 77;
    o->p.scale = 1.0f / N;
    o->p.scale_end = 1.0f / B;
    TRY(plan(o, s, bytes));
    if (one->rank == 0) {
        s->acts_bytes = bytes[0];
        s->scratch_bytes = bytes[1];
    }
    read_params(o, s);
    make_batch(o);
    o->p.params = (struct tensor){o->params, DTYPE_F32};
    o->p.grads = (struct tensor){o->grads, DTYPE_F32};
    return ST_OK;
}

static enum status one_rank(struct ranks_one *one)
{
    struct passes *s = *(struct passes **)one->arg;
    struct one_pass *o = calloc(1, sizeof *o);
    enum status st;
    TRY_OR(open_pass(one, o, s), out_close);
    TRY_OR(run_micros(one, o, s), out_close);
out_close:
    model_plan_free(o->p.acts);
    param_table_free(&o->t);
    tensor_axis_close(&o->tensor);
    tensor_axis_close(&o->context);
    mesh_comm_close(&o->mesh);
    if (o->p.stream)
        dev_stream_close(o->p.stream);
    free(o->memory[0]), free(o->memory[1]), free(o->params), free(o->grads), free(o);
    return st;
}

/* ---- a run ---- */

/* Values large enough that no gradient is only rounding, and norms and biases that are not their
 * initial ones. */
static void make_params(struct passes *s)
{
    assert_int_equal(model_ops(&s->whole)->describe(&s->whole, &s->t), ST_OK);
    s->params = calloc((size_t)s->t.total_elems, sizeof *s->params);
    s->grads = calloc((size_t)s->t.total_elems, sizeof *s->grads);
    for (int i = 0; i < s->t.params_n; i++) {
        const struct param *p = &s->t.param[i];
        float *values = s->params + p->offset;
        param_fill(&s->t, i, 9, 0, p->elems, values);
        for (int64_t k = 0; k < p->elems; k++)
            values[k] = p->dims_n == 2 ? values[k] * 2 : values[k] + 0.1f * sinf((float)(k + i));
    }
}

static struct passes *run(struct passes how)
{
    ranks_own_dev = own_dev;
    struct passes *s = malloc(sizeof *s);
    struct passes *all[RANKS_MAX];
    int ranks = ranks_of(&how);
    *s = how;
    assert_int_equal(model_check(&s->whole), ST_OK);
    make_params(s);
    for (int i = 0; i < ranks; i++)
        all[i] = s;
    ranks_run(1, ranks, one_rank, all, sizeof *all);
    for (int rank = 1; rank < s->tensor; rank++)
        assert_memory_equal(s->losses[rank], s->losses[0], sizeof s->losses[0]);
    assert_int_equal(atomic_load(&s->copies_differ), 0);
    return s;
}

static void run_free(struct passes *s)
{
    param_table_free(&s->t);
    free(s->params), free(s->grads), free(s);
}

static double norm_of(const float *x, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += (double)x[i] * x[i];
    return sqrt(square);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(square);
}

/* is_zero — QA: a softmax over positions follows, so these gradients are zero but for rounding. */
static bool is_zero(const struct passes *s, const struct param *p)
{
    return s->whole.task == MODEL_TASK_QA &&
           (strcmp(p->name, "ln_f.bias") == 0 || strcmp(p->name, "qa_outputs.bias") == 0);
}

/* apart_of — of a tensor's gradients, relative in the Euclidean norm: to their own, or to a tenth
 * of all gradients'. */
static double apart_of(const struct passes *got, const struct passes *want, const struct param *p)
{
    double all = norm_of(want->grads, want->t.total_elems),
           own = norm_of(want->grads + p->offset, p->elems),
           apart = distance(got->grads + p->offset, want->grads + p->offset, p->elems);
    return apart / (is_zero(want, p) ? all / 10 : own);
}

/* limit_of — sums in which most cancels keep fewer digits: the gradient of a key's bias, which
 * would be zero without positions that rotate; with QA every gradient, because those of the logits
 * add up to zero over the positions. */
static double limit_of(const struct passes *s, const struct param *p)
{
    if (s->whole.task == MODEL_TASK_QA)
        return 1e-5;
    return strstr(p->name, "k_proj.bias") ? 4e-6 : 1e-6;
}

static void check_near(const struct passes *got, const struct passes *want)
{
    int64_t n = want->whole.task == MODEL_TASK_LM ? MICROS * N : (MICROS - 1) * N + 2 * B;
    double worst = 0,
           losses = distance(got->losses[0], want->losses[0], n) / norm_of(want->losses[0], n);
    int at = 0;
    for (int i = 0; !got->is_eval && i < want->t.params_n; i++) {
        const struct param *p = &want->t.param[i];
        double ratio = apart_of(got, want, p) / limit_of(want, p);
        at = ratio > worst ? i : at;
        worst = ratio > worst ? ratio : worst;
    }
    print_message(
        "# %s kv %d TP=%d CP=%d dropout %g: losses %.2g, gradients %.2g of their limit (%s)\n",
        model_arch_name(want->whole.arch), (int)model_kv_heads(&want->whole), got->tensor,
        got->context, (double)got->dropout, losses, worst, want->t.param[at].name);
    assert_true(losses < 1e-6);
    assert_true(worst < (is_fast ? 4 : 1));
}

static void check_same(const struct passes *a, const struct passes *b)
{
    assert_memory_equal(a->losses[0], b->losses[0], sizeof a->losses[0]);
    assert_memory_equal(a->grads, b->grads, (size_t)a->t.total_elems * sizeof *a->grads);
}

/* Every way, in all layers or in the first alone. */
static const struct model_recomputed ways[] = {{MODEL_RECOMPUTE_LIGHT, 0},
                                               {MODEL_RECOMPUTE_ATTENTION, 1},
                                               {MODEL_RECOMPUTE_BLOCK, 1},
                                               {MODEL_RECOMPUTE_BLOCK, 0}};

/* Runs `how` with each RECOMPUTE: the results are the bits of `got`, and each way keeps less than
 * the one before. */
static void check_ways(struct passes how, const struct passes *got)
{
    size_t kept = got->acts_bytes;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        how.recompute = ways[i];
        struct passes *again = run(how);
        check_same(again, got);
        assert_true(again->acts_bytes < kept);
        kept = again->acts_bytes;
        run_free(again);
    }
}

#endif
