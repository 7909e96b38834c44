/* stream — the bytes of a text file, as they are or unpacked by zstd, in constant memory. Must not
 * know what they mean. */
#ifndef CONVOY_DATA_STREAM_H
#define CONVOY_DATA_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/data_file.h"

typedef void stream_fn(void *arg, const uint8_t *raw, size_t n);

struct stream;
/* stream_open — on_raw (NULL allowed) sees every byte of the file as it is read, before
 * unpacking. */
enum status stream_open(const struct data_file *file, stream_fn *on_raw, void *arg,
                        struct stream **out);
void stream_close(struct stream *stream); /* accepts NULL */
/* stream_read — up to cap bytes; fewer only at the end, where the file must have the size that
 * file says. Fails ST_BAD_DATA: it has not, or what zstd packed is cut off, damaged, followed by
 * something else, needs a window over 128 MiB, or grows over 1000-fold (no text does; a bomb). */
enum status stream_read(struct stream *stream, uint8_t *out, size_t cap, size_t *n_out);
int64_t stream_raw_bytes(const struct stream *stream); /* of the file, read so far */

#endif
