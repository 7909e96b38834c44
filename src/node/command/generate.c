/* generate — `convoy generate`: writes text from a checkpoint or a Hugging Face folder to stdout,
 * token by token. `convoy chat`: answers lines of stdin in the format of the model's chat template.
 *
 * The model sees the last CONTEXT tokens. Up to that length, a token costs one pass over the
 * weights. Beyond it, every token changes its position, so a token costs a forward pass over the
 * whole context (decoder.h). The chosen tokens depend only on the weights, PROMPT, TEMPERATURE,
 * TOP_K, TOP_P and SEED. Must not know training. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/rand.h"
#include "conf/conf.h"
#include "data/chat/chat.h"
#include "data/tokenizer/tokenizer.h"
#include "dev/dev.h"
#include "node/command.h"
#include "node/choose/chat_source.h"
#include "node/choose/device.h"
#include "node/choose/memory_check.h"
#include "node/process/print.h"
#include "node/choose/model_source.h"
#include "node/choose/tokenizer_source.h"
#include "train/generate/decoder.h"
#include "train/generate/sampling.h"

#define TOKENS_MAX 1000000 /* most tokens that are written */
#define ANSWER_TOKENS 512  /* most tokens of an answer, if TOKENS is not set */
#define NO_TOKEN (-1)

struct writer {
    struct tokenizer *tokenizer;
    struct dev *dev;
    struct decoder *decoder;
    float *work;     /* (V) */
    int32_t *tokens; /* tokens of the prompt and of the text written so far */
    int64_t tokens_n, tokens_cap;
    uint8_t held[2 * BPE_TOKEN_BYTES_MAX]; /* bytes not yet shown: room for more than any token */
    size_t held_n;
    struct model_marks marks;
    int64_t vocab; /* the model's */
};

/* ---- prompt and text ---- */

/* print_token — prints the bytes of one token, as far as they are whole characters. */
static enum status print_token(struct writer *w, int32_t token)
{
    size_t n = 0;
    const uint8_t *bytes = tokenizer_bytes(w->tokenizer, (uint32_t)token, &n);
    if (!bytes)
        return ST_OK; /* the vocabulary does not contain this id */
    ASSERTF(n <= sizeof w->held - w->held_n, "token %d held %zu", (int)token, w->held_n);
    memcpy(w->held + w->held_n, bytes, n);
    w->held_n += n;
    size_t whole = sampling_utf8_whole(w->held, w->held_n);
    TRY(print_bytes(w->held, whole));
    memmove(w->held, w->held + whole, w->held_n - whole);
    w->held_n -= whole;
    return ST_OK;
}

/* read_prompt — reads PROMPT as tokens, or the token that begins a text, with space for `more`
 * tokens after them. */
static enum status read_prompt(struct writer *w, const char *prompt, int64_t more, int64_t vocab)
{
    size_t n = strlen(prompt), ids_n = 0, cap = tokenizer_prompt_cap(w->tokenizer, n);
    w->tokens_cap = (int64_t)cap + more;
    w->tokens = malloc((size_t)w->tokens_cap * sizeof *w->tokens);
    uint32_t *ids = malloc(cap * sizeof *ids);
    if (!w->tokens || !ids) {
        free(ids);
        return FAIL(memory_status(w->tokens_cap * (int64_t)sizeof *w->tokens),
                    "out of memory: a prompt of %zu bytes", n);
    }
    enum status st = tokenizer_prompt(w->tokenizer, prompt, n, ids, &ids_n);
    w->tokens_n = (int64_t)ids_n;
    uint32_t largest = 0;
    for (int64_t i = 0; i < w->tokens_n; i++) {
        w->tokens[i] = (int32_t)ids[i];
        largest = ids[i] > largest ? ids[i] : largest;
    }
    free(ids);
    TRY(st);
    if (ids_n == 0)
        return FAIL(ST_BAD_SETTING, "TOKENIZER=%s has no token that begins a text; set PROMPT",
                    tokenizer_name(w->tokenizer));
    if (largest >= vocab)
        return FAIL(ST_BAD_SETTING, "the prompt needs token %u, but the model has %lld tokens; %s",
                    largest, (long long)vocab,
                    n ? "change PROMPT" : "set PROMPT: no token begins a text");
    return ST_OK;
}

/* is_end — returns true if the token ends the text. */
static bool is_end(const struct writer *w, int32_t token)
{
    for (int i = 0; i < w->marks.eos_n; i++)
        if (token == w->marks.eos[i])
            return true;
    return (uint32_t)token == tokenizer_end(w->tokenizer);
}

/* Writes at most `more` tokens, each as soon as it is chosen; they end before `end` or the end of
 * text. *draw counts the random numbers of the command. */
static enum status write_tokens(struct writer *w, const struct conf *conf, int64_t more,
                                int32_t end, uint64_t *draw)
{
    const struct sampling_params rule = {.temperature = conf_f64(conf, CONF_TEMPERATURE),
                                         .top_k = conf_i64(conf, CONF_TOP_K),
                                         .top_p = conf_f64(conf, CONF_TOP_P)};
    /* Choose only ids of the tokenizer: the vocabulary's padding has no bytes. */
    const int64_t ids = tokenizer_vocab(w->tokenizer), n = w->vocab < ids ? w->vocab : ids;
    for (int64_t i = 0; i < more; i++) {
        const float *logits = NULL;
        TRY(decoder_logits(w->decoder, w->tokens, w->tokens_n, &logits));
        const double u =
            rand_uniform((uint64_t)conf_i64(conf, CONF_SEED), RAND_STREAM(SAMPLE, 0), (*draw)++);
        const int32_t token = (int32_t)sampling_pick(logits, n, &rule, u, w->work);
        if (token < 0)
            return FAIL(
                ST_NOT_FINITE,
                "the logits after token %lld are not finite: the weights are damaged; use others",
                (long long)w->tokens_n);
        if (token == end || is_end(w, token))
            break;
        w->tokens[w->tokens_n++] = token;
        TRY(print_token(w, token));
    }
    TRY(print_bytes(w->held, w->held_n));
    w->held_n = 0;
    return print_bytes("\n", 1);
}

static enum status check_tokens(const struct conf *conf, int64_t more)
{
    if (more > TOKENS_MAX)
        return FAIL(ST_BAD_SETTING,
                    "TOKENS=%lld (%s) is over the %d tokens that are written at most; lower it",
                    (long long)more, conf_source(conf, CONF_TOKENS), TOKENS_MAX);
    return ST_OK;
}

/* Opens the model and its tokenizer; its weights are not loaded yet. */
static enum status open_model(struct writer *w, struct model_source *source,
                              const struct conf *conf)
{
    TRY(model_source_open(conf, source));
    const struct model_dims *dims = &source->dims;
    if (dims->task != MODEL_TASK_LM)
        return FAIL(
            ST_BAD_SETTING,
            "%s is a question-answering model, which writes no text; choose a language model",
            model_source_path(source));
    TRY(model_check(dims));
    tokenizer_source_warn(conf, dims, "PROMPT and the text");
    TRY(tokenizer_source_open(conf, dims, &w->tokenizer));
    if (model_source_settings(source))
        TRY(tokenizer_source_check(w->tokenizer, model_source_settings(source)));
    w->marks = dims->marks;
    w->vocab = dims->vocab;
    return ST_OK;
}

/* Loads the model for texts of at most all_tokens tokens, or of its context. */
static enum status open_decoder(struct writer *w, struct model_source *source,
                                const struct conf *conf, const char *command, int64_t all_tokens)
{
    const struct model_dims *dims = &source->dims;
    const int64_t window = all_tokens < dims->context ? all_tokens : dims->context;
    TRY(device_open(conf, 0, 0, &w->dev));
    const struct memory_plan_place place = {.at = {.ranks = 1, .nodes = 1, .locals = 1},
                                            .is_discrete = dev_is_discrete(w->dev)};
    struct memory_plan plan;
    TRY(memory_plan_generate(dims, window, device_dtype(conf, dev_is_discrete(w->dev)), &place,
                             &plan));
    TRY(memory_check_command(command, &plan, w->dev,
                             "use a shorter PROMPT, fewer TOKENS or a smaller model"));
    TRY(decoder_open(w->dev, dims, window, device_dtype(conf, dev_is_discrete(w->dev)),
                     &w->decoder));
    struct load_target target = decoder_target(w->decoder);
    TRY(model_source_load(source, &target));
    w->work = malloc((size_t)dims->vocab * sizeof *w->work);
    if (!w->work)
        return FAIL(ST_RETRY, "out of memory: logits of %lld tokens", (long long)dims->vocab);
    return ST_OK;
}

static enum status generate_text(struct writer *w, struct model_source *source,
                                 const struct conf *conf)
{
    const int64_t more = conf_i64(conf, CONF_TOKENS);
    const char *prompt = conf_text(conf, CONF_PROMPT);
    uint64_t draw = 0;
    TRY(check_tokens(conf, more));
    TRY(open_model(w, source, conf));
    const int64_t context = source->dims.context;
    TRY(read_prompt(w, prompt, more, w->vocab));
    /* Tokens before the context have no effect on the text. */
    if (w->tokens_n > context)
        LOG_WARN("PROMPT has %lld tokens, but the context of the model has %lld: only the last "
                 "%lld count",
                 (long long)w->tokens_n, (long long)context, (long long)context);
    TRY(open_decoder(w, source, conf, "generate", w->tokens_n + more));
    TRY(print_bytes(prompt, strlen(prompt)));
    return write_tokens(w, conf, more, NO_TOKEN, &draw);
}

/* ---- chat ---- */

/* A conversation that grows by a question and an answer. */
struct talk {
    struct chat *chat;
    struct chat_message *messages; /* contents are from malloc */
    size_t n;
    uint64_t draw;
};

static void add_turn(struct talk *talk, enum chat_role role, const void *content, size_t n)
{
    char *copy = memory_new(1, n + 1);
    memcpy(copy, content, n);
    talk->messages = memory_resize(talk->messages, talk->n + 1, sizeof *talk->messages);
    talk->messages[talk->n++] = (struct chat_message){role, copy, n};
}

/* Sets the tokens to the conversation and the beginning of an answer, with space for `more`. */
static enum status write_turns(struct writer *w, const struct talk *talk, int64_t more)
{
    struct chat_ids ids = {0};
    enum status st = chat_write(talk->chat, NULL, talk->messages, talk->n, true, &ids);
    if (st == ST_OK) {
        w->tokens = memory_resize(w->tokens, ids.n + (size_t)more, sizeof *w->tokens);
        w->tokens_n = (int64_t)ids.n;
    }
    for (size_t i = 0; st == ST_OK && i < ids.n; i++) {
        w->tokens[i] = (int32_t)ids.ids[i];
        if (w->tokens[i] >= w->vocab)
            st = FAIL(ST_BAD_SETTING, "the question needs token %u, but the model has %lld tokens",
                      ids.ids[i], (long long)w->vocab);
    }
    free(ids.ids);
    return st;
}

/* Answers one question, and adds both to the conversation. */
static enum status answer_question(struct writer *w, struct talk *talk, const struct conf *conf,
                                   const char *question, size_t n)
{
    const int64_t more =
        conf_is_set(conf, CONF_TOKENS) ? conf_i64(conf, CONF_TOKENS) : ANSWER_TOKENS;
    struct text answer = {.limit = (size_t)64 << 20};
    add_turn(talk, CHAT_ROLE_USER, question, n);
    TRY(write_turns(w, talk, more));
    const int64_t first = w->tokens_n;
    TRY(write_tokens(w, conf, more, (int32_t)chat_turn_end(talk->chat), &talk->draw));
    for (int64_t i = first; i < w->tokens_n; i++) {
        size_t bytes_n = 0;
        const uint8_t *bytes = tokenizer_bytes(w->tokenizer, (uint32_t)w->tokens[i], &bytes_n);
        if (bytes != NULL)
            text_add_bytes(&answer, bytes, bytes_n);
    }
    add_turn(talk, CHAT_ROLE_ASSISTANT, answer.data != NULL ? answer.data : "", answer.len);
    text_free(&answer);
    return ST_OK;
}

/* Answers each line of stdin, until it ends. */
static enum status answer_lines(struct writer *w, struct talk *talk, const struct conf *conf)
{
    const bool is_terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t cap = 0;
    enum status st = is_terminal ? print_bytes("> ", 2) : ST_OK;
    for (ssize_t n; st == ST_OK && (n = getline(&line, &cap, stdin)) >= 0;) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n > 0)
            st = answer_question(w, talk, conf, line, (size_t)n);
        if (st == ST_OK && is_terminal)
            st = print_bytes("> ", 2);
    }
    free(line);
    return st == ST_OK && is_terminal ? print_bytes("\n", 1) : st;
}

static enum status run_chat(struct writer *w, struct talk *talk, struct model_source *source,
                            const struct conf *conf)
{
    const char *prompt = conf_text(conf, CONF_PROMPT);
    TRY(check_tokens(conf, conf_i64(conf, CONF_TOKENS)));
    TRY(open_model(w, source, conf));
    TRY(chat_source_open(conf, w->tokenizer, model_source_settings(source), &talk->chat));
    TRY(open_decoder(w, source, conf, "chat", source->dims.context));
    return prompt[0] != '\0' ? answer_question(w, talk, conf, prompt, strlen(prompt))
                             : answer_lines(w, talk, conf);
}

/* ---- commands ---- */

static void close_writer(struct writer *w)
{
    decoder_close(w->decoder);
    dev_close(w->dev);
    tokenizer_close(w->tokenizer);
    free(w->work);
    free(w->tokens);
    free(w);
}

enum status generate_chat_main(const struct conf *conf)
{
    struct model_source source = {.ckpt = NULL};
    struct talk talk = {0};
    struct writer *w = memory_new(1, sizeof *w);
    const enum status st = run_chat(w, &talk, &source, conf);
    chat_close(talk.chat);
    for (size_t i = 0; i < talk.n; i++)
        free((void *)(uintptr_t)talk.messages[i].content);
    free(talk.messages);
    close_writer(w);
    model_source_close(&source);
    return st;
}

enum status generate_main(const struct conf *conf)
{
    struct model_source source = {.ckpt = NULL};
    struct writer *w = memory_new(1, sizeof *w);
    const enum status st = generate_text(w, &source, conf);
    close_writer(w);
    model_source_close(&source);
    return st;
}
