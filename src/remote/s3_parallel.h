/* s3_parallel — the parts of one transfer on several threads, each with a connection of its own;
 * the calling thread reports the progress meanwhile. Only s3_download.c and s3_upload.c use it. It
 * must not know the work on a part. */
#ifndef CONVOY_REMOTE_S3_PARALLEL_H
#define CONVOY_REMOTE_S3_PARALLEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"
#include "remote/s3_request.h"

#define S3_PARALLEL_MAX 8 /* threads */

struct s3_parallel {
    struct s3 *s3;
    int64_t parts_n;
    int threads_n; /* 1 … S3_PARALLEL_MAX */
    /* Transfers part i; blocks. It adds its bytes to moved. */
    enum status (*run)(void *arg, struct s3_connection *connection, int64_t i);
    void *arg;
    int64_t total; /* bytes of the transfer, for the progress */
    _Atomic int64_t moved;
};

/* s3_parallel_run — runs all parts, in order of their numbers, and waits for them. After a failure
 * no further part is begun, the other requests are ended, and the first failure is returned. */
enum status s3_parallel_run(struct s3_parallel *parallel);

#endif
