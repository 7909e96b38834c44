/* device — see device.h. */
#include "node/choose/device.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "comm/nccl/lib.h"
#include "dev/cuda/cuda.h"
#include "dev/nvidia/library.h"
#include "dev/nvidia/driver.h"
#include "kernels/cpu.h"

#define FIND_MS (120 * 1000)

#define IS_BLAS(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, DEV_CUDA_BLAS_##value)
CONF_CONVOY_BLAS_LIST(IS_BLAS)

/* check_cpu — checks that the CPU can run these settings. The CPU uses this program's own kernels,
 * and computes in bf16 only if the user set it, so that a node that misses its GPUs reports
 * that. */
static enum status check_cpu(const struct conf *conf)
{
    if (conf_i64(conf, CONF_ATTENTION) == CONF_ATTENTION_CUDNN)
        return FAIL(ST_NO_DEVICE,
                    "ATTENTION=cudnn (%s) needs a GPU, but DEVICE=%s (%s) found no usable one; use "
                    "ATTENTION=auto",
                    conf_source(conf, CONF_ATTENTION), conf_text(conf, CONF_DEVICE),
                    conf_source(conf, CONF_DEVICE));
    int64_t precision = conf_i64(conf, CONF_PRECISION);
    if (precision <= CONF_PRECISION_FP32 ||
        (precision == CONF_PRECISION_BF16 && conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU))
        return ST_OK;
    return FAIL(
        ST_NO_DEVICE,
        "PRECISION=%s (%s) needs a GPU, but DEVICE=%s (%s) found no usable one; set DEVICE=cuda or "
        "hip to see the reason, or PRECISION=fp32 or DEVICE=cpu to train on the CPU",
        conf_text(conf, CONF_PRECISION), conf_source(conf, CONF_PRECISION),
        conf_text(conf, CONF_DEVICE), conf_source(conf, CONF_DEVICE));
}

/* The reason why DEVICE=auto uses the CPU on a machine with a GPU's driver; "" if it does not. */
static char note[BOARD_NOTE_MAX];

const char *device_note(void) { return note; }

/* choose_vendor — chooses the runtime of a vendor, and its library of collectives. */
static enum status choose_vendor(enum dev_gpu vendor)
{
    TRY(dev_cuda_choose(vendor));
    nccl_lib_choose(vendor == DEV_GPU_HIP, dev_hip_function());
    return ST_OK;
}

static bool has_amd_driver(void) { return access("/dev/kfd", F_OK) == 0; }

/* choose_gpu — chooses the vendor that DEVICE requests, and counts its GPUs. auto: AMD's only if
 * there are none of NVIDIA, nor their driver. */
static enum status choose_gpu(const struct conf *conf, int *count_out)
{
    const int64_t asked = conf_i64(conf, CONF_DEVICE);
    enum status st = asked == CONF_DEVICE_HIP ? ST_OK : choose_vendor(DEV_GPU_CUDA);
    if (st == ST_OK && asked != CONF_DEVICE_HIP)
        st = dev_cuda_count(count_out);
    if (asked == CONF_DEVICE_CUDA ||
        (asked == CONF_DEVICE_AUTO &&
         (st == ST_OK || dev_hip_built() == NULL || nvidia_driver_is_here())))
        return st;
    TRY(choose_vendor(DEV_GPU_HIP));
    return dev_cuda_count(count_out);
}

/* has_gpus — returns true if DEVICE=auto finds a GPU for each worker. If it finds fewer on a
 * machine with a GPU's driver, the user hardly intends to use the CPU: the reason is kept, and the
 * node's first worker logs a warning. */
static bool has_gpus(const struct conf *conf, int worker_i)
{
    int count = 0, workers_n = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    if (choose_gpu(conf, &count) == ST_OK) {
        if (count >= workers_n)
            return true;
        (void)FAIL(ST_NO_DEVICE,
                   "N_GPU_EACH_NODE=%d is more than the %d GPUs that this process sees; lower it, "
                   "or check %s",
                   workers_n, count,
                   dev_cuda_chosen() == DEV_GPU_HIP ? "HIP_VISIBLE_DEVICES"
                                                    : "CUDA_VISIBLE_DEVICES");
    }
    if (count > 0 || nvidia_driver_is_here() || (dev_hip_built() != NULL && has_amd_driver())) {
        text_format(note, sizeof note, "DEVICE=auto uses the CPU: %s", status_message());
        if (worker_i == 0)
            LOG_WARN("%s", note);
    } else {
        LOG_DEBUG("DEVICE=auto uses the CPU: %s", status_message());
    }
    status_clear();
    return false;
}

/* The child process of count_gpus found GPUs of AMD. */
static bool has_counted_hip;

static bool is_hip(const struct conf *conf)
{
    const int64_t asked = conf_i64(conf, CONF_DEVICE);
    return asked == CONF_DEVICE_HIP ||
           (asked == CONF_DEVICE_AUTO && (has_counted_hip || dev_cuda_chosen() == DEV_GPU_HIP));
}

/* check_hip — checks that the settings need no library of NVIDIA. */
static enum status check_hip(const struct conf *conf)
{
    if (conf_i64(conf, CONF_ATTENTION) == CONF_ATTENTION_CUDNN)
        return FAIL(ST_BAD_SETTING,
                    "ATTENTION=cudnn (%s) needs an NVIDIA GPU, and DEVICE=%s (%s) uses AMD's; use "
                    "ATTENTION=auto",
                    conf_source(conf, CONF_ATTENTION), conf_text(conf, CONF_DEVICE),
                    conf_source(conf, CONF_DEVICE));
    return ST_OK;
}

enum dev_cuda_attention device_attention(const struct conf *conf)
{
    if (is_hip(conf))
        return DEV_CUDA_ATTENTION_OWN;
    static const enum dev_cuda_attention by[] = {[CONF_ATTENTION_AUTO] = DEV_CUDA_ATTENTION_AUTO,
                                                 [CONF_ATTENTION_OWN] = DEV_CUDA_ATTENTION_OWN,
                                                 [CONF_ATTENTION_CUDNN] = DEV_CUDA_ATTENTION_CUDNN};
    return by[conf_i64(conf, CONF_ATTENTION)];
}

/* open_gpu — opens a worker's GPU with the attention kernels that the user chose. cuDNN is refused
 * here if it supports no shape at all. */
static enum status open_gpu(const struct conf *conf, int worker_i, struct dev **out)
{
    const int64_t precision = conf_i64(conf, CONF_PRECISION);
    const bool is_f32 = precision == CONF_PRECISION_FP32 || precision == CONF_PRECISION_TF32;
    if (is_hip(conf))
        TRY(check_hip(conf));
    const enum dev_cuda_attention attention = device_attention(conf);
    if (attention == DEV_CUDA_ATTENTION_CUDNN && is_f32)
        return FAIL(ST_BAD_SETTING,
                    "ATTENTION=cudnn (%s) computes in 16 bits only, and PRECISION=%s (%s); use "
                    "ATTENTION=auto, or PRECISION=bf16",
                    conf_source(conf, CONF_ATTENTION), conf_text(conf, CONF_PRECISION),
                    conf_source(conf, CONF_PRECISION));
    TRY(choose_vendor(is_hip(conf) ? DEV_GPU_HIP : DEV_GPU_CUDA));
    TRY(dev_cuda_open(worker_i, precision == CONF_PRECISION_TF32, out));
    dev_cuda_attention(*out, attention, conf_i64(conf, CONF_DETERMINISTIC) == 0);
    return ST_OK;
}

enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out)
{
    int64_t asked = conf_i64(conf, CONF_DEVICE);
    library_dir(conf_text(conf, CONF_CONVOY_LIB_DIR));
    dev_cuda_blas_use((enum dev_cuda_blas_kind)conf_i64(conf, CONF_CONVOY_BLAS));
    if (asked == CONF_DEVICE_CUDA || asked == CONF_DEVICE_HIP ||
        (asked == CONF_DEVICE_AUTO && has_gpus(conf, worker_i)))
        return open_gpu(conf, worker_i, out);
    enum status st = ST_OK;
    TRY(check_cpu(conf));
    TRY(dev_cpu_open(threads_n, CPU_ISA_N, out));
    if (conf_i64(conf, CONF_PRECISION) == CONF_PRECISION_BF16)
        TRY_OR(dev_cpu_bf16(*out), out_close);
    return ST_OK;
out_close:
    dev_close(*out);
    *out = NULL;
    return st;
}

int device_threads(const struct conf *conf)
{
    int asked = conf_threads(conf), workers_n = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE),
        cores = thread_pool_cores();
    int threads_n = asked > 0 ? asked : cores / workers_n > 1 ? cores / workers_n : 1;
    return threads_n < THREAD_POOL_MAX ? threads_n : THREAD_POOL_MAX;
}

enum dtype device_dtype(const struct conf *conf, bool is_discrete)
{
    switch (conf_i64(conf, CONF_PRECISION)) {
    case CONF_PRECISION_AUTO:
    case CONF_PRECISION_BF16:
        return is_discrete ? DTYPE_BF16 : DTYPE_F32;
    case CONF_PRECISION_FP16:
        return DTYPE_F16;
    default:
        return DTYPE_F32;
    }
}

enum comm_kind device_comm(const struct conf *conf, const struct dev *dev, int ranks)
{
    int64_t backend = conf_i64(conf, CONF_BACKEND);
    if (ranks == 1)
        return COMM_KIND_SELF;
    if (backend == CONF_BACKEND_NCCL)
        return COMM_KIND_NCCL;
    return backend == CONF_BACKEND_AUTO && dev_is_discrete(dev) ? COMM_KIND_AUTO : COMM_KIND_HOST;
}

enum comm_net device_net(const struct conf *conf)
{
    switch (conf_i64(conf, CONF_BACKEND)) {
    case CONF_BACKEND_TCP:
        return COMM_NET_TCP;
    case CONF_BACKEND_UCX:
        return COMM_NET_UCX;
    default:
        return COMM_NET_AUTO;
    }
}

bool device_may_use_nccl(const struct conf *conf)
{
    int64_t backend = conf_i64(conf, CONF_BACKEND);
    return backend == CONF_BACKEND_AUTO || backend == CONF_BACKEND_NCCL;
}

/* ---- for the supervisor ---- */

#define COUNT_MAX 127
#define COUNT_HIP 128 /* added to the number of GPUs: they are AMD's */

/* await_count — returns the exit code of the counting process. 0: there are no GPUs, or the driver
 * does not answer. */
static int await_count(pid_t pid)
{
    int ended = 0;
    for (int64_t until_ms = clock_ms() + FIND_MS; clock_ms() < until_ms; clock_sleep_ms(2)) {
        pid_t got = waitpid(pid, &ended, WNOHANG);
        if (got == pid)
            return WIFEXITED(ended) ? WEXITSTATUS(ended) : 0;
        if (got < 0 && errno != EINTR)
            return 0;
    }
    /* do not wait for it: a process that sleeps in a driver may never end */
    kill(pid, SIGKILL);
    LOG_WARN("the GPU's driver has not reported the number of GPUs for %d s; see dmesg, nvidia-smi "
             "or amd-smi, or set DEVICE=cpu",
             FIND_MS / 1000);
    return 0;
}

/* count_gpus — returns the number of GPUs that this process may use; 0: none. A child process
 * counts them once, because a started driver stays in the process that started it. */
static int count_gpus(const struct conf *conf)
{
    static int found = -1;
    int count = 0;
    if (found >= 0 || (dev_cuda_built() == NULL && dev_hip_built() == NULL))
        return found < 0 ? 0 : found;
    pid_t pid = fork();
    if (pid == 0) {
        library_dir(conf_text(conf, CONF_CONVOY_LIB_DIR));
        if (choose_gpu(conf, &count) != ST_OK)
            _exit(0);
        _exit((count > COUNT_MAX ? COUNT_MAX : count) +
              (dev_cuda_chosen() == DEV_GPU_HIP ? COUNT_HIP : 0));
    }
    const int code = pid > 0 ? await_count(pid) : 0;
    has_counted_hip = code >= COUNT_HIP;
    found = code % COUNT_HIP;
    return found;
}

int device_workers(const struct conf *conf)
{
    int asked = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    int found =
        conf_i64(conf, CONF_DEVICE) == CONF_DEVICE_CPU || conf_is_set(conf, CONF_N_GPU_EACH_NODE)
            ? 0
            : count_gpus(conf);
    if (found > BOARD_WORKERS_MAX)
        LOG_WARN("%d GPUs are more than the %d workers that a node may have; the rest stays idle",
                 found, BOARD_WORKERS_MAX);
    return found == 0 ? asked : found < BOARD_WORKERS_MAX ? found : BOARD_WORKERS_MAX;
}

const char *device_kind(const struct conf *conf)
{
    int64_t asked = conf_i64(conf, CONF_DEVICE);
    bool is_gpu = asked == CONF_DEVICE_CUDA || asked == CONF_DEVICE_HIP ||
                  (asked == CONF_DEVICE_AUTO &&
                   count_gpus(conf) >= (int)conf_i64(conf, CONF_N_GPU_EACH_NODE));
    return !is_gpu ? "cpu" : is_hip(conf) ? "hip" : "cuda";
}

bool device_is_gpu(const struct conf *conf) { return strcmp(device_kind(conf), "cpu") != 0; }

int device_gpus(const struct conf *conf) { return device_is_gpu(conf) ? count_gpus(conf) : 0; }

/* find_chip — returns "NVIDIA H100 80GB HBM3 sm_90" of "cuda 0 NVIDIA H100 80GB HBM3 sm_90 driver
 * 13.0", in place. */
static const char *find_chip(char *name)
{
    char *end = strstr(name, " driver ");
    if (end)
        *end = 0;
    for (int i = 0; i < 2; i++) {
        name += strcspn(name, " ");
        name += *name == ' ';
    }
    return name;
}

void device_arithmetic(const struct conf *conf, const struct dev *dev, char *out, size_t cap)
{
    struct dev_info info;
    char blas[512], cudnn[512]; /* "13.0.2 from /usr/…" */
    dev_info(dev, &info);
    if (!dev_is_discrete(dev)) {
        const char *level = strstr(info.name, "thread");
        text_format(out, cap, "a CPU of level%s", level ? level + strcspn(level, " ") : "");
        return;
    }
    if (dev_cuda_blas(dev_cuda_chosen(), blas, sizeof blas) != ST_OK)
        text_copy(blas, sizeof blas, "none");
    if (device_attention(conf) == DEV_CUDA_ATTENTION_OWN ||
        dev_cuda_attention_find(cudnn, sizeof cudnn) != ST_OK)
        text_copy(cudnn, sizeof cudnn, "none");
    status_clear();
    text_format(out, cap, "%s, %s %.*s, cuDNN %.*s", find_chip(info.name), dev_cuda_blas_name(),
                (int)strcspn(blas, " "), blas, (int)strcspn(cudnn, " "), cudnn);
}
