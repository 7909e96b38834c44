/* sample_text — see sample_text.h. */
#include "train/trainer/sample_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/rand.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"

#define QUOTED_BYTES SAMPLE_TEXT_QUOTED_BYTES
#define TEXT_BYTES (QUOTED_BYTES / 6) /* a byte may become \u00XX */

struct sample_text {
    struct sample_text_config config;
    const struct tokenizer *tokenizer;
    struct tokenizer *own; /* NULL: it is the caller's */
    /* the end of the prompt that the model can read, and the tokens that it wrote */
    int32_t *tokens;
    int64_t prompt_n;
    float *logits, *work; /* (V) */
    uint8_t text[TEXT_BYTES];
    size_t text_n;
    char quoted[QUOTED_BYTES];
};

/* ---- output ---- */

bool sample_text_quote(const uint8_t *bytes, size_t n, char *out, size_t cap)
{
    char *plain = memory_new(n + 1, 1);
    for (size_t i = 0; i < n; i++) {
        bool is_c1 = i > 0 && bytes[i - 1] == 0xC2 && bytes[i] >= 0x80 && bytes[i] <= 0x9F;
        plain[i] = bytes[i] == 0 || bytes[i] == 0x7F || is_c1
                       ? (char)0xFF
                       : (char)bytes[i]; /* 0xFF is never UTF-8 */
    }
    plain[n] = 0;
    bool is_whole = json_quote(out, cap, plain);
    free(plain);
    return is_whole;
}

/* append_bytes — Appends bytes while there is room; sixty tokens of usual length need a fifth of
 * it. */
static void append_bytes(struct sample_text *v, const void *bytes, size_t n)
{
    if (n > sizeof v->text - v->text_n)
        n = sizeof v->text - v->text_n;
    memcpy(v->text + v->text_n, bytes, n);
    v->text_n += n;
}

static void add_prompt(struct sample_text *v)
{
    const char *prompt = v->config.prompt;
    size_t n = strlen(prompt),
           first = n > SAMPLE_TEXT_PROMPT_BYTES ? n - SAMPLE_TEXT_PROMPT_BYTES : 0;
    while (((unsigned char)prompt[first] & 0xC0) == 0x80)
        first++;
    v->text_n = 0;
    if (first > 0)
        append_bytes(v, "…", strlen("…"));
    append_bytes(v, prompt + first, n - first);
    if (v->config.chat)
        append_bytes(v, "\n", 1);
}

/* ---- the prompt ---- */

/* keep_prompt — Keeps the last of n tokens, up to the length that the model can read. All of them
 * must be in its vocabulary. */
static enum status keep_prompt(struct sample_text *v, const uint32_t *ids, int64_t n)
{
    const struct sample_text_config *c = &v->config;
    int64_t kept = n < c->seq_tokens ? n : c->seq_tokens;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= c->vocab)
            return FAIL(ST_BAD_SETTING,
                        "SAMPLE_EVERY: %s needs token %u, but the model's vocabulary has %lld; %s",
                        c->prompt[0] ? "PROMPT" : "a new text", ids[i], (long long)c->vocab,
                        c->prompt[0] ? "change PROMPT" : "set PROMPT, or unset SAMPLE_EVERY");
    v->tokens = memory_new((size_t)(kept + SAMPLE_TEXT_TOKENS), sizeof *v->tokens);
    for (int64_t i = 0; i < kept; i++)
        v->tokens[i] = (int32_t)ids[n - kept + i];
    v->prompt_n = kept;
    return ST_OK;
}

/* read_question — Encodes the prompt as the first turn of a conversation. */
static enum status read_question(struct sample_text *v)
{
    const char *prompt = v->config.prompt;
    const struct chat_message question = {CHAT_ROLE_USER, prompt, strlen(prompt)};
    struct chat_ids ids = {0};
    if (!prompt[0])
        return FAIL(ST_BAD_SETTING, "SAMPLE_EVERY: with TASK=chat a sample answers a question; "
                                    "set PROMPT to the question");
    enum status st = chat_write(v->config.chat, NULL, &question, 1, true, &ids);
    if (st == ST_OK)
        st = keep_prompt(v, ids.ids, (int64_t)ids.n);
    free(ids.ids);
    return st;
}

static enum status read_prompt(struct sample_text *v)
{
    size_t bytes = strlen(v->config.prompt), n = 0;
    uint32_t *ids = memory_new(tokenizer_prompt_cap(v->tokenizer, bytes), sizeof *ids);
    enum status st = tokenizer_prompt(v->tokenizer, v->config.prompt, bytes, ids, &n);
    if (st == ST_OK && n == 0)
        st = FAIL(ST_BAD_SETTING,
                  "SAMPLE_EVERY: TOKENIZER=%s names no token that begins a text; set PROMPT",
                  tokenizer_name(v->tokenizer));
    if (st == ST_OK)
        st = keep_prompt(v, ids, (int64_t)n);
    free(ids);
    return st;
}

enum status sample_text_open(const struct sample_text_config *config, struct sample_text **out)
{
    struct sample_text *v = memory_new(1, sizeof *v);
    v->config = *config;
    v->logits = malloc((size_t)config->vocab * sizeof *v->logits);
    v->work = malloc((size_t)config->vocab * sizeof *v->work);
    enum status st = v->logits && v->work ? ST_OK
                                          : FAIL(ST_RETRY, "out of memory: logits of %lld tokens",
                                                 (long long)config->vocab);
    if (st == ST_OK && !config->tokenizer)
        st = tokenizer_gpt2_open(&v->own);
    v->tokenizer = v->own ? v->own : config->tokenizer;
    if (st == ST_OK)
        st = config->chat ? read_question(v) : read_prompt(v);
    if (st == ST_OK)
        *out = v;
    else
        sample_text_close(v);
    return st;
}

void sample_text_close(struct sample_text *v)
{
    if (!v)
        return;
    tokenizer_close(v->own);
    free(v->tokens);
    free(v->logits);
    free(v->work);
    free(v);
}

/* ---- one sample ---- */

/* choose_token — Chooses token number i after the prompt. */
static enum status choose_token(struct sample_text *v, struct step *step, int64_t i, int32_t *out)
{
    const struct sample_text_config *c = &v->config;
    int64_t n = v->prompt_n + i, seen = n < c->seq_tokens ? n : c->seq_tokens;
    /* padding of the vocabulary has no text */
    int64_t ids = tokenizer_vocab(v->tokenizer), known = c->vocab < ids ? c->vocab : ids;
    double u = rand_uniform(c->seed, RAND_STREAM(SAMPLE, 0), (uint64_t)i);
    TRY(step_logits(step, v->tokens + n - seen, seen, v->logits));
    *out = (int32_t)sampling_pick(v->logits, known, &c->rule, u, v->work);
    if (*out < 0)
        return FAIL(ST_NOT_FINITE,
                    "the logits of a sample of text are not finite; lower LR, or check the data");
    return ST_OK;
}

enum status sample_text_generate(struct sample_text *v, struct step *step, bool (*stop)(void *arg),
                                 void *arg, const char **out)
{
    add_prompt(v);
    for (int64_t i = 0; i < SAMPLE_TEXT_TOKENS && !(stop && stop(arg)); i++) {
        int32_t token = 0;
        size_t n = 0;
        TRY(choose_token(v, step, i, &token));
        if ((uint32_t)token == tokenizer_end(v->tokenizer) ||
            (v->config.chat && (uint32_t)token == chat_turn_end(v->config.chat)))
            break; /* the model ended the text */
        v->tokens[v->prompt_n + i] = token;
        const uint8_t *bytes = tokenizer_bytes(v->tokenizer, (uint32_t)token, &n);
        if (bytes) /* an id that the vocabulary leaves out has none */
            append_bytes(v, bytes, n);
    }
    sample_text_quote(v->text, sampling_utf8_whole(v->text, v->text_n), v->quoted,
                      sizeof v->quoted);
    *out = v->quoted;
    return ST_OK;
}
