/* gguf_vocab — see gguf/vocab.h. */
#include "format/gguf/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* read_strings — reads a list of strings; *out is allocated with malloc. */
static enum status read_strings(const struct gguf *gguf, const char *key, struct gguf_string **out,
                                int64_t *n_out)
{
    const struct gguf_value *value = NULL;
    TRY(gguf_get_array(gguf, key, GGUF_KIND_STRING, &value));
    const uint8_t *at = value->data;
    *out = calloc((size_t)value->n + 1, sizeof(**out));
    if (!*out)
        return FAIL(ST_RETRY, "out of memory: %" PRId64 " strings of %s", value->n, gguf->what);
    for (int64_t i = 0; i < value->n; i++)
        (*out)[i] = gguf_next_string(&at);
    *n_out = value->n;
    return ST_OK;
}

/* read_numbers — copies 4 bytes for each token: in the file they are not aligned. *out stays NULL
 * if the file has none. */
static enum status read_numbers(const struct gguf *gguf, const char *key, enum gguf_kind kind,
                                int64_t tokens_n, void **out)
{
    const struct gguf_value *value = NULL;
    if (!gguf_find(gguf, key))
        return ST_OK;
    TRY(gguf_get_array(gguf, key, kind, &value));
    if (value->n != tokens_n)
        return FAIL(ST_BAD_DATA, "%s: %s has %" PRId64 " numbers for %" PRId64 " tokens",
                    gguf->what, key, value->n, tokens_n);
    *out = malloc(value->bytes + 1);
    if (!*out)
        return FAIL(ST_RETRY, "out of memory: %s of %s", key, gguf->what);
    memcpy(*out, value->data, value->bytes);
    return ST_OK;
}

static enum status read_mark(const struct gguf *gguf, const char *key, int64_t tokens_n,
                             int64_t *out)
{
    int64_t token;
    *out = -1;
    if (!gguf_find(gguf, key))
        return ST_OK;
    TRY(gguf_get_i64(gguf, key, -1, UINT32_MAX, &token));
    if (token == -1 || token == UINT32_MAX) /* both stand for none */
        return ST_OK;
    if (token >= tokens_n)
        return FAIL(ST_BAD_DATA, "%s: %s is %" PRId64 ", but there are %" PRId64 " tokens",
                    gguf->what, key, token, tokens_n);
    *out = token;
    return ST_OK;
}

static enum status read_flag(const struct gguf *gguf, const char *key, bool usual, bool *out)
{
    *out = usual;
    return gguf_find(gguf, key) ? gguf_get_bool(gguf, key, out) : ST_OK;
}

static enum status read_all(const struct gguf *gguf, struct gguf_vocab *out)
{
    TRY(gguf_get_text(gguf, KEY("model"), out->model, sizeof(out->model)));
    if (gguf_find(gguf, KEY("pre")))
        TRY(gguf_get_text(gguf, KEY("pre"), out->pre, sizeof(out->pre)));
    TRY(read_strings(gguf, KEY("tokens"), &out->token, &out->tokens_n));
    if (gguf_find(gguf, KEY("merges")))
        TRY(read_strings(gguf, KEY("merges"), &out->merge, &out->merges_n));
    void *score = NULL, *type = NULL;
    enum status st = read_numbers(gguf, KEY("scores"), GGUF_KIND_F32, out->tokens_n, &score);
    out->score = score;
    TRY(st);
    st = read_numbers(gguf, KEY("token_type"), GGUF_KIND_I32, out->tokens_n, &type);
    out->type = type;
    TRY(st);
    TRY(read_mark(gguf, KEY("bos_token_id"), out->tokens_n, &out->bos));
    TRY(read_mark(gguf, KEY("eos_token_id"), out->tokens_n, &out->eos));
    TRY(read_mark(gguf, KEY("unknown_token_id"), out->tokens_n, &out->unk));
    TRY(read_mark(gguf, KEY("padding_token_id"), out->tokens_n, &out->pad));
    bool is_llama = strcmp(out->model, "llama") == 0;
    TRY(read_flag(gguf, KEY("add_bos_token"),
                  (strcmp(out->model, "llama") == 0 || strcmp(out->pre, "llama3") == 0 ||
                   strcmp(out->pre, "llama-v3") == 0 || strcmp(out->pre, "llama-bpe") == 0 ||
                   strcmp(out->pre, "tekken") == 0),
                  &out->add_bos));
    TRY(read_flag(gguf, KEY("add_eos_token"), false, &out->add_eos));
    return read_flag(gguf, KEY("add_space_prefix"), is_llama, &out->add_space);
}

bool gguf_vocab_is_there(const struct gguf *gguf)
{
    char model[32];
    if (!gguf_find(gguf, KEY("model")))
        return false;
    if (gguf_get_text(gguf, KEY("model"), model, sizeof(model)) == ST_OK)
        return strcmp(model, GGUF_VOCAB_NONE) != 0 && strcmp(model, "no_vocab") != 0;
    status_clear();
    return true; /* gguf_vocab_read reports it */
}

enum status gguf_vocab_read(const struct gguf *gguf, struct gguf_vocab *out)
{
    struct gguf_vocab vocab = {.tokens_n = 0};
    enum status st = read_all(gguf, &vocab);
    if (st != ST_OK) {
        gguf_vocab_free(&vocab);
        return st;
    }
    *out = vocab;
    return ST_OK;
}

void gguf_vocab_free(struct gguf_vocab *vocab)
{
    free(vocab->token);
    free(vocab->merge);
    free(vocab->score);
    free(vocab->type);
    *vocab = (struct gguf_vocab){.tokens_n = 0};
}
