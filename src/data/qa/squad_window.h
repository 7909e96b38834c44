/* squad_window — cuts questions into samples of T tokens: question, <|endoftext|>, as much
 * context as fits, padding.
 *
 *   - Question and context are tokenised separately, so a context has the same tokens in all
 *     samples.
 *   - A question longer than half a sample loses its end.
 *   - A longer context is cut into windows that begin `stride` tokens after each other. A stride
 *     without overlap becomes half of the space for context in a sample.
 *   - Labels are positions in the sample: the tokens with the first and last byte of the first
 *     answer that matches. A window without the whole answer, and every window of an
 *     unanswerable question, has start = end = 0, as Hugging Face's question-answering pipeline
 *     scores "no answer".
 *   - A question whose answers do not match has label T, which the loss ignores.
 *   - Padding is <|endoftext|>, masked.
 *
 * It must not know files, nor the order of samples. */
#ifndef CONVOY_DATA_SQUAD_WINDOW_H
#define CONVOY_DATA_SQUAD_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/qa/squad.h"

#define SQUAD_WINDOW_SEQ_MIN 8 /* tokens; fewer have no room for question and context */

struct squad_window_config {
    int64_t seq_tokens;    /* T */
    int64_t stride_tokens; /* DOC_STRIDE */
    int64_t vocab;         /* every id must be below it */
    bool is_training;      /* without windows of label T */
    /* NULL allowed; returns false to stop: then ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
};

struct squad_window {
    int64_t example_i;
    /* position of the first context token in the sample, after the separator */
    int32_t context_at;
    int32_t context_n;     /* context tokens in this sample; may be 0 (an empty context) */
    int32_t context_first; /* index of the first one in the whole context */
    int32_t start, end;    /* labels, end inclusive */
};

struct squad_window_set;
/* squad_window_open — makes the windows of all examples in their order; the windows of one example
 * are adjacent. Borrows squad until close. Fails ST_BAD_SETTING: T, DOC_STRIDE; ST_BAD_DATA: the
 * vocabulary is too small, or there is nothing to train on. */
enum status squad_window_open(const struct squad *squad, const struct squad_window_config *config,
                              struct squad_window_set **out);
void squad_window_close(struct squad_window_set *set); /* accepts NULL */
/* squad_window_count — returns the number of windows of all examples. */
int64_t squad_window_count(const struct squad_window_set *set);
/* squad_window_get — returns a window, borrowed until squad_window_close. */
const struct squad_window *squad_window_get(const struct squad_window_set *set, int64_t window_i);
/* squad_window_fill — writes T ids, and T mask bytes (1: visible, 0: padding) unless mask is
 * NULL. */
void squad_window_fill(const struct squad_window_set *set, int64_t window_i, int32_t *tokens,
                       uint8_t *mask);
/* squad_window_cut — finds the bytes of the example's context in the tokens [start, end], both
 * within [context_at, context_at + context_n): complete characters, without white space at either
 * end (tokens include the space before a word). The predicted answer is context[*first_bytes,
 * *end_bytes). */
void squad_window_cut(const struct squad_window_set *set, int64_t window_i, int32_t start,
                      int32_t end, int64_t *first_bytes, int64_t *end_bytes);
/* squad_window_fingerprint — returns a fingerprint of all samples and labels. */
uint64_t squad_window_fingerprint(const struct squad_window_set *set);

#endif
