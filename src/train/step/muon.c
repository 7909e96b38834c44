/* muon — see muon.h. */
#include "train/step/muon.h"

#include <math.h>

#include "base/assert.h"

#define ITERATIONS 5
/* The factor 1/(‖u‖ + 1e-6) is made by grad_scale, as TINY/(‖u‖ + 1e-6): always below 1. */
#define TINY 1e-12
#define RMS 0.2 /* RMS of an update's elements, about as AdamW's: Liu et al. 2025 */

static const double A = 3.4445, B = -4.7750, C = 2.0315;

/* ---- memory ---- */

static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static struct tensor allocate_tensor(struct arena *arena, int64_t elems, enum dtype dtype)
{
    return (struct tensor){arena_alloc(arena, (size_t)elems * dtype_bytes(dtype)), dtype};
}

struct muon_room muon_alloc(struct arena *arena, const struct param_table *t)
{
    int64_t elems = 0, side = 0;
    struct param_matrix matrix[PARAM_MATRICES_MAX];
    for (int i = 0; i < t->params_n; i++) {
        if (!t->param[i].is_hidden)
            continue;
        elems = greater(elems, t->param[i].elems);
        for (int j = param_matrices(&t->param[i], matrix) - 1; j >= 0; j--)
            side = greater(side, lesser(matrix[j].rows, matrix[j].columns));
    }
    if (elems == 0)
        return (struct muon_room){.x = {0}};
    return (struct muon_room){.x = allocate_tensor(arena, elems, DTYPE_F32),
                              .y = allocate_tensor(arena, elems, DTYPE_F32),
                              .gram = allocate_tensor(arena, side * side, DTYPE_F32),
                              .square = allocate_tensor(arena, side * side, DTYPE_F32),
                              .sums = allocate_tensor(arena, 1, DTYPE_F64),
                              .factor = allocate_tensor(arena, 2, DTYPE_F64),
                              .unit = allocate_tensor(arena, 2, DTYPE_F64)};
}

/* ---- Newton–Schulz ---- */

/* add_scaled — y ← b·y + a·scale·x of n elements; scale: (1) f64 on the device, data NULL: 1. */
static enum status add_scaled(const struct muon *m, struct tensor y, double b, double a,
                              struct tensor x, int64_t n, struct tensor scale)
{
    const struct optim_span all = {0, n, (float)((b - 1) / a)};
    return m->op->sgd(
        m->stream,
        &(struct sgd){
            .p = y, .g = x, .spans = &all, .spans_n = 1, .grad_scale = scale, .lr = -a, .step = 2});
}

/* make_gram — Computes x·xᵀ, or xᵀ·x if that is smaller. */
static enum status make_gram(const struct muon *m, struct tensor x, int64_t rows, int64_t columns)
{
    if (rows > columns)
        return m->op->matmul_bwd_w(m->stream, &(struct matmul_bwd_w){.dw = m->room->gram,
                                                                     .x = x,
                                                                     .dy = x,
                                                                     .n = rows,
                                                                     .in = columns,
                                                                     .out = columns,
                                                                     .layout = MATMUL_LAYOUT_IO});
    return m->op->matmul_fwd(m->stream, &(struct matmul_fwd){.y = m->room->gram,
                                                             .x = x,
                                                             .w = x,
                                                             .n = rows,
                                                             .in = columns,
                                                             .out = rows,
                                                             .layout = MATMUL_LAYOUT_OI});
}

/* multiply_matrices — y (n, out) = x (n, in) · w (in, out). */
static enum status multiply_matrices(const struct muon *m, struct tensor y, struct tensor x,
                                     struct tensor w, int64_t n, int64_t in, int64_t out)
{
    return m->op->matmul_fwd(
        m->stream,
        &(struct matmul_fwd){
            .y = y, .x = x, .w = w, .n = n, .in = in, .out = out, .layout = MATMUL_LAYOUT_IO});
}

/* iterate_newton_schulz — y = factor · (A·x + (B·G + C·G²)·x), G the smaller of x·xᵀ and xᵀ·x,
 * which then multiplies x from the right. */
static enum status iterate_newton_schulz(const struct muon *m, struct tensor y, struct tensor x,
                                         int64_t rows, int64_t columns, double factor)
{
    const struct muon_room *r = m->room;
    const struct tensor none = {0};
    int64_t side = lesser(rows, columns);
    TRY(make_gram(m, x, rows, columns));
    TRY(multiply_matrices(m, r->square, r->gram, r->gram, side, side, side));
    TRY(add_scaled(m, r->square, C, B, r->gram, side * side, none));
    TRY(rows > columns ? multiply_matrices(m, y, x, r->square, rows, columns, columns)
                       : multiply_matrices(m, y, r->square, x, rows, rows, columns));
    return add_scaled(m, y, factor, factor * A, x, rows * columns, none);
}

enum status muon_orthogonalise(const struct muon *m, int64_t rows, int64_t columns, double factor,
                               struct tensor *out)
{
    struct tensor x = m->room->y, y = m->room->x;
    /* Y = x/(‖x‖ + 1e-6); zero if unit[0] is NaN. */
    int64_t n = rows * columns;
    const struct muon_room *r = m->room;
    TRY(m->op->sumsq(m->stream, &(struct sumsq){.out = r->sums, .x = r->x, .n = n}));
    TRY(m->op->grad_scale(
        m->stream,
        &(struct grad_scale){
            .out = r->factor, .squares = r->sums, .loss = r->unit, .squares_n = 1, .clip = TINY}));
    TRY(dev_fill(m->stream, r->y.data, 0, (size_t)n * sizeof(float)));
    TRY(add_scaled(m, r->y, 1, 1 / TINY, r->x, n, r->factor));
    for (int i = 0; i < ITERATIONS; i++) {
        TRY(iterate_newton_schulz(m, y, x, rows, columns, i == ITERATIONS - 1 ? factor : 1));
        struct tensor made = y;
        y = x;
        x = made;
    }
    *out = x;
    return ST_OK;
}

/* ---- the ranges of an update ---- */

/* The range of one hidden tensor in a local shard; n 0: none. */
struct range {
    int64_t at, n;
};

static struct range range_of(const struct param *p, const struct store_local_shard *shard)
{
    int64_t first = greater(p->offset, shard->first),
            end = lesser(p->offset + p->elems, shard->first + shard->elems);
    return (struct range){first - shard->first, p->is_hidden && end > first ? end - first : 0};
}

/* step_momentum — Computes m ← μ·m + scale·g. p: any numbers; they stay. */
static enum status step_momentum(const struct muon *m, struct tensor p, struct tensor to,
                                 struct tensor g, int64_t n, int64_t step)
{
    const struct optim_span all = {.elems = n};
    return m->op->sgd(m->stream, &(struct sgd){.p = p,
                                               .g = g,
                                               .m = to,
                                               .spans = &all,
                                               .spans_n = 1,
                                               .grad_scale = m->grad_scale,
                                               .lr = 0,
                                               .momentum = m->momentum,
                                               .step = step});
}

/* set_direction — Updates a tensor's momentum, and puts u in place of its gradient. Without
 * momentum u is g: the length does not matter. */
static enum status set_direction(const struct muon *m, const struct store_local_shard *shard,
                                 struct range range)
{
    struct tensor p = tensor_at(shard->p, range.at), g = tensor_at(shard->g, range.at),
                  moment = tensor_at(shard->m, range.at), u = m->room->x;
    const size_t bytes = (size_t)range.n * sizeof(float);
    if (range.n == 0 || m->momentum == 0)
        return ST_OK;
    TRY(step_momentum(m, p, moment, g, range.n, m->step));
    TRY(dev_copy(m->stream, u.data, moment.data, bytes));
    TRY(step_momentum(m, p, u, g, range.n, 2)); /* 2: a moment that is read */
    return dev_copy(m->stream, g.data, u.data, bytes);
}

/* copy_matrix — Copies a matrix between its range of a tensor and rows of its own. */
static enum status copy_matrix(const struct muon *m, const struct param_matrix *matrix,
                               struct tensor whole, struct tensor own, bool is_back)
{
    struct tensor at = tensor_at(whole, matrix->first);
    return m->op->copy_2d(m->stream,
                          &(struct copy_2d){.y = is_back ? at : own,
                                            .x = is_back ? own : at,
                                            .rows = matrix->runs,
                                            .columns = matrix->run,
                                            .y_stride = is_back ? matrix->stride : matrix->run,
                                            .x_stride = is_back ? matrix->run : matrix->stride});
}

/* update_matrix — Replaces a matrix of u by its update on this rank, and by zero on the others. */
static enum status update_matrix(const struct muon *m, const struct param_matrix *matrix,
                                 struct tensor whole, bool is_own)
{
    const struct muon_room *r = m->room;
    int64_t elems = matrix->rows * matrix->columns;
    struct tensor made = r->x;
    double factor = RMS * sqrt((double)greater(matrix->rows, matrix->columns));
    ASSERTF(elems == matrix->runs * matrix->run, "%lld x %lld", (long long)matrix->rows,
            (long long)matrix->columns);
    if (!is_own) {
        TRY(dev_fill(m->stream, made.data, 0, (size_t)elems * sizeof(float)));
        return copy_matrix(m, matrix, whole, made, true);
    }
    TRY(copy_matrix(m, matrix, whole, made, false));
    TRY(muon_orthogonalise(m, matrix->rows, matrix->columns, factor, &made));
    if (m->heartbeat)
        m->heartbeat(m->heartbeat_arg);
    return copy_matrix(m, matrix, whole, made, true);
}

static enum status apply_update(const struct muon *m, const struct store_local_shard *shard,
                                struct range range)
{
    const struct optim_span all = {0, range.n, (float)m->weight_decay};
    if (range.n == 0)
        return ST_OK;
    return m->op->sgd(m->stream, &(struct sgd){.p = tensor_at(shard->p, range.at),
                                               .g = tensor_at(shard->g, range.at),
                                               .spans = &all,
                                               .spans_n = 1,
                                               .grad_scale = m->room->unit,
                                               .lr = m->lr,
                                               .step = m->step});
}

/* ---- the update ---- */

enum status muon_update(const struct muon *m, struct store *store, int bucket)
{
    const struct layout_bucket *l = &store_layout(store)->bucket[bucket];
    struct store_local_shard shard = store_local_shard(store, bucket);
    struct store_update_whole whole;
    if (!(param_rest(m->table, l->first, l->first + l->elems) < l->elems))
        return ST_OK;
    /* unit becomes 1, or NaN if the gradients' factor is NaN. */
    const struct muon_room *r = m->room;
    TRY(m->op->grad_scale(
        m->stream,
        &(struct grad_scale){.out = r->unit, .squares = r->sums, .loss = m->grad_scale}));
    for (int i = 0; i < m->table->params_n; i++)
        TRY(set_direction(m, &shard, range_of(&m->table->param[i], &shard)));
    TRY(store_update_gather(store, bucket, &whole));
    /* The matrices of a bucket are dealt to the ranks in turn. */
    struct param_matrix matrix[PARAM_MATRICES_MAX];
    int next = 0;
    for (int i = 0; i < m->table->params_n; i++) {
        const struct param *p = &m->table->param[i];
        int64_t at = p->offset - whole.first;
        if (!p->is_hidden || at < 0 || at >= l->elems)
            continue;
        int n = param_matrices(p, matrix);
        for (int j = 0; j < n; j++)
            TRY(update_matrix(m, &matrix[j], tensor_at(whole.g, at),
                              next++ % whole.ranks == whole.rank));
    }
    TRY(store_update_scatter(store, bucket));
    for (int i = 0; i < m->table->params_n; i++)
        TRY(apply_update(m, &shard, range_of(&m->table->param[i], &shard)));
    return ST_OK;
}
