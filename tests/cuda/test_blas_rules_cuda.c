/* The rules of cuBLASLt's manual, as the tests' library has them (fake_blas.c), and the table of
 * algorithms, without a GPU. */
#include "kernel_test.h"

#include <cublasLt.h>

#include "dev/blas/lt.h"
#include "dev/blas/tuned.h"
#include "tests/cuda/guarded.h"

/* ---- blas/lt.h and cublasLt.h ---- */

#define lt_handle cublasLtHandle_t
#define lt_desc cublasLtMatmulDesc_t
#define lt_layout cublasLtMatrixLayout_t
#define lt_preference cublasLtMatmulPreference_t
#define lt_algo cublasLtMatmulAlgo_t
#define lt_result cublasLtMatmulHeuristicResult_t
#define SAME_CALL(name, parameters) \
    _Static_assert(                 \
        __builtin_types_compatible_p(unsigned(*) parameters, __typeof__(&cublasLt##name)), #name);
BLAS_LT_CALLS(SAME_CALL)
#undef lt_handle
#undef lt_desc
#undef lt_layout
#undef lt_preference
#undef lt_algo
#undef lt_result
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == BLAS_TUNED_ALGO, "an entry holds an algorithm");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == BLAS_TUNED_ALGO + 32, "and what follows");

/* The numbers that test_plans_cuda.c reads back only where NVIDIA's library is. */
TEST(numbers_of_the_header)
{
    const struct blas_lt_numbers want = {
        .compute = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
        .transpose = {CUBLAS_OP_N, CUBLAS_OP_T},
        .trans_a = CUBLASLT_MATMUL_DESC_TRANSA,
        .trans_b = CUBLASLT_MATMUL_DESC_TRANSB,
        .epilogue = CUBLASLT_MATMUL_DESC_EPILOGUE,
        .bias = CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        .bias_type = CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        .aux = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        .aux_ld = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        .sm_target = CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
        .invalid_value = CUBLAS_STATUS_INVALID_VALUE,
        .execution_failed = CUBLAS_STATUS_EXECUTION_FAILED,
        .not_supported = CUBLAS_STATUS_NOT_SUPPORTED,
        .algo_bytes = sizeof(cublasLtMatmulAlgo_t),
        .version_unit = 10000};
    assert_memory_equal(blas_lt_numbers(false), &want, sizeof want);
}

/* ---- what the manual forbids ---- */

static struct library library;
static struct blas_lt lt;

/* One search of the tests' library, of a product that has nothing wrong but what a test changes. */
struct trial {
    struct blas_call call;
    struct blas_lt_objects o;
    lt_preference preference;
    cublasLtMatmulHeuristicResult_t found;
};

static struct trial trial_of(enum dtype in, enum dtype out, enum blas_epilogue epilogue)
{
    static _Alignas(256) char memory[6][4096];
    struct trial t = {.preference = NULL};
    struct blas_shape *s = &t.call.shape;
    s->m = s->n = s->k = s->lda = s->ldb = s->ldc = s->ldd = s->ld_aux = 16;
    s->a = s->b = in, s->d = s->bias = out, s->epilogue = epilogue;
    s->align_a = s->align_b = s->align_c = s->align_d = BLAS_ALIGN;
    t.call.a = memory[0], t.call.b = memory[1], t.call.c = t.call.d = memory[2];
    t.call.bias = memory[3], t.call.aux = memory[4];
    return t;
}

/* search — the status; < 0: the description itself is refused. */
static int search(struct trial *t)
{
    int n = 0;
    if (!blas_lt_make(&lt, &t->call.shape, &t->o) || !blas_lt_addresses(&lt, &t->call, t->o.desc))
        return -1;
    if (!t->preference)
        t->preference = blas_lt_preference(&lt, &t->call.shape, 1 << 20);
    return (int)lt.MatmulAlgoGetHeuristic(NULL, t->o.desc, t->o.a, t->o.b, t->o.c, t->o.d,
                                          t->preference, 1, &t->found, &n);
}

static int multiply(const struct trial *t, size_t workspace)
{
    static _Alignas(256) char scratch[1 << 20];
    const float one = 1, zero = 0;
    return (int)lt.Matmul(NULL, t->o.desc, &one, t->call.a, t->o.a, t->call.b, t->o.b, &zero,
                          t->call.c, t->o.c, t->call.d, t->o.d, &t->found.algo, scratch, workspace,
                          NULL);
}

static void trial_end(struct trial *t)
{
    lt.MatmulPreferenceDestroy(t->preference);
    blas_lt_free(&lt, &t->o);
    *t = (struct trial){.preference = NULL};
}

static void begin_trials(void)
{
    use_fake();
    kt_ok(blas_lt_open(false, &library, &lt));
}

TEST(types_of_the_manual)
{
    static const struct {
        enum dtype a, b, d, bias;
        enum blas_epilogue epilogue;
        bool is_tf32, is_allowed;
    } rows[] = {
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32, BLAS_BIAS, false, true},
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32, BLAS_BIAS, true, true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, BLAS_GELU_AUX_BIAS, false, true},
        {DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16, BLAS_DGELU, false, true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_F32, BLAS_BGRAD_A, false, true},
        {DTYPE_F16, DTYPE_F16, DTYPE_F32, DTYPE_F32, BLAS_BGRAD_B, false, true},
        {DTYPE_BF16, DTYPE_F16, DTYPE_BF16, DTYPE_BF16, BLAS_NONE, false, false},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_F16, DTYPE_F16, BLAS_NONE, false, false},
        {DTYPE_F32, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, BLAS_NONE, false, false},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, BLAS_NONE, true, false},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, BLAS_BIAS, false, false},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_BF16, BLAS_BGRAD_A, false, false},
    };
    begin_trials();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial t = trial_of(rows[i].a, rows[i].d, rows[i].epilogue);
        t.call.shape.b = rows[i].b, t.call.shape.bias = rows[i].bias;
        t.call.shape.is_tf32 = rows[i].is_tf32;
        fake_count();
        int rc = search(&t);
        if ((rc == 0) != rows[i].is_allowed || fake_counted(FAKE_WRONG) != !rows[i].is_allowed)
            fail_msg("row %zu: status %d", i, rc);
        trial_end(&t);
    }
    library_close(&library);
}

TEST(sizes_of_the_manual)
{
    begin_trials();
    struct trial t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_NONE);
    t.call.shape.lda = 15; /* less than its rows */
    assert_int_equal(search(&t), -1);
    trial_end(&t);
    t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_GELU_AUX_BIAS);
    t.call.shape.ld_aux = 20; /* no multiple of 8 */
    assert_int_equal(search(&t), CUBLAS_STATUS_NOT_SUPPORTED);
    trial_end(&t);
    t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_GELU_AUX_BIAS);
    t.call.shape.ld_aux = 8; /* less than the rows of D */
    assert_int_equal(search(&t), CUBLAS_STATUS_INVALID_VALUE);
    trial_end(&t);
    t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_DGELU);
    t.call.shape.ldc = t.call.shape.ldd = 17; /* with aux: 16 bytes at a time */
    assert_int_equal(search(&t), CUBLAS_STATUS_NOT_SUPPORTED);
    trial_end(&t);
    t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_NONE);
    const uint32_t unknown = 1;
    assert_int_equal(search(&t), 0);
    assert_int_equal(lt.MatmulDescSetAttribute(t.o.desc, CUBLASLT_MATMUL_DESC_FILL_MODE, &unknown,
                                               sizeof unknown),
                     CUBLAS_STATUS_INVALID_VALUE);
    trial_end(&t);
    library_close(&library);
}

/* A search that allows partial sums in 16 bits is refused, so blas_lt_preference sets the mask. */
TEST(no_partial_sums_in_16_bits)
{
    const uint32_t any = CUBLASLT_REDUCTION_SCHEME_MASK,
                   in_place = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    begin_trials();
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct trial t = trial_of(DTYPE_BF16, is_wide ? DTYPE_F32 : DTYPE_BF16, BLAS_NONE);
        assert_int_equal(search(&t), 0);
        lt.MatmulPreferenceSetAttribute(t.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                        &in_place, sizeof in_place);
        assert_int_equal(search(&t), is_wide ? 0 : CUBLAS_STATUS_INVALID_VALUE);
        lt.MatmulPreferenceSetAttribute(t.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                        &any, sizeof any);
        assert_int_equal(search(&t), CUBLAS_STATUS_INVALID_VALUE);
        trial_end(&t);
    }
    library_close(&library);
}

/* An algorithm is for what it was found for. */
TEST(a_plan_of_another_product_is_refused)
{
    begin_trials();
    struct trial t = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_BIAS),
                 other = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_BIAS);
    other.call.shape.ldb = 24;
    assert_int_equal(search(&t), 0);
    assert_int_equal(search(&other), 0);
    assert_int_equal(multiply(&t, 1 << 20), 0);
    assert_int_equal(multiply(&t, 255), CUBLAS_STATUS_INVALID_VALUE); /* workspace */
    const struct trial kept = t;
    t.found = other.found;
    assert_int_equal(multiply(&t, 1 << 20), CUBLAS_STATUS_INVALID_VALUE);
    t.found = kept.found;
    t.call.b = (const char *)t.call.b + 8; /* was promised to be aligned to 16 */
    assert_int_equal(multiply(&t, 1 << 20), CUBLAS_STATUS_INVALID_VALUE);
    t.call.b = kept.call.b;
    t.call.bias = (char *)kept.call.bias + 2;
    assert_true(blas_lt_addresses(&lt, &t.call, t.o.desc));
    assert_int_equal(multiply(&t, 1 << 20), CUBLAS_STATUS_INVALID_VALUE);
    trial_end(&t);
    trial_end(&other);
    library_close(&library);
}

/* ---- the table of algorithms ---- */

static struct {
    struct blas *b;
    struct blas_call call;
    struct cuda cuda;
} run;

static void run_once(void *arg)
{
    bool is_done;
    kt_ok(blas_plan_run(run.b, &run.cuda, &run.call, &is_done));
    *(bool *)arg = is_done;
}

static bool runs(const char *table)
{
    bool is_done = false;
    blas_plan_table(run.b, table);
    fake_count();
    run_once(&is_done);
    return is_done;
}

TEST(the_table_chooses_the_algorithm)
{
    static _Alignas(256) char scratch[4096];
    const struct blas_chip chip = {"NVIDIA H100 80GB HBM3", 132}, other = {"NVIDIA H200", 132};
    struct blas_tuned found[8], read, apart = {.is_apart = true};
    char row[BLAS_TUNED_ROW], table[4 * BLAS_TUNED_ROW];
    use_fake();
    kt_ok(blas_plan_open(&chip, &run.b));
    run.call = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_GELU_AUX_BIAS).call;
    run.cuda = (struct cuda){.scratch = scratch, .scratch_bytes = sizeof scratch};
    const struct blas_shape *shape = &run.call.shape;
    const size_t version = blas_plan_version(run.b);
    assert_int_equal(blas_plan_candidates(run.b, &run.cuda, shape, found, 8), 3);
    assert_true(runs(""));
    assert_int_equal(fake_counted(FAKE_CHOSEN), 1); /* the library's own first */

    blas_tuned_write(&chip, version, shape, &found[2], row);
    assert_true(runs(row));
    assert_int_equal(fake_counted(FAKE_CHOSEN + 2), 1);
    assert_true(blas_tuned_find(row, &chip, version, shape, &read));
    assert_false(blas_tuned_find(row, &other, version, shape, &read));
    assert_false(blas_tuned_find(row, &chip, version + 1, shape, &read));
    struct blas_shape longer = *shape;
    longer.k = 32;
    assert_false(blas_tuned_find(row, &chip, version, &longer, &read));
    assert_false(blas_tuned_find("\"NVIDIA\"", &chip, version, shape, &read));

    /* of several entries the one that fits exactly; a damaged one is none */
    blas_tuned_write(&other, version, shape, &found[1], table);
    strcat(table, row);
    assert_true(runs(table));
    assert_int_equal(fake_counted(FAKE_CHOSEN + 2), 1);
    *strrchr(row, ';') = '0';
    assert_true(runs(row));
    assert_int_equal(fake_counted(FAKE_CHOSEN), 1);

    blas_tuned_write(&chip, version, shape, &apart, row);
    assert_false(runs(row)); /* another form is faster */
    assert_int_equal(fake_counted(FAKE_SHAPES), 0);
    blas_plan_close(run.b);
}

/* An entry that the library refuses is reported once; its own choice is taken. */
TEST(a_stale_entry_is_reported_once)
{
    static _Alignas(256) char scratch[4096];
    const struct blas_chip chip = {"GPU", 1};
    struct blas_tuned found;
    char table[2 * BLAS_TUNED_ROW];
    bool is_done = false;
    use_fake();
    kt_ok(blas_plan_open(&chip, &run.b));
    run.call = trial_of(DTYPE_BF16, DTYPE_BF16, BLAS_NONE).call;
    run.cuda = (struct cuda){.scratch = scratch, .scratch_bytes = sizeof scratch};
    assert_int_equal(blas_plan_candidates(run.b, &run.cuda, &run.call.shape, &found, 1), 1);
    blas_tuned_write(&chip, blas_plan_version(run.b), &run.call.shape, &found, table);
    blas_plan_table(run.b, table);
    fake_counts()[FAKE_STALE] = 1;
    fake_count();
    assert_non_null(strstr(harness_log_of(run_once, &is_done), "the table of algorithms has one"));
    assert_true(is_done && fake_counted(FAKE_CHOSEN) == 1);
    blas_plan_table(run.b, table);
    assert_null(strstr(harness_log_of(run_once, &is_done), "the table of algorithms"));
    fake_counts()[FAKE_STALE] = 0;
    blas_plan_close(run.b);
}

/* The table that is checked in can be read to its end: each entry is whole. */
TEST(the_checked_in_table_is_whole)
{
    const char *table = blas_tuned_checked_in();
    int bars = 0, entries = 0;
    for (; *table; table++) {
        bars += *table == '|';
        entries += *table == ';';
    }
    assert_int_equal(bars, 5 * entries);
}

HARNESS_RUN_ALL()
