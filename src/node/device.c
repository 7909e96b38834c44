/* device — see device.h. */
#include "node/device.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/dev_cuda.h"
#include "dev/library.h"
#include "kernels/cpu.h"

enum { DEVICE_AUTO, DEVICE_CUDA, DEVICE_CPU }; /* as the row DEVICE lists them */

#define DRIVER_FILE "/dev/nvidiactl"

/* may_have_gpu — without touching the driver. */
static bool may_have_gpu(const struct conf *conf)
{
    return dev_cuda_built() != NULL && conf_i64(conf, CONF_DEVICE) != DEVICE_CPU && access(DRIVER_FILE, F_OK) == 0;
}

/* check_cpu — it computes in f32 alone. */
static enum status check_cpu(const struct conf *conf)
{
    if (conf_i64(conf, CONF_PRECISION) <= CONF_PRECISION_FP32)
        return ST_OK;
    return FAIL(ST_NO_DEVICE,
                "PRECISION=%s (%s) needs a GPU, and DEVICE=%s (%s) found none that may be used; DEVICE=cuda says what is "
                "missing, PRECISION=fp32 trains on the CPU",
                conf_text(conf, CONF_PRECISION), conf_source(conf, CONF_PRECISION), conf_text(conf, CONF_DEVICE),
                conf_source(conf, CONF_DEVICE));
}

/* has_gpus — for DEVICE=auto: is there one for each worker? Says why not where somebody looks closer. */
static bool has_gpus(const struct conf *conf)
{
    int count = 0, workers_n = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    if (!dev_cuda_built())
        return false;
    if (dev_cuda_find(&count) != ST_OK) {
        LOG_DEBUG("DEVICE=auto takes the CPU: %s", status_message());
        status_clear();
        return false;
    }
    if (count < workers_n)
        LOG_WARN("DEVICE=auto takes the CPU: %d GPUs are fewer than N_GPU_EACH_NODE=%d workers", count, workers_n);
    return count >= workers_n;
}

enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out)
{
    int64_t asked = conf_i64(conf, CONF_DEVICE);
    library_dir(conf_text(conf, CONF_CONVOY_LIB_DIR));
    if (asked == DEVICE_CUDA || (asked == DEVICE_AUTO && has_gpus(conf)))
        return dev_cuda_open(worker_i, conf_i64(conf, CONF_PRECISION) == CONF_PRECISION_TF32, out);
    TRY(check_cpu(conf));
    return dev_cpu_open(threads_n, CPU_LEVEL_N, out);
}

enum dtype device_dtype(const struct conf *conf, const struct dev *dev)
{
    switch (conf_i64(conf, CONF_PRECISION)) {
    case CONF_PRECISION_AUTO:
        return dev_is_apart(dev) ? DTYPE_BF16 : DTYPE_F32;
    case CONF_PRECISION_BF16:
        return DTYPE_BF16;
    case CONF_PRECISION_FP16:
        return DTYPE_F16;
    default:
        return DTYPE_F32;
    }
}

enum comm_kind device_comm(const struct conf *conf, const struct dev *dev)
{
    int64_t backend = conf_i64(conf, CONF_BACKEND);
    if (conf_ranks(conf) == 1)
        return COMM_KIND_SELF;
    if (backend == CONF_BACKEND_NCCL)
        return COMM_KIND_NCCL;
    return backend == CONF_BACKEND_AUTO && dev_is_apart(dev) ? COMM_KIND_AUTO : COMM_KIND_UCX;
}

/* In a process of its own, for the driver, once started, stays in the process that asked. */
int device_workers(const struct conf *conf)
{
    int asked = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE), ended = 0, count = 0;
    if (!may_have_gpu(conf) || strcmp(conf_source(conf, CONF_N_GPU_EACH_NODE), "default") != 0)
        return asked;
    pid_t pid = fork();
    if (pid == 0)
        _exit(dev_cuda_find(&count) == ST_OK && count < DEVICE_WORKERS_MAX ? count : 0);
    if (pid < 0 || waitpid(pid, &ended, 0) != pid || !WIFEXITED(ended) || WEXITSTATUS(ended) < 1)
        return asked;
    return WEXITSTATUS(ended);
}

const char *device_kind(const struct conf *conf)
{
    return conf_i64(conf, CONF_DEVICE) == DEVICE_CUDA || may_have_gpu(conf) ? "cuda" : "cpu";
}
