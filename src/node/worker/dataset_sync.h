/* dataset_sync — a worker's side of sharing node 0's dataset with nodes that have none.
 *
 * Node 0's first worker publishes the list of its files on the board, and its supervisor serves
 * them. A worker of another node downloads them if its DATA is missing. Must not know devices or
 * models. */
#ifndef CONVOY_NODE_DATASET_SYNC_H
#define CONVOY_NODE_DATASET_SYNC_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"

/* dataset_sync_publish — publishes the list of files on node 0. feed NULL: there are no such
 * data. */
void dataset_sync_publish(struct board *board, bool is_validation, const struct feed *feed);

struct dataset_sync_config {
    const struct conf *conf;
    struct board *board;
    bool is_validation;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* dataset_sync_fetch — downloads node 0's data on another node, if its own DATA is not set or
 * missing, and writes the path of the download to out. Otherwise out stays empty. Blocks until node
 * 0 has published its list and the download is complete. */
enum status dataset_sync_fetch(const struct dataset_sync_config *config, struct text *out);

#endif
