/* bucket_fetch — brings the checkpoints of a run in a bucket to this machine, for commands that
 * read them.
 *
 * They are kept in CACHE_DIR/runs/STORE/bucket/prefix (s3_store_name), which is a copy of the
 * bucket; a run that uploads from this machine has a folder of its own (CACHE_DIR/checkpoints).
 * The caller has checked the default CACHE_DIR (config_map_cache). It must not read checkpoints. */
#ifndef CONVOY_NODE_BUCKET_FETCH_H
#define CONVOY_NODE_BUCKET_FETCH_H

#include <stdbool.h>

#include "base/file.h"
#include "base/status.h"
#include "conf/conf.h"

enum bucket_fetch_what {
    BUCKET_FETCH_RECORDS, /* the ledger, the curves and the tokenizer */
    BUCKET_FETCH_NEWEST,  /* and the newest complete checkpoint, or the checkpoint of the name */
    BUCKET_FETCH_ALL      /* and all complete checkpoints */
};

/* Returns false to stop, which fails with ST_RETRY. */
typedef bool bucket_fetch_progress(void *arg, int64_t bytes_done, int64_t bytes_total);

/* bucket_fetch_run — blocks until the files are in a local folder: a folder of checkpoints or, if
 * the name ends with /step-…, a checkpoint. Checkpoints that are not in the bucket any more are
 * removed from the folder. ST_NO_INPUT: there is no complete checkpoint, or not this one. Other
 * errors as in bucket.h. */
enum status bucket_fetch_run(const struct conf *conf, const char *name, enum bucket_fetch_what what,
                             char path_out[FILE_PATH_MAX]);
/* bucket_fetch_setting — if the setting is a name of a bucket: does bucket_fetch_run for the newest
 * checkpoint, and sets the path (conf_set_found). With is_optional a name without checkpoints is
 * left as it is, because it may be another kind of model. progress: as in s3.h. */
enum status bucket_fetch_setting(struct conf *conf, enum conf_key key, bool is_optional,
                                 bucket_fetch_progress *progress, void *progress_arg);
/* bucket_fetch_map — for commands that train: if CHECKPOINT_DIR is a name of a bucket, sets its
 * local folder, without a request. */
enum status bucket_fetch_map(struct conf *conf);

#endif
