/* dataset_sync — data of node 0 for nodes that have none, as a worker sees it: node 0's first
 * worker writes down the files that its data are made of (a blob on the board; its supervisor hands
 * them out); another node's worker that misses its DATA brings them from there. Must not know
 * devices or models. */
#ifndef CONVOY_NODE_DATASET_SYNC_H
#define CONVOY_NODE_DATASET_SYNC_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"

/* dataset_sync_publish — on node 0: feed NULL: there is none. */
void dataset_sync_publish(struct board *board, bool is_validation, const struct feed *feed);

struct dataset_sync_config {
    const struct conf *conf;
    struct board *board;
    bool is_validation;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* dataset_sync_fetch — on another node of several: when its DATA is not set or not there, those of
 * node 0, and in out what to read instead; else out stays empty. Blocks until node 0 knows its
 * own. */
enum status dataset_sync_fetch(const struct dataset_sync_config *config, struct text *out);

#endif
