/* slurm — see slurm.h. The variables are those in srun(1) of Slurm 22.05. */
#include "node/process/slurm.h"

#include <dirent.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread_pool.h"
#include "base/text.h"
#include "conf/launcher.h"

/* has_gpus — returns true if the environment has any variable that Slurm sets for a step with GPUs.
 * An empty list counts as none. */
static bool has_gpus(char **environment)
{
    static const char *const names[] = {"SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
                                        "CUDA_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (launcher_find(environment, names[i]) != NULL)
            return true;
    return false;
}

bool slurm_shortage(char **environment, const struct slurm_allocation *share, char *out, size_t cap)
{
    char cores[160] = "", gpus[160] = "";
    if (launcher_find(environment, "SLURM_JOB_ID") == NULL)
        return false;
    if (share->cores == 1 && share->cores_all > 1)
        text_format(
            cores, sizeof cores,
            "1 of %d processors (ask for all with sbatch --exclusive, or srun --cpus-per-task=%d)",
            share->cores_all, share->cores_all);
    if (share->gpus_all > 0 && !has_gpus(environment))
        text_format(gpus, sizeof gpus, "0 of %d GPUs (ask for them with sbatch --gpus-per-node=%d)",
                    share->gpus_all, share->gpus_all);
    text_format(out, cap, "Slurm gives this task %s%s%s", cores,
                cores[0] != 0 && gpus[0] != 0 ? " and " : "", gpus);
    return cores[0] != 0 || gpus[0] != 0;
}

int slurm_gpus(const char *proc_dir)
{
    int n = 0;
    DIR *dir = opendir(proc_dir);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

void slurm_warn(char **environment, bool wants_gpus)
{
    char words[512];
    struct slurm_allocation share = {
        .cores = thread_pool_cores(),
        .cores_all = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .gpus_all = wants_gpus ? slurm_gpus("/proc/driver/nvidia/gpus") : 0,
    };
    if (slurm_shortage(environment, &share, words, sizeof words))
        LOG_WARN("%s", words);
}
