/* memory_check — checks whether a run fits into memory, before any of it is allocated. Compares the
 * plan of train/trainer/memory_plan.h with the memory that the machine, control groups, process
 * limits and the GPU leave (base/memory.h).
 *
 * A run that can never fit is ST_BAD_SETTING (78), with a table by kind and settings that were
 * tried and fit. A run that does not fit only because of other processes is ST_RETRY (75). On a
 * GPU, a lack of host memory is only a warning if the run needs less than 2 GiB of it. Must not
 * know how memory is allocated. */
#ifndef CONVOY_NODE_MEMORY_CHECK_H
#define CONVOY_NODE_MEMORY_CHECK_H

#include "conf/conf.h"
#include "dev/dev.h"
#include "node/choose/plan_choice.h"
#include "train/trainer/memory_plan.h"

/* memory_check_train — checks the host memory for all workers of this node together. The supervisor
 * calls it before it starts them. */
enum status memory_check_train(const struct conf *conf);
/* memory_check_device — checks the GPU memory for worker worker_i of the node, after the GPU was
 * opened. Returns ST_OK on a CPU. */
enum status memory_check_device(const struct conf *conf, const struct trainer_config *config,
                                int worker_i, const struct dev *dev);
/* memory_check_need — returns the bytes that a config needs: of a worker's GPU, or of host memory
 * for all workers of the node. */
enum status memory_check_need(const struct conf *conf, const struct trainer_config *config,
                              int worker_i, const struct dev *dev, int64_t *bytes_out);
/* memory_check_offer — returns the free bytes of that memory, and how many of them should stay
 * free. */
void memory_check_offer(const struct conf *conf, int worker_i, const struct dev *dev,
                        struct plan_offer *out);
/* memory_check_command — checks a command of one process. what: its name for messages ("eval");
 * dev: the device on which it computes, or NULL; remedy: a change that reduces its need. */
enum status memory_check_command(const char *what, const struct memory_plan *plan,
                                 const struct dev *dev, const char *remedy);
/* memory_check_log_peak — logs at debug level the peak of this process's resident memory, file
 * mappings included, for comparison with the plan. */
void memory_check_log_peak(void);

#endif
