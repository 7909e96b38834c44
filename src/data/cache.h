/* cache — token files made from text, JSON lines and Megatron files, kept in CACHE_DIR/tokens.
 *
 *   - <key>.bin is a token file (shard.h); its key is encode_key of its texts.
 *   - <files>.key holds the key of the texts with these paths, sizes, times and inodes, so that a
 *     second start need not read them.
 *
 * Files appear complete, by rename, so any number of processes may share the folder. A damaged file
 * is detected by its checksum and made again. The folder may be deleted at any time. */
#ifndef CONVOY_DATA_CACHE_H
#define CONVOY_DATA_CACHE_H

#include "base/file.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/encode.h"
#include "data/shard.h"

/* cache_shard — opens and checks the token file of n files, and makes it first when it is missing.
 * path_out: that token file. Fails ST_STORE: the folder cannot be written. */
enum status cache_shard(const char *cache_dir, const struct encode_config *config,
                        const struct data_file *text, int64_t n, int64_t vocab,
                        struct shard *shard_out, struct shard_facts *facts_out,
                        char path_out[FILE_PATH_MAX]);

#endif
