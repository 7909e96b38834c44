/* logits — what a model made elsewhere answers, computed by ours: for tests that compare with its
 * makers. */
#ifndef CONVOY_TESTS_GOLDEN_LOGITS_H
#define CONVOY_TESTS_GOLDEN_LOGITS_H

#include <stdlib.h>

#include "kernels/cpu.h"
#include "model/transformer/transformer.h"
#include "train/weights/weights.h"

/* One pass over b samples of t tokens; everything in host memory. */
struct logits_run {
    struct model_dims dims;
    struct param_table table;
    struct dev *dev;
    struct stream *stream;
    struct arena arena[2];
    struct pass pass;
    int64_t width; /* of a row of logits: V, or 2 */
};

static inline enum status logits_memory(struct logits_run *r, int64_t b, int64_t t)
{
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            void *base = NULL;
            size_t bytes = round ? r->arena[i].used_bytes : 0;
            if (round)
                TRY(dev_alloc(r->dev, bytes, &base));
            arena_init(&r->arena[i], "logits", base, bytes);
        }
        model_plan_free(r->pass.acts);
        TRY(model_plan(&r->dims, b, t, (struct model_recomputed){0}, false, DTYPE_F32, &r->arena[0],
                       &r->arena[1], &r->pass.acts));
    }
    return ST_OK;
}

/* logits_open — the model at path (weights.h), ready for passes of up to b × t tokens. */
static inline enum status logits_open(const char *path, int64_t b, int64_t t, struct logits_run *r)
{
    *r = (struct logits_run){.width = 0};
    TRY(weights_dims(path, &r->dims));
    TRY(model_ops(&r->dims)->describe(&r->dims, &r->table));
    TRY(dev_cpu_open(1, CPU_ISA_N, &r->dev));
    TRY(dev_stream_open(r->dev, &r->stream));
    TRY(logits_memory(r, b, t));
    r->width = r->dims.task == MODEL_TASK_LM ? r->dims.vocab : 2;
    float *params = calloc((size_t)r->table.total_elems, sizeof *params);
    r->pass = (struct pass){.dims = &r->dims,
                            .table = &r->table,
                            .op = dev_op(r->dev),
                            .stream = r->stream,
                            .params = {params, DTYPE_F32},
                            .acts = r->pass.acts,
                            .scale = 1,
                            .scale_end = 1};
    const struct load_target to = {.table = &r->table, .stream = r->stream, .data = r->pass.params};
    return weights_load(path, &to);
}

/* logits_of — out (b·t, width) of tokens (b,t). */
static inline enum status logits_of(struct logits_run *r, const int32_t *tokens, int64_t b,
                                    int64_t t, float *out)
{
    const struct model_ops *model = model_ops(&r->dims);
    struct pass *p = &r->pass;
    size_t n = (size_t)b * (size_t)t;
    int32_t *labels = calloc(n, sizeof *labels);
    float *losses = calloc(n, sizeof *losses);
    uint8_t *mask = malloc(n);
    for (size_t i = 0; i < n; i++)
        mask[i] = 1;
    p->b = b;
    p->t = t;
    p->tokens = (struct tensor){(void *)(uintptr_t)tokens, DTYPE_I32};
    p->targets = p->starts = p->ends = (struct tensor){labels, DTYPE_I32};
    p->losses = (struct tensor){losses, DTYPE_F32};
    if (r->dims.task == MODEL_TASK_QA)
        p->mask = (struct tensor){mask, DTYPE_U8};
    enum status st = model->embed_fwd(p);
    for (int block = 0; st == ST_OK && block < r->dims.layers; block++)
        st = model->block_fwd(p, block);
    if (st == ST_OK && r->dims.task == MODEL_TASK_QA) {
        st = model->head(p); /* without gradients the logits stay in `wide` */
        memcpy(out, transformer_acts(p)->wide.data, n * 2 * sizeof *out);
    }
    for (int64_t row = 0; st == ST_OK && r->dims.task == MODEL_TASK_LM && row < b * t; row++)
        st = model->logits(p, row, (struct tensor){out + row * r->width, DTYPE_F32});
    free(labels);
    free(losses);
    free(mask);
    return st;
}

static inline void logits_close(struct logits_run *r)
{
    model_plan_free(r->pass.acts);
    free(r->pass.params.data);
    param_table_free(&r->table);
    for (int i = 0; r->dev && i < 2; i++)
        dev_free(r->dev, r->arena[i].base, r->arena[i].cap_bytes);
    dev_stream_close(r->stream);
    dev_close(r->dev);
}

#endif
