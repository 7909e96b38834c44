/* dev_cuda_info — what is known of a GPU, and what this process took of it. Must not know
 * what it is used for. */
#include "dev/dev_cuda_internal.h"

#ifdef CONVOY_CUDA
#include <string.h>

#include "base/text.h"
#include "dev/dev_cuda_peak.h"

/* A reader of the tables has a const device, but must lock. */
static pthread_mutex_t *mutex_of(const struct dev *dev)
{
    return (pthread_mutex_t *)(uintptr_t)&dev->mutex;
}

static int64_t sum_ranges(const struct dev *dev, const struct cuda_ranges *ranges)
{
    int64_t bytes = 0;
    pthread_mutex_lock(mutex_of(dev));
    for (size_t i = 0; i < ranges->n; i++)
        bytes += (int64_t)ranges->range[i].bytes;
    pthread_mutex_unlock(mutex_of(dev));
    return bytes;
}

void dev_cuda_info(const struct dev *dev, struct dev_info *out)
{
    char driver[24];
    const struct cudaDeviceProp *prop = &dev->prop;
    struct dev_cuda_peak peak =
        dev_cuda_peak(prop->name, prop->major, prop->minor, prop->multiProcessorCount);
    size_t free_bytes = 0, total_bytes = 0;
    /* the calling thread may have another device current */
    bool is_known = cudaSetDevice(dev->device_i) == cudaSuccess &&
                    cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
    *out = (struct dev_info){.kind = DEV_KIND_CUDA,
                             .memory_bytes = (int64_t)prop->totalGlobalMem,
                             .free_bytes = is_known ? (int64_t)free_bytes : -1,
                             .taken_bytes =
                                 sum_ranges(dev, &dev->own) + sum_ranges(dev, &dev->scratch),
                             .scratch_bytes = (int64_t)CUDA_SCRATCH_BYTES,
                             .granularity_bytes = dev_cuda_driver_granularity(dev->device_i),
                             .peak_flops = dev->is_tf32 ? peak.tf32 : peak.f32,
                             .peak_flops_16 = peak.f16,
                             .is_tf32 = dev->is_tf32,
                             .threads_n = 1};
    text_copy(out->bus, sizeof out->bus, dev->bus);
    memcpy(out->uuid, prop->uuid.bytes, sizeof out->uuid);
    text_format(driver, sizeof driver, "%d.%d", dev->driver / 1000, dev->driver % 1000 / 10);
    text_format(out->name, sizeof out->name, "cuda %d %.30s sm_%d%d driver %s", dev->device_i,
                prop->name, prop->major, prop->minor, driver);
}
#endif
