/* cudnn — see cudnn.h. Must not know how cuDNN describes attention (cudnn/graph.c). */
#include "dev/cudnn/cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "dev/cudnn/graph.h"
#include "dev/cuda/internal.h"
#include "dev/nvidia/library.h"

#define ALIGN 256          /* alignment of the workspace's parts */
#define ATOMIC_FIRST 90600 /* first version in which the sum of the atomic form need not be 0 */

#define DNN_SYMBOL(result, name, args) LIBRARY_SYMBOL(dnn_table, name),
static const struct library_symbol symbols[] = {DNN_CALLS(DNN_SYMBOL)};
static const char *const names[] = {"libcudnn_graph.so.9", "libcudnn.so.9", NULL};
#define PACKAGES(version)                                                                         \
    "libcudnn9-cuda-" version " (NVIDIA's Debian and Ubuntu packages) or nvidia-cudnn-cu" version \
    " (PyPI)"

/* Returns false and the reason if the library is for a newer CUDA than the driver. */
static bool fits(const void *opened, char *why, size_t cap)
{
    const struct dnn_table *dnn = opened;
    return dev_cuda_driver_fits(dnn->cudnnGetCudartVersion(), why, cap);
}

static enum status open_library(struct library *library, struct dnn_table *dnn)
{
    const struct library_spec spec = {.what = "cuDNN",
                                      .names = names,
                                      .packages = dev_cuda_driver_least() < 580 ? PACKAGES("12")
                                                                                : PACKAGES("13"),
                                      .symbols = symbols,
                                      .symbols_n = sizeof symbols / sizeof *symbols,
                                      .fits = fits};
    return library_open(&spec, library, dnn);
}

/* One requested shape: computed in runs by plan `each`, with a remainder by plan `rest` (NULL:
 * there is none). reason: why cuDNN cannot compute it; "": it can. */
struct choice {
    struct cudnn_shape shape;
    struct cudnn_plan *each, *rest;
    char reason[256];
};

struct cudnn {
    struct library library;
    struct dnn_table dnn;
    dnn_handle handle;
    struct choice **choices;
    size_t choices_n;
    float hidden, one, scale; /* a plan reads these when it is submitted */
    char about[LIBRARY_PATH_MAX + 32], reason[256], how[128];
};

/* ---- open, close ---- */

static enum status fail_open(struct cudnn *c, const char *what, dnn_status rc)
{
    enum status st = FAIL(ST_NO_DEVICE, "cuDNN from %s does not start: status %d of %s",
                          c->library.path, rc, what);
    cudnn_close(c);
    return st;
}

static void write_about(const struct dnn_table *dnn, const struct library *library, char *out,
                        size_t cap)
{
    size_t v = dnn->cudnnGetVersion();
    text_format(out, cap, "%zu.%zu.%zu from %s", v / 10000, v / 100 % 100, v % 100, library->path);
}

enum status cudnn_find(char *about, size_t cap)
{
    struct library library = {0};
    struct dnn_table dnn;
    TRY(open_library(&library, &dnn));
    write_about(&dnn, &library, about, cap);
    library_close(&library);
    return ST_OK;
}

enum status cudnn_open(void *stream, struct cudnn **out)
{
    struct cudnn *c = memory_new(1, sizeof *c);
    enum status st = open_library(&c->library, &c->dnn);
    if (st != ST_OK) {
        free(c);
        return st;
    }
    write_about(&c->dnn, &c->library, c->about, sizeof c->about);
    dnn_status rc = c->dnn.cudnnCreate(&c->handle);
    if (rc != 0)
        return fail_open(c, "cudnnCreate", rc);
    rc = c->dnn.cudnnSetStream(c->handle, stream);
    if (rc != 0)
        return fail_open(c, "cudnnSetStream", rc);
    c->hidden = -INFINITY;
    c->one = 1;
    *out = c;
    return ST_OK;
}

static void free_plan(const struct cudnn *c, struct cudnn_plan *p)
{
    if (p)
        cudnn_graph_release(&c->dnn, p);
    free(p);
}

void cudnn_close(struct cudnn *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->choices_n; i++) {
        free_plan(c, c->choices[i]->each);
        free_plan(c, c->choices[i]->rest);
        free(c->choices[i]);
    }
    free(c->choices);
    if (c->handle)
        (void)c->dnn.cudnnDestroy(c->handle);
    library_close(&c->library);
    free(c);
}

const char *cudnn_about(const struct cudnn *c) { return c->about; }

const char *cudnn_reason(const struct cudnn *c) { return c->reason; }

const char *cudnn_how(const struct cudnn *c) { return c->how; }

/* ---- plans ---- */

static int64_t align_up(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static int64_t delta_bytes(const struct cudnn_shape *s)
{
    return s->is_backward ? align_up(s->b * s->h * s->t * (int64_t)sizeof(float)) : 0;
}

/* Returns the bytes of scratch before the engine's workspace: delta, then the sum of dq. */
static int64_t stored_bytes(const struct cudnn_shape *s)
{
    const int64_t sum = s->b * s->h * s->t * s->d * (int64_t)sizeof(float);
    return delta_bytes(s) + (s->is_atomic ? align_up(sum) : 0);
}

/* The state of a search for a plan. first: engines that are passed over. fit_n: samples that may
 * fit, 0: none do. */
struct search {
    int64_t first, fit_n;
};

/* Makes a plan. *out NULL: cuDNN cannot, for the reason in `reason`. Then fewer samples may fit,
 * or, if even one does not, another engine may. */
static enum status make_plan(const struct cudnn *c, const struct cuda *cuda,
                             const struct cudnn_shape *shape, int64_t most, struct search *search,
                             struct cudnn_plan **out, char *reason, size_t cap)
{
    struct cudnn_plan *p = memory_new(1, sizeof *p);
    *out = NULL;
    int64_t room = (int64_t)cuda->scratch_bytes - stored_bytes(shape);
    const struct cudnn_target target = {
        .handle = c->handle, .workspace_max = room, .first = search->first};
    search->fit_n = 0;
    if (cudnn_graph_plan(&c->dnn, &target, shape, p)) {
        *out = p;
        return ST_OK;
    }
    if (p->is_too_large && shape->b > 1) {
        double bytes = (double)(p->workspace_bytes + stored_bytes(shape));
        int64_t n = (int64_t)((double)shape->b * (double)cuda->scratch_bytes / bytes);
        search->fit_n = n < 1 ? 1 : n < shape->b ? n : shape->b - 1;
    } else if (p->is_too_large) {
        *search = (struct search){.first = p->proposal, .fit_n = most};
    }
    /* The reason of a plan that could not be made, with cuDNN's own words. */
    char words[160] = "";
    c->dnn.cudnnGetLastErrorString(words, sizeof words);
    words[strcspn(words, "\n")] = 0;
    text_format(reason, cap,
                "no plan for %lld samples of %lld tokens, %lld heads of %lld, %lld key heads%s: "
                "status %d at %s%s%s",
                (long long)p->shape.b, (long long)p->shape.t, (long long)p->shape.h,
                (long long)p->shape.d, (long long)p->shape.hk,
                p->shape.is_atomic ? ", by atomic additions" : "", p->status, p->stage,
                words[0] ? ": " : "", words);
    free_plan(c, p);
    return ST_OK;
}

/* Returns the largest number of samples whose delta and sum of dq fit into the scratch. */
static int64_t most_samples(const struct cuda *cuda, const struct cudnn_shape *shape)
{
    struct cudnn_shape one = *shape;
    one.b = 1;
    int64_t bytes = stored_bytes(&one), n = bytes ? (int64_t)cuda->scratch_bytes / bytes : shape->b;
    return n < shape->b ? n : shape->b;
}

/* Finds the choice for a shape; makes it if the shape is new. */
static enum status find_choice(struct cudnn *c, const struct cuda *cuda,
                               const struct cudnn_shape *shape, bool is_captured,
                               struct choice **out)
{
    for (size_t i = 0; i < c->choices_n; i++)
        if (memcmp(&c->choices[i]->shape, shape, sizeof *shape) == 0) {
            *out = c->choices[i];
            return ST_OK;
        }
    if (is_captured)
        return FAIL(ST_BUG, "cuDNN has no plan for this shape yet, and the stream is captured");
    c->choices = memory_resize(c->choices, c->choices_n + 1, sizeof *c->choices);
    struct choice *fresh = memory_new(1, sizeof *fresh);
    memcpy(&fresh->shape, shape, sizeof *shape);
    c->choices[c->choices_n++] = fresh;
    *out = fresh;
    /* Chooses the best engine that computes at least one sample at once: the greatest number of
     * samples whose workspace fits, in runs of equal size. */
    struct cudnn_shape s = fresh->shape;
    const int64_t all = s.b, most = most_samples(cuda, &s);
    struct search search = {.fit_n = most};
    if (most == 0)
        text_copy(fresh->reason, sizeof fresh->reason,
                  "one sample needs more scratch than there is");
    while (!fresh->each && search.fit_n > 0) {
        int64_t runs = (all + search.fit_n - 1) / search.fit_n;
        s.b = (all + runs - 1) / runs;
        TRY(make_plan(c, cuda, &s, most, &search, &fresh->each, fresh->reason,
                      sizeof fresh->reason));
    }
    s.b = fresh->each ? all % s.b : 0;
    if (s.b > 0)
        TRY(make_plan(c, cuda, &s, most, &search, &fresh->rest, fresh->reason,
                      sizeof fresh->reason));
    if (fresh->each && (s.b == 0 || fresh->rest))
        fresh->reason[0] = 0;
    return ST_OK;
}

/* ---- running ---- */

/* The addresses of all samples, by enum cudnn_tensor, and the bytes from one sample to the next.
 * Tensors in scratch have none: each run uses it from its start. */
struct operands {
    char *at[CUDNN_TENSORS];
    int64_t bytes[CUDNN_TENSORS];
};

static bool set_attr(const struct cudnn *c, dnn_desc desc, int name, int type, int64_t n,
                     const void *x)
{
    return c->dnn.cudnnBackendSetAttribute(desc, name, type, n, x) == 0;
}

/* The tensors of a run and their addresses. */
struct addresses {
    int64_t id[CUDNN_TENSORS];
    void *at[CUDNN_TENSORS];
    int n;
};

static void add_address(struct addresses *to, int64_t id, void *at)
{
    to->id[to->n] = id;
    to->at[to->n++] = at;
}

/* Packs the addresses of a run from sample `first`. Scratch holds delta, the sum of dq and the
 * engine's workspace, in this order. */
static bool pack_addresses(const struct cudnn *c, const struct cuda *cuda, const struct operands *x,
                           const struct cudnn_plan *p, int64_t first, dnn_desc desc)
{
    struct addresses a = {.n = 0};
    char *scratch = cuda->scratch;
    void *workspace = scratch + stored_bytes(&p->shape);
    for (int id = 1; id < CUDNN_TENSORS; id++)
        if (x->at[id])
            add_address(&a, id, x->at[id] + first * x->bytes[id]);
    if (p->shape.is_backward)
        add_address(&a, CUDNN_DELTA, scratch);
    if (p->shape.is_atomic)
        add_address(&a, CUDNN_DQ_SUM, scratch + delta_bytes(&p->shape));
    return set_attr(c, desc, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DNN_TYPE_INT64, a.n, a.id) &&
           set_attr(c, desc, DNN_ATTR_VARIANT_PACK_DATA_POINTERS, DNN_TYPE_VOID_PTR, a.n, a.at) &&
           set_attr(c, desc, DNN_ATTR_VARIANT_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1, &workspace) &&
           c->dnn.cudnnBackendFinalize(desc) == 0;
}

static dnn_status run_plan(const struct cudnn *c, const struct cuda *cuda, const struct operands *x,
                           const struct cudnn_plan *p, int64_t first)
{
    dnn_desc desc = NULL;
    dnn_status rc = c->dnn.cudnnBackendCreateDescriptor(DNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &desc);
    if (rc != 0)
        return rc;
    rc = pack_addresses(c, cuda, x, p, first, desc)
             ? c->dnn.cudnnBackendExecute(c->handle, p->desc, desc)
             : DNN_STATUS_INTERNAL_ERROR;
    (void)c->dnn.cudnnBackendDestroyDescriptor(desc);
    return rc;
}

/* Handles a run that ended with rc. If cuDNN met an error of its own before the device did, the
 * program's kernel computes this shape from now on, and replaces the results of earlier runs. A
 * capture keeps the submitted work, so there it is an error. */
static enum status handle_failure(struct cudnn *c, struct choice *choice, bool is_captured,
                                  dnn_status rc)
{
    char words[160] = "";
    c->dnn.cudnnGetLastErrorString(words, sizeof words);
    words[strcspn(words, "\n")] = 0;
    text_format(choice->reason, sizeof choice->reason, "status %d when engine %lld was run%s%s", rc,
                (long long)choice->each->engine, words[0] ? ": " : "", words);
    if (rc < DNN_STATUS_EXECUTION_FAILED && !is_captured)
        return ST_OK;
    /* in a capture: the work is submitted again, one operation at a time */
    return FAIL(is_captured ? ST_BUG : ST_FAULT,
                "cuDNN %s: %s%s; try ATTENTION=own, and see dmesg for an Xid", c->about,
                choice->reason, is_captured ? ", while a CUDA graph was captured" : "");
}

static enum status run_attention(struct cudnn *c, const struct cuda *cuda,
                                 const struct cudnn_shape *shape, const struct operands *x,
                                 bool is_captured, bool *is_done)
{
    struct choice *choice = NULL;
    dnn_status rc = 0;
    int64_t first = 0;
    *is_done = false;
    TRY(find_choice(c, cuda, shape, is_captured, &choice));
    c->scale = 1.0f / sqrtf((float)shape->d);
    while (choice->reason[0] == 0 && rc == 0 && first < shape->b) {
        const struct cudnn_plan *p =
            shape->b - first >= choice->each->shape.b ? choice->each : choice->rest;
        rc = run_plan(c, cuda, x, p, first);
        first += rc == 0 ? p->shape.b : 0;
    }
    if (rc != 0)
        TRY(handle_failure(c, choice, is_captured, rc));
    text_copy(c->reason, sizeof c->reason, choice->reason);
    *is_done = choice->reason[0] == 0;
    if (*is_done) {
        char bytes[32];
        text_format(
            c->how, sizeof c->how,
            "engine %lld, number %lld of %lld proposed, %lld samples at once, %s of workspace",
            (long long)choice->each->engine, (long long)choice->each->proposal,
            (long long)choice->each->proposed, (long long)choice->each->shape.b,
            text_format_bytes(bytes, sizeof bytes, (double)choice->each->workspace_bytes));
    }
    return ST_OK;
}

/* ---- the operations ---- */

/* Returns the shape of a forward's or a backward's arguments. There is no padding. */
#define SHAPE_OF(a, backward, atomic)                                                             \
    {                                                                                             \
        .b = (a)->b, .t = (a)->t, .h = (a)->h, .hk = (a)->hk, .d = (a)->d, .layout = (a)->layout, \
        .dtype = (a)->qkv.dtype, .is_backward = (backward), .is_atomic = (atomic)                 \
    }

static void set_operand(struct operands *x, enum cudnn_tensor id, const void *at, int64_t elems,
                        int64_t step)
{
    x->at[id] = (char *)(uintptr_t)at + 2 * elems;
    x->bytes[id] = 2 * step;
}

static struct attention_row row_of(const struct cudnn_shape *s)
{
    return attention_row_of((enum attention_layout)s->layout, s->h, s->hk, s->d);
}

/* Sets the operands that both directions read or write in the same place. */
static void put_shared(struct cudnn *c, struct operands *x, const struct cudnn_shape *s,
                       struct tensor qkv, struct tensor out, struct tensor lse)
{
    struct attention_row at = row_of(s);
    set_operand(x, CUDNN_Q, qkv.data, 0, s->t * at.row);
    set_operand(x, CUDNN_K, qkv.data, at.k, s->t * at.row);
    set_operand(x, CUDNN_V, qkv.data, at.v, s->t * at.row);
    set_operand(x, CUDNN_O, out.data, 0, s->t * s->h * s->d);
    set_operand(x, CUDNN_LSE, lse.data, 0, 2 * s->h * s->t);
    set_operand(x, CUDNN_SCALE, &c->scale, 0, 0);
    set_operand(x, CUDNN_HIDDEN, &c->hidden, 0, 0);
}

/* Returns true if the graph of cudnn/graph.c covers these arguments; else sets the reason. */
static bool is_for(struct cudnn *c, const struct cudnn_shape *s, struct tensor mask,
                   struct tensor first_key, float dropout, struct tensor kv)
{
    bool is_16 = s->dtype == DTYPE_BF16 || s->dtype == DTYPE_F16;
    const char *why = !is_16           ? "it is used for bf16 and fp16 only"
                      : mask.data      ? "it is not used for attention with a mask"
                      : first_key.data ? "it is not used for documents or windows"
                      : kv.data     ? "it is not used for queries that lie apart from keys (CP > 1)"
                      : dropout > 0 ? "its dropout draws other numbers than this program's"
                      : s->d % 8 != 0 || s->d > 256
                          ? "it needs heads of at most 256 elements, a multiple of 8"
                      : s->is_atomic && c->dnn.cudnnGetVersion() < ATOMIC_FIRST
                          ? "before 9.6 it needs memory set to 0 for atomic additions"
                          : "";
    text_copy(c->reason, sizeof c->reason, why);
    return why[0] == 0;
}

enum status cudnn_attention_fwd(struct cudnn *c, const struct cuda *cuda,
                                const struct attention_fwd *a, bool is_captured, bool *is_done)
{
    struct operands x = {0};
    struct cudnn_shape s = SHAPE_OF(a, false, false);
    *is_done = false;
    if (!is_for(c, &s, a->mask, a->first_key, a->dropout.p, a->kv))
        return ST_OK;
    put_shared(c, &x, &s, a->qkv, a->out, a->lse);
    return run_attention(c, cuda, &s, &x, is_captured, is_done);
}

bool cudnn_may_bwd(struct cudnn *c, const struct attention_bwd *a, bool is_atomic)
{
    const struct cudnn_shape s = SHAPE_OF(a, true, is_atomic);
    return is_for(c, &s, a->mask, a->first_key, a->dropout.p, a->kv);
}

enum status cudnn_attention_bwd(struct cudnn *c, const struct cuda *cuda,
                                const struct attention_bwd *a, bool is_atomic, bool is_captured,
                                bool *is_done)
{
    struct operands x = {0};
    struct cudnn_shape s = SHAPE_OF(a, true, is_atomic);
    struct attention_row at = row_of(&s);
    *is_done = false;
    if (!cudnn_may_bwd(c, a, is_atomic))
        return ST_OK;
    put_shared(c, &x, &s, a->qkv, a->out, a->lse);
    set_operand(&x, CUDNN_DO, a->dout.data, 0, a->t * a->h * a->d);
    set_operand(&x, CUDNN_DQ, a->dqkv.data, 0, a->t * at.row);
    set_operand(&x, CUDNN_DK, a->dqkv.data, at.k, a->t * at.row);
    set_operand(&x, CUDNN_DV, a->dqkv.data, at.v, a->t * at.row);
    set_operand(&x, CUDNN_ONE, &c->one, 0, 0);
    return run_attention(c, cuda, &s, &x, is_captured, is_done);
}
