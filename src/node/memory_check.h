/* memory_check — does what is asked for fit into memory? Asked before any of it is taken: what
 * train/memory_plan.h says, against what the machine, control groups, limits of a process and the
 * GPU leave (base/memory.h).
 *
 * What can never fit is ST_BAD_SETTING (78), with a table by kind and settings that were tried and
 * fit. What only other processes leave no room for is ST_RETRY (75): time heals that. Must not know
 * how memory is taken. */
#ifndef CONVOY_NODE_MEMORY_CHECK_H
#define CONVOY_NODE_MEMORY_CHECK_H

#include "conf/conf.h"
#include "dev/dev.h"
#include "train/memory_plan.h"

/* memory_check_train — all workers of this node together, in the host's memory: for the supervisor,
 * before it starts them. memory_check_device — one worker in the memory of its GPU, once that is
 * open; ST_OK on a CPU. */
enum status memory_check_train(const struct conf *conf);
enum status memory_check_device(const struct conf *conf, const struct trainer_config *config,
                                const struct dev *dev);
/* memory_check_command — a command of one process: what it is for people ("eval"), its plan, the
 * device it computes on (NULL: none), and what makes it need less. */
enum status memory_check_command(const char *what, const struct memory_plan *plan,
                                 const struct dev *dev, const char *remedy);

#endif
