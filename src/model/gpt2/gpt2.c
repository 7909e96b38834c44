/* gpt2 — GPT-2 as Hugging Face computes it (Radford et al. 2019): its parameters, the operations
 * that all its files use, the embedding, and the order of a block's halves.
 *
 * The halves of a block are in gpt2_attn.c and gpt2_mlp.c, what follows the last block in
 * gpt2_head_lm.c and gpt2_head_qa.c, memory in gpt2_plan.c. */
#include "model/gpt2/gpt2.h"

#include "base/assert.h"
#include "base/rand.h"
#include "base/text.h"

#define EPS 1e-5f

int gpt2_param(int block, enum gpt2_param which)
{
    return 2 + block * GPT2_BLOCK_PARAMS + (int)which;
}

int gpt2_end_param(const struct pass *p, enum gpt2_end which)
{
    return 2 + (int)p->dims->layers * GPT2_BLOCK_PARAMS + (int)which;
}

static const struct param *param_of(const struct pass *p, int param)
{
    ASSERTF(param >= 0 && param < p->table->params_n, "param %d of %d", param, p->table->params_n);
    return &p->table->param[param];
}

struct tensor gpt2_w(const struct pass *p, int param)
{
    return tensor_at(p->params, param_of(p, param)->offset);
}

struct tensor gpt2_dw(const struct pass *p, int param)
{
    const struct param *at = param_of(p, param);
    return tensor_at(p->grads, p->grad_table ? p->grad_table->param[param].offset : at->offset);
}

struct dropout gpt2_dropout(const struct pass *p, int block, enum gpt2_dropout_place place,
                            int64_t sample_elems)
{
    if (!p->want_grad || p->dropout <= 0)
        return (struct dropout){0};
    return (struct dropout){.p = p->dropout,
                            .seed = p->dropout_seed,
                            .stream = RAND_STREAM(DROPOUT, block * 4 + (int)place),
                            .offset = (uint64_t)(p->sample_first * sample_elems)};
}

enum status gpt2_branch_grad(const struct pass *p, int block, enum gpt2_dropout_place place,
                             struct tensor *out)
{
    int64_t sample_elems = p->t * p->dims->embed;
    struct dropout dropout = gpt2_dropout(p, block, place, sample_elems);
    *out = gpt2_acts(p)->dx;
    if (dropout.p <= 0)
        return ST_OK;
    *out = gpt2_acts(p)->y;
    return p->op->drop(p->stream, &(struct drop){.y = *out,
                                                 .x = gpt2_acts(p)->dx,
                                                 .n = p->b * sample_elems,
                                                 .dropout = dropout});
}

enum status gpt2_norm(const struct pass *p, int param, struct tensor y, struct tensor mean,
                      struct tensor rstd, struct tensor x)
{
    struct norm_fwd norm = {.y = y,
                            .mean = mean,
                            .rstd = rstd,
                            .x = x,
                            .w = gpt2_w(p, param),
                            .b = gpt2_w(p, param + 1),
                            .n = p->b * p->t,
                            .c = p->dims->embed,
                            .eps = EPS};
    return p->op->norm_fwd(p->stream, &norm);
}

enum status gpt2_norm_again(const struct pass *p, int param, struct tensor y, struct tensor x)
{
    struct tensor none = {0};
    if (p->recompute == MODEL_RECOMPUTE_NONE)
        return ST_OK;
    return gpt2_norm(p, param, y, none, none, x);
}

enum status gpt2_norm_bwd(const struct pass *p, int param, struct tensor dy, struct tensor x,
                          struct tensor mean, struct tensor rstd, bool is_residual)
{
    struct tensor dx = gpt2_acts(p)->dx, none = {0};
    struct norm_bwd norm = {.dx = dx,
                            .dw = gpt2_dw(p, param),
                            .db = gpt2_dw(p, param + 1),
                            .dy = dy,
                            .x = x,
                            .mean = mean,
                            .rstd = rstd,
                            .w = gpt2_w(p, param),
                            .dresidual = is_residual ? dx : none,
                            .n = p->b * p->t,
                            .c = p->dims->embed,
                            .accumulate = p->accumulate};
    return p->op->norm_bwd(p->stream, &norm);
}

enum status gpt2_linear(const struct pass *p, int param, struct matmul_fwd how)
{
    how.w = gpt2_w(p, param);
    how.b = gpt2_w(p, param + 1);
    how.n = p->b * p->t;
    how.in = param_of(p, param)->dim[0];
    how.out = param_of(p, param)->dim[1];
    how.layout = MATMUL_LAYOUT_IO;
    return p->op->matmul_fwd(p->stream, &how);
}

enum status gpt2_linear_bwd_w(const struct pass *p, int param, struct tensor x, struct tensor dy)
{
    const struct param *w = param_of(p, param);
    struct matmul_bwd_w product = {.dw = gpt2_dw(p, param),
                                   .db = gpt2_dw(p, param + 1),
                                   .x = x,
                                   .dy = dy,
                                   .n = p->b * p->t,
                                   .in = w->dim[0],
                                   .out = w->dim[1],
                                   .layout = MATMUL_LAYOUT_IO,
                                   .accumulate = p->accumulate};
    return p->op->matmul_bwd_w(p->stream, &product);
}

enum status gpt2_linear_bwd_x(const struct pass *p, int param, struct tensor dx, struct tensor dy,
                              struct tensor pre)
{
    const struct param *w = param_of(p, param);
    struct matmul_bwd_x product = {.dx = dx,
                                   .dy = dy,
                                   .w = gpt2_w(p, param),
                                   .pre = pre,
                                   .n = p->b * p->t,
                                   .in = w->dim[0],
                                   .out = w->dim[1],
                                   .layout = MATMUL_LAYOUT_IO};
    return p->op->matmul_bwd_x(p->stream, &product);
}

static enum status describe_block(struct param_table *t, int block, int64_t c)
{
    const struct {
        const char *name;
        int dims_n, split_dim;
        int64_t dim0, dim1;
        enum param_init init;
    } row[GPT2_BLOCK_PARAMS] = {
        [GPT2_PARAM_LN1] = {"ln_1.weight", 1, -1, c, 0, PARAM_INIT_ONE},
        [GPT2_PARAM_LN1 + 1] = {"ln_1.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_PARAM_QKV] = {"attn.c_attn.weight", 2, 1, c, 3 * c, PARAM_INIT_NORMAL},
        [GPT2_PARAM_QKV + 1] = {"attn.c_attn.bias", 1, 0, 3 * c, 0, PARAM_INIT_ZERO},
        [GPT2_PARAM_ATT] = {"attn.c_proj.weight", 2, 0, c, c, PARAM_INIT_RESIDUAL},
        [GPT2_PARAM_ATT + 1] = {"attn.c_proj.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_PARAM_LN2] = {"ln_2.weight", 1, -1, c, 0, PARAM_INIT_ONE},
        [GPT2_PARAM_LN2 + 1] = {"ln_2.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_PARAM_FC] = {"mlp.c_fc.weight", 2, 1, c, 4 * c, PARAM_INIT_NORMAL},
        [GPT2_PARAM_FC + 1] = {"mlp.c_fc.bias", 1, 0, 4 * c, 0, PARAM_INIT_ZERO},
        [GPT2_PARAM_MLP] = {"mlp.c_proj.weight", 2, 0, 4 * c, c, PARAM_INIT_RESIDUAL},
        [GPT2_PARAM_MLP + 1] = {"mlp.c_proj.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
    };
    for (int i = 0; i < GPT2_BLOCK_PARAMS; i++) {
        char name[PARAM_NAME_MAX];
        ASSERT(text_format(name, sizeof name, "h.%d.%s", block, row[i].name));
        TRY(param_add(t, 1 + block, row[i].init, row[i].split_dim, name, row[i].dims_n, row[i].dim0,
                      row[i].dim1));
    }
    return ST_OK;
}

static enum status describe_all(const struct model_dims *dims, struct param_table *t)
{
    int64_t c = dims->embed;
    int layers = (int)dims->layers, last = layers + 1;
    t->layers = layers;
    TRY(param_add(t, 0, PARAM_INIT_NORMAL, 0, "wte.weight", 2, dims->vocab, c));
    TRY(param_add(t, 0, PARAM_INIT_NORMAL, -1, "wpe.weight", 2, dims->context, c));
    for (int block = 0; block < layers; block++)
        TRY(describe_block(t, block, c));
    TRY(param_add(t, last, PARAM_INIT_ONE, -1, "ln_f.weight", 1, c, 0));
    TRY(param_add(t, last, PARAM_INIT_ZERO, -1, "ln_f.bias", 1, c, 0));
    if (dims->task == MODEL_TASK_QA) {
        TRY(param_add(t, last, PARAM_INIT_NORMAL, -1, "qa_outputs.weight", 2, 2, c));
        TRY(param_add(t, last, PARAM_INIT_ZERO, -1, "qa_outputs.bias", 1, 2, 0));
        /* without a vocabulary product only embed_bwd makes it, by adding */
        t->param[GPT2_WTE].grad_is_added = true;
    }
    return ST_OK;
}

static enum status describe(const struct model_dims *dims, struct param_table *out)
{
    struct param_table t = {0};
    enum status st = describe_all(dims, &t);
    if (st == ST_OK)
        *out = t;
    else
        param_table_free(&t);
    return st;
}

static enum status embed_fwd(const struct pass *p)
{
    int64_t c = p->dims->embed;
    struct embed_fwd embed = {.x = gpt2_acts(p)->block[0].x,
                              .tokens = p->tokens,
                              .wte = gpt2_w(p, GPT2_WTE),
                              .wpe = tensor_at(gpt2_w(p, GPT2_WPE), p->past * c),
                              .n = p->b * p->t,
                              .t = p->t,
                              .c = c,
                              .dropout = gpt2_dropout(p, 0, GPT2_DROPOUT_EMBED, p->t * c)};
    return p->op->embed_fwd(p->stream, &embed);
}

static enum status embed_bwd(const struct pass *p)
{
    const struct model_dims *d = p->dims;
    struct embed_bwd embed = {.dwte = gpt2_dw(p, GPT2_WTE),
                              .dwpe = gpt2_dw(p, GPT2_WPE),
                              .dx = gpt2_acts(p)->dx,
                              .tokens = p->tokens,
                              .n = p->b * p->t,
                              .t = p->t,
                              .c = d->embed,
                              .v = d->vocab,
                              .context = d->context,
                              .accumulate = p->accumulate,
                              .dropout = gpt2_dropout(p, 0, GPT2_DROPOUT_EMBED, p->t * d->embed)};
    return p->op->embed_bwd(p->stream, &embed);
}

static enum status block_fwd(const struct pass *p, int block)
{
    TRY(gpt2_attn_fwd(p, block));
    return gpt2_mlp_fwd(p, block);
}

static enum status block_bwd(const struct pass *p, int block)
{
    if (p->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(gpt2_attn_fwd(p, block));
    TRY(gpt2_mlp_bwd(p, block));
    return gpt2_attn_bwd(p, block);
}

#define GPT2_OPS(task)                                                                     \
    {                                                                                      \
        .name = "gpt2 " #task, .describe = describe, .plan = gpt2_plan,                    \
        .plan_kv_cache = gpt2_plan_kv_cache, .flops_per_token = gpt2_plan_flops_per_token, \
        .embed_fwd = embed_fwd, .embed_bwd = embed_bwd, .block_fwd = block_fwd,            \
        .block_bwd = block_bwd, .head = gpt2_head_##task##_run,                            \
        .logits = gpt2_head_##task##_logits,                                               \
    }
const struct model_ops gpt2_lm_ops = GPT2_OPS(lm), gpt2_qa_ops = GPT2_OPS(qa);
