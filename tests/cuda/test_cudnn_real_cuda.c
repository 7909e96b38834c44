/* The real cuDNN, without a GPU: every number of src/dev/cudnn_abi.h is that of its header, and it
 * proposes deterministic engines for the graphs of all presets on four chips, in bf16 and fp16.
 * CUDNN_ALL=1: for each preset on each chip, and sequences from 256 to 2048 tokens.
 *
 * cuDNN describes a chip from JSON (DEVICEPROP), but compiles engines with the driver's library and
 * NVRTC while it looks for them. The toolkit's stub stands for the driver: it is opened here first,
 * so cuDNN finds it by its name. Each plan then ends where code would be loaded into the GPU
 * (cuLibraryLoadData); all that comes before has passed. Skipped where a library is missing. */
#ifndef CONVOY_CUDA
#include "tests/cuda/absent.h"
#else
#include "harness.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cudnn_graph.h"

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

static void numbers_are_the_header_s(void **state)
{
    (void)state;
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
#define TAKE(result, name, args)                        \
    do {                                                \
        void *symbol = dlsym(library, #name);           \
        if (!symbol)                                    \
            return "libcudnn_graph.so.9 has no " #name; \
        memcpy(&dnn.name, &symbol, sizeof symbol);      \
    } while (0);
    DNN_CALLS(TAKE)
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

/* propose — at least one deterministic engine for the shape, whose workspace is no more than what
 * cudnn.h says: B·H·T·T numbers of 16 bits, backward alone, and a little. */
static void propose(const struct chip *chip, dnn_desc prop, const struct cudnn_shape *s)
{
    const int64_t scores = s->is_backward ? 2 * s->b * s->h * s->t * s->t : 0;
    const struct cudnn_target target = {.prop = prop, .workspace_max = scores + 65536};
    struct cudnn_plan *plan = calloc(1, sizeof *plan);
    char words[512] = "";
    assert_non_null(plan);
    bool is_made = cudnn_graph_plan(&dnn, &target, s, plan);
    dnn.cudnnGetLastErrorString(words, sizeof words);
    bool is_stub = strstr(words, "cuLibraryLoadData") != NULL;
    if (plan->proposed < 1 || plan->is_too_large || plan->passed_over == plan->proposed ||
        (!is_made && !is_stub))
        fail_msg("%s, %s of %lldx%lldx%lldx%lld: %lld engines, %d not deterministic, workspace "
                 "%lld, status %d at %s: %s",
                 chip->name, s->is_backward ? "backward" : "forward", (long long)s->b,
                 (long long)s->t, (long long)s->h, (long long)s->d, (long long)plan->proposed,
                 plan->passed_over, (long long)plan->workspace_bytes, plan->status, plan->stage,
                 words);
    cudnn_graph_release(&dnn, plan);
    free(plan);
}

/* Heads of 124M, 350M, 774M and 1.56B; all have 64 elements. */
static void engines_for_every_preset(void **state)
{
    (void)state;
    static const struct chip chips[] = {{"NVIDIA A100", 80, 108, 166912},
                                        {"NVIDIA L40S", 89, 142, 101376},
                                        {"NVIDIA H100", 90, 132, 232448},
                                        {"NVIDIA B200", 100, 148, 232448}};
    static const int64_t heads[] = {12, 16, 20, 25}, tokens[] = {256, 512, 1024, 2048};
    const char *missing = find_libraries();
    int shapes_n = 0;
    if (missing)
        HARNESS_SKIP("%s", missing);
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        dnn_desc prop = describe(&chips[i]);
        for (unsigned form = 0; form < 64; form++) {
            /* one preset for a chip, 1024 tokens; the rest takes minutes */
            if (!getenv("CUDNN_ALL") && (form / 16 != i || form / 4 % 4 != 2))
                continue;
            struct cudnn_shape s = {.b = 4,
                                    .t = tokens[form / 4 % 4],
                                    .h = heads[form / 16],
                                    .hk = heads[form / 16],
                                    .d = 64,
                                    .dtype = form & 1 ? DTYPE_BF16 : DTYPE_F16,
                                    .is_backward = form >> 1 & 1};
            propose(&chips[i], prop, &s);
            shapes_n++;
        }
        (void)dnn.cudnnBackendDestroyDescriptor(prop);
    }
    print_message("# cuDNN %zu: engines for four chips, %d shapes; CUDNN_ALL=1: all shapes\n",
                  dnn.cudnnGetVersion(), shapes_n);
}

/* Fewer key heads than heads (SmolLM2, Llama 3) forward, and GPT-NeoX's rows in both directions. */
static void engines_for_rows_and_key_heads(void **state)
{
    (void)state;
    static const struct chip chip = {"NVIDIA H100", 90, 132, 232448};
    static const struct cudnn_shape shapes[] = {
        {.h = 9, .hk = 3, .d = 64},
        {.h = 32, .hk = 8, .d = 128},
        {.h = 16, .hk = 16, .d = 64, .layout = ATTENTION_LAYOUT_HEADS},
        {.h = 16, .hk = 16, .d = 64, .layout = ATTENTION_LAYOUT_HEADS, .is_backward = 1}};
    const char *missing = find_libraries();
    if (missing)
        HARNESS_SKIP("%s", missing);
    dnn_desc prop = describe(&chip);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct cudnn_shape s = shapes[i];
        s.b = 2, s.t = 1024, s.dtype = DTYPE_BF16;
        propose(&chip, prop, &s);
    }
    (void)dnn.cudnnBackendDestroyDescriptor(prop);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_the_header_s),
                                          cmocka_unit_test(engines_for_every_preset),
                                          cmocka_unit_test(engines_for_rows_and_key_heads)};
HARNESS_MAIN(tests)
#endif
