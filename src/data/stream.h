/* stream — reads the bytes of a text file, plain or compressed by zstd, in constant memory. It must
 * not know the meaning of the bytes. */
#ifndef CONVOY_DATA_STREAM_H
#define CONVOY_DATA_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/data_file.h"

typedef void stream_fn(void *arg, const uint8_t *raw, size_t n);

struct stream;
/* stream_open — opens a file. on_raw (NULL allowed) gets every byte of the file as it is read,
 * before decompression. */
enum status stream_open(const struct data_file *file, stream_fn *on_raw, void *arg,
                        struct stream **out);
void stream_close(struct stream *stream); /* accepts NULL */
/* stream_read — reads up to cap bytes; fewer only at the end. Blocks on the disk. Fails
 * ST_BAD_DATA: the file's size has changed, or its zstd data is cut off, damaged, followed by
 * something else, needs a window over 128 MiB, or grows over 1000-fold (a decompression bomb: no
 * text does). */
enum status stream_read(struct stream *stream, uint8_t *out, size_t cap, size_t *n_out);
int64_t stream_raw_bytes(const struct stream *stream); /* bytes read from the file so far */

#endif
