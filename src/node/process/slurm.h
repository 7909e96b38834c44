/* slurm — does this Slurm task have less of its machine than the job needs? Without --exclusive or
 * --cpus-per-task a task has one processor, without --gpus-per-node no GPU, and Slurm does not
 * report either. Must not know how training uses them. */
#ifndef CONVOY_NODE_SLURM_H
#define CONVOY_NODE_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* What the machine has, and what this process may use of it. */
struct slurm_allocation {
    int cores, cores_all;
    int gpus_all; /* that the driver lists; 0 where none are wanted */
};

/* slurm_shortage — true: out says what was not requested, and the flags that request it. False:
 * nothing is missing, or this is no Slurm task. Called by slurm_warn, and for tests. */
bool slurm_shortage(char **environment, const struct slurm_allocation *share, char *out,
                    size_t cap);
/* slurm_gpus — how many GPUs NVIDIA's driver lists under proc_dir ("/proc/driver/nvidia/gpus"),
 * usable by this process or not. Called by slurm_warn, and for tests. */
int slurm_gpus(const char *proc_dir);
/* slurm_warn — log slurm_shortage for this process and this machine as a warning. */
void slurm_warn(char **environment, bool wants_gpus);

#endif
