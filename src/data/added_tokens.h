/* added_tokens — finds the leftmost of several strings in a text, the longest where several begin
 * at one place. It must not know what they mean. */
#ifndef CONVOY_DATA_ADDED_TOKENS_H
#define CONVOY_DATA_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct added_tokens;
/* added_tokens_new — most: so many strings at most. */
enum status added_tokens_new(size_t most, struct added_tokens **out);
void added_tokens_close(struct added_tokens *added); /* accepts NULL */
/* added_tokens_put — before the first search; n ≥ 1. Fails ST_RETRY: memory. */
enum status added_tokens_put(struct added_tokens *added, uint32_t id, const uint8_t *text,
                             size_t n);
/* added_tokens_sort — between the last put and the first search. */
void added_tokens_sort(struct added_tokens *added);
/* added_tokens_next — where the next one begins, at or after p; its id and length. end: none. */
const uint8_t *added_tokens_next(const struct added_tokens *added, const uint8_t *p,
                                 const uint8_t *end, uint32_t *id_out, size_t *n_out);
/* added_tokens_spans — may one, whole or cut off by end, contain the place at, but not begin
 * there? touches: or end there. */
bool added_tokens_spans(const struct added_tokens *added, const uint8_t *text, const uint8_t *at,
                        const uint8_t *end, bool touches);

#endif
