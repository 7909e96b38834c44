/* The real cuDNN, without a GPU: every number of src/dev/cudnn/abi.h is that of its header, and on
 * four chips it proposes engines for the forward pass of all presets and for both forms of the
 * backward pass, which need no more memory than dev_cuda_attention_bytes plans. Some of them are
 * compiled. CUDNN_ALL=1: all are, which takes many minutes.
 *
 * cuDNN describes a chip from JSON (DEVICEPROP), but compiles engines with the driver's library and
 * NVRTC while it looks for them. The toolkit's stub stands for the driver: it is opened here first,
 * so cuDNN finds it by its name. Each plan then ends where code would be loaded into the GPU
 * (cuLibraryLoadData); all that comes before has passed. Skipped where a library is missing. */
#include "harness.h"

#include <dlfcn.h>

#include "dev/cudnn/graph.h"
#include "dev/cuda/cuda.h"
#include "kernels/cuda.h"
#include "model/model.h"

/* ---- the header ---- */

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define SAME_NUMBER(name, value) _Static_assert((int)DNN_##name == (int)CUDNN_##name, #name);
DNN_LIST(SAME_NUMBER)
_Static_assert(sizeof(cudnnStatus_t) == sizeof(dnn_status) &&
                   sizeof(cudnnBackendAttributeName_t) == sizeof(int) &&
                   sizeof(cudnnBackendDescriptor_t) == sizeof(dnn_desc) &&
                   sizeof(cudnnDataType_t) == sizeof(int) &&
                   sizeof(cudnnPointwiseMode_t) == sizeof(int),
               "cuDNN's types");
#define HAS_HEADER 1
#else
#define HAS_HEADER 0
#endif

TEST(numbers_are_the_header_s)
{
    if (!HAS_HEADER)
        HARNESS_SKIP("there is no cudnn_graph.h (package nvidia-cudnn-cu13)");
}

/* ---- the library ---- */

static struct dnn_table dnn;

/* open_any — the first of the files that opens. */
static void *open_any(const char *const *files)
{
    void *library = NULL;
    for (; *files && !library; files++)
        library = dlopen(*files, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

/* find_libraries — what is missing; NULL: nothing. */
static const char *find_libraries(void)
{
    static const char *const driver[] = {"libcuda.so.1", CUDA_LIBS "/stubs/libcuda.so", NULL},
                             *const nvrtc[] = {"libnvrtc.so.13", CUDA_LIBS "/libnvrtc.so.13", NULL},
                             *const cudnn[] = {CUDA_LIBS "/libcudnn_graph.so.9",
                                               "libcudnn_graph.so.9", NULL};
    if (!open_any(driver))
        return "there is no driver, nor the toolkit's stub of it (stubs/libcuda.so)";
    if (!open_any(nvrtc))
        return "there is no libnvrtc.so.13";
    void *library = open_any(cudnn);
    if (!library)
        return "there is no libcudnn_graph.so.9 (package nvidia-cudnn-cu13)";
#define LOAD(result, name, args)                        \
    do {                                                \
        void *symbol = dlsym(library, #name);           \
        if (!symbol)                                    \
            return "libcudnn_graph.so.9 has no " #name; \
        memcpy(&dnn.name, &symbol, sizeof symbol);      \
    } while (0);
    DNN_CALLS(LOAD)
    return NULL;
}

struct chip {
    const char *name;
    int sm, sm_count, shared_bytes;
};

static dnn_desc describe(const struct chip *chip)
{
    char json[1024];
    dnn_desc prop = NULL;
    int n = snprintf(
        json, sizeof json,
        "{\"version\":1,\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
        "\"totalGlobalMem\":85899345920,\"maxGridSize\":[2147483647,65535,65535],"
        "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,"
        "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
        "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
        "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
        "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,"
        "\"deviceName\":\"%s\"}",
        10 * chip->sm, chip->sm_count, chip->shared_bytes, chip->name);
    assert_true(n > 0 && (size_t)n < sizeof json);
    assert_int_equal(dnn.cudnnBackendCreateDescriptor(DNN_BACKEND_DEVICEPROP_DESCRIPTOR, &prop), 0);
    assert_int_equal(dnn.cudnnBackendSetAttribute(prop, DNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                  DNN_TYPE_CHAR, n, json),
                     0);
    assert_int_equal(dnn.cudnnBackendFinalize(prop), 0);
    return prop;
}

static const struct chip chips[] = {{"NVIDIA A100", 80, 108, 166912},
                                    {"NVIDIA L40S", 89, 142, 101376},
                                    {"NVIDIA H100", 90, 132, 232448},
                                    {"NVIDIA B200", 100, 148, 232448}};
#define CHIPS_N (sizeof chips / sizeof *chips)
enum { FORWARD, DETERMINISTIC, ATOMIC, FORMS };

static void fail_plan(const struct chip *chip, const struct cudnn_plan *p, const char *what)
{
    const struct cudnn_shape *s = &p->shape;
    char words[512] = "";
    dnn.cudnnGetLastErrorString(words, sizeof words);
    fail_msg("%s, %s%s of %lldx%lldx%lld/%lldx%lld: %s; %lld engines, %d not deterministic, "
             "engine %lld, workspace %lld, status %d at %s: %s",
             chip->name, s->is_backward ? "backward" : "forward", s->is_atomic ? " by atomics" : "",
             (long long)s->b, (long long)s->t, (long long)s->h, (long long)s->hk, (long long)s->d,
             what, (long long)p->proposed, p->passed_over, (long long)p->engine,
             (long long)p->workspace_bytes, p->status, p->stage ? p->stage : "no call", words);
}

/* Returns the bytes that a backward pass may store besides its workspace, all in f32. */
static int64_t stored_bytes(const struct cudnn_shape *s)
{
    return 4 * s->b * s->h * s->t * (1 + (s->is_atomic ? s->d : 0));
}

/* The first engine, before it is compiled. The deterministic form has a workspace for all scores;
 * on Hopper and Blackwell the atomic form has one for the gradients of repeated keys alone. */
static void propose(const struct chip *chip, dnn_desc prop, const struct cudnn_shape *s)
{
    const struct cudnn_target target = {.prop = prop, .workspace_max = -1};
    const struct dev_cuda_attention_shape shape = {s->t, s->h, s->hk, s->d, (enum dtype)s->dtype};
    struct cudnn_plan *plan = calloc(1, sizeof *plan);
    int64_t heads = s->hk < s->h ? 4 * s->b * s->h * s->t * s->d : 0, least = 0, most = 65536,
            planned = dev_cuda_attention_bytes(DEV_CUDA_ATTENTION_CUDNN, s->is_atomic, &shape);
    assert_non_null(plan);
    if (s->is_backward) {
        least = s->is_atomic ? 0 : 2 * s->b * s->h * s->t * s->t;
        most += least + heads;
        most += s->is_atomic && chip->sm < 90 ? 4 * s->b * s->h * s->t * s->d : 0;
    }
    (void)cudnn_graph_plan(&dnn, &target, s, plan);
    if (plan->proposed < 1 || !plan->is_too_large || plan->passed_over > 0)
        fail_plan(chip, plan, "no first engine");
    if (plan->workspace_bytes < least || plan->workspace_bytes > most)
        fail_plan(chip, plan, "another workspace");
    if (s->is_backward && plan->workspace_bytes + stored_bytes(s) >
                              (planned > 0 ? planned : (int64_t)CUDA_SCRATCH_BYTES))
        fail_plan(chip, plan, "more than is planned");
    cudnn_graph_release(&dnn, plan);
    free(plan);
}

/* An engine that can be compiled, up to where its code would be loaded. */
static void compile(const struct chip *chip, dnn_desc prop, const struct cudnn_shape *s)
{
    const struct cudnn_target target = {.prop = prop, .workspace_max = (int64_t)1 << 50};
    struct cudnn_plan *plan = calloc(1, sizeof *plan);
    char words[512] = "";
    assert_non_null(plan);
    bool is_made = cudnn_graph_plan(&dnn, &target, s, plan);
    dnn.cudnnGetLastErrorString(words, sizeof words);
    if (!is_made && !strstr(words, "cuLibraryLoadData"))
        fail_plan(chip, plan, "no engine is compiled");
    cudnn_graph_release(&dnn, plan);
    free(plan);
}

/* Both passes of a shape, and both forms of the backward pass. cuDNN 9.19 has no backward pass of
 * heads over 128, except on Hopper. */
static void each_form(const struct chip *chip, dnn_desc prop, const struct cudnn_shape *of,
                      void (*check)(const struct chip *, dnn_desc, const struct cudnn_shape *))
{
    for (int form = FORWARD; form < FORMS; form++) {
        struct cudnn_shape s = *of;
        s.is_backward = form != FORWARD, s.is_atomic = form == ATOMIC;
        if (!s.is_backward || s.d <= 128 || chip->sm == 90)
            check(chip, prop, &s);
    }
}

/* One sample of each preset, as long as the model can take up to 65,536 tokens, in both types. */
TEST(engines_for_every_preset)
{
    const char *missing = find_libraries();
    int presets_n = 0;
    if (missing)
        HARNESS_SKIP("%s", missing);
    for (size_t i = 0; i < CHIPS_N; i++) {
        dnn_desc prop = describe(&chips[i]);
        for (presets_n = 0; model_preset_name(presets_n); presets_n++) {
            struct model_dims dims;
            assert_true(model_preset(model_preset_name(presets_n), &dims));
            struct cudnn_shape s = {.b = 1,
                                    .t = dims.context < 65536 ? dims.context : 65536,
                                    .h = dims.heads,
                                    .hk = model_kv_heads(&dims),
                                    .d = model_head_dim(&dims),
                                    .layout = dims.arch == MODEL_ARCH_NEOX ? ATTENTION_LAYOUT_HEADS
                                                                           : ATTENTION_LAYOUT_QKV};
            for (int half = 0; half < 2; half++) {
                s.dtype = half ? DTYPE_F16 : DTYPE_BF16;
                each_form(&chips[i], prop, &s, getenv("CUDNN_ALL") ? compile : propose);
            }
        }
        (void)dnn.cudnnBackendDestroyDescriptor(prop);
    }
    print_message("# cuDNN %zu: engines for %d presets on four chips, forward and both forms of "
                  "backward\n",
                  dnn.cudnnGetVersion(), presets_n);
    assert_true(presets_n > 0);
}

/* Heads of 64, 128 and 256; several query heads for a key head; long samples. */
TEST(engines_for_widths)
{
    static const struct cudnn_shape shapes[] = {
        {.t = 512, .h = 16, .hk = 16, .d = 64},  {.t = 65536, .h = 12, .hk = 12, .d = 64},
        {.t = 8192, .h = 32, .hk = 8, .d = 128}, {.t = 65536, .h = 32, .hk = 8, .d = 128},
        {.t = 512, .h = 8, .hk = 8, .d = 256},   {.t = 65536, .h = 8, .hk = 2, .d = 256}};
    const char *missing = find_libraries();
    if (missing)
        HARNESS_SKIP("%s", missing);
    for (size_t i = 0; i < CHIPS_N; i++) {
        dnn_desc prop = describe(&chips[i]);
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            struct cudnn_shape s = shapes[k];
            s.b = 1, s.dtype = DTYPE_BF16;
            each_form(&chips[i], prop, &s, propose);
        }
        (void)dnn.cudnnBackendDestroyDescriptor(prop);
    }
}

/* GPT-2 on each chip, and Llama 3 with 8,192 tokens and GPT-NeoX's rows on an H100. */
TEST(engines_are_compiled)
{
    static const struct cudnn_shape gpt2 = {.b = 4, .t = 1024, .h = 12, .hk = 12, .d = 64},
                                    llama = {.b = 2, .t = 8192, .h = 32, .hk = 8, .d = 128},
                                    neox = {.b = 2,
                                            .t = 1024,
                                            .h = 16,
                                            .hk = 16,
                                            .d = 64,
                                            .layout = ATTENTION_LAYOUT_HEADS};
    const char *missing = find_libraries();
    if (missing)
        HARNESS_SKIP("%s", missing);
    for (size_t i = 0; i < CHIPS_N; i++) {
        dnn_desc prop = describe(&chips[i]);
        const struct cudnn_shape *const list[] = {&gpt2, &llama, &neox};
        for (size_t k = 0; k < (chips[i].sm == 90 ? 3 : 1); k++) {
            struct cudnn_shape s = *list[k];
            s.dtype = k == 2 ? DTYPE_F16 : DTYPE_BF16;
            each_form(&chips[i], prop, &s, compile);
        }
        (void)dnn.cudnnBackendDestroyDescriptor(prop);
    }
}

HARNESS_RUN_ALL()
