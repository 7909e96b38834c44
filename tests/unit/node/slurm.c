/* slurm — the message for a Slurm task that has less than its machine: processors, GPUs, both,
 * or nothing missing. */
#include "harness.h"

#include <sys/stat.h>

#include "node/process/slurm.h"

static void complaints(void **state)
{
    static const struct {
        const char *environment[3];
        struct slurm_allocation share;
        const char *words; /* NULL: none */
    } trials[] = {
        {{"SLURM_JOB_ID=7"},
         {1, 64, 0},
         "Slurm gives this task 1 of 64 processors (ask for all with sbatch --exclusive, or srun "
         "--cpus-per-task=64)"},
        {{"SLURM_JOB_ID=7"},
         {1, 64, 8},
         "srun --cpus-per-task=64) and 0 of 8 GPUs (ask for them with sbatch --gpus-per-node=8)"},
        {{"SLURM_JOB_ID=7"}, {64, 64, 8}, "Slurm gives this task 0 of 8 GPUs (ask"},
        {{"SLURM_JOB_ID=7", "SLURM_GPUS_ON_NODE="}, {64, 64, 8}, "0 of 8 GPUs"},
        {{"SLURM_JOB_ID=7", "SLURM_GPUS_ON_NODE=8"}, {64, 64, 8}, NULL},
        {{"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0,1"}, {64, 64, 8}, NULL},
        {{"SLURM_JOB_ID=7"}, {2, 64, 0}, NULL}, /* asked for two */
        {{"SLURM_JOB_ID=7"}, {1, 1, 0}, NULL},
        {{"PATH=/bin"}, {1, 64, 8}, NULL}, /* somebody's taskset */
    };
    char words[512];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        bool is_said =
            slurm_shortage((char **)trials[i].environment, &trials[i].share, words, sizeof words);
        if (is_said != (trials[i].words != NULL) ||
            (is_said && strstr(words, trials[i].words) == NULL))
            fail_msg("trial %zu: %d \"%s\"", i, is_said, words);
    }
}

static void gpus_of_the_driver(void **state)
{
    char dir[] = "/tmp/convoy-slurm-XXXXXX", inside[64];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(slurm_gpus(dir), 0);
    snprintf(inside, sizeof inside, "%s/0000:17:00.0", dir);
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(slurm_gpus(dir), 1);
    rmdir(inside);
    rmdir(dir);
    assert_int_equal(slurm_gpus(dir), 0);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(complaints),
                                          cmocka_unit_test(gpus_of_the_driver)};
HARNESS_MAIN(tests)
