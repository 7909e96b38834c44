/* Where the products of a step go, without a GPU (guarded.h): every product of 16-bit numbers to
 * cuBLASLt; the choices of CONVOY_BLAS; products that fail while work is captured. */
#include "kernel_test.h"

#include "dev/blas/tuned.h"
#include "tests/cuda/guarded.h"
#include "tests/cuda/products.h"
#include "tests/cuda/steps.h"

#define STEPS 4
#define SEQ 6
#define SAMPLES 4
#define VOCAB 37

static int products_before;

static int products_asked(void)
{
    return guarded_calls[GUARDED_matmul_fwd] + guarded_calls[GUARDED_matmul_bwd_x] +
           guarded_calls[GUARDED_matmul_bwd_w] - products_before;
}

static void count(void)
{
    fake_count();
    products_before += products_asked();
}

/* ---- the products that steps ask for ---- */

static struct {
    char key[4096][BLAS_TUNED_KEY];
    int n;
    int64_t stride;
    int vocabulary; /* products of the vocabulary, by rows of logits with a stride */
    bool is_narrow; /* these get only the columns of tokens */
} asked;
static const struct op_table *real_op;

static void note(const struct blas_form *form, int n)
{
    for (int i = 0; i < n; i++) {
        assert_true(asked.n < 4096);
        blas_tuned_key(&form[i].call.shape, asked.key[asked.n++]);
    }
}

/* width — of a product whose rows of output are `stride` apart: of the vocabulary's, only the
 * columns of tokens where that is wanted. */
static int64_t width(int64_t out, int64_t stride)
{
    if (stride == 0)
        return out;
    asked.stride = stride;
    asked.vocabulary++;
    return asked.is_narrow ? VOCAB : out;
}

#define NOTED(name, stride)                                                 \
    static enum status noted_##name(struct stream *s, const struct name *a) \
    {                                                                       \
        struct blas_form form[BLAS_FORMS];                                  \
        struct name product = *a;                                           \
        product.out = width(a->out, a->stride);                             \
        note(form, blas_form_##name(false, a, form));                       \
        return real_op->name(s, &product);                                  \
    }
#define blas_form_matmul_fwd blas_form_fwd
#define blas_form_matmul_bwd_x blas_form_bwd_x
#define blas_form_matmul_bwd_w blas_form_bwd_w
NOTED(matmul_fwd, y_stride)
NOTED(matmul_bwd_x, dy_stride)
NOTED(matmul_bwd_w, dy_stride)

/* noting_device — notes every product that is asked for. The caller closes it. */
static struct dev *noting_device(void)
{
    static struct op_table table;
    struct dev *dev = open_device();
    struct dev_head *head = (struct dev_head *)dev;
    real_op = head->op;
    table = *real_op;
    table.matmul_fwd = noted_matmul_fwd;
    table.matmul_bwd_x = noted_matmul_bwd_x;
    table.matmul_bwd_w = noted_matmul_bwd_w;
    head->op = &table;
    asked.n = asked.vocabulary = 0;
    asked.is_narrow = false;
    return dev;
}

/* ---- steps ---- */

struct way {
    enum model_task task;
    enum dtype dtype;
    bool is_eager, is_untied;
    int fails_at; /* the step whose first product fails on the GPU; 0: none */
};

struct outcome {
    float *state;
    int64_t elems;
    double loss[STEPS];
    int launches;
};

static struct step *open_step(struct dev *dev, const struct way *way)
{
    struct step *step = NULL;
    struct step_config c = steps_config(dev, way->task, way->dtype, OPTIM_KIND_ADAMW);
    c.batch_samples = SAMPLES / 2, c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dropout = 0; /* a product with dropout is this program's kernel's */
    c.dims.heads = 2, c.dims.layers = 2, c.dims.vocab = VOCAB;
    c.dims.features.is_untied = way->is_untied;
    c.is_eager = way->is_eager;
    kt_ok(step_open(&c, &step));
    return step;
}

static struct outcome train(struct dev *dev, const struct way *way)
{
    struct step *step = open_step(dev, way);
    struct outcome out = {.launches = -*runtime_calls("cudaGraphLaunch")};
    struct batch b;
    kt_ok(batch_init(&b, way->task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, SAMPLES, SEQ));
    for (int64_t i = 0; i < STEPS; i++) {
        struct step_result r;
        steps_fill(&b, i, VOCAB);
        if (way->fails_at && i == way->fails_at)
            fake_counts()[FAKE_FAILS] = 1;
        kt_ok(step_run_batch(step, &b, i, i * SAMPLES, 1e-3, false, &r));
        out.loss[i] = r.loss;
    }
    out.launches += *runtime_calls("cudaGraphLaunch");
    out.state = steps_state(step, &out.elems);
    batch_free(&b);
    step_close(step);
    return out;
}

/* Every product of a bf16 and an fp16 step is cuBLASLt's, and none of this program's kernels; no
 * call breaks a rule of the manual; and each is one of products.h. */
TEST(every_16_bit_product_is_cublaslts)
{
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
            struct dev *dev = noting_device();
            struct way way = {
                .task = (enum model_task)task, .dtype = (enum dtype)dtype, .is_eager = true};
            count();
            struct outcome out = train(dev, &way);
            int products = products_asked();
            print_message("# task %d, dtype %d: %d products, %d with an epilogue, %d without, %d "
                          "refused\n",
                          task, dtype, products, fake_counted(FAKE_WITH),
                          fake_counted(FAKE_WITHOUT), fake_counted(FAKE_WRONG));
            assert_true(products > 80);
            assert_int_equal(fake_counted(FAKE_HALVES), products);
            assert_int_equal(fake_counted(FAKE_WITH) + fake_counted(FAKE_WITHOUT), products);
            assert_int_equal(fake_counted(FAKE_WRONG), 0);
            assert_true(fake_counted(FAKE_WITH) > products / 3);
            kt_free(out.state);
            dev_close(dev);
        }
}

static bool is_asked(const char *key)
{
    for (int i = 0; i < asked.n; i++)
        if (strcmp(asked.key[i], key) == 0)
            return true;
    return false;
}

static bool is_listed(const struct products *p, const char *key)
{
    struct blas_form form[BLAS_FORMS];
    char other[BLAS_TUNED_KEY];
    for (int i = 0; i < p->n; i++)
        for (int k = products_forms(&p->list[i], false, form) - 1; k >= 0; k--) {
            blas_tuned_key(&form[k].call.shape, other);
            if (strcmp(other, key) == 0)
                return true;
        }
    return false;
}

/* What products.h lists, which is described to NVIDIA's library and measured, is what a step asks
 * for. */
TEST(the_list_has_every_product_of_a_step)
{
    static struct products products;
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct dev *dev = noting_device();
            struct way way = {
                .task = (enum model_task)task, .dtype = (enum dtype)dtype, .is_eager = true};
            struct outcome out = train(dev, &way);
            struct products_config c = {.dims = {.task = way.task, .embed = 16, .vocab = VOCAB},
                                        .dtype = way.dtype,
                                        .n = SAMPLES / 2 * SEQ,
                                        .logits_rows = SAMPLES / 2 * SEQ,
                                        .logits_stride = asked.stride};
            products_of(&c, &products);
            assert_true(asked.n > 80);
            for (int i = 0; i < asked.n; i++)
                if (!is_listed(&products, asked.key[i]))
                    fail_msg("a step asks for %s, which is not in the list", asked.key[i]);
            assert_false(is_asked("nothing of the kind"));
            kt_free(out.state);
            dev_close(dev);
        }
}

/* fp32 results are compared with the CPU's, and the accuracy of an epilogue's GELU is unknown. */
TEST(fp32_has_gelu_apart)
{
    static struct products products;
    struct blas_form form[BLAS_FORMS];
    int gelus = 0;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        struct products_config c = {
            .dims = {.embed = 16, .vocab = VOCAB}, .dtype = (enum dtype)dtype, .n = 8};
        c.logits_rows = 8, c.logits_stride = 64;
        products_of(&c, &products);
        for (int i = 0; i < products.n; i++)
            for (int k = products_forms(&products.list[i], false, form) - 1; k >= 0; k--) {
                enum blas_epilogue e = form[k].call.shape.epilogue;
                bool is_gelu = e >= BLAS_GELU && e <= BLAS_DGELU;
                assert_false(is_gelu && dtype == DTYPE_F32);
                gelus += is_gelu;
            }
    }
    assert_int_equal(gelus, 3); /* of bf16: forward, forward without gradients, backward */
}

/* ---- rows of zeros behind the vocabulary ---- */

/* room_is_zero — the rows that only products read, of parameters and moments. How many elements. */
static int64_t room_is_zero(struct dev *dev, const struct way *way, const struct outcome *out)
{
    struct step *step = open_step(dev, way);
    const struct param_table *t = step_whole_table(step);
    const int arrays = step_arrays(step);
    int64_t room = 0;
    for (int array = 0; array < arrays; array++)
        for (int i = 0; i < t->params_n; i++)
            for (int64_t k = t->param[i].elems; k < t->param[i].room_elems; k++, room++)
                if (out->state[array * t->total_elems + t->param[i].offset + k] != 0)
                    fail_msg("array %d of %s: element %lld of the room is not zero", array,
                             t->param[i].name, (long long)k);
    step_close(step);
    return room / arrays;
}

/* With weight decay and several micro-batches the rows of zeros stay zero, and losses, parameters
 * and moments have the bits of products without them. */
TEST(rows_of_zeros_change_nothing)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        for (int is_untied = 0; is_untied < 2; is_untied++) {
            const struct way way = {
                .dtype = (enum dtype)dtype, .is_eager = true, .is_untied = is_untied};
            struct dev *dev = noting_device();
            struct outcome wide = train(dev, &way);
            assert_int_equal(asked.vocabulary, 3 * 2 * STEPS);
            asked.is_narrow = true;
            struct outcome narrow = train(dev, &way);
            assert_memory_equal(wide.loss, narrow.loss, sizeof wide.loss);
            assert_memory_equal(wide.state, narrow.state, (size_t)wide.elems * sizeof(float));
            assert_int_equal(room_is_zero(dev, &way, &wide), (64 - VOCAB) * 16);
            kt_free(wide.state);
            kt_free(narrow.state);
            dev_close(dev);
        }
}

/* ---- CONVOY_BLAS ---- */

/* The same losses, whatever makes the products; plain has no epilogue, off has no cuBLASLt. */
TEST(each_choice_of_convoy_blas_learns_the_same)
{
    static const struct {
        enum dtype dtype;
        double most; /* relative, to auto */
    } rows[] = {{DTYPE_F32, 1e-6}, {DTYPE_BF16, 2e-3}};
    for (size_t k = 0; k < 2; k++) {
        struct outcome out[3];
        for (int use = DEV_CUDA_BLAS_AUTO; use <= DEV_CUDA_BLAS_OFF; use++) {
            dev_cuda_blas_use((enum dev_cuda_blas_kind)use);
            struct dev *dev = open_device();
            count();
            out[use] = train(dev, &(struct way){.dtype = rows[k].dtype, .is_eager = true});
            int products = products_asked();
            int with = fake_counted(FAKE_WITH), without = fake_counted(FAKE_WITHOUT);
            if (rows[k].dtype == DTYPE_BF16)
                assert_int_equal(with + without, use == DEV_CUDA_BLAS_OFF ? 0 : products);
            assert_true(use == DEV_CUDA_BLAS_OFF || without > 0);
            assert_true(use == DEV_CUDA_BLAS_AUTO ? with > 0 : with == 0);
            assert_int_equal(fake_counted(FAKE_WRONG), 0);
            dev_close(dev);
        }
        dev_cuda_blas_use(DEV_CUDA_BLAS_AUTO);
        for (int use = 0; use < 3; use++) {
            for (int i = 0; i < STEPS; i++)
                if (!(fabs(out[use].loss[i] / out[0].loss[i] - 1) <= rows[k].most))
                    fail_msg("choice %d, dtype %d: loss %.9g of step %d, auto %.9g", use,
                             rows[k].dtype, out[use].loss[i], i, out[0].loss[i]);
            kt_free(out[use].state);
        }
    }
}

/* ---- products that fail ---- */

static struct {
    struct dev *dev;
    struct way way;
    struct outcome out;
} logged;

static void train_logged(void *arg)
{
    (void)arg;
    logged.out = train(logged.dev, &logged.way);
}

/* A product that fails while work is captured: no graph of half the work, nothing of another kernel
 * in it. The capture ends with an error that is logged, and the same work is submitted one by one,
 * with the same bits. */
TEST(a_product_that_fails_in_a_capture_ends_it)
{
    logged.dev = open_device();
    logged.way = (struct way){.dtype = DTYPE_BF16, .is_eager = true};
    struct outcome want = train(logged.dev, &logged.way);
    logged.way.is_eager = false;
    struct outcome graphs = train(logged.dev, &logged.way);
    assert_true(graphs.launches > 0);
    /* step 0 alone casts the weights, so the passes are captured in step 2 */
    logged.way.fails_at = 2;
    count();
    const char *log = harness_log_of(train_logged, NULL);
    /* of the step's two lists of work the one without casts was captured before */
    assert_int_equal(graphs.launches, (STEPS - 1) + (STEPS - 2));
    assert_int_equal(logged.out.launches, STEPS - 1);
    assert_int_equal(fake_counts()[FAKE_FAILS], 0);
    assert_int_equal(fake_counted(FAKE_WITH) + fake_counted(FAKE_WITHOUT) > 0, 1);
    assert_non_null(strstr(log, "while work is captured"));
    assert_non_null(strstr(log, "one operation at a time"));
    assert_null(strstr(log, "does not support"));
    assert_memory_equal(logged.out.state, want.state, (size_t)want.elems * sizeof *want.state);
    kt_free(want.state);
    kt_free(graphs.state);
    kt_free(logged.out.state);
    dev_close(logged.dev);
}

/* Outside of a capture the same failure is a fault of the GPU. */
TEST(a_product_that_fails_is_a_fault)
{
    struct dev *dev = open_device();
    struct way way = {.dtype = DTYPE_BF16, .is_eager = true};
    struct step *step = open_step(dev, &way);
    struct step_result r;
    struct batch b;
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    steps_fill(&b, 0, VOCAB);
    fake_counts()[FAKE_FAILS] = 1;
    assert_int_equal(step_run_batch(step, &b, 0, 0, 1e-3, false, &r), ST_FAULT);
    assert_non_null(strstr(status_message(), "dmesg"));
    batch_free(&b);
    step_close(step);
    dev_close(dev);
}

HARNESS_RUN_ALL()
