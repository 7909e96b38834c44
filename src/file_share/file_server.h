/* file_server — node 0's side of sharing files: answers requests for its file lists, and for
 * chunks of the listed files. Only a file on a list can be read, by its number. Runs on the
 * supervisor's event loop. Must not know how the connection is secured, or the contents of the
 * files. */
#ifndef CONVOY_FILE_SHARE_FILE_SERVER_H
#define CONVOY_FILE_SHARE_FILE_SERVER_H

#include "file_share/file_list.h"

struct evbuffer;
struct https_server_request;
struct file_server;

/* file_server_open — starts a server without lists. Never NULL. */
struct file_server *file_server_open(void);
/* file_server_close — accepts NULL. Buffers that were passed to requests live until they are
 * sent. */
void file_server_close(struct file_server *server);
/* file_server_set — sets the list that node 0's worker wrote (file_list_write, with paths);
 * bytes of any content. ST_BAD_DATA: the former list stays. If there is none, requests get a list
 * with the state UNFIT and the reason. */
enum status file_server_set(struct file_server *server, enum file_list_kind kind, const char *bytes,
                            size_t n);
/* file_server_on_request — answers one request of the cluster's port
 * (cluster_config.on_request): POST /v1/data; 404 for other paths. Reads a file from the page cache
 * or the disk, for at most FILE_LIST_CHUNK_BYTES. */
void file_server_on_request(struct file_server *server, struct https_server_request *request,
                            const char *path, const char *bytes, size_t n);

/* file_server_answer — for tests: appends the list or the chunk to out and returns the HTTP
 * code.
 *   200   done
 *   410   node 0 has another list now
 *   500   the file cannot be read; status_message has the reason
 *   503   try again: too many chunks are being sent, or this process is short of memory or of open
 *         files (status_message has a reason then) */
int file_server_answer(struct file_server *server, const struct file_list_request *wanted,
                       struct evbuffer *out);

#endif
