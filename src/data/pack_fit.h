/* pack_fit — which pieces lie together in samples of equal length: best-fit decreasing (Ding et al.
 * 2024, "Fewer Truncations Improve Language Modeling"). Pure. It must not know what a piece is. */
#ifndef CONVOY_DATA_PACK_FIT_H
#define CONVOY_DATA_PACK_FIT_H

#include <stdint.h>

#include "base/status.h"

/* pack_fit — pieces from the longest to the shortest, each into the sample with the least room that
 * is enough. Samples are numbered in the order of their first pieces.
 *   tokens  (n) of each piece, 1 … seq_tokens
 *   sample  (n) out: its sample
 *   *samples_out  how many samples there are
 * Takes 16 bytes for a piece and 5 for a token of seq_tokens. Fails with ST_RETRY if memory is
 * refused. */
enum status pack_fit(const int32_t *tokens, int32_t n, int32_t seq_tokens, int32_t *sample,
                     int32_t *samples_out);

#endif
