/* blas_plan — the library's objects and algorithm for each shape, made once and kept (blas/plan.h).
 * Must not know rows, layers or layouts of kernels/matmul.h. */
#include "dev/blas/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "dev/blas/lt.h"
#include "dev/blas/tuned.h"
#include "dev/cuda/internal.h"

_Static_assert(sizeof(struct blas_shape) == 8 * sizeof(int64_t) + 14 * sizeof(int), "no padding");

/* One shape, made at its first use. */
struct plan {
    struct blas_shape shape;
    bool is_possible; /* false: the library has refused the shape */
    bool is_apart;    /* the table lists the form without this epilogue as faster */
    struct blas_lt_objects objects;
    struct blas_lt_algo algo;
};

struct blas {
    struct library library;
    struct blas_lt lt;
    lt_handle handle;
    struct blas_chip chip;
    const char *table;
    bool is_captured;
    int sm_target;          /* multiprocessors for each product; 0: all */
    bool is_stale_reported; /* the library has refused an entry of the table: logged once */
    struct plan *plans;
    size_t plans_n, plans_cap;
    char about[LIBRARY_PATH_MAX + 32];
};

/* ---- open, close ---- */

enum status blas_plan_find(bool is_hip, char *about, size_t cap)
{
    struct library library;
    struct blas_lt lt;
    TRY(blas_lt_open(is_hip, &library, &lt));
    blas_lt_about(&lt, &library, about, cap);
    library_close(&library);
    return ST_OK;
}

enum status blas_plan_open(const struct blas_chip *chip, struct blas **out)
{
    struct blas *b = memory_new(1, sizeof *b);
    enum status st = blas_lt_open(dev_cuda_chosen() == DEV_GPU_HIP, &b->library, &b->lt);
    if (st != ST_OK) {
        free(b);
        return st;
    }
    unsigned rc = b->lt.Create(&b->handle);
    if (rc != 0) {
        st = FAIL(ST_NO_DEVICE, "%s from %s does not start: status %u", b->lt.name, b->library.path,
                  rc);
        library_close(&b->library);
        free(b);
        return st;
    }
    b->chip = *chip;
    b->table = blas_tuned_checked_in();
    blas_lt_about(&b->lt, &b->library, b->about, sizeof b->about);
    *out = b;
    return ST_OK;
}

static void forget_plans(struct blas *b)
{
    for (size_t i = 0; i < b->plans_n; i++)
        blas_lt_free(&b->lt, &b->plans[i].objects);
    b->plans_n = 0;
}

void blas_plan_close(struct blas *b)
{
    if (!b)
        return;
    forget_plans(b);
    free(b->plans);
    b->lt.Destroy(b->handle);
    library_close(&b->library);
    free(b);
}

const char *blas_plan_about(const struct blas *b) { return b->about; }
size_t blas_plan_version(const struct blas *b) { return blas_lt_version(&b->lt); }
void blas_plan_capture(struct blas *b, bool is_captured) { b->is_captured = is_captured; }

void blas_plan_leave(struct blas *b, int sms)
{
    b->sm_target = sms > 0 && sms < b->chip.sm_count ? b->chip.sm_count - sms : 0;
}

void blas_plan_table(struct blas *b, const char *table)
{
    b->table = table;
    forget_plans(b);
}

const char *blas_plan_epilogue(enum blas_epilogue epilogue)
{
    static const char *const names[BLAS_EPILOGUES] = {
        [BLAS_NONE] = "no epilogue",  [BLAS_BIAS] = "BIAS",
        [BLAS_GELU] = "GELU",         [BLAS_GELU_BIAS] = "GELU_BIAS",
        [BLAS_GELU_AUX] = "GELU_AUX", [BLAS_GELU_AUX_BIAS] = "GELU_AUX_BIAS",
        [BLAS_DGELU] = "DGELU",       [BLAS_BGRAD_A] = "BGRADA",
        [BLAS_BGRAD_B] = "BGRADB"};
    return names[epilogue];
}

/* ---- a plan ---- */

/* Chooses an algorithm if the library has it for this shape on this chip. */
static bool set_algo(const struct blas *b, const struct cuda *cuda, struct plan *p,
                     const struct blas_tuned *tuned)
{
    struct blas_lt_algo algo;
    memcpy(algo.data, tuned->algo, sizeof algo.data);
    if (!blas_lt_check(&b->lt, b->handle, &p->objects, &algo) ||
        algo.workspace_bytes > cuda->scratch_bytes)
        return false;
    p->algo = algo;
    return true;
}

static bool choose_first(const struct blas *b, const struct cuda *cuda, struct plan *p)
{
    return blas_lt_search(&b->lt, b->handle, &p->objects, &p->shape, cuda->scratch_bytes, &p->algo,
                          1) > 0;
}

static bool choose_algorithm(struct blas *b, const struct cuda *cuda, struct plan *p)
{
    struct blas_tuned tuned;
    if (p->shape.sm_target > 0 ||
        !blas_tuned_find(b->table, &b->chip, blas_plan_version(b), &p->shape, &tuned))
        return choose_first(b, cuda, p);
    p->is_apart = tuned.is_apart;
    if (p->is_apart)
        return false;
    if (set_algo(b, cuda, p, &tuned))
        return true;
    if (!b->is_stale_reported)
        LOG_WARN("the table of algorithms has one for %lldx%lldx%lld with %s that %s %s "
                 "refuses: its own choice is used there; `gpu_tests tune` measures again",
                 (long long)p->shape.m, (long long)p->shape.n, (long long)p->shape.k,
                 blas_plan_epilogue(p->shape.epilogue), b->lt.name, b->about);
    b->is_stale_reported = true;
    return choose_first(b, cuda, p);
}

/* Logs a refusal once for each shape: a product that is split, or done by this program's kernels,
 * costs time that a user may look for. */
static void log_refused(const struct blas *b, const struct blas_shape *s)
{
    LOG_INFO("%s does not support %lldx%lldx%lld with %s, %zu-bit to %zu-bit numbers%s: this "
             "product is split, or done by the program's own kernels",
             b->lt.name, (long long)s->m, (long long)s->n, (long long)s->k,
             blas_plan_epilogue(s->epilogue), 8 * dtype_bytes(s->a), 8 * dtype_bytes(s->d),
             s->is_tf32 ? " as TF32" : "");
}

static struct plan *look_up(const struct blas *b, const struct blas_shape *shape)
{
    for (size_t i = 0; i < b->plans_n; i++)
        if (memcmp(&b->plans[i].shape, shape, sizeof *shape) == 0)
            return &b->plans[i];
    return NULL;
}

/* Finds the plan of a shape; makes it if the shape is new. A run has a few dozen. */
static enum status find_plan(struct blas *b, const struct cuda *cuda,
                             const struct blas_shape *shape, struct plan **out)
{
    *out = look_up(b, shape);
    if (*out)
        return ST_OK;
    if (b->is_captured)
        return FAIL(ST_BUG, "a product of %lld x %lld x %lld is new to %s while work is captured",
                    (long long)shape->m, (long long)shape->n, (long long)shape->k, b->lt.name);
    if (b->plans_n == b->plans_cap) {
        b->plans_cap = b->plans_cap ? 2 * b->plans_cap : 64;
        b->plans = memory_resize(b->plans, b->plans_cap, sizeof *b->plans);
    }
    struct plan *p = *out = &b->plans[b->plans_n++];
    memset(p, 0, sizeof *p);
    memcpy(&p->shape, shape, sizeof p->shape);
    p->is_possible = blas_lt_make(&b->lt, shape, &p->objects) && choose_algorithm(b, cuda, p);
    if (!p->is_possible && !p->is_apart)
        log_refused(b, shape);
    return ST_OK;
}

/* ---- measuring ---- */

int blas_plan_candidates(struct blas *b, const struct cuda *cuda, const struct blas_shape *shape,
                         struct blas_tuned *out, int most)
{
    struct blas_lt_algo found[BLAS_LT_ALGOS];
    struct blas_lt_objects objects = {.desc = NULL};
    int n = 0;
    if (blas_lt_make(&b->lt, shape, &objects))
        n = blas_lt_search(&b->lt, b->handle, &objects, shape, cuda->scratch_bytes, found,
                           most < BLAS_LT_ALGOS ? most : BLAS_LT_ALGOS);
    for (int i = 0; i < n; i++) {
        out[i].is_apart = false;
        memcpy(out[i].algo, found[i].data, BLAS_TUNED_ALGO);
    }
    blas_lt_free(&b->lt, &objects);
    return n;
}

bool blas_plan_set(struct blas *b, const struct cuda *cuda, const struct blas_shape *shape,
                   const struct blas_tuned *tuned)
{
    struct plan *p = NULL;
    if (find_plan(b, cuda, shape, &p) != ST_OK || !p->objects.d)
        return false;
    p->is_apart = false;
    p->is_possible = set_algo(b, cuda, p, tuned);
    return p->is_possible;
}

/* ---- a call ---- */

enum status blas_plan_run(struct blas *b, const struct cuda *cuda, const struct blas_call *call,
                          bool *is_done)
{
    struct plan *p = NULL;
    const float one = 1;
    struct blas_shape shape = call->shape;
    *is_done = false;
    shape.sm_target = b->sm_target;
    TRY(find_plan(b, cuda, &shape, &p));
    if (!p->is_possible && shape.is_tf32 && b->lt.is_hip && shape.epilogue <= BLAS_BIAS) {
        /* MI250 has no TF32; a product with another epilogue has a form without it */
        shape.is_tf32 = 0;
        TRY(find_plan(b, cuda, &shape, &p));
    }
    if (!p->is_possible || !blas_lt_addresses(&b->lt, call, p->objects.desc))
        return ST_OK;
    const struct blas_lt_objects *o = &p->objects;
    const struct blas_lt_numbers *numbers = b->lt.numbers;
    unsigned rc = b->lt.Matmul(b->handle, o->desc, &one, call->a, o->a, call->b, o->b, &call->beta,
                               call->c, o->c, call->d, o->d, p->algo.data, cuda->scratch,
                               p->algo.workspace_bytes, (gpu_stream)cuda->stream);
    bool is_refused = rc == numbers->not_supported || rc == numbers->invalid_value;
    if (is_refused && !b->is_captured) {
        /* nothing was submitted: another form of the product, or this program's kernel */
        p->is_possible = false;
        log_refused(b, &p->shape);
        return ST_OK;
    }
    if (rc != 0) {
        /* Any other error. A failed capture is no fault of the GPU: the same work is submitted one
         * by one afterwards, and reports the error then. */
        return FAIL(rc == numbers->execution_failed && !b->is_captured ? ST_FAULT : ST_BUG,
                    "%s %s: status %u for a product of %lld x %lld x %lld%s%s", b->lt.name,
                    b->about, rc, (long long)p->shape.m, (long long)p->shape.n,
                    (long long)p->shape.k,
                    b->is_captured ? " while work is captured" : "; see dmesg for ",
                    b->is_captured ? "" : dev_runtime->log_word);
    }
    *is_done = true;
    return ST_OK;
}
