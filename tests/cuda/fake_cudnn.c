/* fake_cudnn — a libcudnn_graph.so.9 for tests: the calls that src/dev/cudnn/cudnn*.c makes, over
 * ordinary memory. It knows no attention: it computes the graph that it is given, one operation
 * after the other, in f32, with stored tensors in their own type. So a graph with a wrong operand
 * gives wrong numbers.
 *
 * Every attribute is checked against a table (type, number of values, required or not), every
 * descriptor when it is finalized: shapes, types, unique identifiers, order of operations. What is
 * doubtful is refused with 2xxx, and counts as a mistake. fake_cudnn_control() is set by tests. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cudnn.h"

#define EXPORT __attribute__((visibility("default")))

/* What a test sets, and what it reads. */
/* Of the first engine. LARGE: the bytes that it needs more. UNTOLD: it tells no workspace before it
 * is compiled. BROKEN: it cannot be compiled. LEAN: it never stores scores. OLD: of the library: it
 * is 9.5. */
enum {
    NEVER,
    FAIL_EXECUTE,
    UNSTEADY,
    EXECUTED,
    PLANS,
    MISTAKES,
    LARGE,
    UNTOLD,
    BROKEN,
    LEAN,
    OLD,
    CONTROLS
};
static int control[CONTROLS];
EXPORT int *fake_cudnn_control(void);
int *fake_cudnn_control(void) { return control; }

/* Runs a plan, as tests/emu/emu_control.h describes; notes what it reads and writes. */
typedef int device_fn(void *stream, int (*run)(void *arg), const void *arg, size_t bytes);
static device_fn *device;
touch_fn *fake_cudnn_touch;
EXPORT void fake_cudnn_device(device_fn *by, touch_fn *noted);
void fake_cudnn_device(device_fn *by, touch_fn *noted) { device = by, fake_cudnn_touch = noted; }

static char last_error[200];
static dnn_status mistake(dnn_status rc, const char *why)
{
    control[MISTAKES]++;
    snprintf(last_error, sizeof last_error, "%s", why);
    return rc;
}

/* ---- descriptors: a bag of attributes ---- */

#define ATTRS_MAX 8
#define VALUES_MAX 64
enum { BAD_PARAM = 2000, NOT_FINALIZED = 2004, BAD_TYPE = 2010 };
struct attr {
    int name, type;
    int64_t n;
    union {
        int64_t i[VALUES_MAX];
        int e[VALUES_MAX];
        bool b[VALUES_MAX];
        void *p[VALUES_MAX];
    } v;
};
struct desc {
    int type, attrs_n;
    bool is_done;
    struct attr attrs[ATTRS_MAX];
    struct desc *graph; /* of an engine's settings and an engine */
    int engine;
};

static const struct attr *attr_of(const struct desc *d, int name)
{
    for (int i = 0; d && i < d->attrs_n; i++)
        if (d->attrs[i].name == name)
            return &d->attrs[i];
    return NULL;
}
/* need — an attribute that the rules require. */
static const struct attr *need(const struct desc *d, int name)
{
    const struct attr *a = attr_of(d, name);
    if (!a)
        abort();
    return a;
}
static struct desc *desc_at(const struct desc *d, int name)
{
    const struct attr *a = attr_of(d, name);
    return a ? a->v.p[0] : NULL;
}
static int64_t int_at(const struct desc *d, int name)
{
    const struct attr *a = attr_of(d, name);
    return a ? a->v.i[0] : 0;
}
static int enum_at(const struct desc *d, int name)
{
    const struct attr *a = attr_of(d, name);
    return a ? a->v.e[0] : -1;
}
static bool bool_at(const struct desc *d, int name)
{
    const struct attr *a = attr_of(d, name);
    return a && a->v.b[0];
}

/* What each kind of descriptor takes. */
static const struct rule {
    int desc, name, type, n_min, n_max;
    bool is_required;
} rules[] = {
#define T DNN_BACKEND_TENSOR_DESCRIPTOR
    {T, DNN_ATTR_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, 1, 1, true},
    {T, DNN_ATTR_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 4, 4, true},
    {T, DNN_ATTR_TENSOR_STRIDES, DNN_TYPE_INT64, 4, 4, true},
    {T, DNN_ATTR_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, 1, true},
    {T, DNN_ATTR_TENSOR_BYTE_ALIGNMENT, DNN_TYPE_INT64, 1, 1, true},
    {T, DNN_ATTR_TENSOR_IS_VIRTUAL, DNN_TYPE_BOOLEAN, 1, 1, false},
    {T, DNN_ATTR_TENSOR_IS_BY_VALUE, DNN_TYPE_BOOLEAN, 1, 1, false},
#define P DNN_BACKEND_POINTWISE_DESCRIPTOR
    {P, DNN_ATTR_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, 1, 1, true},
    {P, DNN_ATTR_POINTWISE_MATH_PREC, DNN_TYPE_DATA_TYPE, 1, 1, true},
    {P, DNN_ATTR_POINTWISE_AXIS, DNN_TYPE_INT64, 1, 1, false},
    {DNN_BACKEND_MATMUL_DESCRIPTOR, DNN_ATTR_MATMUL_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, 1, true},
#define R DNN_BACKEND_REDUCTION_DESCRIPTOR
    {R, DNN_ATTR_REDUCTION_COMP_TYPE, DNN_TYPE_DATA_TYPE, 1, 1, true},
    {R, DNN_ATTR_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1, true},
    {OP, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OP, DNN_ATTR_OPERATION_POINTWISE_XDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OP, DNN_ATTR_OPERATION_POINTWISE_BDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false},
    {OP, DNN_ATTR_OPERATION_POINTWISE_TDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false},
    {OP, DNN_ATTR_OPERATION_POINTWISE_YDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OM, DNN_ATTR_OPERATION_MATMUL_ADESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OM, DNN_ATTR_OPERATION_MATMUL_BDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OM, DNN_ATTR_OPERATION_MATMUL_CDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OM, DNN_ATTR_OPERATION_MATMUL_DESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OR, DNN_ATTR_OPERATION_REDUCTION_XDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OR, DNN_ATTR_OPERATION_REDUCTION_YDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OR, DNN_ATTR_OPERATION_REDUCTION_DESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OV, DNN_ATTR_OPERATION_RESHAPE_XDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {OV, DNN_ATTR_OPERATION_RESHAPE_YDESC, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
#define G DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
    {G, DNN_ATTR_OPERATIONGRAPH_OPS, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 64, true},
    {G, DNN_ATTR_OPERATIONGRAPH_HANDLE, DNN_TYPE_HANDLE, 1, 1, true},
#define H DNN_BACKEND_ENGINEHEUR_DESCRIPTOR
    {H, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {H, DNN_ATTR_ENGINEHEUR_MODE, DNN_TYPE_HEUR_MODE, 1, 1, true},
#define X DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
    {X, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true},
    {X, DNN_ATTR_EXECUTION_PLAN_HANDLE, DNN_TYPE_HANDLE, 1, 1, true},
#define V DNN_BACKEND_VARIANT_PACK_DESCRIPTOR
    {V, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DNN_TYPE_INT64, 1, 64, true},
    {V, DNN_ATTR_VARIANT_PACK_DATA_POINTERS, DNN_TYPE_VOID_PTR, 1, 64, true},
    {V, DNN_ATTR_VARIANT_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1, 1, true},
};
#define RULES_N (sizeof rules / sizeof *rules)

static size_t bytes_of(int type)
{
    return type == DNN_TYPE_BOOLEAN ? sizeof(bool)
           : type == DNN_TYPE_INT64 || type == DNN_TYPE_VOID_PTR || type == DNN_TYPE_HANDLE ||
                   type == DNN_TYPE_BACKEND_DESCRIPTOR
               ? 8
               : sizeof(int);
}

EXPORT size_t cudnnGetVersion(void);
EXPORT size_t cudnnGetCudartVersion(void);
EXPORT void cudnnGetLastErrorString(char *out, size_t cap);
EXPORT dnn_status cudnnCreate(dnn_handle *out);
EXPORT dnn_status cudnnDestroy(dnn_handle handle);
EXPORT dnn_status cudnnSetStream(dnn_handle handle, void *stream);
EXPORT dnn_status cudnnBackendCreateDescriptor(int type, dnn_desc *out);
EXPORT dnn_status cudnnBackendDestroyDescriptor(dnn_desc desc);
EXPORT dnn_status cudnnBackendFinalize(dnn_desc desc);
EXPORT dnn_status cudnnBackendSetAttribute(dnn_desc desc, int name, int type, int64_t n,
                                           const void *values);
EXPORT dnn_status cudnnBackendGetAttribute(dnn_desc desc, int name, int type, int64_t cap,
                                           int64_t *n_out, void *values_out);
EXPORT dnn_status cudnnBackendExecute(dnn_handle handle, dnn_desc plan, dnn_desc pack);

size_t cudnnGetVersion(void) { return control[OLD] ? 90500 : 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
void cudnnGetLastErrorString(char *out, size_t cap) { snprintf(out, cap, "%s", last_error); }
dnn_status cudnnCreate(dnn_handle *out)
{
    *out = calloc(1, sizeof(void *));
    return 0;
}
dnn_status cudnnDestroy(dnn_handle handle)
{
    free(handle);
    return 0;
}
dnn_status cudnnSetStream(dnn_handle handle, void *stream)
{
    memcpy(handle, &stream, sizeof stream);
    return 0;
}
dnn_status cudnnBackendCreateDescriptor(int type, dnn_desc *out)
{
    struct desc *d = calloc(1, sizeof *d);
    d->type = type;
    *out = d;
    return 0;
}
dnn_status cudnnBackendDestroyDescriptor(dnn_desc desc)
{
    free(desc);
    return 0;
}

dnn_status cudnnBackendSetAttribute(dnn_desc desc, int name, int type, int64_t n,
                                    const void *values)
{
    struct desc *d = desc;
    const struct rule *r = rules, *end = rules + RULES_N;
    while (r < end && !(r->desc == d->type && r->name == name))
        r++;
    if (r == end)
        return mistake(BAD_PARAM, "this descriptor has no such attribute");
    if (r->type != type)
        return mistake(BAD_TYPE, "an attribute of another type");
    if (d->is_done || n < r->n_min || n > r->n_max || !values || attr_of(d, name))
        return mistake(BAD_PARAM, "an attribute twice, too late, or with a wrong number of values");
    struct attr *a = &d->attrs[d->attrs_n++];
    *a = (struct attr){.name = name, .type = type, .n = n};
    memcpy(&a->v, values, (size_t)n * bytes_of(type));
    for (int64_t i = 0; type == DNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        if (!a->v.p[i] || !((struct desc *)a->v.p[i])->is_done)
            return mistake(NOT_FINALIZED, "an attribute that is not finalized");
    return 0;
}

/* ---- checks when a descriptor is finalized ---- */

static const int64_t *dims(const struct desc *t)
{
    return need(t, DNN_ATTR_TENSOR_DIMENSIONS)->v.i;
}
static int type_of(const struct desc *t) { return enum_at(t, DNN_ATTR_TENSOR_DATA_TYPE); }
static bool is_16(const struct desc *t)
{
    return type_of(t) == DNN_DATA_HALF || type_of(t) == DNN_DATA_BFLOAT16;
}
static bool is_virtual(const struct desc *t) { return bool_at(t, DNN_ATTR_TENSOR_IS_VIRTUAL); }
static bool is_host(const struct desc *t) { return bool_at(t, DNN_ATTR_TENSOR_IS_BY_VALUE); }

static const char *check_tensor(const struct desc *t)
{
    const int64_t *d = dims(t), *s = need(t, DNN_ATTR_TENSOR_STRIDES)->v.i;
    int64_t align = int_at(t, DNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    for (int i = 0; i < 4; i++)
        if (d[i] < 1 || s[i] < 1)
            return "a dimension or stride below 1";
    if (align < 1 || (align & (align - 1)) || (!is_host(t) && align < 16))
        return "an alignment that is no power of two, or below 16 bytes";
    if (is_virtual(t) && is_host(t))
        return "a tensor that is virtual and a host's number";
    if (is_16(t) && !is_virtual(t) && ((s[3] != 1 && s[2] != 1) || d[3] * d[2] < 2))
        return "a stored tensor of 16 bits whose rows are not dense";
    for (int i = 0; i < 3 && is_16(t) && !is_virtual(t); i++)
        if (s[i] != 1 && d[i] > 1 && s[i] % 8 != 0)
            return "a stride that is no multiple of 16 bytes";
    return is_host(t) && type_of(t) != DNN_DATA_FLOAT ? "a host's number that is no f32" : NULL;
}

static bool can_stretch(const int64_t *from, const int64_t *to)
{
    for (int i = 0; i < 4; i++)
        if (from[i] != to[i] && from[i] != 1)
            return false;
    return true;
}

static const char *check_pointwise(const struct desc *d)
{
    const struct desc *how = desc_at(d, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                      *x = desc_at(d, DNN_ATTR_OPERATION_POINTWISE_XDESC),
                      *b = desc_at(d, DNN_ATTR_OPERATION_POINTWISE_BDESC),
                      *t = desc_at(d, DNN_ATTR_OPERATION_POINTWISE_TDESC),
                      *y = desc_at(d, DNN_ATTR_OPERATION_POINTWISE_YDESC);
    int mode = enum_at(how, DNN_ATTR_POINTWISE_MODE),
        compute = enum_at(how, DNN_ATTR_POINTWISE_MATH_PREC);
    bool is_one = mode == DNN_POINTWISE_EXP || mode == DNN_POINTWISE_LOG ||
                  mode == DNN_POINTWISE_GEN_INDEX || mode == DNN_POINTWISE_IDENTITY,
         is_select = mode == DNN_POINTWISE_BINARY_SELECT, is_compare = mode == DNN_POINTWISE_CMP_GE;
    if (!!b == is_one || !!t != is_select)
        return "a pointwise operation with too many or too few operands";
    if (!can_stretch(dims(x), dims(y)) || (b && !can_stretch(dims(b), dims(y))))
        return "a pointwise operation whose shapes do not agree";
    if (compute != (is_compare ? DNN_DATA_BOOLEAN : DNN_DATA_FLOAT))
        return "a pointwise operation in another type than f32";
    if ((mode == DNN_POINTWISE_GEN_INDEX) != !!attr_of(how, DNN_ATTR_POINTWISE_AXIS) ||
        (mode == DNN_POINTWISE_GEN_INDEX && type_of(y) != DNN_DATA_INT32))
        return "an index without an axis, or not of i32";
    if ((is_compare && type_of(y) != DNN_DATA_BOOLEAN) ||
        (is_select && type_of(t) != DNN_DATA_BOOLEAN))
        return "a condition that is not boolean";
    return NULL;
}

static const char *check_matmul(const struct desc *d)
{
    const struct desc *a = desc_at(d, DNN_ATTR_OPERATION_MATMUL_ADESC),
                      *b = desc_at(d, DNN_ATTR_OPERATION_MATMUL_BDESC),
                      *c = desc_at(d, DNN_ATTR_OPERATION_MATMUL_CDESC);
    const int64_t *x = dims(a), *y = dims(b), *z = dims(c);
    bool is_fit = x[0] == y[0] && x[0] == z[0] && x[1] % y[1] == 0 && x[1] == z[1] &&
                  x[3] == y[2] && z[2] == x[2] && z[3] == y[3];
    if (!is_fit)
        return "a product whose shapes do not agree";
    if (!is_16(b) || !(is_16(a) ? type_of(a) == type_of(b) : is_virtual(a)))
        return "a product whose factors are not of 16 bits";
    return enum_at(desc_at(d, DNN_ATTR_OPERATION_MATMUL_DESC), DNN_ATTR_MATMUL_COMP_TYPE) ==
                   DNN_DATA_FLOAT
               ? NULL
               : "a product that is not summed in f32";
}

static const char *check_reduction(const struct desc *d)
{
    const struct desc *x = desc_at(d, DNN_ATTR_OPERATION_REDUCTION_XDESC),
                      *y = desc_at(d, DNN_ATTR_OPERATION_REDUCTION_YDESC);
    const int64_t *from = dims(x), *to = dims(y);
    bool is_rows = to[3] == 1 && can_stretch(to, from) && type_of(y) == DNN_DATA_FLOAT,
         is_heads = from[0] == to[0] && from[1] > to[1] && from[1] % to[1] == 0 &&
                    from[2] == to[2] && from[3] == to[3] && type_of(x) == type_of(y) &&
                    enum_at(desc_at(d, DNN_ATTR_OPERATION_REDUCTION_DESC),
                            DNN_ATTR_REDUCTION_OPERATOR) == DNN_REDUCE_TENSOR_ADD;
    return is_rows || is_heads
               ? NULL
               : "a reduction that is neither of rows to f32 nor of groups of heads";
}

static const char *check_reshape(const struct desc *d)
{
    const struct desc *x = desc_at(d, DNN_ATTR_OPERATION_RESHAPE_XDESC),
                      *y = desc_at(d, DNN_ATTR_OPERATION_RESHAPE_YDESC);
    return dims(x)[2] == dims(y)[3] && dims(x)[3] == dims(y)[2] && is_virtual(y)
               ? NULL
               : "a view that does not turn its last two dimensions";
}

/* The tensors that an operation reads and the one that it writes. */
static int operands(const struct desc *op, const struct desc **in, const struct desc **out)
{
    static const int names[][5] = {
        {OM, DNN_ATTR_OPERATION_MATMUL_ADESC, DNN_ATTR_OPERATION_MATMUL_BDESC, 0,
         DNN_ATTR_OPERATION_MATMUL_CDESC},
        {OP, DNN_ATTR_OPERATION_POINTWISE_XDESC, DNN_ATTR_OPERATION_POINTWISE_BDESC,
         DNN_ATTR_OPERATION_POINTWISE_TDESC, DNN_ATTR_OPERATION_POINTWISE_YDESC},
        {OR, DNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0, DNN_ATTR_OPERATION_REDUCTION_YDESC},
        {OV, DNN_ATTR_OPERATION_RESHAPE_XDESC, 0, 0, DNN_ATTR_OPERATION_RESHAPE_YDESC}};
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i][0] == op->type) {
            for (int k = 1; k < 4; k++)
                if (names[i][k] && desc_at(op, names[i][k]))
                    in[n++] = desc_at(op, names[i][k]);
            *out = desc_at(op, names[i][4]);
        }
    return n;
}

/* An operand is stored, a host's number, or the result of an operation before; every tensor is
 * written once, and has an identifier of its own. */
static const char *check_graph(const struct desc *g)
{
    const struct attr *ops = need(g, DNN_ATTR_OPERATIONGRAPH_OPS);
    const struct desc *written[64], *in[3], *out = NULL;
    for (int64_t i = 0; i < ops->n; i++) {
        int n = operands(ops->v.p[i], in, &out);
        if (n == 0)
            return "a graph of something that is no operation";
        for (int k = 0; k < n; k++) {
            bool is_known = !is_virtual(in[k]);
            for (int64_t j = 0; j < i; j++)
                is_known |= written[j] == in[k];
            if (!is_known)
                return "an operand that no operation before gives";
        }
        for (int64_t j = 0; j < i; j++)
            if (written[j] == out || int_at(written[j], DNN_ATTR_TENSOR_UNIQUE_ID) ==
                                         int_at(out, DNN_ATTR_TENSOR_UNIQUE_ID))
                return "a tensor that is written twice, or an identifier that is used twice";
        written[i] = out;
    }
    return NULL;
}

static const char *check_pack(const struct desc *d)
{
    const struct attr *ids = need(d, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                      *at = need(d, DNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    return ids->n == at->n ? NULL : "identifiers and addresses of different number";
}

dnn_status cudnnBackendFinalize(dnn_desc desc)
{
    static const struct {
        int type;
        const char *(*check)(const struct desc *d);
    } checks[] = {{T, check_tensor},     {OP, check_pointwise}, {OM, check_matmul},
                  {OR, check_reduction}, {OV, check_reshape},   {G, check_graph},
                  {V, check_pack}};
    struct desc *d = desc;
    const char *why = d->is_done ? "a descriptor that is finalized twice" : NULL;
    for (size_t i = 0; i < RULES_N && !why; i++)
        if (rules[i].desc == d->type && rules[i].is_required && !attr_of(d, rules[i].name))
            why = "a descriptor without an attribute that it needs";
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !why; i++)
        if (checks[i].type == d->type)
            why = checks[i].check(d);
    if (why)
        return mistake(BAD_PARAM, why);
    if (d->type == X && control[BROKEN] &&
        desc_at(d, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine == 0)
        return DNN_STATUS_NOT_SUPPORTED;
    control[PLANS] += d->type == X;
    d->is_done = true;
    return 0;
}

/* ---- engines ---- */

/* workspace_of — as cuDNN 9.19 for Hopper: a graph with five products stores its scores in 16 bits,
 * unless one of them is a stored f32 tensor; operands of sums over heads are stored, too. */
static int64_t workspace_of(const struct desc *graph, int engine)
{
    const struct attr *ops = need(graph, DNN_ATTR_OPERATIONGRAPH_OPS);
    int64_t products = 0, scores = 0, heads = 0;
    bool is_atomic = engine == 0 && control[LEAN];
    for (int64_t i = 0; i < ops->n; i++) {
        const struct desc *op = ops->v.p[i];
        if (op->type == OM) {
            const struct desc *c = desc_at(op, DNN_ATTR_OPERATION_MATMUL_CDESC);
            const int64_t *z = dims(c), elems = z[0] * z[1] * z[2] * z[3];
            scores = z[2] == z[3] && elems > scores ? elems : scores;
            is_atomic |= type_of(c) == DNN_DATA_FLOAT && !is_virtual(c);
            products++;
        } else if (op->type == OR) {
            const struct desc *from = desc_at(op, DNN_ATTR_OPERATION_REDUCTION_XDESC);
            const int64_t *z = dims(from);
            heads += is_16(from) ? z[0] * z[1] * z[2] * z[3] : 0;
        }
    }
    return (products == 5 && !is_atomic ? 2 * scores + 256 : 256) + 2 * heads +
           (engine == 0 ? control[LARGE] : 0);
}

static dnn_status propose(const struct desc *heur, int64_t cap, int64_t *n_out, struct desc **out)
{
    struct desc *graph = desc_at(heur, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *n_out = control[NEVER] ? 0 : 2;
    for (int i = 0; i < *n_out && i < cap; i++) {
        out[i]->graph = graph;
        out[i]->engine = i;
        out[i]->is_done = true;
    }
    return 0;
}

dnn_status cudnnBackendGetAttribute(dnn_desc desc, int name, int type, int64_t cap, int64_t *n_out,
                                    void *values_out)
{
    struct desc *d = desc;
    const struct desc *config = desc_at(d, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    int64_t number = 0;
    if (!d->is_done)
        return mistake(NOT_FINALIZED, "a question to a descriptor that is not finalized");
    if (name == DNN_ATTR_ENGINEHEUR_RESULTS && type == DNN_TYPE_BACKEND_DESCRIPTOR)
        return propose(d, cap, n_out, values_out);
    *n_out = 1;
    if (name == DNN_ATTR_ENGINECFG_ENGINE && type == DNN_TYPE_BACKEND_DESCRIPTOR) {
        struct desc *engine = *(struct desc **)values_out;
        engine->graph = d->graph, engine->engine = d->engine, engine->is_done = true;
        return 0;
    }
    if (name == DNN_ATTR_ENGINE_NUMERICAL_NOTE && type == DNN_TYPE_NUMERICAL_NOTE) {
        *(int *)values_out = control[UNSTEADY] && d->engine == 0 ? 4 : 0;
        return 0;
    }
    if (name == DNN_ATTR_ENGINECFG_WORKSPACE_SIZE && control[UNTOLD] && d->engine == 0)
        return DNN_STATUS_NOT_SUPPORTED;
    if (type != DNN_TYPE_INT64)
        return mistake(BAD_TYPE, "a question for another type");
    if (name == DNN_ATTR_ENGINE_GLOBAL_INDEX)
        number = d->engine;
    else if (name == DNN_ATTR_ENGINECFG_WORKSPACE_SIZE)
        number = workspace_of(d->graph, d->engine);
    else if (name == DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        number = workspace_of(config->graph, config->engine);
    else
        return mistake(BAD_PARAM, "a question that this descriptor does not answer");
    memcpy(values_out, &number, sizeof number);
    return 0;
}

/* ---- running a plan ---- */

static int add_tensor(struct job *j, const struct desc *t)
{
    for (int i = 0; i < j->tensors_n; i++)
        if (j->tensor[i].desc == t)
            return i;
    struct tensor *x = &j->tensor[j->tensors_n];
    *x = (struct tensor){
        .desc = t, .type = type_of(t), .is_virtual = is_virtual(t), .is_host = is_host(t)};
    memcpy(x->dims, dims(t), sizeof x->dims);
    memcpy(x->strides, need(t, DNN_ATTR_TENSOR_STRIDES)->v.i, sizeof x->strides);
    return j->tensors_n++;
}

static void add_step(struct job *j, const struct desc *op)
{
    struct step *s = &j->step[j->steps_n++];
    const struct desc *in[3], *out = NULL, *how;
    *s = (struct step){.type = op->type, .in_n = operands(op, in, &out)};
    for (int i = 0; i < s->in_n; i++)
        s->in[i] = add_tensor(j, in[i]);
    s->out = add_tensor(j, out);
    j->tensor[s->out].is_out = true;
    if (op->type == OP) {
        how = desc_at(op, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        s->mode = enum_at(how, DNN_ATTR_POINTWISE_MODE);
        s->axis = (int)int_at(how, DNN_ATTR_POINTWISE_AXIS);
    } else if (op->type == OR) {
        how = desc_at(op, DNN_ATTR_OPERATION_REDUCTION_DESC);
        s->mode = enum_at(how, DNN_ATTR_REDUCTION_OPERATOR);
    }
}

/* bind_addresses — the addresses of the pack: one for each stored tensor, none for others. */
static const char *bind_addresses(struct job *j, const struct desc *pack)
{
    const struct attr *ids = need(pack, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                      *at = need(pack, DNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int bound = 0, wanted = 0;
    for (int i = 0; i < j->tensors_n; i++) {
        struct tensor *x = &j->tensor[i];
        wanted += !x->is_virtual;
        for (int64_t k = 0; k < ids->n && !x->is_virtual; k++)
            if (ids->v.i[k] == int_at(x->desc, DNN_ATTR_TENSOR_UNIQUE_ID)) {
                x->at = at->v.p[k];
                if (!x->at ||
                    (uintptr_t)x->at % (uintptr_t)int_at(x->desc, DNN_ATTR_TENSOR_BYTE_ALIGNMENT))
                    return "an address that is missing, or not aligned as its tensor says";
                if (x->is_host)
                    memcpy(&x->value, x->at, sizeof x->value);
                bound++;
            }
        x->desc = NULL;
    }
    return bound == wanted && bound == ids->n ? NULL : "not one address for each stored tensor";
}

/* Returns the bytes from the first to the last element of an f32 tensor. */
static int64_t span_of(const struct tensor *x)
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++)
        last += (x->dims[i] - 1) * x->strides[i];
    return 4 * (last + 1);
}

/* Returns true if the workspace and the f32 results of a plan lie apart from each other. */
static bool is_apart(const struct job *j)
{
    for (int i = 0; i < j->tensors_n; i++) {
        const struct tensor *x = &j->tensor[i];
        if (!x->is_out || x->is_virtual || x->type != DNN_DATA_FLOAT)
            continue;
        if (x->at < j->workspace + j->workspace_bytes && j->workspace < x->at + span_of(x))
            return false;
        for (int k = 0; k < i; k++) {
            const struct tensor *y = &j->tensor[k];
            if (y->is_out && !y->is_virtual && y->type == DNN_DATA_FLOAT &&
                x->at < y->at + span_of(y) && y->at < x->at + span_of(x))
                return false;
        }
    }
    return true;
}

dnn_status cudnnBackendExecute(dnn_handle handle, dnn_desc plan, dnn_desc pack)
{
    const struct desc *p = plan, *v = pack;
    const struct desc *config = desc_at(p, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                      *graph = config->graph;
    const struct attr *ops = need(graph, DNN_ATTR_OPERATIONGRAPH_OPS);
    struct job j = {.workspace = need(v, DNN_ATTR_VARIANT_PACK_WORKSPACE)->v.p[0],
                    .workspace_bytes = workspace_of(graph, config->engine)};
    void *stream;
    if (control[FAIL_EXECUTE])
        return control[FAIL_EXECUTE];
    if (!p->is_done || !v->is_done)
        return mistake(NOT_FINALIZED, "a plan or pack that is not finalized");
    for (int64_t i = 0; i < ops->n; i++)
        add_step(&j, ops->v.p[i]);
    const char *why = bind_addresses(&j, v);
    if (!why && (!j.workspace || (uintptr_t)j.workspace % 128))
        why = "a workspace that is missing, or not aligned to 128 bytes";
    if (!why && !is_apart(&j))
        why = "results that overlap each other or the workspace";
    if (why)
        return mistake(BAD_PARAM, why);
    memcpy(&stream, handle, sizeof stream);
    control[EXECUTED]++;
    int rc = device ? device(stream, fake_cudnn_run, &j, sizeof j) : fake_cudnn_run(&j);
    return rc == 0 ? 0 : DNN_STATUS_EXECUTION_FAILED;
}
