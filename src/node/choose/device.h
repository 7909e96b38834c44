/* device — opens the device that computes and chooses the transport between devices: DEVICE and
 * BACKEND, read the same way for every command. Must not know the computation. */
#ifndef CONVOY_NODE_DEVICE_H
#define CONVOY_NODE_DEVICE_H

#include "comm/core/comm.h"
#include "conf/conf.h"
#include "dev/cuda/cuda.h"

/* device_open — opens the device that DEVICE requests. The message of ST_NO_DEVICE names the
 * missing part.
 *   cpu   threads_n threads; 0: all cores
 *   cuda  this node's GPU number worker_i
 *   hip   the same for AMD's GPUs
 *   auto  a GPU for each worker if CUDA or HIP is built in and finds enough GPUs, else the CPU
 *
 * A PRECISION that only a GPU has is ST_NO_DEVICE if no GPU was found (conf refuses it with
 * DEVICE=cpu). bf16 is ST_NO_DEVICE on a processor without it, and on every CPU with
 * DEVICE=auto. */
enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out);
/* device_note — returns the reason why device_open with DEVICE=auto opened the CPU in this process,
 * with the remedy, if the machine has a GPU's driver or one of its device files. Else returns
 * "". */
const char *device_note(void);
/* device_dtype — returns the element type of the passes for PRECISION on a GPU (is_discrete) or a
 * CPU. auto is bf16 on a GPU and f32 on a CPU. tf32 is stored as f32. bf16 on a CPU is also stored
 * as f32, and products round their inputs. */
enum dtype device_dtype(const struct conf *conf, bool is_discrete);
/* device_attention — returns the implementation of attention that ATTENTION selects on a GPU. */
enum dev_cuda_attention device_attention(const struct conf *conf);
/* device_threads — returns the number of threads in one worker's pool on a CPU. The workers of a
 * node share its cores. */
int device_threads(const struct conf *conf);

/* device_comm — returns the transport that BACKEND selects for `ranks` workers with such
 * devices. */
enum comm_kind device_comm(const struct conf *conf, const struct dev *dev, int ranks);
/* device_net — returns the network between nodes that BACKEND selects. */
enum comm_net device_net(const struct conf *conf);
/* device_may_use_nccl — returns true if BACKEND allows NCCL between GPUs. It does not check whether
 * the machine has GPUs. */
bool device_may_use_nccl(const struct conf *conf);

/* device_workers — returns N_GPU_EACH_NODE. If that is left at its default, returns the number of
 * GPUs, at most BOARD_WORKERS_MAX. For the supervisor: its process does not start the driver. */
int device_workers(const struct conf *conf);
/* device_gpus — returns the number of GPUs that the workers of a node may use; 0: they use the CPU.
 * For the supervisor, like device_workers. */
int device_gpus(const struct conf *conf);
/* device_kind — returns the kind of device that device_open will open, "cuda", "hip" or
 * "cpu", also without starting the driver. The nodes of a job compare it before they train. */
const char *device_kind(const struct conf *conf);
/* device_is_gpu — returns true if that is a GPU. */
bool device_is_gpu(const struct conf *conf);

/* device_arithmetic — writes the parts that decide the bits of a device's results, for
 * EXACT=layout: "NVIDIA H100 80GB HBM3 sm_90, cuBLASLt 13.0.2, cuDNN 9.12.0", or "a CPU of level
 * avx512". Loads a GPU's libraries for a moment. */
void device_arithmetic(const struct conf *conf, const struct dev *dev, char *out, size_t cap);

#endif
