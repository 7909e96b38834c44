/* shard_checker — verifies the checksums of token files in the background, so that no start waits
 * until large data have been read.
 *
 * One thread of low priority reads the files one after the other. Several processes that check the
 * same files begin at different ones, and leave out what another has found to be right (cache.h).
 * It must not know what the ids are used for. */
#ifndef CONVOY_DATA_SHARD_CHECKER_H
#define CONVOY_DATA_SHARD_CHECKER_H

#include <stdint.h>

#include "base/status.h"
#include "data/shard.h"

struct shard_checker_file {
    const struct shard *shard; /* borrowed until shard_checker_stop, as the path is */
    const char *path;
};
struct shard_checker;
/* Starts the thread. The list is copied; cache_dir is as in cache_check. */
enum status shard_checker_start(const char *cache_dir, const struct shard_checker_file *files,
                                int64_t n, struct shard_checker **out);
/* Returns the failure that the thread has found (ST_BAD_DATA: a file is damaged), or ST_OK. Any
 * thread; accepts NULL. */
enum status shard_checker_found(const struct shard_checker *checker);
/* Stops the thread, within the time that it needs for a few MiB. Accepts NULL. */
void shard_checker_stop(struct shard_checker *checker);

#endif
