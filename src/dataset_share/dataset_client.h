/* bring — data that this node does not have, from node 0, into CACHE_DIR/from-node-0, kept there.
 *
 * Over the meeting's own door: TLS 1.3 with the job's key. Blocks, so it is for a process that may
 * (a worker). A piece is asked for after the other; what has come is gone on with after a break or
 * a restart of either side; a file appears whole, by rename, when its checksum is right; the
 * checksums of what is kept are looked at again each time. Of several processes that want the same,
 * one brings it. While node 0 cannot be reached it tries again for ever: whether it is lost is for
 * others to say, who ask by way of progress. Must not know what is in the files. */
#ifndef CONVOY_DATASET_SHARE_DATASET_CLIENT_H
#define CONVOY_DATASET_SHARE_DATASET_CLIENT_H

#include <stdbool.h>

#include "dataset_share/file_list.h"
#include "net/psk.h"

struct dataset_client_config {
    const struct psk *psk;
    const char *host; /* MASTER_ADDR */
    int port, node_id;
    enum file_list_kind kind;
    const char *cache_dir;
    /* called often; false: stop, ST_RETRY. bytes_total 0: not known yet */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* dataset_client_fetch — *state_out FILE_LIST_STATE_READY: data_out is what to give as DATA, one
 * folder, or several with weights. FILE_LIST_STATE_NONE: node 0 uses none. ST_NO_INPUT: node 0
 * cannot hand them out, or read them; ST_STORE: no room here; ST_BAD_DATA: what comes is not what
 * node 0 said; ST_NOT_ADMITTED; ST_RETRY: stopped. */
enum status dataset_client_fetch(const struct dataset_client_config *config, struct text *data_out,
                                 enum file_list_state *state_out);

#endif
