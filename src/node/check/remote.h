/* check_remote — rows of a check about the bucket of CHECKPOINT_DIR and the Hugging Face hub. One
 * object of the bucket is listed, written, read and removed, with times and rates. For hf:// names
 * the commits are requested from the hub. Must not interpret checkpoints. */
#ifndef CONVOY_NODE_CHECK_REMOTE_H
#define CONVOY_NODE_CHECK_REMOTE_H

#include <stdbool.h>

#include "check/check_row.h"
#include "conf/conf.h"

struct check_remote_config {
    const struct conf *conf;
    int node; /* number of this node, for the rows */
    /* called several times a second; returns false to stop; NULL allowed */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};
/* check_remote — adds the rows. Blocks for some requests, and for their repetitions if a server
 * fails: up to a minute for each. Nothing is fetched but commits. */
void check_remote(const struct check_remote_config *config, struct check_rows *rows);

#endif
