/* slurm — checks whether this Slurm task has less of its machine than the job needs. Without
 * --exclusive or --cpus-per-task a task has one processor, without --gpus-per-node no GPU, and
 * Slurm reports neither. conf/launcher.h reads the job's nodes from Slurm's variables. Must not
 * know how training uses processors and GPUs. */
#ifndef CONVOY_NODE_SLURM_H
#define CONVOY_NODE_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* The processors and GPUs of the machine, and the share that this process may use. */
struct slurm_allocation {
    int cores, cores_all;
    int gpus_all; /* GPUs that the driver lists; 0: none are needed */
};

/* slurm_shortage — returns true and writes to out which resources were not requested, with the
 * flags that request them. Returns false if nothing is missing, or this is no Slurm task. Public
 * for tests. */
bool slurm_shortage(char **environment, const struct slurm_allocation *share, char *out,
                    size_t cap);
/* slurm_gpus — returns the number of GPUs that NVIDIA's driver lists under proc_dir
 * ("/proc/driver/nvidia/gpus"), including GPUs that this process cannot use. Public for tests. */
int slurm_gpus(const char *proc_dir);
/* slurm_warn — logs slurm_shortage for this process and this machine as a warning. */
void slurm_warn(char **environment, bool wants_gpus);

#endif
