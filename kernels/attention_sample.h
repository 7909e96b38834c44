/* attention_sample — one sample of a call of attention, as a call of its own. If a call draws
 * dropout for some of the heads of a model (head_first, heads_whole), the random numbers of one
 * sample are the numbers of a one-sample call with a moved offset. So kernels need no registers for
 * head_first and heads_whole: such a call is launched sample by sample. For C and C++. */
#ifndef CONVOY_KERNELS_ATTENTION_SAMPLE_H
#define CONVOY_KERNELS_ATTENTION_SAMPLE_H

#include "kernels/attention.h"

/* attention_is_by_sample — returns true if a call draws dropout for some of the heads of a
 * model. */
static inline bool attention_is_by_sample(const struct dropout *dropout, int64_t heads_whole)
{
    return heads_whole > 0 && dropout->p > 0;
}

static inline struct dropout attention_sample_dropout(struct dropout d, int64_t b, int64_t t,
                                                      int64_t head_first, int64_t heads_whole)
{
    d.offset += (uint64_t)((b * heads_whole + head_first) * t * t);
    return d;
}

/* attention_fwd_sample — returns sample b of a call as a call of its own. */
static inline struct attention_fwd attention_fwd_sample(const struct attention_fwd *a, int64_t b)
{
    struct attention_fwd x = *a;
    int64_t rows = b * attention_rows(&a->own, a->t);
    x.qkv = tensor_at(a->qkv, rows * attention_row_of(a->layout, a->h, a->hk, a->d).row);
    x.out = tensor_at(a->out, rows * a->h * a->d);
    x.lse = tensor_at(a->lse, rows * a->h);
    x.mask = tensor_at(a->mask, b * a->t);
    x.first_key = tensor_at(a->first_key, b * a->t);
    x.kv = tensor_at(a->kv, b * a->t * 2 * a->hk * a->d);
    x.dropout = attention_sample_dropout(a->dropout, b, a->t, a->head_first, a->heads_whole);
    x.b = 1, x.head_first = x.heads_whole = 0;
    return x;
}

/* attention_bwd_sample — returns sample b of a call as a call of its own. */
static inline struct attention_bwd attention_bwd_sample(const struct attention_bwd *a, int64_t b)
{
    struct attention_bwd x = *a;
    int64_t rows = b * attention_rows(&a->own, a->t), keys = b * a->t * 2 * a->hk * a->d,
            first = rows * attention_row_of(a->layout, a->h, a->hk, a->d).row;
    x.qkv = tensor_at(a->qkv, first);
    x.dqkv = tensor_at(a->dqkv, first);
    x.out = tensor_at(a->out, rows * a->h * a->d);
    x.dout = tensor_at(a->dout, rows * a->h * a->d);
    x.lse = tensor_at(a->lse, rows * a->h);
    x.mask = tensor_at(a->mask, b * a->t);
    x.first_key = tensor_at(a->first_key, b * a->t);
    x.kv = tensor_at(a->kv, keys);
    x.dkv = tensor_at(a->dkv, keys);
    x.dropout = attention_sample_dropout(a->dropout, b, a->t, a->head_first, a->heads_whole);
    x.b = 1, x.head_first = x.heads_whole = 0;
    return x;
}

#endif
