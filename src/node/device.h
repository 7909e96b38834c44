/* device — what computes: DEVICE as a device, the same way for every command. Must not know what it computes. */
#ifndef CONVOY_NODE_DEVICE_H
#define CONVOY_NODE_DEVICE_H

#include "conf/conf.h"
#include "dev/dev.h"

/* device_open — DEVICE=cpu: threads_n threads (0: all cores). DEVICE=cuda: this node's GPU number worker_i, or
 * ST_NO_DEVICE with what is missing. DEVICE=auto: the GPU when CUDA is built in and finds one, else the CPU; with several
 * workers the CPU. */
enum status device_open(const struct conf *conf, int worker_i, int threads_n, struct dev **out);

#endif
