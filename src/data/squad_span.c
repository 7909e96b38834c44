/* squad_span — see squad_span.h. All spans are tried: at most 30 for each start, a few thousand
 * in a window. */
#include "data/squad_span.h"

#include <math.h>
#include <string.h>

void squad_span_begin(struct squad_span_best *best)
{
    memset(best, 0, sizeof *best);
    best->null_score = INFINITY;
}

void squad_span_window(struct squad_span_best *best, int64_t window, const float *logits,
                       int64_t first, int64_t last, int64_t null_i)
{
    for (int64_t start = first; start <= last; start++)
        for (int64_t end = start; end <= last && end < start + SQUAD_SPAN_TOKENS_MAX; end++) {
            struct squad_span span = {window, start, end,
                                      (double)logits[2 * start] + logits[2 * end + 1]};
            /* Inserted after all that are at least as good; the last one is dropped. */
            const bool is_full = best->n == SQUAD_SPAN_BEST;
            if (!isfinite(span.score) || (is_full && !(span.score > best->span[best->n - 1].score)))
                continue;
            int at = is_full ? best->n - 1 : best->n++;
            for (; at > 0 && span.score > best->span[at - 1].score; at--)
                best->span[at] = best->span[at - 1];
            best->span[at] = span;
        }
    if (null_i >= 0) {
        double score = (double)logits[2 * null_i] + logits[2 * null_i + 1];
        if (score < best->null_score)
            best->null_score = score;
    }
}

bool squad_span_is_null(const struct squad_span_best *best, double margin)
{
    return best->n == 0 ||
           (best->null_score < INFINITY && best->null_score - best->span[0].score > margin);
}
