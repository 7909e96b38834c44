/* file_sync — a worker's side of sharing node 0's files with nodes that have none.
 *
 * Node 0's first worker publishes the list of its files on the board, and its supervisor serves
 * them. A worker of another node downloads them if its DATA is missing. Must not know devices or
 * models. */
#ifndef CONVOY_NODE_FILE_SYNC_H
#define CONVOY_NODE_FILE_SYNC_H

#include "base/board.h"
#include "base/text.h"
#include "conf/conf.h"
#include "data/feed.h"
#include "file_share/file_list.h"

/* file_sync_blob — returns the blob of the board with node 0's list of a kind. */
enum board_blob file_sync_blob(enum file_list_kind kind);
/* file_sync_publish_list — publishes a list of node 0's files on the board, for its supervisor.
 */
void file_sync_publish_list(struct board *board, enum file_list_kind kind, struct file_list *list);
/* file_sync_set_unfit — replaces the list by the reason for which the files cannot be shared. */
void file_sync_set_unfit(struct file_list *list, const char *why);

/* file_sync_publish — publishes the list of files on node 0. feed NULL: there are no such
 * data. */
void file_sync_publish(struct board *board, bool is_validation, const struct feed *feed);

struct file_sync_config {
    const struct conf *conf;
    struct board *board;
    enum file_list_kind kind;
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

/* file_sync_fetch — downloads node 0's data on another node, if its own DATA is not set or
 * missing, and writes the path of the download to out. Otherwise out stays empty. Blocks until node
 * 0 has published its list and the download is complete. */
enum status file_sync_fetch(const struct file_sync_config *config, struct text *out);
/* file_sync_fetch_files — downloads node 0's files of any kind (file_client.h). */
enum status file_sync_fetch_files(const struct file_sync_config *config, struct text *out,
                                  enum file_list_state *state_out);

#endif
