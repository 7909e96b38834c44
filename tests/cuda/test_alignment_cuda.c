/* The matrix products of every preset, as a training step on GPUs asks cuBLASLt for them, against
 * its manual's rules for tensor cores. A step is described on a device without memory
 * (train/step/dry.h), so models of any size need no GPU. */
#include "kernel_test.h"

#include "dev/blas/form.h"
#include "train/step/dry.h"

#define TENSOR_RANKS_MOST 8
#define SEQ 1024
#define VOCAB_MULTIPLE 64

/* Counts of the products that were checked, and of breaches. */
struct lint {
    const struct model_dims *dims;
    enum dtype dtype;
    int tensor_ranks, rank;
    int models, products, vocabulary, wrong, seen_vocabulary;
};

static const char *name_of(enum op_kind op)
{
    return op == OP_KIND_matmul_fwd ? "fwd" : op == OP_KIND_matmul_bwd_x ? "dx" : "dw";
}

/* complain — the first wrong products are printed, all are counted. */
static void complain(struct lint *l, enum op_kind op, const struct blas_shape *s, const char *what)
{
    if (l->wrong++ < 40)
        print_message("# %s, dtype %d, rank %d of TP=%d: %s m %lld n %lld k %lld, lda %lld ldb "
                      "%lld ldc %lld ldd %lld: %s\n",
                      l->dims->name, l->dtype, l->rank, l->tensor_ranks, name_of(op),
                      (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda,
                      (long long)s->ldb, (long long)s->ldc, (long long)s->ldd, what);
}

static bool fits(int64_t elems, enum dtype dtype)
{
    return elems * (int64_t)dtype_bytes(dtype) % BLAS_ALIGN == 0;
}

/* look — "Tensor Core usage" in cuBLAS' manual: the first dimension of each matrix in memory, all
 * leading dimensions and all addresses are multiples of 16 bytes. */
static void look(struct lint *l, enum op_kind op, const struct blas_form *form)
{
    const struct blas_shape *s = &form->call.shape;
    const bool is_whole = s->align_a == BLAS_ALIGN && s->align_b == BLAS_ALIGN &&
                          s->align_c == BLAS_ALIGN && s->align_d == BLAS_ALIGN && !s->is_misaligned;
    l->products++;
    if (!fits(s->is_a_transposed ? s->k : s->m, s->a))
        complain(l, op, s, "the first dimension of A");
    if (!fits(s->is_b_transposed ? s->n : s->k, s->b))
        complain(l, op, s, "the first dimension of B");
    if (!fits(s->m, s->d))
        complain(l, op, s, "the first dimension of D");
    if (!fits(s->lda, s->a) || !fits(s->ldb, s->b) || !fits(s->ldc, s->d) || !fits(s->ldd, s->d) ||
        !fits(s->ld_aux, s->a))
        complain(l, op, s, "a leading dimension");
    if (!is_whole)
        complain(l, op, s, "an address");
}

/* look_at_vocabulary — the product of the rank's shard of the vocabulary, by its width. */
static void look_at_vocabulary(struct lint *l, enum op_kind op, const struct blas_shape *s,
                               int64_t out, int64_t stride)
{
    const int64_t own = l->dims->vocab * (l->rank + 1) / l->tensor_ranks -
                        l->dims->vocab * l->rank / l->tensor_ranks;
    if (stride == 0 || out < own || out >= own + VOCAB_MULTIPLE)
        return;
    l->vocabulary++;
    l->seen_vocabulary |= 1 << (op - OP_KIND_matmul_fwd);
    if (out % VOCAB_MULTIPLE != 0 || stride < out)
        complain(l, op, s, "not the vocabulary in multiples of 64");
}

static void on_op(void *arg, const struct step_dry_op *told)
{
    struct lint *l = arg;
    struct blas_form form[BLAS_FORMS];
    const struct matmul_fwd *fwd = told->args;
    const struct matmul_bwd_x *bwd_x = told->args;
    const struct matmul_bwd_w *bwd_w = told->args;
    int n = 0;
    if (told->op == OP_KIND_matmul_fwd)
        n = blas_form_fwd(false, fwd, form);
    if (told->op == OP_KIND_matmul_bwd_x)
        n = blas_form_bwd_x(false, bwd_x, form);
    if (told->op == OP_KIND_matmul_bwd_w)
        n = blas_form_bwd_w(false, bwd_w, form);
    for (int i = 0; i < n; i++)
        look(l, told->op, &form[i]);
    if (told->op == OP_KIND_matmul_fwd)
        look_at_vocabulary(l, told->op, &form[0].call.shape, fwd->out, fwd->y_stride);
    if (told->op == OP_KIND_matmul_bwd_x)
        look_at_vocabulary(l, told->op, &form[0].call.shape, bwd_x->out, bwd_x->dy_stride);
    if (told->op == OP_KIND_matmul_bwd_w)
        look_at_vocabulary(l, told->op, &form[0].call.shape, bwd_w->out, bwd_w->dy_stride);
}

static void on_call(void *arg, const struct step_dry_call *call) { (void)arg, (void)call; }

/* describe — all ranks of one tensor group; false: TP does not divide the model. */
static bool describe(struct lint *l)
{
    const int64_t tokens = l->dims->context < SEQ ? l->dims->context : SEQ;
    const struct step_config config = {.dims = *l->dims,
                                       .axis_ranks[MESH_AXIS_TENSOR] = l->tensor_ranks,
                                       .store.dtype = l->dtype,
                                       .batch_samples = 1,
                                       .global_samples = 2,
                                       .seq_tokens = tokens,
                                       .optim = {.kind = OPTIM_KIND_ADAMW, .weight_decay = 0.1}};
    const struct step_dry_listener listener = {on_op, on_call, l};
    for (l->rank = 0; l->rank < l->tensor_ranks; l->rank++) {
        const struct step_place place = {.rank = l->rank,
                                         .ranks = l->tensor_ranks,
                                         .is_discrete = true,
                                         .stays_on_device = true};
        struct step_dry_about about;
        const enum status st = step_dry_run(&config, &place, &listener, &about);
        if (st != ST_OK) {
            assert_true(st == ST_BAD_SETTING && l->tensor_ranks > 1);
            status_clear();
            return false;
        }
    }
    return true;
}

/* Every product of every preset, cut by TP in every way that it allows. */
TEST(every_product_meets_the_rules_of_tensor_cores)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    struct lint l = {.dims = NULL};
    for (int i = 0; model_preset_name(i) != NULL; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            for (l.tensor_ranks = 1; l.tensor_ranks <= TENSOR_RANKS_MOST; l.tensor_ranks *= 2) {
                struct model_dims dims;
                assert_true(model_preset(model_preset_name(i), &dims));
                l.dims = &dims, l.dtype = dtypes[k], l.seen_vocabulary = 0;
                if (!describe(&l))
                    continue;
                l.models++;
                assert_int_equal(l.seen_vocabulary, 7); /* forward, dX and dW */
            }
    print_message("# %d models, %d products, %d of them of a vocabulary, %d wrong\n", l.models,
                  l.products, l.vocabulary, l.wrong);
    assert_true(l.models > 100 && l.products > 10 * l.models);
    assert_int_equal(l.wrong, 0);
}

HARNESS_RUN_ALL()
