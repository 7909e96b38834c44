/* dataset_sync — a worker's side of sharing node 0's dataset with nodes that have none.
 *
 * Node 0's first worker publishes the list of its files on the board, and its supervisor serves
 * them. A worker of another node whose DATA is missing downloads them. Must not know devices or
 * models. */
#ifndef CONVOY_NODE_DATASET_SYNC_H
#define CONVOY_NODE_DATASET_SYNC_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"

/* dataset_sync_publish — on node 0: publish the list of files. feed NULL: there is no such data. */
void dataset_sync_publish(struct board *board, bool is_validation, const struct feed *feed);

struct dataset_sync_config {
    const struct conf *conf;
    struct board *board;
    bool is_validation;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* dataset_sync_fetch — on another node: when its DATA is not set or missing, download node 0's and
 * write to out what to read instead. Else out stays empty. Blocks until node 0 has published its
 * list and the download is complete. */
enum status dataset_sync_fetch(const struct dataset_sync_config *config, struct text *out);

#endif
