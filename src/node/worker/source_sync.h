/* source_sync — a worker's MODEL, ADAPTER and TOKENIZER, before it reads them.
 *
 * Node 0's first worker finds them (node/choose/sources.h). It puts the paths on the board, for
 * the other workers of the node, and the lists of files, for the other nodes. Another node gets
 * from node 0 the files of the tokenizer, and the outlines of model and adapter
 * (train/weights/outline.h), because rank 0 sends weights to all ranks. If it has the model or the
 * adapter, it compares them with the outline and uses its own. */
#ifndef CONVOY_NODE_SOURCE_SYNC_H
#define CONVOY_NODE_SOURCE_SYNC_H

#include "base/board.h"
#include "conf/conf.h"

struct source_sync_config {
    struct conf *conf;
    struct board *board;
    int worker_i;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* source_sync — blocks until the paths are set in conf. ST_NO_INPUT: neither this node nor node 0
 * has the files. ST_DISAGREE: this node's model or adapter differs from node 0's. ST_RETRY:
 * progress stopped it. Otherwise like remote_fetch and file_client_fetch. */
enum status source_sync(const struct source_sync_config *config);

#endif
