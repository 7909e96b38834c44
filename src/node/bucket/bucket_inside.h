/* bucket_inside — a handle of a run's folder in a bucket, shared by bucket.c (the owner, listings),
 * bucket_get.c (downloads) and bucket_put.c (uploads). Other files use bucket.h. */
#ifndef CONVOY_NODE_BUCKET_INSIDE_H
#define CONVOY_NODE_BUCKET_INSIDE_H

#include "node/bucket/bucket.h"

#define BUCKET_RECORDS_MAX 64 /* records whose last upload is remembered */
#define BUCKET_DAMAGED_MAX 16

struct bucket {
    struct bucket_config config;
    struct bucket_address address;
    char name[S3_NAME_MAX]; /* s3://bucket/prefix */
    char owner[33];         /* random digits of this handle */
    bool is_owner;          /* this handle has written owner.json */
    struct s3 *s3;
    bool is_sending;      /* a file of a checkpoint is uploaded, which bytes_done counts */
    bool is_receiving;    /* a file of a checkpoint is downloaded, whose progress is logged */
    int64_t bytes_before; /* bytes of the files before this one, for bytes_done */
    int64_t logged_ms;    /* time of the last line about a download's progress */
    /* records as they were uploaded last */
    struct {
        char name[96];
        int64_t bytes, changed_ns;
    } record[BUCKET_RECORDS_MAX];
    int records_n;
    /* checkpoints that were damaged when they were downloaded: the same manifest is no proof */
    int64_t damaged[BUCKET_DAMAGED_MAX];
    int damaged_n;
};

/* bucket_key — writes the key of a name below the prefix. ST_BAD_SETTING: it is too long. */
enum status bucket_key(const struct bucket *bucket, const char *name, char out[S3_KEY_MAX]);
/* bucket_step_name — writes "step-00000100/NAME". */
void bucket_step_name(char *out, size_t cap, int64_t step, const char *name);
/* bucket_is_record — returns true for the names of the ledger, the curves and a tokenizer file. */
bool bucket_is_record(const char *name);
/* bucket_own — checks that no other run has become the owner since this handle became it; the first
 * call makes this handle the owner. ST_DISAGREE: another run uploads there. */
enum status bucket_own(struct bucket *bucket);

#endif
