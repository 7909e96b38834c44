/* dev_cuda_blas — which library makes the products of a stream (dev_cuda.h). */
#include "dev/dev_cuda_internal.h"

#ifdef CONVOY_CUDA
#include <stdatomic.h>

#include "base/log.h"
#include "base/text.h"
#include "dev/blas_plan.h"

enum status dev_cuda_blas(char *about, size_t cap) { return blas_plan_find(about, cap); }

static enum dev_cuda_blas_kind blas_use;

void dev_cuda_blas_use(enum dev_cuda_blas_kind use) { blas_use = use; }

static enum status find_blas(struct stream *s)
{
    const struct cudaDeviceProp *prop = &s->head.dev->prop;
    struct blas_chip chip = {.sm_count = prop->multiProcessorCount};
    text_copy(chip.name, sizeof chip.name, prop->name);
    if (blas_use == DEV_CUDA_BLAS_OFF)
        return FAIL(ST_NO_DEVICE, "CONVOY_BLAS=off");
    return blas_plan_open(&chip, &s->blas);
}

void dev_cuda_blas_open(struct stream *s)
{
    static atomic_bool is_reported;
    bool is_open = find_blas(s) == ST_OK;
    s->is_blas_plain = blas_use == DEV_CUDA_BLAS_PLAIN;
    if (atomic_exchange(&is_reported, true))
        return;
    if (is_open)
        LOG_INFO("products by cuBLASLt %s%s", blas_plan_about(s->blas),
                 s->is_blas_plain ? ", without epilogues (CONVOY_BLAS=plain)" : "");
    else
        LOG_WARN("products by the program's own kernels, at an estimated half of the speed: %s",
                 status_message());
}
#endif
