/* dev_cuda_peak — the peak FLOP/s of NVIDIA's chips, from their data sheets: the 100 % of mfu.
 * Pure; also in programs without CUDA. Must not know the runtime. */
#ifndef CONVOY_DEV_DEV_CUDA_PEAK_H
#define CONVOY_DEV_DEV_CUDA_PEAK_H

/* FLOP/s of dense products: 16-bit floats with sums in f32; f32 rounded to tf32; f32. All 0:
 * unknown. */
struct dev_cuda_peak {
    double f16, tf32, f32;
};

/* dev_cuda_peak — returns the peaks of a GPU from the properties that the runtime reports. A part
 * of a chip (MIG) has fewer multiprocessors or has MIG in its name: unknown, like every chip that
 * is not in the table. */
struct dev_cuda_peak dev_cuda_peak(const char *name, int major, int minor, int sm_count);

#endif
