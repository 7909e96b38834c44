/* offer — node 0's side of handing out data: the bills of what it has, and pieces of the files on
 * them. Only a file that is on a bill can be asked for, by its number. Must not know who asks, or
 * what is in the files. */
#ifndef CONVOY_DATASET_SHARE_DATASET_SERVER_H
#define CONVOY_DATASET_SHARE_DATASET_SERVER_H

#include "dataset_share/file_list.h"

struct evbuffer;
struct dataset_server;

enum status dataset_server_open(struct dataset_server **out);
/* accepts NULL; buffers that were given out may live on */
void dataset_server_close(struct dataset_server *server);
/* dataset_server_set — what node 0's worker wrote (file_list_write, with paths), of any content.
 * ST_BAD_DATA leaves the former; where there is none yet, those who ask are told that there are no
 * data to hand out, and why. */
enum status dataset_server_set(struct dataset_server *server, enum file_list_kind kind,
                               const char *bytes, size_t n);
/* dataset_server_list — as the others are to see it. */
void dataset_server_list(const struct dataset_server *server, enum file_list_kind kind,
                         struct text *out);

/* dataset_server_chunk — appends up to FILE_LIST_CHUNK_BYTES to out. Returns 200; 410 another bill
 * stands now; 503 ask again: too many pieces are on their way, or this process is short of memory
 * or open files; 500 the file cannot be read. With 500, and where files are short, status_message
 * has a sentence. */
int dataset_server_chunk(struct dataset_server *server, const struct file_list_request *request,
                         struct evbuffer *out);

#endif
