/* slurm — is this task given less of its machine than the job needs? Without --exclusive or
 * --cpus-per-task a task of Slurm has one processor, without --gpus-per-node no GPU, and nothing
 * says so. Must not know how training uses them. */
#ifndef CONVOY_NODE_SLURM_H
#define CONVOY_NODE_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* What of the machine is there, and what of it this process may use. */
struct slurm_allocation {
    int cores, cores_all;
    int gpus_all; /* that the driver knows; 0 where none are wanted */
};

/* slurm_shortage — what was not asked for, with the flags that ask for it. False: nothing is
 * wrong, or no task of Slurm. */
bool slurm_shortage(char **environment, const struct slurm_allocation *share, char *out,
                    size_t cap);
/* slurm_gpus — how many GPUs NVIDIA's driver lists under proc_dir ("/proc/driver/nvidia/gpus"),
 * usable here or not. */
int slurm_gpus(const char *proc_dir);
/* slurm_warn — the same for this process and this machine, as a warning in the log. */
void slurm_warn(char **environment, bool wants_gpus);

#endif
