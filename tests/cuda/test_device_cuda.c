/* The number of workers and the kind of device, by the GPUs that are found (choose/device.c), over
 * a runtime that has as many as a test asks for. A world in which one node has GPUs and another has
 * none is refused before ranks exchange a number. */
#include "kernel_test.h"

#include <sys/resource.h>

#include "base/memory.h"
#include "cluster/node_diff.h"
#include "dev/cuda/cuda.h"
#include "kernels/cuda.h"
#include "node/choose/device.h"
#include "node/choose/memory_check.h"
#include "node/choose/config_map.h"
#include "tests/cuda/guarded.h"

/* The answer is kept in a process, so each question has one of its own. */
struct answer {
    int workers_n;
    char kind[8], source[32], agreed[8192];
};

static enum status open_conf(const char *words, struct conf **out)
{
    static char copy[256];
    char *argv[8], *none[] = {NULL}, *rest = NULL;
    int argc = 0;
    text_copy(copy, sizeof copy, words);
    for (char *word = strtok_r(copy, " ", &rest); word && argc < 8;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return conf_open(argc, argv, none, out);
}

static enum status reply(const char *words, struct answer *a)
{
    char *none[] = {NULL};
    struct conf *conf = NULL;
    struct text agreed = {0};
    TRY(open_conf(words, &conf));
    a->workers_n = device_workers(conf);
    TRY(conf_set_workers(conf, a->workers_n, none));
    text_copy(a->source, sizeof a->source,
              conf_is_set(conf, CONF_N_GPU_EACH_NODE) ? "set"
                                                      : conf_source(conf, CONF_N_GPU_EACH_NODE));
    text_copy(a->kind, sizeof a->kind, device_kind(conf));
    TRY(config_map_agreement(conf, &agreed));
    text_copy(a->agreed, sizeof a->agreed, agreed.data);
    text_free(&agreed);
    conf_close(conf);
    return ST_OK;
}

static struct answer ask(int gpus_n, const char *words)
{
    struct answer *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0),
                  copy;
    int ended = 0;
    assert_true(a != MAP_FAILED);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        assert_non_null(launchers[i]); /* the emulation's, not nvcc's */
    runtime.devices_n = gpus_n;
    pid_t pid = fork();
    if (pid == 0) {
        enum status st = reply(words, a);
        if (st != ST_OK)
            fprintf(stderr, "# %s\n", status_message());
        _exit(st != ST_OK);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(ended, 0);
    copy = *a;
    munmap(a, sizeof *a);
    return copy;
}

TEST(a_worker_for_each_gpu)
{
    const struct {
        int gpus_n, workers_n;
    } cases[] = {{0, 1}, {1, 1}, {8, 8}, {63, 63}, {64, 64}, {65, 64}, {300, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = ask(cases[i].gpus_n, "MODEL=gpt2-nano");
        if (a.workers_n != cases[i].workers_n)
            fail_msg("%d workers for %d GPUs, want %d", a.workers_n, cases[i].gpus_n,
                     cases[i].workers_n);
        assert_string_equal(a.kind, cases[i].gpus_n ? "cuda" : "cpu");
        assert_string_equal(a.source, cases[i].workers_n > 1 ? "GPUs found" : "default");
    }
    assert_int_equal(ask(8, "MODEL=gpt2-nano DEVICE=cpu").workers_n, 1);
    assert_string_equal(ask(8, "MODEL=gpt2-nano DEVICE=cpu").kind, "cpu");
}

/* Of nodes that leave DEVICE=auto, those without GPUs, or with too few, compute on the CPU, and say
 * so. */
TEST(a_mixture_of_devices_is_named)
{
    char message[512];
    const char *words = "MODEL=gpt2-nano N_NODES=2 MASTER_ADDR=127.0.0.1 JOB_TOKEN_FILE=unread";
    struct answer with = ask(1, words), without = ask(0, words);
    struct node_diff_side mine = {0, "a", 1, 2, with.workers_n, with.agreed};
    struct node_diff_side theirs = {1, "b", 1, 2, without.workers_n, without.agreed};
    assert_false(node_diff_is_same(&mine, &theirs, message, sizeof message));
    assert_non_null(strstr(message, "device is cuda on node 0 and cpu on node 1 (host b)"));
    assert_string_equal(ask(2, "MODEL=gpt2-nano N_GPU_EACH_NODE=2").kind, "cuda");
    assert_string_equal(ask(1, "MODEL=gpt2-nano N_GPU_EACH_NODE=2").kind, "cpu");
    theirs.agree_json = with.agreed;
    assert_true(node_diff_is_same(&mine, &theirs, message, sizeof message));
}

static enum status ask_fit(const char *words, char *message, size_t cap)
{
    struct conf *conf = NULL;
    struct dev *dev = NULL;
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights;
    assert_int_equal(open_conf(words, &conf), ST_OK);
    assert_int_equal(config_map_dims(conf, &dims, &has_weights), ST_OK);
    assert_int_equal(config_map_trainer(conf, &dims, has_weights, &config), ST_OK);
    assert_int_equal(dev_cuda_open(0, false, &dev), ST_OK);
    config.step.store.dtype = device_dtype(conf, dev_is_discrete(dev));
    enum status st = memory_check_device(conf, &config, 0, dev);
    text_copy(message, cap, status_message());
    dev_close(dev);
    conf_close(conf);
    return st;
}

static struct memory_plan plan_of(int ranks, bool over_nccl)
{
    struct conf *conf = NULL;
    struct model_dims dims;
    struct trainer_config config;
    struct memory_plan plan;
    const struct memory_plan_place place = {.at = {.ranks = ranks, .nodes = 1, .locals = ranks},
                                            .is_discrete = true,
                                            .stays_on_device = over_nccl,
                                            .rounding_bytes = 3 << 20};
    bool has_weights;
    kt_ok(open_conf("MODEL=gpt2-nano BATCH_SIZE=1 GLOBAL_BATCH=2", &conf));
    kt_ok(config_map_dims(conf, &dims, &has_weights));
    kt_ok(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.recompute.way = MODEL_RECOMPUTE_NONE;
    config.step.store.shard = LAYOUT_SHARD_NONE;
    kt_ok(memory_plan_train(&config, &place, &plan));
    conf_close(conf);
    return plan;
}

/* The plan of a GPU counts what dev_info reports as scratch, and has rows of their own for what is
 * only estimated. */
TEST(scratch_and_estimates_are_planned)
{
    struct dev_info info;
    struct dev *dev = NULL;
    struct memory_plan one = plan_of(1, true), two = plan_of(2, false), nccl = plan_of(2, true);
    int64_t gathered = nccl.device[MEMORY_PLAN_WORKSPACE] - two.device[MEMORY_PLAN_WORKSPACE];
    runtime.devices_n = 1;
    kt_ok(dev_cuda_open(0, false, &dev));
    dev_info(dev, &info);
    dev_close(dev);
    assert_int_equal(one.device[MEMORY_PLAN_SCRATCH], info.scratch_bytes);
    assert_true(one.device[MEMORY_PLAN_LIBRARIES] > 0 && one.host[MEMORY_PLAN_LIBRARIES] > 0);
    assert_int_equal(one.device[MEMORY_PLAN_COMM_ESTIMATE], 0);
    assert_true(two.device[MEMORY_PLAN_COMM_ESTIMATE] > info.scratch_bytes);
    assert_int_equal(nccl.device[MEMORY_PLAN_COMM_ESTIMATE], (1536 + 3) << 20);
    /* the losses of both ranks, on the device and beside it */
    assert_true(gathered >= 2 * 4 * 64 &&
                gathered == nccl.host[MEMORY_PLAN_WORKSPACE] - two.host[MEMORY_PLAN_WORKSPACE]);
}

/* Returns the scratch on a GPU that the plan of one of two workers has. */
static int64_t scratch_of(const char *words)
{
    struct conf *conf = NULL;
    struct model_dims dims;
    struct trainer_config config;
    struct memory_plan plan;
    const struct memory_plan_place place = {.at = {.ranks = 2, .nodes = 1, .locals = 2},
                                            .is_discrete = true};
    bool has_weights;
    kt_ok(open_conf(words, &conf));
    kt_ok(config_map_dims(conf, &dims, &has_weights));
    kt_ok(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.recompute.way = MODEL_RECOMPUTE_NONE;
    config.step.store.shard = LAYOUT_SHARD_NONE;
    config.step.store.dtype = DTYPE_BF16;
    kt_ok(memory_plan_train(&config, &place, &plan));
    conf_close(conf);
    return plan.device[MEMORY_PLAN_SCRATCH];
}

/* With 8,192 tokens of Llama 3 one sample of cuDNN's backward pass needs more than the stream's
 * scratch: 3 x 32 x 8192 x 128 numbers of f32 in the atomic form, and half of them with half of the
 * heads; all scores in the deterministic form. */
TEST(scratch_of_attention_is_planned)
{
    const int64_t least = (int64_t)CUDA_SCRATCH_BYTES, sums = (int64_t)3 * 4 * 32 * 8192 * 128,
                  scores = (int64_t)2 * 32 * 8192 * 8192, margin = 2 << 20;
#define LLAMA "MODEL=llama-3-8b SEQ_LEN=8192 BATCH_SIZE=1 GLOBAL_BATCH=2 N_GPU_EACH_NODE=2 "
    int64_t atomic = scratch_of(LLAMA "DETERMINISTIC=0"),
            large = scratch_of(LLAMA "ATTENTION=cudnn");
    assert_true(atomic > least + sums && atomic < least + sums + margin);
    assert_true(large > least + scores && large < least + scores + sums / 3 + margin);
    assert_int_equal(scratch_of(LLAMA), least);
    assert_int_equal(scratch_of(LLAMA "DETERMINISTIC=0 ATTENTION=own"), least);
    assert_int_equal(scratch_of(LLAMA "DETERMINISTIC=0 DROPOUT=0.1"), least);
    assert_int_equal(scratch_of(LLAMA "DETERMINISTIC=0 CP=2"), least);
    assert_int_equal(scratch_of(LLAMA "DETERMINISTIC=0 TP=2"), least);
    assert_int_equal(scratch_of("MODEL=gpt2 BATCH_SIZE=64 DETERMINISTIC=0 N_GPU_EACH_NODE=2"),
                     least);
}

/* MiB that are planned for NCCL on a rank. */
static int64_t nccl_mib(const char *words, int rank, int ranks, int locals)
{
    struct conf *conf = NULL;
    struct model_dims dims;
    struct trainer_config config;
    struct memory_plan plan;
    const struct memory_plan_place place = {.at = {.rank = rank,
                                                   .ranks = ranks,
                                                   .node = rank / locals,
                                                   .nodes = ranks / locals,
                                                   .local = rank % locals,
                                                   .locals = locals},
                                            .is_discrete = true,
                                            .stays_on_device = true};
    bool has_weights;
    kt_ok(open_conf(words, &conf));
    kt_ok(config_map_dims(conf, &dims, &has_weights));
    kt_ok(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.recompute.way = MODEL_RECOMPUTE_NONE;
    kt_ok(memory_plan_train(&config, &place, &plan));
    conf_close(conf);
    return plan.device[MEMORY_PLAN_COMM_ESTIMATE] >> 20;
}

/* 1.5 GiB for the communicator of all ranks, 24·2·12 + 512 MiB for each further one, 32·12 MiB for
 * each GPU of the node with which messages are exchanged. */
TEST(nccls_buffers_are_planned)
{
    enum { WORLD = 1536, GROUP = 24 * 2 * 12 + 512, PEER = 32 * 12 };
    static const struct {
        const char *words;
        int rank, ranks, locals;
        int64_t mib;
    } cases[] = {
        {"SHARD=none", 0, 8, 8, WORLD},
        {"SHARD=full", 1, 8, 8, WORLD},
        {"SHARD=full", 0, 8, 8, WORLD + 7 * PEER},  /* it saves the state of all */
        {"SHARD=full", 0, 16, 8, WORLD + 7 * PEER}, /* of its node */
        {"SHARD=none COMPRESS=int8", 3, 8, 8, WORLD + 8 * PEER},
        {"SHARD=none TP=2", 1, 8, 8, WORLD + 2 * GROUP},
        {"SHARD=none TP=2", 1, 2, 2, WORLD}, /* the tensor group is that of all ranks */
        {"SHARD=none PP=2", 1, 2, 2, WORLD + PEER},
        {"SHARD=none PP=4", 1, 4, 4, WORLD + 2 * PEER},
        {"SHARD=hybrid", 1, 16, 8, WORLD + 2 * GROUP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        snprintf(words, sizeof words, "MODEL=gpt2-nano BATCH_SIZE=1 GLOBAL_BATCH=16 %s",
                 cases[i].words);
        int64_t mib = nccl_mib(words, cases[i].rank, cases[i].ranks, cases[i].locals);
        if (mib != cases[i].mib)
            fail_msg("%s: %lld MiB, not %lld", cases[i].words, (long long)mib,
                     (long long)cases[i].mib);
    }
}

/* Checks the host's memory when 64 MiB of it are left to this process. */
static enum status check_host(const char *words)
{
    struct conf *conf = NULL;
    struct rlimit saved, less;
    struct memory_limits now;
    kt_ok(open_conf(words, &conf));
    getrlimit(RLIMIT_DATA, &saved);
    less = saved;
    less.rlim_cur = (rlim_t)1 << 42;
    assert_int_equal(setrlimit(RLIMIT_DATA, &less), 0);
    memory_limits(&now);
    less.rlim_cur -= (rlim_t)(now.process_bytes - (64 << 20));
    assert_int_equal(setrlimit(RLIMIT_DATA, &less), 0);
    enum status st = memory_check_train(conf);
    setrlimit(RLIMIT_DATA, &saved);
    conf_close(conf);
    return st;
}

/* The small host part of a run on a GPU is an estimate: a warning. A large one, with the copy of
 * the state for checkpoints, is refused, and so is a run on the CPU. */
TEST(a_gpu_needs_little_of_the_host)
{
    assert_int_equal(check_host("MODEL=gpt2 BATCH_SIZE=1 DEVICE=cuda"), ST_OK);
    assert_int_equal(check_host("MODEL=gpt2 BATCH_SIZE=1 DEVICE=cpu"), ST_BAD_SETTING);
    assert_int_equal(check_host("MODEL=gpt2-xl BATCH_SIZE=1 DEVICE=cuda CHECKPOINT_DIR=/none "
                                "CHECKPOINT_EVERY=1 CHECKPOINT_ASYNC=on"),
                     ST_BAD_SETTING);
}

static int64_t need_of_two(void)
{
    struct conf *conf = NULL;
    struct dev *dev = NULL;
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights;
    int64_t bytes = 0;
    kt_ok(open_conf("MODEL=gpt2-nano BATCH_SIZE=1 N_GPU_EACH_NODE=2", &conf));
    kt_ok(config_map_dims(conf, &dims, &has_weights));
    kt_ok(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.recompute.way = MODEL_RECOMPUTE_NONE;
    config.step.store.shard = LAYOUT_SHARD_NONE;
    kt_ok(dev_cuda_open(0, false, &dev));
    kt_ok(memory_check_need(conf, &config, 0, dev, &bytes));
    dev_close(dev);
    conf_close(conf);
    return bytes;
}

/* The tests' NCCL is 2.28.9: it rounds to what the driver tells. Without an answer the most that
 * any version rounds to is planned. */
TEST(the_rounding_of_nccl_is_planned)
{
    char nccl[700];
    text_copy(nccl, sizeof nccl, here("/../comm/nccl"));
    library_dir(nccl);
    runtime.devices_n = 1;
    int64_t unknown = need_of_two();
    void *driver = dlopen(here("/driver/libcuda.so.1"), RTLD_NOW);
    assert_non_null(driver);
    int64_t known = need_of_two();
    dlclose(driver);
    library_dir(NULL);
    assert_int_equal(unknown - known, (512 - 4) << 20);
}

/* What a GPU of 8 GiB cannot hold is refused before any of it is taken, with what it can hold. */
TEST(a_gpu_that_is_too_small)
{
    char message[1024];
    runtime.devices_n = 1;
    assert_int_equal(ask_fit("MODEL=gpt2-nano BATCH_SIZE=1", message, sizeof message), ST_OK);
    assert_int_equal(ask_fit("MODEL=gpt2-xl BATCH_SIZE=4", message, sizeof message),
                     ST_BAD_SETTING);
    if (!strstr(message, "but the GPU has 8.0 GiB") ||
        !strstr(message, "it would fit with: SHARD=full"))
        fail_msg("%s", message);
    assert_int_equal(ask_fit("MODEL=gpt2-medium BATCH_SIZE=8", message, sizeof message),
                     ST_BAD_SETTING);
    if (!strstr(message, "it would fit with: BATCH_SIZE="))
        fail_msg("%s", message);
}

HARNESS_RUN_ALL()
