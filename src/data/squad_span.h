/* squad_span — from start and end logits of a question's windows to the spans that answer it best.
 *
 * A context that is longer than the model's input is seen in several windows, each a pass of its
 * own. A span is a pair of positions of one window, start ≤ end, both within the window's part of
 * the context, at most SQUAD_SPAN_TOKENS_MAX tokens; its score is the sum of its two logits.
 * Questions that may have no answer compare the best span with the null score: the two logits of
 * the place that means "no answer", the least over the windows. Sources: Devlin et al. 2019,
 * sections 4.2 and 4.3. Pure; must not know texts, tokens or models. */
#ifndef CONVOY_DATA_SQUAD_SPAN_H
#define CONVOY_DATA_SQUAD_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#define SQUAD_SPAN_BEST 20
#define SQUAD_SPAN_TOKENS_MAX 30

struct squad_span {
    int64_t window;
    int64_t start, end; /* positions in the window, both inside */
    double score;
};

/* The best spans of one question, best first; of equal scores the one that was seen first (window,
 * start, end). */
struct squad_span_best {
    struct squad_span span[SQUAD_SPAN_BEST];
    int n;
    double null_score; /* INFINITY: no window has said one */
};

void squad_span_begin(struct squad_span_best *best);
/* squad_span_window — take in a window. logits: (T,2), start and end of each position; the context
 * is [first, last], empty when last < first; null_i: the place that means "no answer", -1 for none.
 * Logits that are not finite are in no span. */
void squad_span_window(struct squad_span_best *best, int64_t window, const float *logits,
                       int64_t first, int64_t last, int64_t null_i);
/* squad_span_is_null — the question has no answer: no span, or the null score is over the best
 * span's by more than margin. */
bool squad_span_is_null(const struct squad_span_best *best, double margin);

#endif
