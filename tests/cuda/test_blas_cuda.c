/* Products and a step on the CUDA device without a GPU (guarded.h): products in every form through
 * the cuBLASLt of loops, and a step of GPT-2 against the CPU's. A product that cuBLASLt leaves to
 * the program's kernel is computed by the plain truth here. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"
#include "train/step/step.h"

static int own_products;
#define OWN_PRODUCT(name, take_scalars)                                                          \
    struct own_##name {                                                                          \
        struct name a;                                                                           \
        const struct step_scalars *scalars;                                                      \
    };                                                                                           \
    static int own_##name(void *arg)                                                             \
    {                                                                                            \
        struct own_##name *own = arg;                                                            \
        take_scalars(&own->a, own->scalars);                                                     \
        name##_plain(NULL, &own->a);                                                             \
        return 0;                                                                                \
    }                                                                                            \
    int name##_cuda(const struct cuda *cuda, const struct name *a)                               \
    {                                                                                            \
        own_products++;                                                                          \
        return runtime_device(cuda->stream, own_##name, &(struct own_##name){*a, cuda->scalars}, \
                              sizeof(struct own_##name));                                        \
    }
#define OWN_NOTHING(a, scalars) (void)(scalars)
static void own_dropout(struct matmul_fwd *a, const struct step_scalars *scalars)
{
    if (scalars)
        a->dropout.seed = scalars->seed, a->dropout.offset = scalars->offset;
}
OWN_PRODUCT(matmul_fwd, own_dropout)
OWN_PRODUCT(matmul_bwd_x, OWN_NOTHING)
OWN_PRODUCT(matmul_bwd_w, OWN_NOTHING)

/* ---- products ---- */

struct product {
    int64_t n, in, out, pad;
    enum matmul_layout layout;
    unsigned bits;
};

/* on_device — n floats between guards of its own; the caller frees none of it: the device does when
 * it closes. */
static float *on_device(struct dev *dev, struct stream *s, int64_t n, uint64_t draw)
{
    void *data = NULL;
    float *host = kt_floats(n, KT_RANDOM, draw);
    kt_ok(dev_alloc(dev, (size_t)n * sizeof *host, &data));
    kt_ok(dev_copy(s, data, host, (size_t)n * sizeof *host));
    kt_free(host);
    return data;
}

static void same(struct stream *s, const char *what, const struct product *p, const float *got,
                 const float *want, int64_t n)
{
    float *host = kt_floats(n, KT_ONES, 0);
    kt_ok(dev_copy(s, host, got, (size_t)n * sizeof *host));
    kt_ok(dev_sync(s));
    double nmse = kt_nmse(host, want, n);
    if (!(nmse <= 1e-12))
        fail_msg("%s %lldx%lldx%lld layout %d bits %x: nmse %g", what, (long long)p->n,
                 (long long)p->in, (long long)p->out, p->layout, p->bits, nmse);
    kt_free(host);
}

static struct tensor maybe(bool is_there, float *data)
{
    return is_there ? kt_f32(data) : (struct tensor){0};
}

static void forward(struct dev *dev, struct stream *s, const struct product *p)
{
    int64_t stride = p->out + p->pad, sizes[] = {p->n * stride,  p->n * p->out, p->n * p->in,
                                                 p->in * p->out, p->out,        p->n * stride};
    float *d[6], *h[6];
    bool is_gelu = p->bits & 1;
    for (int i = 0; i < 6; i++) {
        d[i] = on_device(dev, s, sizes[i], (uint64_t)i);
        h[i] = kt_floats(sizes[i], KT_RANDOM, (uint64_t)i);
    }
    for (int side = 0; side < 2; side++) {
        float **x = side ? d : h;
        struct matmul_fwd a = {.y = kt_f32(x[0]),
                               .pre = maybe(is_gelu && p->bits & 4, x[1]),
                               .x = kt_f32(x[2]),
                               .w = kt_f32(x[3]),
                               .b = maybe(p->bits & 2, x[4]),
                               .residual = maybe(!is_gelu && p->bits & 4, x[5]),
                               .n = p->n,
                               .in = p->in,
                               .out = p->out,
                               .y_stride = p->pad ? stride : 0,
                               .layout = p->layout,
                               .act = is_gelu ? MATMUL_ACT_GELU : MATMUL_ACT_NONE,
                               .dropout =
                                   kt_dropout(!is_gelu && p->bits & 4 && p->bits & 8 ? 0.2f : 0)};
        if (!is_gelu && p->bits & 4 && !p->pad && p->n % 2)
            a.residual = a.y;
        kt_ok(side ? dev_op(dev)->matmul_fwd(s, &a)
                   : dev_op(kt_plain()->dev)->matmul_fwd(kt_plain()->stream, &a));
    }
    same(s, "matmul_fwd y", p, d[0], h[0], sizes[0]);
    same(s, "matmul_fwd pre", p, d[1], h[1], sizes[1]);
    for (int i = 0; i < 6; i++) {
        kt_free(h[i]);
        dev_free(dev, d[i], (size_t)sizes[i] * sizeof(float));
    }
}

static void backward(struct dev *dev, struct stream *s, const struct product *p)
{
    int64_t stride = p->out + p->pad, sizes[] = {p->n * p->in, p->in * p->out, p->out,
                                                 p->n * p->in, p->n * stride,  p->in * p->out};
    float *d[6], *h[6];
    for (int i = 0; i < 6; i++) {
        d[i] = on_device(dev, s, sizes[i], (uint64_t)i);
        h[i] = kt_floats(sizes[i], KT_RANDOM, (uint64_t)i);
    }
    for (int side = 0; side < 2; side++) {
        float **x = side ? d : h;
        struct kt_device on = side ? (struct kt_device){.dev = dev, .stream = s} : *kt_plain();
        struct matmul_bwd_x a = {.dx = kt_f32(x[0]),
                                 .dy = kt_f32(x[4]),
                                 .w = kt_f32(x[5]),
                                 .pre = maybe(p->bits & 1, x[3]),
                                 .n = p->n,
                                 .in = p->in,
                                 .out = p->out,
                                 .dy_stride = p->pad ? stride : 0,
                                 .layout = p->layout};
        struct matmul_bwd_w b = {.dw = kt_f32(x[1]),
                                 .db = maybe(p->bits & 2, x[2]),
                                 .x = kt_f32(x[3]),
                                 .dy = kt_f32(x[4]),
                                 .n = p->n,
                                 .in = p->in,
                                 .out = p->out,
                                 .dy_stride = p->pad ? stride : 0,
                                 .layout = p->layout,
                                 .accumulate = p->bits & 4};
        kt_ok(dev_op(on.dev)->matmul_bwd_x(on.stream, &a));
        kt_ok(dev_op(on.dev)->matmul_bwd_w(on.stream, &b));
    }
    same(s, "matmul_bwd_x dx", p, d[0], h[0], sizes[0]);
    same(s, "matmul_bwd_w dw", p, d[1], h[1], sizes[1]);
    same(s, "matmul_bwd_w db", p, d[2], h[2], sizes[2]);
    for (int i = 0; i < 6; i++) {
        kt_free(h[i]);
        dev_free(dev, d[i], (size_t)sizes[i] * sizeof(float));
    }
}

TEST(products_match_plain)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 2}, {8, 16, 24}, {33, 20, 32}};
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    own_products = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (unsigned form = 0; form < 64; form++) {
            struct product p = {shapes[k][0],
                                shapes[k][1],
                                shapes[k][2],
                                form & 32 ? 3 : 0,
                                form & 16 ? MATMUL_LAYOUT_OI : MATMUL_LAYOUT_IO,
                                form & 15};
            forward(dev, s, &p);
            backward(dev, s, &p);
        }
    const int *counts = fake_counts();
    print_message("# %d with an epilogue or none needed, %d apart, %d refused, %d shapes, %d left "
                  "to our own\n",
                  counts[0], counts[1], counts[2], counts[3], own_products);
    assert_true(counts[0] > 20 && counts[1] > 20 && counts[2] > 5 && own_products > 5);
    assert_true(counts[3] < counts[0] + counts[1]); /* what was found for a shape is kept */
    dev_stream_close(s);
    dev_close(dev);
}

/* Bias and what is kept for GELU must be multiples of 16, else our own kernel makes the product;
 * more changes nothing. */
TEST(addresses_of_16)
{
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    struct matmul_fwd a = {.y = kt_f32(on_device(dev, s, 192, 0)),
                           .x = kt_f32(on_device(dev, s, 128, 1)),
                           .w = kt_f32(on_device(dev, s, 384, 2)),
                           .n = 8,
                           .in = 16,
                           .out = 24,
                           .act = MATMUL_ACT_GELU};
    float *bias = on_device(dev, s, 40, 3), *pre = on_device(dev, s, 208, 4);
    /* GELU apart: to any address */
    static const int from[][2] = {{0, 0}, {4, 8}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {8, 4}};
    int with = fake_counts()[0], own = own_products;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        a.b = kt_f32(bias + from[i][0]), a.pre = kt_f32(pre + from[i][1]);
        kt_ok(dev_op(dev)->matmul_fwd(s, &a));
    }
    kt_ok(dev_sync(s));
    assert_int_equal(fake_counts()[0] - with, 5);
    assert_int_equal(own_products - own, 2);
    dev_stream_close(s);
    dev_close(dev);
}

/* ---- a whole step ---- */

struct outcome {
    double loss, norm;
    float *params;
    int64_t elems;
};

static struct outcome train(struct dev *dev, enum model_task task, enum model_recompute recompute)
{
    struct step_config c = {.dev = dev,
                            .batch_samples = 2,
                            .global_samples = 4,
                            .seq_tokens = 9,
                            .seed = 3,
                            .recompute.way = recompute,
                            .dropout = 0.1f,
                            .dims = {.name = "tiny",
                                     .task = task,
                                     .layers = 2,
                                     .heads = 2,
                                     .embed = 16,
                                     .context = 12,
                                     .vocab = 64},
                            .optim = {.kind = OPTIM_KIND_ADAMW,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .grad_clip = 1}};
    struct step *step = NULL;
    struct batch b;
    struct step_result r = {0};
    kt_ok(step_open(&c, &step));
    kt_ok(batch_init(&b, task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, 4, 9));
    for (int i = 0; i < 36; i++) {
        b.host.tokens[i] = (int32_t)(rand_u32(5, 1, (uint64_t)i) % 37);
        if (b.host.targets)
            b.host.targets[i] = i % 5 ? (int32_t)(rand_u32(5, 2, (uint64_t)i) % 37) : -1;
        if (b.host.mask)
            b.host.mask[i] = i % 7 != 3;
    }
    for (int i = 0; b.host.starts && i < 4; i++)
        b.host.starts[i] = i * 2, b.host.ends[i] = i * 2 + 1;
    for (int i = 0; i < 3; i++)
        kt_ok(step_run_batch(step, &b, i, i * 4, 1e-3, false, &r));
    struct outcome out = {r.loss, r.grad_norm, NULL, step_whole_table(step)->total_elems};
    out.params = kt_floats(out.elems, KT_ONES, 0);
    kt_ok(state_read(step_state(step), 0, 0, out.elems, out.params));
    batch_free(&b);
    step_close(step);
    return out;
}

/* Language model (of a vocabulary in whole tiles, so that the tables are equal) and question
 * answering, with dropout, two micro-batches, with and without recomputation; the losses after two
 * updates and the parameters after three are the CPU's. */
TEST(gpt2_learns_the_same)
{
    struct dev *dev = open_device();
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int recompute = 0; recompute < 2; recompute++) {
            emu_seed((uint64_t)(task * 2 + recompute));
            enum model_recompute kind = recompute ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE;
            struct outcome want = train(kt_plain()->dev, (enum model_task)task, kind);
            struct outcome got = train(dev, (enum model_task)task, kind);
            double nmse = kt_nmse(got.params, want.params, want.elems);
            print_message(
                "# task %d: loss %.7f, CPU %.7f; norm %.6f, CPU %.6f; parameters' nmse %.2g\n",
                task, got.loss, want.loss, got.norm, want.norm, nmse);
            assert_true(fabs(got.loss - want.loss) <= 1e-5 * want.loss &&
                        fabs(got.norm - want.norm) <= 1e-4 * want.norm);
            assert_true(nmse <= 1e-7);
            kt_free(got.params);
            kt_free(want.params);
        }
    dev_close(dev);
}

/* Products leave multiprocessors to NCCL (COMM_SMS), never all of them. */
TEST(leaves_multiprocessors)
{
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    for (int left = 0; left <= runtime.sm_count; left++) {
        int done = 0;
        kt_ok(dev_leave_sms(s, left));
        for (int64_t n = 5; n < 9; n++) {
            int before = fake_counts()[FAKE_WITH] + fake_counts()[FAKE_WITHOUT];
            forward(dev, s, &(struct product){.n = n, .in = 8, .out = 12});
            if (fake_counts()[FAKE_WITH] + fake_counts()[FAKE_WITHOUT] == before)
                continue;
            assert_int_equal(fake_counts()[FAKE_TARGET],
                             left < runtime.sm_count && left > 0 ? runtime.sm_count - left : 0);
            done++;
        }
        assert_true(done > 0);
    }
    dev_stream_close(s);
    dev_close(dev);
}

HARNESS_RUN_ALL()
