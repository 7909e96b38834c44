/* file_client — fetches the files of a setting of node 0 into CACHE_DIR/from-node-0, for a node
 * that has none.
 *
 * It uses the port of the cluster: HTTPS, TLS 1.3, the job's key. It blocks, so it belongs in a
 * process that may block (a worker), and returns only when all files are complete or unavailable:
 *
 *   - Chunks are requested one after the other. After an interruption, or a restart of either side,
 *     it continues after the last chunk that has arrived.
 *   - A file appears whole, by rename, once its checksum is right. The checksums of kept files of
 *     up to 64 MiB are verified each time; for larger files only their sizes.
 *   - If several processes need the same files, one fetches them; the others wait for a lock.
 *   - While node 0 cannot be reached it tries again without end. The cluster decides whether node 0
 *     is lost; config.progress then returns false.
 *
 * Must not interpret the files. */
#ifndef CONVOY_FILE_SHARE_FILE_CLIENT_H
#define CONVOY_FILE_SHARE_FILE_CLIENT_H

#include <stdbool.h>

#include "file_share/file_list.h"
#include "net/psk.h"

struct file_client_config {
    const struct psk *psk;
    const char *host; /* MASTER_ADDR */
    int port, node_id;
    enum file_list_kind kind;
    const char *cache_dir;
    /* Called often. Returns false to stop (ST_RETRY). bytes_total 0: unknown so far. */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* file_client_fetch — fetches the files. Blocks. ST_OK, with *state_out:
 *   FILE_LIST_STATE_READY   data_out is the value of the setting: one folder, or for data several
 *                           with weights
 *   FILE_LIST_STATE_NONE    node 0 uses none
 * ST_NO_INPUT: node 0 cannot share or read its files. ST_STORE: no space here. ST_BAD_DATA: the
 * bytes differ from node 0's list. ST_NOT_ADMITTED: another key. ST_RETRY: stopped. */
enum status file_client_fetch(const struct file_client_config *config, struct text *data_out,
                              enum file_list_state *state_out);

#endif
