/* split — a list of steps that split texts into pre-tokens: each step splits the pieces of the step
 * before it.
 *
 * Each byte outside of well-formed UTF-8 counts as U+FFFD, a symbol, and stays as it is. Characters
 * of Unicode 15 and 16 have their category with any version of libpcre2-8. It must not know tokens.
 * Source: Hugging Face's tokenizers 0.23, NormalizedString::split. */
#ifndef CONVOY_DATA_SPLIT_H
#define CONVOY_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/encode_watch.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/pretoken.h"

/* The fate of a match. */
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,             /* a piece */
    SPLIT_MERGED_WITH_PREVIOUS, /* a piece with the text before it */
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS /* a piece with the matches next to it */
};

struct split;
struct split *split_new(void);
void split_close(struct split *split); /* accepts NULL */
/* split_add_pattern — appends a step, and owns pattern then. invert: the text between matches
 * counts as the matches. */
void split_add_pattern(struct split *split, struct pattern *pattern, enum split_behavior behavior,
                       bool invert);
/* split_add_kind — appends one of the splitters of pretoken.h. */
void split_add_kind(struct split *split, enum pretoken_kind kind);
/* split_add_bytes — appends the step after which the pieces are the characters of bpe_chars for
 * further steps; at most one. The pieces at the end are bytes again. */
void split_add_bytes(struct split *split);
/* split_steps — returns the number of steps. */
int split_steps(const struct split *split);
/* split_identity — returns a hash of the steps. */
uint64_t split_identity(const struct split *split);
/* split_has_edges — returns true if a text may be cut after any ASCII letter and before a space or
 * a line feed: both parts have the same pieces as in the whole. */
bool split_has_edges(const struct split *split);

/* The memory of splits in one thread. */
struct split_work;
/* split_work_new — begins the splits of n_bytes of texts in all. */
struct split_work *split_work_new(const struct split *split, const struct encode_watch *watch,
                                  size_t n_bytes);
void split_work_free(struct split_work *work); /* accepts NULL */

typedef enum status split_put_fn(void *arg, const uint8_t *piece, size_t n);
/* split_run — passes the pieces of a text to put, in order; none is empty. Fails as put and
 * pattern_next do. */
enum status split_run(struct split_work *work, const uint8_t *text, size_t n, split_put_fn *put,
                      void *arg);

#endif
