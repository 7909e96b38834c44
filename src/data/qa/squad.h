/* squad — questions about paragraphs in the JSON format of SQuAD v1.1 and v2.0.
 *
 * An answer_start counts Unicode code points of the context; here it becomes bytes. A question
 * whose answer is not at its offset is logged with its id and not used. A file with more than
 * one such question in ten is refused. It must not know tokens (squad_window.h makes samples).
 * Sources: Rajpurkar et al. 2016 (v1.1), 2018 (v2.0). */
#ifndef CONVOY_DATA_SQUAD_H
#define CONVOY_DATA_SQUAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/data_file.h"

#define SQUAD_BYTES_MAX ((size_t)256 << 20) /* bytes of one file; v2.0's training set has 42 MB */

struct squad_answer {
    const char *text; /* as in the file, UTF-8 */
    /* position in the context; both -1: the answer is not at the position in the file */
    int64_t first_bytes, end_bytes;
};

struct squad_example {
    /* UTF-8, 0-terminated; examples of one paragraph share its context */
    const char *id, *question, *context;
    int64_t context_bytes;
    int64_t paragraph_i; /* number of the context, from 0 */
    const struct squad_answer *answer;
    int64_t answers_n;  /* 0 when is_impossible */
    bool is_impossible; /* marked so in v2.0, or without answers */
};

struct squad;

/* squad_parse — parses one document. A pure function, external for tests; name is for messages.
 * Fails ST_BAD_DATA: not JSON, a field missing or of the wrong type (the message has its location),
 * no questions, or too many answers that do not match. */
enum status squad_parse(const char *bytes, size_t n_bytes, const char *name, struct squad **out);

/* squad_open — reads all files of DATA (data_file.h), in order, as one set. */
enum status squad_open(const struct data_file_config *config, struct squad **out);
void squad_close(struct squad *squad); /* accepts NULL */
/* squad_examples — returns the number of examples. */
int64_t squad_examples(const struct squad *squad);
/* squad_paragraphs — returns the number of paragraphs. */
int64_t squad_paragraphs(const struct squad *squad);
/* squad_example — returns an example, borrowed until squad_close. */
const struct squad_example *squad_example(const struct squad *squad, int64_t example_i);
/* squad_file — returns file file_i that squad_open has read: its path, size, and XXH3-64 of its
 * bytes. false: there are no more. */
bool squad_file(const struct squad *squad, int64_t file_i, const char **path_out,
                int64_t *bytes_out, uint64_t *sum_out);

/* squad_mismatched — returns the number of questions without an answer at its offset, for tests. */
int64_t squad_mismatched(const struct squad *squad);

/* squad_span — finds the best answer spans from the start and end logits of a question's
 * windows.
 *
 * A context longer than the model's input is seen in several windows, each in a forward pass of
 * its own. A span is two positions of one window, start ≤ end, both in the window's section of the
 * context, at most SQUAD_SPAN_TOKENS_MAX tokens; its score is the sum of their logits. For
 * questions that may have no answer the best span is compared with the null score: the sum of
 * the two logits at the "no answer" position, the minimum over the windows. Sources: Devlin et
 * al. 2019, sections 4.2 and 4.3. Pure functions; it must not know texts, tokens or models. */

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

/* squad_span_begin — empties *best, before the first window of a question. */
void squad_span_begin(struct squad_span_best *best);
/* squad_span_window — adds a window. logits: (T,2), start and end for each position. The context is
 * [first, last], empty if last < first. null_i: the "no answer" position; -1: none. Positions with
 * non-finite logits are in no span. */
void squad_span_window(struct squad_span_best *best, int64_t window, const float *logits,
                       int64_t first, int64_t last, int64_t null_i);
/* squad_span_is_null — returns true if "no answer" is the prediction: there is no span, or the null
 * score exceeds the best span's by more than margin. */
bool squad_span_is_null(const struct squad_span_best *best, double margin);

/* squad_score — exact match and F1 of an answer, as defined by SQuAD's official evaluation
 * scripts.
 *
 * An answer is normalised: lower case, no ASCII punctuation, without the words a, an and the,
 * single spaces. Exact match compares the results; F1 is the harmonic mean of precision and
 * recall over their words as multisets. The best score over the gold answers counts. Letters,
 * words and spaces are Unicode's, as in Python's str.lower, \b and str.split. Pure functions of
 * bytes; it must not know models, tokens or files. Sources: Rajpurkar et al. 2016, section 6.1
 * (v1.1); Rajpurkar, Jia and Liang 2018 (v2.0). */

/* The two versions differ in questions without an answer, which v2.0 has. There, no gold answer, or
 * only empty ones, means the empty answer; and if either side has no words, F1 is 1 if both have
 * none, else 0. In v1.1 F1 is 0 without common words. */
enum squad_score_rules { SQUAD_SCORE_RULES_V1, SQUAD_SCORE_RULES_V2 };

struct squad_score_text {
    const char *bytes; /* UTF-8; each invalid byte counts as U+FFFD */
    size_t n;
};

struct squad_score {
    double exact; /* 0 or 1 */
    double f1;    /* 0 … 1 */
};

/* squad_score_answer — scores an answer against n gold answers; 0 with v1.1 and n = 0. Fails
 * ST_RETRY: memory. */
enum status squad_score_answer(enum squad_score_rules rules, struct squad_score_text answer,
                               const struct squad_score_text *gold, size_t gold_n,
                               struct squad_score *out);

/* squad_score_normalise — appends the normalised answer to *out, as UTF-8; for tests. */
enum status squad_score_normalise(struct squad_score_text answer, struct text *out);

#endif
