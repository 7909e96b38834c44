/* gpt2 — GPT-2 as Hugging Face computes it (Radford et al. 2019): parameters, embedding, and the walk through a block.
 *
 * B samples · T tokens · N = B·T rows · C embedding · H heads · D = C/H · V vocabulary · L layers. The halves of a block
 * are in block_attn.c and block_mlp.c, what follows the last block in head_lm.c and head_qa.c. */
#include "model/gpt2.h"

#include "base/must.h"
#include "base/rand.h"
#include "base/text.h"

struct gpt2_param gpt2_at(const struct pass *p, int row)
{
    ASSERTF(row >= 0 && row < p->table->rows_n, "row %d of %d", row, p->table->rows_n);
    int64_t offset = p->table->row[row].offset;
    return (struct gpt2_param){tensor_at(p->params, offset), tensor_at(p->grads, offset)};
}

struct gpt2_param gpt2_block(const struct pass *p, int block, enum gpt2_row row)
{
    return gpt2_at(p, 2 + block * GPT2_ROW_N + (int)row);
}

struct gpt2_param gpt2_end(const struct pass *p, enum gpt2_end row)
{
    return gpt2_at(p, 2 + (int)p->dims->layers * GPT2_ROW_N + (int)row);
}

struct dropout gpt2_dropout(const struct pass *p, int block, enum gpt2_place place, int64_t elems)
{
    if (!p->want_grad || p->dropout <= 0)
        return (struct dropout){0};
    return (struct dropout){.p = p->dropout, .seed = p->dropout_seed, .stream = RAND_STREAM(DROPOUT, block * 4 + (int)place),
                            .offset = (uint64_t)(p->sample_first * elems)};
}

enum status gpt2_branch(const struct pass *p, int block, enum gpt2_place place, struct tensor *out)
{
    int64_t sample_elems = p->t * p->dims->embed;
    struct dropout dropout = gpt2_dropout(p, block, place, sample_elems);
    *out = p->acts->dx;
    if (dropout.p <= 0)
        return ST_OK;
    *out = p->acts->y;
    return p->op->drop(p->stream, &(struct drop){.y = *out, .x = p->acts->dx, .n = p->b * sample_elems, .dropout = dropout});
}

enum status gpt2_norm(const struct pass *p, struct tensor y, struct tensor mean, struct tensor rstd, struct tensor x,
                      struct gpt2_param w, struct gpt2_param b)
{
    return p->op->norm_fwd(p->stream, &(struct norm_fwd){.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w.w, .b = b.w,
                                                         .n = p->b * p->t, .c = p->dims->embed, .eps = GPT2_EPS});
}

enum status gpt2_norm_bwd(const struct pass *p, struct tensor dy, struct tensor x, struct tensor mean, struct tensor rstd,
                          struct gpt2_param w, struct gpt2_param b, bool is_residual)
{
    struct tensor dx = p->acts->dx;
    return p->op->norm_bwd(p->stream, &(struct norm_bwd){.dx = dx, .dw = w.dw, .db = b.dw, .dy = dy, .x = x, .mean = mean,
                                                         .rstd = rstd, .w = w.w,
                                                         .dresidual = is_residual ? dx : (struct tensor){0},
                                                         .n = p->b * p->t, .c = p->dims->embed, .accumulate = p->accumulate});
}

static enum status describe_block(struct param_table *t, int block, int64_t c)
{
    const struct {
        const char *name;
        int dims_n, split_dim;
        int64_t dim0, dim1;
        enum param_init init;
    } row[GPT2_ROW_N] = {
        [GPT2_ROW_LN1_W] = {"ln_1.weight", 1, -1, c, 0, PARAM_INIT_ONE},
        [GPT2_ROW_LN1_B] = {"ln_1.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_ROW_QKV_W] = {"attn.c_attn.weight", 2, 1, c, 3 * c, PARAM_INIT_NORMAL},
        [GPT2_ROW_QKV_B] = {"attn.c_attn.bias", 1, 0, 3 * c, 0, PARAM_INIT_ZERO},
        [GPT2_ROW_ATT_W] = {"attn.c_proj.weight", 2, 0, c, c, PARAM_INIT_RESIDUAL},
        [GPT2_ROW_ATT_B] = {"attn.c_proj.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_ROW_LN2_W] = {"ln_2.weight", 1, -1, c, 0, PARAM_INIT_ONE},
        [GPT2_ROW_LN2_B] = {"ln_2.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
        [GPT2_ROW_FC_W] = {"mlp.c_fc.weight", 2, 1, c, 4 * c, PARAM_INIT_NORMAL},
        [GPT2_ROW_FC_B] = {"mlp.c_fc.bias", 1, 0, 4 * c, 0, PARAM_INIT_ZERO},
        [GPT2_ROW_MLP_W] = {"mlp.c_proj.weight", 2, 0, 4 * c, c, PARAM_INIT_RESIDUAL},
        [GPT2_ROW_MLP_B] = {"mlp.c_proj.bias", 1, -1, c, 0, PARAM_INIT_ZERO},
    };
    for (int i = 0; i < GPT2_ROW_N; i++) {
        char name[PARAM_NAME_MAX];
        ASSERT(text_format(name, sizeof name, "h.%d.%s", block, row[i].name));
        TRY(param_add(t, 1 + block, row[i].init, row[i].split_dim, name, row[i].dims_n, row[i].dim0, row[i].dim1));
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
        t->row[GPT2_WTE].grad_is_added = true; /* no vocabulary product: only embed_bwd, which adds */
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
    struct tensor x = p->acts->block[0].x;
    return p->op->embed_fwd(p->stream, &(struct embed_fwd){.x = x, .tokens = p->tokens, .wte = gpt2_at(p, GPT2_WTE).w,
                                                           .wpe = gpt2_at(p, GPT2_WPE).w, .n = p->b * p->t, .t = p->t, .c = c,
                                                           .dropout = gpt2_dropout(p, 0, GPT2_PLACE_EMBED, p->t * c)});
}

static enum status embed_bwd(const struct pass *p)
{
    const struct model_dims *d = p->dims;
    struct dropout dropout = gpt2_dropout(p, 0, GPT2_PLACE_EMBED, p->t * d->embed);
    return p->op->embed_bwd(p->stream, &(struct embed_bwd){.dwte = gpt2_at(p, GPT2_WTE).dw, .dwpe = gpt2_at(p, GPT2_WPE).dw,
                                                           .dx = p->acts->dx, .tokens = p->tokens, .n = p->b * p->t,
                                                           .t = p->t, .c = d->embed, .v = d->vocab, .context = d->context,
                                                           .accumulate = p->accumulate, .dropout = dropout});
}

static enum status block_fwd(const struct pass *p, int block)
{
    TRY(block_attn_fwd(p, block));
    return block_mlp_fwd(p, block);
}

static enum status block_bwd(const struct pass *p, int block)
{
    if (p->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(block_attn_fwd(p, block));
    TRY(block_mlp_bwd(p, block));
    return block_attn_bwd(p, block);
}

const struct model_ops gpt2_lm_ops = {"gpt2 lm", describe, embed_fwd, embed_bwd, block_fwd, block_bwd, head_lm_run, head_lm_logits};
const struct model_ops gpt2_qa_ops = {"gpt2 qa", describe, embed_fwd, embed_bwd, block_fwd, block_bwd, head_qa_run, NULL};
