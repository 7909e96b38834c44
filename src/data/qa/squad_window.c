/* squad_window — see squad_window.h. Tokens of questions and contexts are kept once; a sample is
 * assembled when it is requested. */
#include "data/qa/squad_window.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "data/tokenizer/gpt2.h"

/* A bound of a few gigabytes of memory; real data has a few hundred thousand. */
#define SQUAD_WINDOW_N_MAX ((int64_t)1 << 26)

/* The tokens of one text. */
struct squad_window_text {
    int64_t first;
    int64_t n;
};

struct squad_window_set {
    const struct squad *squad;
    struct squad_window_config config;
    struct tokenizer *tokenizer;
    uint32_t *id;  /* ids of all contexts and questions */
    uint32_t *end; /* end of token i, in bytes of its text */
    int64_t ids_n, ids_cap;
    struct squad_window_text *context;  /* by paragraph */
    struct squad_window_text *question; /* by example */
    struct squad_window *window;
    int64_t windows_n, windows_cap;
};

/* ---- tokens ---- */

static enum status ids_room(struct squad_window_set *set, int64_t more)
{
    if (more <= set->ids_cap - set->ids_n)
        return ST_OK;
    const int64_t cap = 2 * (set->ids_n + more) + 65536;
    uint32_t *id = realloc(set->id, (size_t)cap * sizeof *id);
    if (id != NULL)
        set->id = id;
    uint32_t *end = realloc(set->end, (size_t)cap * sizeof *end);
    if (end != NULL)
        set->end = end;
    if (id == NULL || end == NULL)
        return FAIL(memory_status(cap * 8),
                    "out of memory: %lld bytes for questions and their contexts",
                    (long long)cap * 8);
    set->ids_cap = cap;
    return ST_OK;
}

static enum status add_text(struct squad_window_set *set, const char *text, int64_t n,
                            struct squad_window_text *out)
{
    TRY(ids_room(set, n));
    out->first = set->ids_n;
    size_t ids_n;
    TRY(tokenizer_encode(set->tokenizer, text, (size_t)n, true, set->id + set->ids_n, &ids_n));
    out->n = (int64_t)ids_n;
    uint32_t at = 0;
    for (int64_t i = 0; i < out->n; i++) {
        size_t bytes;
        tokenizer_bytes(set->tokenizer, set->id[out->first + i], &bytes);
        at += (uint32_t)bytes;
        set->end[out->first + i] = at;
    }
    ASSERTF(at == n, "tokens of %u bytes for a text of %lld", at, (long long)n);
    set->ids_n += out->n;
    return ST_OK;
}

/* token_of_byte — returns the token of a context that contains this byte. */
static int64_t token_of_byte(const struct squad_window_set *set, struct squad_window_text text,
                             int64_t byte)
{
    int64_t low = 0, high = text.n - 1;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (set->end[text.first + mid] > byte)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* ---- windows ---- */

static const struct squad_answer *first_match(const struct squad_example *example)
{
    for (int64_t i = 0; i < example->answers_n; i++)
        if (example->answer[i].first_bytes >= 0)
            return example->answer + i;
    return NULL;
}

/* The tokens of the answer in the whole context; -1: there is no label, or no answer. */
struct squad_window_span {
    int64_t first, last;
    bool is_usable;
};

static struct squad_window_span span_of(const struct squad_window_set *set, int64_t example_i)
{
    const struct squad_example *example = squad_example(set->squad, example_i);
    const struct squad_window_text context = set->context[example->paragraph_i];
    const struct squad_answer *answer = first_match(example);
    if (example->is_impossible)
        return (struct squad_window_span){-1, -1, true};
    if (answer == NULL)
        return (struct squad_window_span){-1, -1, false};
    return (struct squad_window_span){token_of_byte(set, context, answer->first_bytes),
                                      token_of_byte(set, context, answer->end_bytes - 1), true};
}

static enum status cut_example(struct squad_window_set *set, int64_t example_i)
{
    const struct squad_window_span span = span_of(set, example_i);
    const struct squad_example *example = squad_example(set->squad, example_i);
    const int64_t seq = set->config.seq_tokens, context_n = set->context[example->paragraph_i].n;
    const int64_t asked = set->question[example_i].n,
                  question_n = asked < seq / 2 ? asked : seq / 2;
    const int64_t room = seq - question_n - 1;
    const int64_t stride =
        set->config.stride_tokens < room ? set->config.stride_tokens : (room + 1) / 2;
    if (set->config.is_training && !span.is_usable)
        return ST_OK;
    for (int64_t first = 0;; first += stride) {
        const int64_t left = context_n - first;
        struct squad_window window = {.example_i = example_i,
                                      .context_at = (int32_t)(question_n + 1),
                                      .context_n = (int32_t)(left < room ? left : room),
                                      .context_first = (int32_t)first};
        const int64_t begin = window.context_first, stop = begin + window.context_n;
        window.start = window.end = span.is_usable ? 0 : (int32_t)set->config.seq_tokens;
        if (span.first >= begin && span.last < stop && span.first >= 0) {
            window.start = (int32_t)(window.context_at + span.first - begin);
            window.end = (int32_t)(window.context_at + span.last - begin);
        }
        if (set->windows_n == set->windows_cap) {
            const int64_t cap = set->windows_cap > 0 ? 2 * set->windows_cap : 1024;
            if (cap > SQUAD_WINDOW_N_MAX)
                return FAIL(ST_BAD_DATA,
                            "the contexts make more than %lld windows of SEQ_LEN=%lld tokens; set "
                            "a larger DOC_STRIDE than %lld",
                            (long long)SQUAD_WINDOW_N_MAX, (long long)set->config.seq_tokens,
                            (long long)set->config.stride_tokens);
            set->window = memory_resize(set->window, (size_t)cap, sizeof *set->window);
            set->windows_cap = cap;
        }
        set->window[set->windows_n++] = window;
        if (left <= room)
            return ST_OK;
    }
}

/* ---- life ---- */

static enum status add_examples(struct squad_window_set *set)
{
    const int64_t n = squad_examples(set->squad);
    set->context = memory_new((size_t)squad_paragraphs(set->squad), sizeof *set->context);
    set->question = memory_new((size_t)n, sizeof *set->question);
    for (int64_t i = 0; i < n; i++) {
        if (i % 256 == 0 && set->config.progress != NULL &&
            !set->config.progress(set->config.progress_arg, i, n))
            return FAIL(ST_RETRY,
                        "stopped while tokenising questions; the next start begins again");
        const struct squad_example *example = squad_example(set->squad, i);
        struct squad_window_text *context = set->context + example->paragraph_i;
        if (context->n == 0)
            TRY(add_text(set, example->context, example->context_bytes, context));
        TRY(add_text(set, example->question, (int64_t)strlen(example->question),
                     set->question + i));
        TRY(cut_example(set, i));
    }
    if (set->windows_n == 0)
        return FAIL(ST_BAD_DATA,
                    "none of %lld questions has an answer at its answer_start; check the file",
                    (long long)n);
    return ST_OK;
}

enum status squad_window_open(const struct squad *squad, const struct squad_window_config *config,
                              struct squad_window_set **out)
{
    enum status st;
    if (config->seq_tokens < SQUAD_WINDOW_SEQ_MIN || config->seq_tokens >= INT32_MAX)
        return FAIL(ST_BAD_SETTING,
                    "SEQ_LEN=%lld: TASK=qa needs %d tokens or more, for a question and a context",
                    (long long)config->seq_tokens, SQUAD_WINDOW_SEQ_MIN);
    if (config->stride_tokens < 1)
        return FAIL(ST_BAD_SETTING, "DOC_STRIDE=%lld must be 1 token or more",
                    (long long)config->stride_tokens);
    if (config->vocab <= TOKENIZER_GPT2_END)
        return FAIL(ST_BAD_DATA,
                    "questions and contexts are joined with <|endoftext|> (id %d), but the "
                    "vocabulary has VOCAB=%lld ids; a model with VOCAB=%d (GPT-2's) is needed",
                    TOKENIZER_GPT2_END, (long long)config->vocab, TOKENIZER_GPT2_VOCAB);
    struct squad_window_set *set = memory_new(1, sizeof *set);
    set->squad = squad;
    set->config = *config;
    TRY_OR(tokenizer_gpt2_open(&set->tokenizer), out_close);
    TRY_OR(add_examples(set), out_close);
    *out = set;
    return ST_OK;
out_close:
    squad_window_close(set);
    return st;
}

void squad_window_close(struct squad_window_set *set)
{
    if (set == NULL)
        return;
    tokenizer_close(set->tokenizer);
    free(set->id);
    free(set->end);
    free(set->context);
    free(set->question);
    free(set->window);
    free(set);
}

/* ---- use ---- */

int64_t squad_window_count(const struct squad_window_set *set) { return set->windows_n; }

const struct squad_window *squad_window_get(const struct squad_window_set *set, int64_t window_i)
{
    ASSERTF(window_i >= 0 && window_i < set->windows_n, "window %lld of %lld", (long long)window_i,
            (long long)set->windows_n);
    return set->window + window_i;
}

static struct squad_window_text context_of(const struct squad_window_set *set,
                                           const struct squad_window *window)
{
    return set->context[squad_example(set->squad, window->example_i)->paragraph_i];
}

void squad_window_fill(const struct squad_window_set *set, int64_t window_i, int32_t *tokens,
                       uint8_t *mask)
{
    const struct squad_window *w = squad_window_get(set, window_i);
    const uint32_t *question = set->id + set->question[w->example_i].first;
    const uint32_t *context = set->id + context_of(set, w).first + w->context_first;
    const int64_t seen = w->context_at + w->context_n;
    for (int64_t t = 0; t < w->context_at - 1; t++)
        tokens[t] = (int32_t)question[t];
    tokens[w->context_at - 1] = TOKENIZER_GPT2_END;
    for (int64_t t = 0; t < w->context_n; t++)
        tokens[w->context_at + t] = (int32_t)context[t];
    for (int64_t t = seen; t < set->config.seq_tokens; t++)
        tokens[t] = TOKENIZER_GPT2_END;
    for (int64_t t = 0; mask != NULL && t < set->config.seq_tokens; t++)
        mask[t] = t < seen;
}

static bool is_inside(char c) { return ((unsigned char)c & 0xc0) == 0x80; }
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void squad_window_cut(const struct squad_window_set *set, int64_t window_i, int32_t start,
                      int32_t end, int64_t *first_bytes, int64_t *end_bytes)
{
    const struct squad_window *w = squad_window_get(set, window_i);
    ASSERTF(start >= w->context_at && start <= end && end < w->context_at + w->context_n,
            "tokens %d to %d of %d to %d", start, end, w->context_at, w->context_at + w->context_n);
    const struct squad_example *example = squad_example(set->squad, w->example_i);
    const struct squad_window_text context = context_of(set, w);
    const int64_t from = w->context_first + (start - w->context_at),
                  to = w->context_first + (end - w->context_at);
    int64_t first = from > 0 ? set->end[context.first + from - 1] : 0,
            stop = set->end[context.first + to];
    while (first > 0 && is_inside(example->context[first]))
        first--;
    while (stop < example->context_bytes && is_inside(example->context[stop]))
        stop++;
    while (first < stop && is_space(example->context[first]))
        first++;
    while (stop > first && is_space(example->context[stop - 1]))
        stop--;
    *first_bytes = first;
    *end_bytes = stop;
}

uint64_t squad_window_fingerprint(const struct squad_window_set *set)
{
    uint64_t sum = XXH3_64bits_withSeed(set->id, (size_t)set->ids_n * sizeof *set->id,
                                        (uint64_t)set->config.seq_tokens);
    for (int64_t i = 0; i < set->windows_n; i++) {
        const struct squad_window *w = set->window + i;
        const struct squad_window_text context = context_of(set, w);
        const int64_t facts[] = {set->question[w->example_i].first,
                                 context.first,
                                 w->context_at,
                                 w->context_first,
                                 w->context_n,
                                 w->start,
                                 w->end};
        sum = XXH3_64bits_withSeed(facts, sizeof facts, sum);
    }
    return sum;
}
