/* squad_span — from the start and end logits of a question's windows to the best answer spans.
 *
 * A context longer than the model's input is seen in several windows, each in a forward pass of
 * its own. A span is two positions of one window, start ≤ end, both in the window's part of the
 * context, at most SQUAD_SPAN_TOKENS_MAX tokens; its score is the sum of their logits. For
 * questions that may have no answer the best span is compared with the null score: the sum of
 * the two logits at the "no answer" position, the minimum over the windows. Sources: Devlin et
 * al. 2019, sections 4.2 and 4.3. Pure functions; it must not know texts, tokens or models. */
#ifndef CONVOY_DATA_SQUAD_SPAN_H
#define CONVOY_DATA_SQUAD_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#define SQUAD_SPAN_BEST 20
#define SQUAD_SPAN_TOKENS_MAX 30

struct squad_span {
    int64_t window;
    int64_t start, end; /* positions in the window, inclusive */
    double score;
};

/* The best spans of one question, best first; equal scores in the order of window, start, end. */
struct squad_span_best {
    struct squad_span span[SQUAD_SPAN_BEST];
    int n;
    double null_score; /* INFINITY: no window had one */
};

void squad_span_begin(struct squad_span_best *best);
/* squad_span_window — adds a window. logits: (T,2), start and end for each position. The context
 * is [first, last], empty when last < first. null_i: the "no answer" position; -1: none.
 * Positions with non-finite logits are in no span. */
void squad_span_window(struct squad_span_best *best, int64_t window, const float *logits,
                       int64_t first, int64_t last, int64_t null_i);
/* squad_span_is_null — is "no answer" the prediction? There is no span, or the null score
 * exceeds the best span's by more than margin. */
bool squad_span_is_null(const struct squad_span_best *best, double margin);

#endif
