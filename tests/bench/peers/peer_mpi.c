/* peer_mpi — Open MPI's all-reduce for comparison: fp32 in place, at the sizes given in bytes, as
 * `convoy bench` measures: JSON lines {"bytes":…,"median_us":…}. The time of a run is that of
 * its slowest rank. Built by tests/bench/comm.sh with mpicc. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run_once(float *data, int elems)
{
    double mine, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    mine = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mine = MPI_Wtime() - mine;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest * 1e6;
}

static void measure(float *data, long bytes, int rank)
{
    static double us[1001];
    int elems = (int)(bytes / 4), runs = 5;
    double first = 0;
    for (int i = 0; i < 3; i++)
        first = run_once(data, elems);
    if (250000 / (first + 1) > runs)
        runs = 250000 / (first + 1) > 1001 ? 1001 : (int)(250000 / (first + 1)) | 1;
    for (int i = 0; i < runs; i++)
        us[i] = run_once(data, elems);
    qsort(us, (size_t)runs, sizeof(*us), ascending);
    if (rank == 0)
        printf("{\"bytes\":%ld,\"median_us\":%.3f,\"best_us\":%.3f}\n", bytes, us[runs / 2], us[0]);
}

int main(int argc, char **argv)
{
    long most = 4;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++)
        most = atol(argv[i]) > most ? atol(argv[i]) : most;
    float *data = malloc((size_t)most);
    for (long i = 0; data != NULL && i < most / 4; i++)
        data[i] = 0; /* touched */
    for (int i = 1; data != NULL && i < argc; i++)
        measure(data, atol(argv[i]), rank);
    free(data);
    MPI_Finalize();
    return 0;
}
