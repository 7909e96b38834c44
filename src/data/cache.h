/* cache — token files made from text, JSON lines and Megatron files, kept in CACHE_DIR/tokens under
 * the name of what they were made from.
 *
 * <key>.bin is a token file (shard.h) whose key is encode_key of its texts. <files>.key holds the
 * key of the texts with these paths, sizes, times and inodes, so that a second start need not read
 * them. Files appear whole, by rename, so any number of processes may share the folder; a damaged
 * one is noticed by its checksum and made again. Safe to delete at any time. */
#ifndef CONVOY_DATA_CACHE_H
#define CONVOY_DATA_CACHE_H

#include "base/file.h"
#include "base/status.h"
#include "data/encode.h"
#include "data/shard.h"
#include "data/data_file.h"

/* cache_shard — the tokens of n files that encode reads, as one token file, opened and checked;
 * made first where they are not there; path_out is that file. Fails ST_STORE when the folder cannot
 * take them. */
enum status cache_shard(const char *cache_dir, const struct encode_config *config,
                        const struct data_file *text, int64_t n, int64_t vocab,
                        struct shard *shard_out, struct shard_facts *facts_out,
                        char path_out[FILE_PATH_MAX]);

#endif
