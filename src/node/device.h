/* device — what computes, and what carries numbers between devices: DEVICE and BACKEND, the same
 * way for every command. Must not know what is computed. */
#ifndef CONVOY_NODE_DEVICE_H
#define CONVOY_NODE_DEVICE_H

#include "comm/core/comm.h"
#include "conf/conf.h"
#include "dev/dev.h"

/* device_open — DEVICE=cpu: threads_n threads (0: all cores). DEVICE=cuda: this node's GPU number
 * worker_i, or ST_NO_DEVICE with what is missing. DEVICE=auto: a GPU for each worker when CUDA is
 * built in and finds as many, else the CPU. PRECISION goes with it: one that only a GPU has is
 * ST_NO_DEVICE where none was found (conf refuses it with DEVICE=cpu). */
enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out);
/* device_dtype — PRECISION as the element type of passes on a GPU (is_discrete) or a CPU: auto is
 * bf16 there, f32 here; tf32 is f32. */
enum dtype device_dtype(const struct conf *conf, bool is_discrete);
/* device_threads — of a worker's pool on a CPU: those of one node share its cores. */
int device_threads(const struct conf *conf);

/* device_comm — the transport that BACKEND asks for, for so many workers on such devices. */
enum comm_kind device_comm(const struct conf *conf, const struct dev *dev, int ranks);
enum comm_net device_net(const struct conf *conf); /* …and between nodes */

/* For who starts workers, without starting the driver in this process. device_workers:
 * N_GPU_EACH_NODE, or, when that is left to its default, as many as there are GPUs (at most
 * BOARD_WORKERS_MAX). device_kind: what device_open will take, "cuda" or "cpu": the nodes of a job
 * agree on it before they exchange a number. */
int device_workers(const struct conf *conf);
const char *device_kind(const struct conf *conf);

#endif
