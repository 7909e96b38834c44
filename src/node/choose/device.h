/* device — which device computes and which transport carries data between devices: DEVICE and
 * BACKEND, read the same way for every command. Must not know what is computed. */
#ifndef CONVOY_NODE_DEVICE_H
#define CONVOY_NODE_DEVICE_H

#include "comm/core/comm.h"
#include "conf/conf.h"
#include "dev/cuda/cuda.h"

/* device_open — open the device that DEVICE asks for. ST_NO_DEVICE says what is missing.
 *   cpu   threads_n threads; 0: all cores
 *   cuda  this node's GPU number worker_i
 *   auto  a GPU for each worker where CUDA is built in and finds as many, else the CPU
 * A PRECISION that only a GPU has is ST_NO_DEVICE where none was found (conf refuses it with
 * DEVICE=cpu); so is bf16 on a processor without it, and with DEVICE=auto on every CPU. */
enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out);
/* Returns why device_open with DEVICE=auto opened the CPU in this process, with the remedy, if the
 * machine has NVIDIA's driver or one of its device files. Else returns "". */
const char *device_note(void);
/* device_dtype — the element type of the passes for PRECISION on a GPU (is_discrete) or a CPU. auto
 * is bf16 on a GPU and f32 on a CPU; tf32 is stored as f32. So is bf16 on a CPU: there
 * products round what they read. */
enum dtype device_dtype(const struct conf *conf, bool is_discrete);
/* Returns by what ATTENTION computes attention on a GPU. */
enum dev_cuda_attention device_attention(const struct conf *conf);
/* device_threads — threads of one worker's pool on a CPU: the workers of a node share its cores. */
int device_threads(const struct conf *conf);

/* device_comm — the transport that BACKEND asks for, for so many workers on such devices. */
enum comm_kind device_comm(const struct conf *conf, const struct dev *dev, int ranks);
enum comm_net device_net(const struct conf *conf); /* …and between nodes */
bool device_may_use_nccl(const struct conf *conf); /* on GPUs, before it is known what is there */

/* For the supervisor, without starting the driver in its process.
 * device_workers: N_GPU_EACH_NODE, or, where it is left to its default, the number of GPUs, at most
 * BOARD_WORKERS_MAX.
 * device_kind: what device_open will open, "cuda" or "cpu"; the nodes of a job compare it before
 * they train. */
int device_workers(const struct conf *conf);
const char *device_kind(const struct conf *conf);

#endif
