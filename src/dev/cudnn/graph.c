/* cudnn_graph — see cudnn/graph.h. A graph is a table of tensors and a table of operations. */
#include "dev/cudnn/graph.h"

#include <string.h>

#include "base/assert.h"

#define RANK 4
#define CONFIGS_MAX 8
#define NOTES_MAX 16

/* ---- the tables ---- */

/* The layout of a tensor. QUERIES, KEYS: in rows of qkv; DENSE: in rows of H·D; BY_HEAD: dense
 * (B,H,T,D). KEYS have K heads: a product repeats each for the H/K heads of its other factor, and a
 * sum adds the gradients of these H/K heads. */
enum form { QUERIES, KEYS, KEYS_TURNED, DENSE, BY_HEAD, ROWS, SCORES, SCORES_TURNED, NUMBER };
enum type { IO, F32, I32, YES };
enum storage { STORED, VIRTUAL, HOST };

struct row {
    int id;
    enum form form;
    enum type type;
    enum storage storage;
};
/* in: the operands, 0: none; the last of a select is the condition. mode: the function of a
 * pointwise operation or a reduction. axis: the axis of an index. */
enum kind { MATMUL, POINTWISE, REDUCTION, RESHAPE };
/* The graphs with an operation. ONE_EACH, GROUPED: with K = H, with K < H. DETERMINISTIC, ATOMIC:
 * backward graphs of this form. */
enum when { ALWAYS, ONE_EACH, GROUPED, DETERMINISTIC, ATOMIC };
struct op {
    enum kind kind;
    int mode, in[3], out, axis;
    enum when when;
};

/* Virtual tensors. */
enum {
    RAW = CUDNN_TENSORS,
    SCALED,
    QUERY_I,
    KEY_I,
    SEEN,
    SCORE,
    TOP,
    LESS,
    EXPS,
    TOTAL,
    LOGS,
    PROB,
    PRODUCTS,
    DELTA_1,
    LESS_LSE,
    PROB_TURNED,
    DPROB,
    DPROB_LESS,
    DSCORE_1,
    DSCORE,
    DSCORE_TURNED,
    K_ROWS,
    DK_HEADS,
    DV_HEADS,
    IDS
};

static const struct row forward_rows[] = {
    {CUDNN_Q, QUERIES, IO, STORED},    {CUDNN_K, KEYS_TURNED, IO, STORED},
    {CUDNN_V, KEYS, IO, STORED},       {CUDNN_O, DENSE, IO, STORED},
    {CUDNN_LSE, ROWS, F32, STORED},    {CUDNN_SCALE, NUMBER, F32, HOST},
    {CUDNN_HIDDEN, NUMBER, F32, HOST}, {RAW, SCORES, F32, VIRTUAL},
    {SCALED, SCORES, F32, VIRTUAL},    {QUERY_I, SCORES, I32, VIRTUAL},
    {KEY_I, SCORES, I32, VIRTUAL},     {SEEN, SCORES, YES, VIRTUAL},
    {SCORE, SCORES, F32, VIRTUAL},     {TOP, ROWS, F32, VIRTUAL},
    {LESS, SCORES, F32, VIRTUAL},      {EXPS, SCORES, F32, VIRTUAL},
    {TOTAL, ROWS, F32, VIRTUAL},       {LOGS, ROWS, F32, VIRTUAL},
    {PROB, SCORES, IO, VIRTUAL}};
static const struct op forward_ops[] = {
    {MATMUL, 0, {CUDNN_Q, CUDNN_K}, RAW, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_MUL, {RAW, CUDNN_SCALE}, SCALED, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_GEN_INDEX, {SCALED}, QUERY_I, 2, ALWAYS},
    {POINTWISE, DNN_POINTWISE_GEN_INDEX, {SCALED}, KEY_I, 3, ALWAYS},
    {POINTWISE, DNN_POINTWISE_CMP_GE, {QUERY_I, KEY_I}, SEEN, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_BINARY_SELECT, {SCALED, CUDNN_HIDDEN, SEEN}, SCORE, 0, ALWAYS},
    {REDUCTION, DNN_REDUCE_TENSOR_MAX, {SCORE}, TOP, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_SUB, {SCORE, TOP}, LESS, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_EXP, {LESS}, EXPS, 0, ALWAYS},
    {REDUCTION, DNN_REDUCE_TENSOR_ADD, {EXPS}, TOTAL, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_LOG, {TOTAL}, LOGS, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_ADD, {TOP, LOGS}, CUDNN_LSE, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_DIV, {EXPS, TOTAL}, PROB, 0, ALWAYS},
    {MATMUL, 0, {PROB, CUDNN_V}, CUDNN_O, 0, ALWAYS}};

static const struct row backward_rows[] = {
    {CUDNN_Q, QUERIES, IO, STORED},      {CUDNN_K, KEYS_TURNED, IO, STORED},
    {CUDNN_V, KEYS_TURNED, IO, STORED},  {CUDNN_O, DENSE, IO, STORED},
    {CUDNN_LSE, ROWS, F32, STORED},      {CUDNN_DO, DENSE, IO, STORED},
    {CUDNN_DQ, QUERIES, IO, STORED},     {CUDNN_DK, KEYS, IO, STORED},
    {CUDNN_DV, KEYS, IO, STORED},        {CUDNN_SCALE, NUMBER, F32, HOST},
    {CUDNN_HIDDEN, NUMBER, F32, HOST},   {CUDNN_ONE, NUMBER, F32, HOST},
    {CUDNN_DELTA, ROWS, F32, STORED},    {PRODUCTS, BY_HEAD, F32, VIRTUAL},
    {DELTA_1, ROWS, F32, VIRTUAL},       {RAW, SCORES, F32, VIRTUAL},
    {SCALED, SCORES, F32, VIRTUAL},      {LESS_LSE, SCORES, F32, VIRTUAL},
    {QUERY_I, SCORES, I32, VIRTUAL},     {KEY_I, SCORES, I32, VIRTUAL},
    {SEEN, SCORES, YES, VIRTUAL},        {SCORE, SCORES, F32, VIRTUAL},
    {PROB, SCORES, F32, VIRTUAL},        {PROB_TURNED, SCORES_TURNED, IO, VIRTUAL},
    {DPROB, SCORES, F32, VIRTUAL},       {DPROB_LESS, SCORES, F32, VIRTUAL},
    {DSCORE_1, SCORES, F32, VIRTUAL},    {DSCORE, SCORES, F32, VIRTUAL},
    {K_ROWS, KEYS, IO, VIRTUAL},         {DSCORE_TURNED, SCORES_TURNED, IO, VIRTUAL},
    {DV_HEADS, BY_HEAD, IO, VIRTUAL},    {DK_HEADS, BY_HEAD, IO, VIRTUAL},
    {CUDNN_DQ_SUM, BY_HEAD, F32, STORED}};
static const struct op backward_ops[] = {
    {POINTWISE, DNN_POINTWISE_MUL, {CUDNN_DO, CUDNN_O}, PRODUCTS, 0, ALWAYS},
    {REDUCTION, DNN_REDUCE_TENSOR_ADD, {PRODUCTS}, DELTA_1, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_MUL, {DELTA_1, CUDNN_ONE}, CUDNN_DELTA, 0, ALWAYS},
    {MATMUL, 0, {CUDNN_Q, CUDNN_K}, RAW, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_MUL, {RAW, CUDNN_SCALE}, SCALED, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_SUB, {SCALED, CUDNN_LSE}, LESS_LSE, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_GEN_INDEX, {LESS_LSE}, QUERY_I, 2, ALWAYS},
    {POINTWISE, DNN_POINTWISE_GEN_INDEX, {LESS_LSE}, KEY_I, 3, ALWAYS},
    {POINTWISE, DNN_POINTWISE_CMP_GE, {QUERY_I, KEY_I}, SEEN, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_BINARY_SELECT, {LESS_LSE, CUDNN_HIDDEN, SEEN}, SCORE, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_EXP, {SCORE}, PROB, 0, ALWAYS},
    {RESHAPE, 0, {PROB}, PROB_TURNED, 0, ALWAYS},
    {MATMUL, 0, {PROB_TURNED, CUDNN_DO}, CUDNN_DV, 0, ONE_EACH},
    {MATMUL, 0, {PROB_TURNED, CUDNN_DO}, DV_HEADS, 0, GROUPED},
    {REDUCTION, DNN_REDUCE_TENSOR_ADD, {DV_HEADS}, CUDNN_DV, 0, GROUPED},
    {MATMUL, 0, {CUDNN_DO, CUDNN_V}, DPROB, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_SUB, {DPROB, CUDNN_DELTA}, DPROB_LESS, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_MUL, {DPROB_LESS, PROB}, DSCORE_1, 0, ALWAYS},
    {POINTWISE, DNN_POINTWISE_MUL, {DSCORE_1, CUDNN_SCALE}, DSCORE, 0, ALWAYS},
    {RESHAPE, 0, {DSCORE}, DSCORE_TURNED, 0, ALWAYS},
    {MATMUL, 0, {DSCORE_TURNED, CUDNN_Q}, CUDNN_DK, 0, ONE_EACH},
    {MATMUL, 0, {DSCORE_TURNED, CUDNN_Q}, DK_HEADS, 0, GROUPED},
    {REDUCTION, DNN_REDUCE_TENSOR_ADD, {DK_HEADS}, CUDNN_DK, 0, GROUPED},
    {RESHAPE, 0, {CUDNN_K}, K_ROWS, 0, ALWAYS},
    {MATMUL, 0, {DSCORE, K_ROWS}, CUDNN_DQ, 0, DETERMINISTIC},
    {MATMUL, 0, {DSCORE, K_ROWS}, CUDNN_DQ_SUM, 0, ATOMIC},
    {POINTWISE, DNN_POINTWISE_IDENTITY, {CUDNN_DQ_SUM}, CUDNN_DQ, 0, ATOMIC}};

#define OPS_MAX 32
_Static_assert(sizeof forward_ops / sizeof *forward_ops <= OPS_MAX, "forward");
_Static_assert(sizeof backward_ops / sizeof *backward_ops <= OPS_MAX, "backward");
/* Number of descriptors: tensors, two for each operation, the graph, the choice of an engine;
 * settings, engine and plan of each proposed engine. */
#define DESCS_OF(rows, ops) \
    (sizeof rows / sizeof *rows + 2 * (sizeof ops / sizeof *ops) + 2 + 3 * CONFIGS_MAX)
_Static_assert(DESCS_OF(forward_rows, forward_ops) <= CUDNN_DESCS_MAX, "forward");
_Static_assert(DESCS_OF(backward_rows, backward_ops) <= CUDNN_DESCS_MAX, "backward");

/* ---- descriptors ---- */

struct build {
    const struct dnn_table *dnn;
    const struct cudnn_target *target;
    const struct cudnn_shape *s;
    struct cudnn_plan *plan; /* owns every descriptor */
    dnn_desc tensors[IDS], ops[OPS_MAX];
    int64_t ops_n;
};

static bool check_status(struct build *b, dnn_status status, const char *stage)
{
    if (status != 0 && b->plan->status == 0) {
        b->plan->status = status;
        b->plan->stage = stage;
    }
    return status == 0;
}

static bool create_desc(struct build *b, int type, const char *stage, dnn_desc *out)
{
    ASSERT(b->plan->descs_n < CUDNN_DESCS_MAX);
    if (!check_status(b, b->dnn->cudnnBackendCreateDescriptor(type, out), stage))
        return false;
    b->plan->descs[b->plan->descs_n++] = *out;
    return true;
}

static bool set_attr(struct build *b, dnn_desc desc, int name, int type, int64_t n,
                     const void *values)
{
    return check_status(b, b->dnn->cudnnBackendSetAttribute(desc, name, type, n, values),
                        "an attribute");
}

static bool set_desc(struct build *b, dnn_desc desc, int name, dnn_desc value)
{
    return set_attr(b, desc, name, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static bool finalize_desc(struct build *b, dnn_desc desc, const char *stage)
{
    return check_status(b, b->dnn->cudnnBackendFinalize(desc), stage);
}

static void swap_last(int64_t *x)
{
    int64_t last = x[3];
    x[3] = x[2];
    x[2] = last;
}

/* Computes dimensions and strides, in elements, in cuDNN's order (B, H, rows, columns). */
static void form_of(const struct cudnn_shape *s, enum form form, int64_t *dims, int64_t *strides)
{
    const struct attention_row at =
        attention_row_of((enum attention_layout)s->layout, s->h, s->hk, s->d);
    const int64_t c = s->h * s->d, t = s->t, packed[RANK] = {t * at.row, at.head, at.row, 1},
                  dense[RANK] = {t * c, s->d, c, 1}, by_head[RANK] = {t * c, t * s->d, s->d, 1},
                  rows[RANK] = {s->h * t, t, 1, 1}, scores[RANK] = {s->h * t * t, t * t, t, 1},
                  number[RANK] = {1, 1, 1, 1};
    const int64_t *const list[] = {packed, packed, packed, dense, by_head,
                                   rows,   scores, scores, number};
    bool is_scores = form == SCORES || form == SCORES_TURNED,
         is_keys = form == KEYS || form == KEYS_TURNED;
    const int64_t whole[RANK] = {s->b, is_keys ? s->hk : s->h, t,
                                 is_scores      ? t
                                 : form == ROWS ? 1
                                                : s->d};
    memcpy(dims, form == NUMBER ? number : whole, sizeof whole);
    memcpy(strides, list[form], sizeof packed);
    if (form == KEYS_TURNED || form == SCORES_TURNED) {
        swap_last(dims);
        swap_last(strides);
    }
}

static bool add_tensor(struct build *b, const struct row *r)
{
    dnn_desc *out = &b->tensors[r->id];
    int64_t dims[RANK], strides[RANK], id = r->id, align = r->storage == HOST ? 4 : 16;
    static const int types[] = {0, DNN_DATA_FLOAT, DNN_DATA_INT32, DNN_DATA_BOOLEAN};
    int type = r->type != IO               ? types[r->type]
               : b->s->dtype == DTYPE_BF16 ? DNN_DATA_BFLOAT16
                                           : DNN_DATA_HALF;
    bool is_virtual = r->storage == VIRTUAL, is_host = r->storage == HOST;
    form_of(b->s, r->form, dims, strides);
    return create_desc(b, DNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor", out) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, 1, &type) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_DIMENSIONS, DNN_TYPE_INT64, RANK, dims) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_STRIDES, DNN_TYPE_INT64, RANK, strides) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, &id) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_BYTE_ALIGNMENT, DNN_TYPE_INT64, 1, &align) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_IS_VIRTUAL, DNN_TYPE_BOOLEAN, 1, &is_virtual) &&
           set_attr(b, *out, DNN_ATTR_TENSOR_IS_BY_VALUE, DNN_TYPE_BOOLEAN, 1, &is_host) &&
           finalize_desc(b, *out, "a tensor");
}

static bool make_matmul(struct build *b, const struct op *op, dnn_desc out)
{
    dnn_desc how;
    const int compute = DNN_DATA_FLOAT;
    return create_desc(b, DNN_BACKEND_MATMUL_DESCRIPTOR, "a product", &how) &&
           set_attr(b, how, DNN_ATTR_MATMUL_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, &compute) &&
           finalize_desc(b, how, "a product") &&
           set_desc(b, out, DNN_ATTR_OPERATION_MATMUL_ADESC, b->tensors[op->in[0]]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_MATMUL_BDESC, b->tensors[op->in[1]]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_MATMUL_CDESC, b->tensors[op->out]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_MATMUL_DESC, how);
}

static bool make_pointwise(struct build *b, const struct op *op, dnn_desc out)
{
    dnn_desc how;
    const bool is_index = op->mode == DNN_POINTWISE_GEN_INDEX;
    const int compute = op->mode == DNN_POINTWISE_CMP_GE ? DNN_DATA_BOOLEAN : DNN_DATA_FLOAT;
    const int64_t axis = op->axis;
    return create_desc(b, DNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise operation", &how) &&
           set_attr(b, how, DNN_ATTR_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, 1, &op->mode) &&
           set_attr(b, how, DNN_ATTR_POINTWISE_MATH_PREC, DNN_TYPE_DATA_TYPE, 1, &compute) &&
           (!is_index || set_attr(b, how, DNN_ATTR_POINTWISE_AXIS, DNN_TYPE_INT64, 1, &axis)) &&
           finalize_desc(b, how, "a pointwise operation") &&
           set_desc(b, out, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
           set_desc(b, out, DNN_ATTR_OPERATION_POINTWISE_XDESC, b->tensors[op->in[0]]) &&
           (!op->in[1] ||
            set_desc(b, out, DNN_ATTR_OPERATION_POINTWISE_BDESC, b->tensors[op->in[1]])) &&
           (!op->in[2] ||
            set_desc(b, out, DNN_ATTR_OPERATION_POINTWISE_TDESC, b->tensors[op->in[2]])) &&
           set_desc(b, out, DNN_ATTR_OPERATION_POINTWISE_YDESC, b->tensors[op->out]);
}

static bool make_reduction(struct build *b, const struct op *op, dnn_desc out)
{
    dnn_desc how;
    const int compute = DNN_DATA_FLOAT;
    return create_desc(b, DNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction", &how) &&
           set_attr(b, how, DNN_ATTR_REDUCTION_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, &compute) &&
           set_attr(b, how, DNN_ATTR_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                    &op->mode) &&
           finalize_desc(b, how, "a reduction") &&
           set_desc(b, out, DNN_ATTR_OPERATION_REDUCTION_XDESC, b->tensors[op->in[0]]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_REDUCTION_YDESC, b->tensors[op->out]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_REDUCTION_DESC, how);
}

static bool make_reshape(struct build *b, const struct op *op, dnn_desc out)
{
    return set_desc(b, out, DNN_ATTR_OPERATION_RESHAPE_XDESC, b->tensors[op->in[0]]) &&
           set_desc(b, out, DNN_ATTR_OPERATION_RESHAPE_YDESC, b->tensors[op->out]);
}

static bool add_op(struct build *b, const struct op *op)
{
    static const struct {
        int type;
        bool (*make)(struct build *b, const struct op *op, dnn_desc out);
        const char *stage;
    } kinds[] = {
        {DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, make_matmul, "a product of the graph"},
        {DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, make_pointwise, "a step of the graph"},
        {DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, make_reduction, "a sum of the graph"},
        {DNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, make_reshape, "a view of the graph"}};
    dnn_desc *out = &b->ops[b->ops_n++];
    return create_desc(b, kinds[op->kind].type, kinds[op->kind].stage, out) &&
           kinds[op->kind].make(b, op, *out) && finalize_desc(b, *out, kinds[op->kind].stage);
}

/* Returns true if the graph of the shape has the same bits each time: its form decides. */
static bool is_deterministic(const struct cudnn_shape *s) { return !s->is_atomic; }

/* Returns true if the graph of the shape has the operations of `when`. */
static bool has_op(const struct cudnn_shape *s, enum when when)
{
    const bool has[] = {[ALWAYS] = true,
                        [ONE_EACH] = s->hk == s->h,
                        [GROUPED] = s->hk < s->h,
                        [DETERMINISTIC] = is_deterministic(s),
                        [ATOMIC] = !is_deterministic(s)};
    return has[when];
}

/* Makes the tensors and the operations of a table. A tensor that no operation uses is left out of
 * the graph. */
static bool add_all(struct build *b, const struct row *rows, size_t rows_n, const struct op *ops,
                    size_t ops_n)
{
    for (size_t i = 0; i < rows_n; i++)
        if (!add_tensor(b, &rows[i]))
            return false;
    for (size_t i = 0; i < ops_n; i++)
        if (has_op(b->s, ops[i].when) && !add_op(b, &ops[i]))
            return false;
    return true;
}

/* ---- the plan ---- */

/* Requests the engines that cuDNN proposes, the best first. */
static bool query_engines(struct build *b, dnn_desc graph, dnn_desc *configs, int64_t *n_out)
{
    dnn_desc prop = b->target->prop;
    dnn_desc heur;
    const int mode = DNN_HEUR_MODE_A;
    for (int i = 0; i < CONFIGS_MAX; i++)
        if (!create_desc(b, DNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's settings", &configs[i]))
            return false;
    return create_desc(b, DNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the choice of an engine", &heur) &&
           set_desc(b, heur, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) &&
           set_attr(b, heur, DNN_ATTR_ENGINEHEUR_MODE, DNN_TYPE_HEUR_MODE, 1, &mode) &&
           (!prop || set_desc(b, heur, DNN_ATTR_ENGINEHEUR_DEVICEPROP, prop)) &&
           finalize_desc(b, heur, "the choice of an engine") &&
           check_status(b,
                        b->dnn->cudnnBackendGetAttribute(heur, DNN_ATTR_ENGINEHEUR_RESULTS,
                                                         DNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX,
                                                         n_out, configs),
                        "the choice of an engine");
}

static bool get_attr(struct build *b, dnn_desc desc, int name, int type, int64_t *n, void *out)
{
    int64_t cap = *n;
    return check_status(b, b->dnn->cudnnBackendGetAttribute(desc, name, type, cap, n, out),
                        "an engine's properties");
}

/* Reads the engine's number and returns true if it is not noted as nondeterministic, or need not be
 * deterministic. */
static bool check_notes(struct build *b, dnn_desc config)
{
    dnn_desc engine;
    int notes[NOTES_MAX];
    int64_t one = 1, n = NOTES_MAX;
    if (!create_desc(b, DNN_BACKEND_ENGINE_DESCRIPTOR, "an engine", &engine) ||
        !get_attr(b, config, DNN_ATTR_ENGINECFG_ENGINE, DNN_TYPE_BACKEND_DESCRIPTOR, &one,
                  &engine) ||
        !get_attr(b, engine, DNN_ATTR_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, &one,
                  &b->plan->engine) ||
        !get_attr(b, engine, DNN_ATTR_ENGINE_NUMERICAL_NOTE, DNN_TYPE_NUMERICAL_NOTE, &n, notes))
        return false;
    bool is_noted = false;
    for (int64_t i = 0; i < n && i < NOTES_MAX; i++)
        is_noted = is_noted || notes[i] == DNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    bool is_passed_over = is_noted && is_deterministic(b->s);
    b->plan->passed_over += is_passed_over;
    return !is_passed_over;
}

/* Returns true if an engine with this workspace may be used: it must not need less than an engine
 * that keeps the determinism of the graph. */
static bool check_workspace(struct build *b, int64_t bytes)
{
    const struct cudnn_shape *s = b->s;
    const int64_t least = s->is_backward && is_deterministic(s) ? 2 * s->b * s->h * s->t * s->t : 0;
    if (bytes < least) {
        b->plan->passed_over++;
        return false;
    }
    return true;
}

/* Reads the workspace before the engine is compiled, which needs seconds, and returns false if it
 * cannot be used. An engine that does not report it yet is compiled first. */
static bool may_fit(struct build *b, dnn_desc config)
{
    int64_t n = 0, bytes = 0;
    if (b->dnn->cudnnBackendGetAttribute(config, DNN_ATTR_ENGINECFG_WORKSPACE_SIZE, DNN_TYPE_INT64,
                                         1, &n, &bytes) != 0 ||
        n < 1)
        return true;
    if (!check_workspace(b, bytes))
        return false;
    if (bytes <= b->target->workspace_max)
        return true;
    b->plan->workspace_bytes = bytes;
    b->plan->is_too_large = true;
    return false;
}

static bool build_plan(struct build *b, dnn_desc config)
{
    dnn_desc plan;
    const struct cudnn_target *t = b->target;
    int64_t n = 1, bytes = 0;
    if (!create_desc(b, DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "the plan", &plan) ||
        !set_desc(b, plan, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config) ||
        !(t->handle
              ? set_attr(b, plan, DNN_ATTR_EXECUTION_PLAN_HANDLE, DNN_TYPE_HANDLE, 1, &t->handle)
              : set_desc(b, plan, DNN_ATTR_EXECUTION_PLAN_DEVICEPROP, t->prop)) ||
        !finalize_desc(b, plan, "the plan") ||
        !get_attr(b, plan, DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, DNN_TYPE_INT64, &n, &bytes) ||
        !check_workspace(b, bytes))
        return false;
    if (bytes > t->workspace_max)
        return check_status(b, DNN_STATUS_NOT_SUPPORTED,
                            "an engine with less workspace once it is compiled");
    b->plan->desc = plan;
    b->plan->workspace_bytes = bytes;
    return true;
}

/* Makes the plan of an engine. Errors of earlier engines no longer count then. */
static bool use_engine(struct build *b, dnn_desc config)
{
    struct cudnn_plan *p = b->plan;
    if (!check_notes(b, config) || !may_fit(b, config) || !build_plan(b, config))
        return false;
    p->status = 0;
    p->stage = NULL;
    return true;
}

bool cudnn_graph_plan(const struct dnn_table *dnn, const struct cudnn_target *target,
                      const struct cudnn_shape *shape, struct cudnn_plan *plan)
{
    struct build b = {.dnn = dnn, .target = target, .s = shape, .plan = plan};
    dnn_desc graph, configs[CONFIGS_MAX];
    memset(plan, 0, sizeof *plan);
    memcpy(&plan->shape, shape, sizeof plan->shape);
    dnn_handle handle = b.target->handle;
    const struct row *rows = b.s->is_backward ? backward_rows : forward_rows;
    const struct op *ops = b.s->is_backward ? backward_ops : forward_ops;
    size_t rows_n =
        b.s->is_backward ? sizeof backward_rows / sizeof *rows : sizeof forward_rows / sizeof *rows;
    size_t ops_n =
        b.s->is_backward ? sizeof backward_ops / sizeof *ops : sizeof forward_ops / sizeof *ops;
    if (!(add_all(&b, rows, rows_n, ops, ops_n) &&
          create_desc(&b, DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph", &graph) &&
          set_attr(&b, graph, DNN_ATTR_OPERATIONGRAPH_OPS, DNN_TYPE_BACKEND_DESCRIPTOR, b.ops_n,
                   b.ops) &&
          (!handle ||
           set_attr(&b, graph, DNN_ATTR_OPERATIONGRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &handle)) &&
          finalize_desc(&b, graph, "the graph")) ||
        !query_engines(&b, graph, configs, &plan->proposed))
        return false;
    for (int64_t i = target->first; i < plan->proposed && i < CONFIGS_MAX && !plan->is_too_large;
         i++) {
        plan->proposal = i + 1;
        if (use_engine(&b, configs[i]))
            return true;
    }
    return check_status(&b, DNN_STATUS_NOT_SUPPORTED,
                        plan->is_too_large || target->first > 0 ? "an engine with less workspace"
                        : plan->passed_over                     ? "an engine that is deterministic"
                                                                : "an engine for this shape");
}

void cudnn_graph_release(const struct dnn_table *dnn, struct cudnn_plan *plan)
{
    while (plan->descs_n > 0)
        (void)dnn->cudnnBackendDestroyDescriptor(plan->descs[--plan->descs_n]);
    plan->desc = NULL;
}
