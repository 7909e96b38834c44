/* memory_check — does a run fit into memory? Checked before any of it is allocated: the plan of
 * train/trainer/memory_plan.h against what the machine, control groups, limits of a process and the
 * GPU leave (base/memory.h).
 *
 * A run that can never fit is ST_BAD_SETTING (78), with a table by kind and settings that were
 * tried and fit. A run that does not fit only because of other processes is ST_RETRY (75). On a GPU
 * less than 2 GiB of the host's memory are only warned of. Must not know how memory is
 * allocated. */
#ifndef CONVOY_NODE_MEMORY_CHECK_H
#define CONVOY_NODE_MEMORY_CHECK_H

#include "conf/conf.h"
#include "dev/dev.h"
#include "node/choose/plan_choice.h"
#include "train/trainer/memory_plan.h"

/* memory_check_train — all workers of this node together, in the host's memory; the supervisor
 * calls it before it starts them. memory_check_device — worker worker_i of the node in the
 * memory of its GPU, once the GPU is open; ST_OK on a CPU. */
enum status memory_check_train(const struct conf *conf);
enum status memory_check_device(const struct conf *conf, const struct trainer_config *config,
                                int worker_i, const struct dev *dev);
/* memory_check_need — what a config needs of a worker's GPU, else of the host, for all workers of
 * the node. memory_check_offer — what is free of that memory, and how much should stay free. */
enum status memory_check_need(const struct conf *conf, const struct trainer_config *config,
                              int worker_i, const struct dev *dev, int64_t *bytes_out);
void memory_check_offer(const struct conf *conf, int worker_i, const struct dev *dev,
                        struct plan_offer *out);
/* memory_check_command — a command of one process. what: its name for people ("eval"); dev: the
 * device it computes on, or NULL; remedy: what makes it need less. */
enum status memory_check_command(const char *what, const struct memory_plan *plan,
                                 const struct dev *dev, const char *remedy);
/* memory_check_log_peak — debug line: the most that this process ever had in resident memory, file
 * mappings included, to compare with what was planned. */
void memory_check_log_peak(void);

#endif
