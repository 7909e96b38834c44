/* uploader — keeps the checkpoints of a run in a bucket: a thread of node 0's supervisor, which
 * outlives the workers.
 *
 * Checkpoints are local folders first, and everything else works with these. The uploader downloads
 * the newest checkpoint of the bucket before the workers start, if it is newer than the local ones.
 * Then it uploads each new local checkpoint, the newest first, one at a time, and removes old ones
 * from the bucket (CHECKPOINT_KEEP). A checkpoint that a newer one overtakes before its upload has
 * begun or after an attempt that failed is dropped and counted. A failed upload is tried again,
 * with growing waits, until it succeeds or is dropped.
 *
 * Functions do not block, except uploader_close. Must not know workers, HTTP or
 * the board. */
#ifndef CONVOY_NODE_UPLOADER_H
#define CONVOY_NODE_UPLOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct uploader_config {
    const char *name;  /* s3://bucket/prefix */
    const char *dir;   /* its local folder */
    int keep;          /* CHECKPOINT_KEEP */
    bool allows_local; /* ALLOW_LOCAL_URLS */
    bool is_new_run;   /* RESUME=never: a prefix that holds checkpoints is refused */
};

enum uploader_phase {
    UPLOADER_PHASE_DOWNLOAD, /* workers must not start yet */
    UPLOADER_PHASE_UPLOAD,
    UPLOADER_PHASE_DONE,  /* after uploader_finish: everything is in the bucket */
    UPLOADER_PHASE_FAILED /* the download failed, or another run owns the prefix */
};
struct uploader_stats {
    enum uploader_phase phase;
    enum status st;        /* FAILED: the failure; its message is `error` */
    int64_t step;          /* last checkpoint in the bucket; -1: none of this process */
    int64_t waiting_step;  /* checkpoint that is not uploaded yet; -1: none */
    int64_t waiting_bytes; /* bytes of it that are not uploaded */
    int64_t failures;      /* attempts that failed */
    int64_t dropped;       /* checkpoints that were not uploaded, because a newer one came first */
    char error[1024]; /* reason why the last request failed; "": it did not, or bytes have moved
                              since */
};

struct uploader;
/* uploader_open — starts the thread, which begins with the phase DOWNLOAD: it lists the bucket,
 * checks that it may be written, and downloads the newest checkpoint, the ledger and the curves.
 * ST_BAD_SETTING: the name is none, or the environment has a bad endpoint. Failures of the thread
 * are in the phase FAILED. ST_BAD_SETTING there: the bucket refuses, the local folder is in use, or
 * RESUME=never meets checkpoints. ST_RETRY: no answer. */
enum status uploader_open(const struct uploader_config *config, struct uploader **out);
/* uploader_notice — announces a new local checkpoint; without the call it is uploaded later. */
void uploader_notice(struct uploader *uploader, int64_t step);
/* uploader_read — copies the numbers of the uploads. */
void uploader_read(struct uploader *uploader, struct uploader_stats *out);
/* uploader_missing — finds the newest local checkpoint and its bytes that are not in the bucket;
 * *step_out -1: there is none. */
void uploader_missing(struct uploader *uploader, int64_t *step_out, int64_t *bytes_out);
/* uploader_finish — no more checkpoints follow: the phase becomes DONE when the newest one and the
 * records are in the bucket. */
void uploader_finish(struct uploader *uploader);
/* uploader_close — stops transfers and ends the thread, for at most 10 s. Accepts NULL. */
void uploader_close(struct uploader *uploader);

#endif
