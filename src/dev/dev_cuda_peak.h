/* dev_cuda_peak — what NVIDIA's data sheets promise of a chip: the operations a second that mfu is
 * a share of. Pure; there in programs without CUDA, too. Must not know the runtime. */
#ifndef CONVOY_DEV_DEV_CUDA_PEAK_H
#define CONVOY_DEV_DEV_CUDA_PEAK_H

/* FLOP/s of products, dense: of 16-bit floats added in f32; of f32 rounded to tf32; of f32. All 0:
 * not known. */
struct dev_cuda_peak {
    double f16, tf32, f32;
};

/* dev_cuda_peak — of a GPU as the runtime describes it. A part of a chip (MIG) has fewer
 * multiprocessors, or is named so: not known, as every chip that is not in the table. */
struct dev_cuda_peak dev_cuda_peak(const char *name, int major, int minor, int sm_count);

#endif
