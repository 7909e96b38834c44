/* cache — token files made from text and JSON lines, kept in CACHE_DIR/tokens, and a record of the
 * token files that were checked.
 *
 *   - <key>.bin is a token file (shard.h); its key is encode_key of its texts.
 *   - <files>.key holds the key of the texts with these paths, sizes, times and inodes, so that a
 *     second start need not read them.
 *   - <file>.sum holds the checksum of a token file with this size, these times and this inode,
 *     after its content was found to have it. No later start reads the whole file.
 *
 * Files appear complete, by rename, so any number of processes may share the folder. A damaged file
 * is detected by its checksum and made again. The folder may be deleted at any time. */
#ifndef CONVOY_DATA_CACHE_H
#define CONVOY_DATA_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/file.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/tokenizer/encode.h"
#include "data/shard.h"

/* Opens the token file of n texts, and makes it first if it is missing. path_out: path of that
 * token file. Fails ST_STORE: the folder cannot be written. */
enum status cache_shard(const char *cache_dir, const struct encode_config *config,
                        const struct data_file *text, int64_t n, struct shard *shard_out,
                        char path_out[FILE_PATH_MAX]);
/* Returns true if a record shows that the content of a token file has its checksum, or if the file
 * has none. cache_dir NULL or "": there are no records. */
bool cache_is_checked(const char *cache_dir, const struct shard *shard, const char *path);
/* Checks the content of a token file and records that; a recorded file is not checked again.
 * is_stopped: as in shard_check. */
enum status cache_check(const char *cache_dir, const struct shard *shard, const char *path,
                        const atomic_bool *is_stopped);

#endif
