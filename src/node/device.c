/* device — see device.h. */
#include "node/device.h"

#include "base/log.h"
#include "dev/dev_cuda.h"
#include "dev/library.h"
#include "kernels/cpu.h"

enum { DEVICE_AUTO, DEVICE_CUDA, DEVICE_CPU }; /* as the row DEVICE lists them */

/* Several GPUs need a transport that takes their memory, which this version has not. */
static enum status check_ranks(const struct conf *conf)
{
    if (conf_ranks(conf) == 1)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "DEVICE=cuda (%s) is for one worker so far, not N_NODES=%s (%s) times N_GPU_EACH_NODE=%s (%s); use "
                "one worker, or DEVICE=cpu",
                conf_source(conf, CONF_DEVICE), conf_text(conf, CONF_N_NODES), conf_source(conf, CONF_N_NODES),
                conf_text(conf, CONF_N_GPU_EACH_NODE), conf_source(conf, CONF_N_GPU_EACH_NODE));
}

/* has_gpu — for DEVICE=auto: is there one, and may it be taken? Says why not where somebody looks closer. */
static bool has_gpu(const struct conf *conf)
{
    int count = 0;
    if (!dev_cuda_built())
        return false;
    if (dev_cuda_find(&count) != ST_OK) {
        LOG_DEBUG("DEVICE=auto takes the CPU: %s", status_message());
        status_clear();
        return false;
    }
    if (conf_ranks(conf) > 1)
        LOG_INFO("DEVICE=auto takes the CPU: several workers do not train on GPUs in this version");
    return conf_ranks(conf) == 1;
}

enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out)
{
    int64_t asked = conf_i64(conf, CONF_DEVICE);
    library_dir(conf_text(conf, CONF_CONVOY_LIB_DIR));
    if (asked == DEVICE_CUDA)
        TRY(check_ranks(conf));
    if (asked == DEVICE_CUDA || (asked == DEVICE_AUTO && has_gpu(conf)))
        return dev_cuda_open(worker_i, out);
    return dev_cpu_open(threads_n, CPU_LEVEL_N, out);
}
