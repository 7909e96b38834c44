/* shm_check — checksums of what ranks read in each other's memory (SHM_CHECKSUM=1).
 *
 * The writer publishes checksums before a barrier; the reader computes them of what it has read
 * behind the barrier, and fails if they differ. Content and checksum are added block by block while
 * a block is in a cache. A checksum has no key: it finds damage, not forgery, and the memory is
 * open to the node's workers alone (comm_shm.h). With shm_barrier.checks false all this costs
 * nothing. Must not know which collective it serves. */
#ifndef CONVOY_COMM_SHM_CHECK_H
#define CONVOY_COMM_SHM_CHECK_H

#include "comm/shm/shm_barrier.h"

#define SHM_CHECK_BLOCK_BYTES (64 << 10) /* two of them fit into a second-level cache */

/* shm_check_sum — adds an extent to a checksum, in blocks. */
uint64_t shm_check_sum(uint64_t so_far, const void *data, int64_t bytes);
/* shm_check_copy — copies an extent and, with checksums, adds it to *sum. */
void shm_check_copy(const struct shm_barrier *barrier, uint64_t *sum, void *out, const void *in,
                    int64_t bytes, bool is_nt);
/* shm_check_publish — checksum number i (below the number of ranks) of this rank, for its next
 * barrier. shm_check_put — of this extent; without checksums does nothing. */
void shm_check_publish(const struct shm_barrier *barrier, int i, uint64_t sum);
void shm_check_put(const struct shm_barrier *barrier, int i, const void *data, int64_t bytes);
/* shm_check_compare — rank r's number i of the last barrier against what this rank has read.
 * shm_check_extent — of this extent. Both return ST_OK without checksums.
 * shm_check_fail — ST_PEER: content of rank r is damaged. */
enum status shm_check_compare(const struct shm_barrier *barrier, const struct comm_ctx *ctx, int r,
                              int i, uint64_t sum);
enum status shm_check_extent(const struct shm_barrier *barrier, const struct comm_ctx *ctx, int r,
                             int i, const void *data, int64_t bytes);
enum status shm_check_fail(const struct comm_ctx *ctx, int r);

#endif
