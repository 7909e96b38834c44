/* dev_check_attention — the checks of attention's operations (dev_check.h). */
#include "dev/dev_check.h"
#include "dev/dev_check_args.h"

/* The heads of attention: what its helpers divide by, and what its addresses are made of. */
#define CHECK_HEADS                                                               \
    MIN(b, 1);                                                                    \
    MIN(t, 1);                                                                    \
    MIN(h, 1);                                                                    \
    TRY(check_size(OP, "hk", a->hk, 1, a->h));                                    \
    MIN(d, 1);                                                                    \
    THAT(a->h % a->hk == 0);                                                      \
    TRY(check_size(OP, "layout", (int64_t)a->layout, 0, ATTENTION_LAYOUT_HEADS)); \
    THAT(a->layout == ATTENTION_LAYOUT_QKV || a->hk == a->h);                     \
    TRY(check_product(OP, a->h, a->d));                                           \
    TRY(check_product(OP, a->b, a->t));                                           \
    TRY(check_product(OP, a->b * a->t, a->h * a->d * 3))

static enum status check_scores(const char *op, int64_t b, int64_t t, int64_t h)
{
    TRY(check_product(op, b * t, h));
    return check_product(op, b * t * h, t);
}

/* Heads [first, first + h) of whole heads; whole 0: of h, and first is not used. */
static enum status check_drop_heads(const char *op, int64_t h, int64_t first, int64_t whole)
{
    if (whole == 0)
        return check_size(op, "head_first", first, 0, 0);
    TRY(check_size(op, "heads_whole", whole, h, INT32_MAX));
    return check_size(op, "head_first", first, 0, whole - h);
}

/* The positions of own queries: within T, the second run behind the first; none without kv. */
static enum status check_runs(const char *op, const struct attention_runs *own, int64_t t,
                              bool has_kv)
{
    int64_t end = 0;
    for (int i = 0; i < 2; i++) {
        TRY(check_size(op, "own.n", own->n[i], has_kv && i == 0, has_kv ? t : 0));
        TRY(check_size(op, "own.first", own->first[i], own->n[i] ? end : 0,
                       own->n[i] ? t - own->n[i] : 0));
        end = own->first[i] + own->n[i];
    }
    return ST_OK;
}

enum status dev_check_attention_fwd(const struct attention_fwd *a, bool takes_halves)
{
#define OP "attention_fwd"
    HAS_FLOAT(out);
    HAS(lse, F32);
    HAS_FLOAT(qkv);
    MAY(mask, U8);
    MAY(first_key, I32);
    CHECK_HEADS;
    TRY(check_scores(OP, a->b, a->t, a->heads_whole ? a->heads_whole : a->h));
    TRY(check_drop_heads(OP, a->h, a->head_first, a->heads_whole));
    MAY_FLOAT(kv);
    TRY(check_runs(OP, &a->own, a->t, a->kv.data));
    return check_dropout(OP, &a->dropout);
#undef OP
}

enum status dev_check_attention_decode(const struct attention_decode *a, bool takes_halves)
{
#define OP "attention_decode"
    HAS_FLOAT(out);
    HAS_FLOAT(qkv);
    CHECK_HEADS;
    return ST_OK;
#undef OP
}

enum status dev_check_attention_bwd(const struct attention_bwd *a, bool takes_halves)
{
#define OP "attention_bwd"
    HAS_FLOAT(dqkv);
    HAS_FLOAT(dout);
    HAS_FLOAT(out);
    HAS_FLOAT(qkv);
    HAS(lse, F32);
    MAY(mask, U8);
    MAY(first_key, I32);
    CHECK_HEADS;
    TRY(check_scores(OP, a->b, a->t, a->heads_whole ? a->heads_whole : a->h));
    TRY(check_drop_heads(OP, a->h, a->head_first, a->heads_whole));
    MAY_FLOAT(kv);
    if (a->kv.data)
        HAS_FLOAT(dkv);
    TRY(check_runs(OP, &a->own, a->t, a->kv.data));
    return check_dropout(OP, &a->dropout);
#undef OP
}
