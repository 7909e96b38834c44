/* s3_parallel — see s3_parallel.h. */
#include "remote/s3_parallel.h"

#include "remote/parallel.h"

_Static_assert(S3_PARALLEL_MAX <= PARALLEL_MAX, "each thread has a connection");

/* One transfer on several threads. */
struct transfer {
    struct s3_parallel *parallel;
    struct parallel threads;
    struct s3_connection connection[S3_PARALLEL_MAX];
};

static bool keep_going(void *arg)
{
    const struct transfer *transfer = arg;
    return !transfer->threads.is_stopped;
}

static enum status run_part(void *arg, int thread_i, int64_t i)
{
    struct transfer *transfer = arg;
    return transfer->parallel->run(transfer->parallel->arg, &transfer->connection[thread_i], i);
}

static enum status report_transfer(void *arg)
{
    const struct transfer *transfer = arg;
    struct s3 *s3 = transfer->parallel->s3;
    if (s3->connection.goes_on(s3->connection.arg))
        return ST_OK;
    return FAIL(ST_RETRY, "stopped while transferring s3://%s, after %lld of %lld bytes",
                s3->bucket, (long long)transfer->parallel->moved,
                (long long)transfer->parallel->total);
}

/* Runs all parts, on this thread if one is enough. */
static enum status run_all(struct s3_parallel *parallel)
{
    struct s3 *s3 = parallel->s3;
    if (parallel->parts_n <= 1 || parallel->threads_n <= 1) { /* the kept connection serves */
        enum status st = ST_OK;
        for (int64_t i = 0; i < parallel->parts_n && st == ST_OK; i++)
            st = parallel->run(parallel->arg, &s3->connection, i);
        return st;
    }
    struct transfer transfer = {.parallel = parallel,
                                .threads = {.tasks_n = parallel->parts_n,
                                            .threads_n = parallel->threads_n,
                                            .run = run_part,
                                            .report = report_transfer,
                                            .arg = &transfer}};
    for (int i = 0; i < S3_PARALLEL_MAX; i++)
        transfer.connection[i] =
            (struct s3_connection){.s3 = s3, .goes_on = keep_going, .arg = &transfer};
    const enum status st = parallel_run(&transfer.threads);
    for (int i = 0; i < S3_PARALLEL_MAX; i++)
        s3_request_close(&transfer.connection[i]);
    return st;
}

enum status s3_parallel_run(struct s3_parallel *parallel)
{
    struct s3 *s3 = parallel->s3;
    s3->moved = &parallel->moved;
    s3->total = parallel->total;
    const enum status st = run_all(parallel);
    s3->done = parallel->moved;
    s3->moved = NULL;
    return st;
}
