/* bucket — the checkpoints of a run in a bucket of an object store.
 *
 *   s3://bucket/prefix/step-00000100/FILE           files of a checkpoint
 *   s3://bucket/prefix/step-00000100/manifest.json  uploaded last, removed first
 *   s3://bucket/prefix/ledger.jsonl, history.json, tokenizer/FILE
 *   s3://bucket/prefix/owner.json                   the run that uploads
 *
 * An object store has no rename: a checkpoint exists when its manifest does. Files without one are
 * left by an upload that did not end; the next uploads of a run remove them. A run that begins to
 * upload becomes the owner of the prefix, and another run that uploaded there before must not
 * upload any more (ST_DISAGREE). The check and the write after it are two requests, so two runs
 * that begin in the same second may not notice each other.
 *
 * All functions block, except the pure ones (bucket_names, bucket_local, bucket_group). Other
 * errors are listed in s3.h. A handle is for one thread at a time. Must not know when to upload. */
#ifndef CONVOY_NODE_BUCKET_H
#define CONVOY_NODE_BUCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "format/manifest.h"
#include "remote/s3.h"

/* One run's folder in a bucket. */
struct bucket_address {
    struct s3_address s3; /* key: the prefix without a closing /; "": the whole bucket */
    int64_t step;         /* the name ends with /step-00000100: that checkpoint; -1: it does not */
};
/* bucket_address_parse — reads s3://bucket/prefix. ST_BAD_SETTING: it is none, or a part of the
 * prefix is empty, "." or "..", because it also names local folders. */
enum status bucket_address_parse(const char *name, struct bucket_address *out);
/* bucket_local — writes the local folder of a run: ROOT/bucket/prefix. */
enum status bucket_local(const char *root, const struct bucket_address *address,
                         char out[FILE_PATH_MAX]);

/* A checkpoint of a listing: objects [first, first + n). */
struct bucket_step {
    int64_t step, first, n;
    int64_t bytes;    /* sum of all its objects */
    bool is_complete; /* it has a manifest */
};
struct bucket_listing {
    struct s3_list objects;
    struct bucket_step *step; /* newest first */
    int steps_n;
};
/* bucket_group — finds the checkpoints in the objects of a prefix, which the listing then owns.
 * Keys that no run has written are left out. */
void bucket_group(struct s3_list *objects, const char *prefix, struct bucket_listing *out);
/* bucket_newest — returns the newest complete checkpoint below step `below`; NULL: none. */
const struct bucket_step *bucket_newest(const struct bucket_listing *listing, int64_t below);
/* bucket_excess — returns true if a checkpoint of the listing may be removed, after `saved` was
 * uploaded: it is not among the newest `keep` complete ones, or it is incomplete and older than
 * the newest complete one. False for `saved` itself. */
bool bucket_excess(const struct bucket_listing *listing, int i, int keep, int64_t saved);
void bucket_listing_free(struct bucket_listing *listing); /* accepts an empty one */

struct bucket_config {
    const struct bucket_address *address; /* copied */
    bool allows_local;                    /* ALLOW_LOCAL_URLS */
    /* As in s3.h, both with `arg`; NULL allowed. */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void (*on_retry)(void *arg, const char *message);
    void *arg;
    _Atomic int64_t *bytes_done; /* uploaded bytes of a checkpoint; NULL: not needed */
    bool logs_progress;          /* logs the progress of a long download */
};
struct bucket;
enum status bucket_open(const struct bucket_config *config, struct bucket **out);
void bucket_close(struct bucket *bucket); /* accepts NULL */
/* bucket_name — returns "s3://bucket/prefix". */
const char *bucket_name(const struct bucket *bucket);
enum status bucket_list(struct bucket *bucket, struct bucket_listing *out);
/* bucket_read_manifest — reads the manifest of a complete checkpoint, without its tensors.
 * ST_BAD_DATA: it is damaged. */
enum status bucket_read_manifest(struct bucket *bucket, int64_t step, struct manifest *out);
/* bucket_try_write — writes and removes a small object. ST_BAD_SETTING: the message has the
 * permission that is missing. A bucket in which nothing may be removed is only warned about. */
enum status bucket_try_write(struct bucket *bucket);

/* ---- downloads ---- */

/* bucket_get_step — downloads a complete checkpoint to DIR/step-…, and verifies it. It appears
 * there whole, by rename; a download that was cut is resumed. An existing folder of that name
 * stays. ST_BAD_DATA: the checkpoint is damaged; nothing of it is left. */
enum status bucket_get_step(struct bucket *bucket, const struct bucket_listing *listing,
                            const struct bucket_step *step, const char *dir);
/* bucket_get_newest — downloads the newest complete checkpoint above step `above` that is not
 * damaged; *step_out -1: there is none. */
enum status bucket_get_newest(struct bucket *bucket, const struct bucket_listing *listing,
                              int64_t above, const char *dir, int64_t *step_out);
/* bucket_get_records — downloads the ledger, the curves and the tokenizer to DIR. keeps_old: local
 * files with other content are moved aside (NAME.before-NUMBER), else they are replaced. The
 * tokenizer's local files stay. */
enum status bucket_get_records(struct bucket *bucket, const struct bucket_listing *listing,
                               bool keeps_old, const char *dir);
/* bucket_drop_stale — removes local checkpoints from DIR that the bucket does not have, or has with
 * another content, and then the tokenizer, too. For copies of a bucket. */
enum status bucket_drop_stale(struct bucket *bucket, const struct bucket_listing *listing,
                              const char *dir);

/* ---- uploads ---- */

/* A local checkpoint that is uploaded. Its files are held open, so it is uploaded whole even if
 * the run removes it meanwhile. */
struct bucket_put;
/* bucket_put_open — opens the files of the folder. ST_NO_INPUT: it is gone. */
enum status bucket_put_open(const char *path, int64_t step, struct bucket_put **out);
int64_t bucket_put_bytes(const struct bucket_put *put); /* all bytes */
int64_t bucket_put_left(const struct bucket_put *put);  /* bytes of files that are not uploaded */
/* bucket_put_was_there — returns true if the bucket had the checkpoint before. */
bool bucket_put_was_there(const struct bucket_put *put);
/* bucket_put_is_damaged — returns true if a file has another checksum than the manifest, or has
 * changed since bucket_put_open: no further try can upload the checkpoint. */
bool bucket_put_is_damaged(const struct bucket_put *put);
void bucket_put_close(struct bucket_put *put); /* accepts NULL */
/* bucket_put_run — verifies the files, uploads them, then the records of dir, then the manifest.
 * A checkpoint with another manifest in its place is removed first. With the same manifest it
 * counts as uploaded, and the files are not read. After a failure the next call continues with the
 * file that failed, unless bucket_put_is_damaged. ST_DISAGREE: another run owns the prefix. */
enum status bucket_put_run(struct bucket *bucket, struct bucket_put *put, const char *dir);
/* bucket_put_records — uploads the ledger, the curves and the tokenizer of dir, if they changed
 * since the last call. A handle that has uploaded no checkpoint leaves them to their owner. */
enum status bucket_put_records(struct bucket *bucket, const char *dir);
/* bucket_prune — removes the checkpoints of bucket_excess. Returns at the first failure. */
enum status bucket_prune(struct bucket *bucket, int keep, int64_t saved);

#endif
