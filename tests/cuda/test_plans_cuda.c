/* Every matrix product of a step of GPT-2 as NVIDIA's own cuBLASLt takes it: descriptions, layouts
 * and preferences need no GPU (only a search and a product do). Each is made as a step makes it,
 * and each attribute is read back. Skipped where NVIDIA's library is not installed. */
#include "kernel_test.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include "dev/blas/lt.h"
#include "dev/blas/tuned.h"
#include "tests/cuda/products.h"

/* What reads back, of the same library. */
static struct reader {
    __typeof__(cublasLtMatmulDescGetAttribute) *desc;
    __typeof__(cublasLtMatrixLayoutGetAttribute) *layout;
    __typeof__(cublasLtMatmulPreferenceGetAttribute) *preference;
} reader;
static struct library library;
static struct blas_lt lt;
static int described, read_back;

/* ---- the library ---- */

static void symbol(const char *name, void *out)
{
    void *found = dlsym(library.handle, name);
    assert_non_null(found);
    memcpy(out, &found, sizeof found);
}

/* The tests' library has the same name; it counts what is asked of it. */
static bool is_ours(void) { return dlsym(library.handle, "fake_blas_counts") != NULL; }

static bool has_library(void)
{
    library_dir(getenv("CONVOY_LIB_DIR"));
    if (blas_lt_open(false, &library, &lt) != ST_OK) {
        print_message("# skipped: NVIDIA's library is missing: %s\n", status_message());
        status_clear();
        return false;
    }
    if (is_ours())
        fail_msg("%s is the tests' own library, not NVIDIA's", library.path);
    symbol("cublasLtMatmulDescGetAttribute", &reader.desc);
    symbol("cublasLtMatrixLayoutGetAttribute", &reader.layout);
    symbol("cublasLtMatmulPreferenceGetAttribute", &reader.preference);
    return true;
}

/* ---- reading back ---- */

static struct blas_form at; /* what is looked at, for messages */

static void same(const char *what, int status, size_t written, size_t bytes, const void *got,
                 const void *want)
{
    char key[BLAS_TUNED_KEY];
    read_back++;
    if (status == 0 && written == bytes && memcmp(got, want, bytes) == 0)
        return;
    blas_tuned_key(&at.call.shape, key);
    fail_msg("%s of %s: status %d, %zu bytes of %zu, or another value", what, key, status, written,
             bytes);
}

#define SAME(get, object, attribute, type, value)                                 \
    do {                                                                          \
        type got_ = 0, want_ = (type)(value);                                     \
        size_t written_ = 0;                                                      \
        int status_ = (int)get(object, attribute, &got_, sizeof got_, &written_); \
        same(#attribute, status_, written_, sizeof got_, &got_, &want_);          \
    } while (0)

static int32_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void same_layout(lt_layout l, enum dtype dtype, int64_t rows, int64_t cols, int64_t ld)
{
    SAME(reader.layout, l, CUBLASLT_MATRIX_LAYOUT_TYPE, int32_t, type_of(dtype));
    SAME(reader.layout, l, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t, rows);
    SAME(reader.layout, l, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t, cols);
    SAME(reader.layout, l, CUBLASLT_MATRIX_LAYOUT_LD, int64_t, ld);
}

static void same_layouts(const struct blas_lt_objects *o, const struct blas_shape *s)
{
    same_layout(o->a, s->a, s->is_a_transposed ? s->k : s->m, s->is_a_transposed ? s->m : s->k,
                s->lda);
    same_layout(o->b, s->b, s->is_b_transposed ? s->n : s->k, s->is_b_transposed ? s->k : s->n,
                s->ldb);
    same_layout(o->c, s->d, s->m, s->n, s->ldc);
    same_layout(o->d, s->d, s->m, s->n, s->ldd);
}

static void same_description(lt_desc d, const struct blas_call *call)
{
    static const uint32_t epilogues[BLAS_EPILOGUES] = {1, 4, 32, 36, 160, 164, 192, 256, 512};
    const struct blas_shape *s = &call->shape;
    SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t,
         s->is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_SCALE_TYPE, int32_t, CUDA_R_32F);
    SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_TRANSA, int32_t, s->is_a_transposed);
    SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_TRANSB, int32_t, s->is_b_transposed);
    SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t, epilogues[s->epilogue]);
    if (call->bias) {
        SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t, type_of(s->bias));
        SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t, call->bias);
    }
    if (call->aux) {
        SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t, s->ld_aux);
        SAME(reader.desc, d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, uintptr_t, call->aux);
        assert_int_equal(s->ld_aux % 8, 0);
    }
}

static void same_preference(const struct blas_shape *s)
{
    const int64_t workspace = 256 << 20;
    lt_preference p = blas_lt_preference(&lt, s, (size_t)workspace);
    assert_non_null(p);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t, workspace);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t,
         s->d == DTYPE_F32 ? 1 | 2 : 2);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t, s->align_a);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t, s->align_b);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t, s->align_c);
    SAME(reader.preference, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t, s->align_d);
    lt.MatmulPreferenceDestroy(p);
}

static void describe(const struct blas_form *form)
{
    struct blas_lt_objects o = {.desc = NULL};
    char key[BLAS_TUNED_KEY];
    at = *form;
    blas_tuned_key(&form->call.shape, key);
    if (!blas_lt_make(&lt, &form->call.shape, &o) || !blas_lt_addresses(&lt, &form->call, o.desc))
        fail_msg("refused: %s", key);
    described++;
    same_description(o.desc, &form->call);
    same_layouts(&o, &form->call.shape);
    same_preference(&form->call.shape);
    blas_lt_free(&lt, &o);
}

static void describe_step(const char *model, enum model_task task, enum dtype dtype, bool is_tf32)
{
    static struct products products;
    struct blas_form form[BLAS_FORMS];
    struct products_config c = {.dtype = dtype,
                                .n = 64 * 1024,
                                .logits_rows = dtype == DTYPE_F32 ? 512 : 8192,
                                .logits_stride = 50304};
    assert_true(model_preset(model, &c.dims));
    c.dims.task = task;
    products_of(&c, &products);
    for (int i = 0; i < products.n; i++)
        for (int k = products_forms(&products.list[i], is_tf32, form) - 1; k >= 0; k--)
            describe(&form[k]);
}

TEST(every_product_of_a_step_is_described)
{
    static const char *const models[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    if (!has_library())
        return;
    for (int m = 0; m < 4; m++)
        for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++) {
            for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
                describe_step(models[m], (enum model_task)task, (enum dtype)dtype, false);
            describe_step(models[m], (enum model_task)task, DTYPE_F32, true);
        }
    size_t v = lt.cublasLtGetVersion();
    print_message("# %d descriptions, %d attributes read back, cuBLASLt %zu from %s\n", described,
                  read_back, v, library.path);
    assert_true(described > 500);
    library_close(&library);
}

/* A value of the wrong size is refused and not there when it is read back, so the test above can
 * fail. */
TEST(a_wrong_attribute_is_seen)
{
    if (!has_library())
        return;
    lt_desc desc = NULL;
    int32_t op = CUBLAS_OP_T, got = 0;
    size_t written = 0;
    assert_int_equal(lt.MatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    assert_int_not_equal(lt.MatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, 2), 0);
    assert_int_equal(reader.desc(desc, CUBLASLT_MATMUL_DESC_TRANSA, &got, sizeof got, &written), 0);
    assert_int_equal(got, CUBLAS_OP_N);
    lt.MatmulDescDestroy(desc);
    library_close(&library);
}

HARNESS_RUN_ALL()
