/* add_level_cpu — the sums of add.c for one level: included three times, with ADD_FN naming the level, under that
 * level's target. Two ways: 64 elements at a time in registers (fp32, up to four sources, where the tree is the same for
 * every layout), and blocks in the first-level cache for everything else. Must not be included by others. */

/* Up to four sources: ((0+1)+(2+3)), ((0+1)+2): the same for nodes × locals = 1×n, n×1 and 2×2. */
#define ADD_STEP(x, at)                                                                                      \
    add_vec x = *(const add_vec *)(const void *)(in[0] + (at));                                              \
    if (n > 1)                                                                                               \
        x += *(const add_vec *)(const void *)(in[1] + (at));                                                 \
    if (n == 3)                                                                                              \
        x += *(const add_vec *)(const void *)(in[2] + (at));                                                 \
    if (n == 4)                                                                                              \
    x += *(const add_vec *)(const void *)(in[2] + (at)) + *(const add_vec *)(const void *)(in[3] + (at))

static inline __attribute__((always_inline)) int64_t ADD_FN(few_n)(const struct add *a, const int n)
{
    const float *in[4];
    for (int s = 0; s < n; s++)
        in[s] = a->in[s];
    int64_t i = 0;
    for (; i + 64 <= a->elems; i += 64) {
        for (int s = 0; s < n; s++)
            __builtin_prefetch(in[s] + i + 256);
        ADD_STEP(x0, i);
        ADD_STEP(x1, i + 16);
        ADD_STEP(x2, i + 32);
        ADD_STEP(x3, i + 48);
        for (int o = 0; o < a->outs_n; o++) {
            float *out = (float *)a->out[o] + i;
            if (a->stream) {
                ADD_STREAM(out, x0);
                ADD_STREAM(out + 16, x1);
                ADD_STREAM(out + 32, x2);
                ADD_STREAM(out + 48, x3);
            } else {
                *(add_vec *)(void *)out = x0;
                *(add_vec *)(void *)(out + 16) = x1;
                *(add_vec *)(void *)(out + 32) = x2;
                *(add_vec *)(void *)(out + 48) = x3;
            }
        }
    }
    return i;
}

/* How many elements were done; the rest is for the blocks. */
static int64_t ADD_FN(few)(const struct add *a)
{
    switch (a->nodes * a->locals) {
    case 1: return ADD_FN(few_n)(a, 1);
    case 2: return ADD_FN(few_n)(a, 2);
    case 3: return ADD_FN(few_n)(a, 3);
    case 4: return ADD_FN(few_n)(a, 4);
    default: return 0;
    }
}

/* sum (n) = or += source `in` from element i, widened. */
static void ADD_FN(take)(struct add_work *w, void *sum, int s, bool is_first)
{
    const int64_t n = w->block_n;
    if (w->a->dtype_in == DTYPE_F64) {
        double *restrict to = sum;
        const double *restrict from = (const double *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++)
            to[j] = is_first ? from[j] : to[j] + from[j];
    } else if (w->a->dtype_in == DTYPE_F32) {
        float *restrict to = sum;
        const float *restrict from = (const float *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++)
            to[j] = is_first ? from[j] : to[j] + from[j];
    } else {
        float *restrict to = sum;
        const uint16_t *restrict from = (const uint16_t *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++) {
            union add_bits wide = {.u = (uint32_t)from[j] << 16};
            to[j] = is_first ? wide.f : to[j] + wide.f;
        }
    }
}

static void ADD_FN(join)(struct add_work *w, void *sum, const void *more)
{
    if (w->a->dtype_in == DTYPE_F64) {
        double *restrict to = sum;
        const double *restrict from = more;
        for (int64_t j = 0; j < w->block_n; j++)
            to[j] += from[j];
    } else {
        float *restrict to = sum;
        const float *restrict from = more;
        for (int64_t j = 0; j < w->block_n; j++)
            to[j] += from[j];
    }
}

/* The sum of n neighbours from `first`: of nodes (each of w->a->locals sources) or of sources. */
static void ADD_FN(tree)(struct add_work *w, int first, int n, bool is_nodes, int level)
{
    void *sum = w->sums[level];
    if (n == 1) {
        if (is_nodes)
            ADD_FN(tree)(w, first * w->a->locals, w->a->locals, false, level);
        else
            ADD_FN(take)(w, sum, first, true);
        return;
    }
    int left = order_left(n);
    ADD_FN(tree)(w, first, left, is_nodes, level);
    if (n - left == 1 && (!is_nodes || w->a->locals == 1)) {
        ADD_FN(take)(w, sum, first + left, false);
        return;
    }
    ADD_FN(tree)(w, first + left, n - left, is_nodes, level + 1);
    ADD_FN(join)(w, sum, w->sums[level + 1]);
}

static void ADD_FN(round)(uint16_t *restrict out, const float *restrict in, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        union add_bits x = {.f = in[j]};
        uint32_t rounded = (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16, quiet = x.u >> 16 | 0x40;
        out[j] = (uint16_t)((x.u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
    }
}

static void ADD_FN(blocks)(const struct add *a, int64_t i)
{
    struct add_work w; /* its sums are written before they are read */
    w.a = a;
    uint16_t rounded[ADD_BLOCK] __attribute__((aligned(64)));
    const int64_t out_bytes = (int64_t)dtype_bytes(a->dtype_out);
    for (; i < a->elems; i += ADD_BLOCK) {
        w.i = i;
        w.block_n = a->elems - i < ADD_BLOCK ? a->elems - i : ADD_BLOCK;
        ADD_FN(tree)(&w, 0, a->nodes, true, 0);
        const void *sum = w.sums[0];
        if (a->dtype_out == DTYPE_BF16) {
            ADD_FN(round)(rounded, sum, w.block_n);
            sum = rounded;
        }
        for (int o = 0; o < a->outs_n; o++)
            add_copy((char *)a->out[o] + i * out_bytes, sum, w.block_n * out_bytes, a->stream);
    }
}

#undef ADD_STEP
