/* tokenizer — text into token ids and back: added tokens, normalisation, pre-tokens, merges.
 *
 * The order is the same as in Hugging Face's tokenizers: added tokens are split off, the text
 * between them is normalised, added tokens with is_normalized are split off the result, and the
 * rest is cut into pre-tokens (pretoken.h, split.h), which merge (bpe.h). No token is put before or
 * after a text.
 *
 * Bytes that are not UTF-8: a byte-level vocabulary keeps each as a separate character, which no
 * normalisation changes; SentencePiece's replaces each by U+FFFD, as that library does. It must not
 * know files. */
#ifndef CONVOY_DATA_TOKENIZER_H
#define CONVOY_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/normal.h"
#include "data/tokenizer/pretoken.h"
#include "data/tokenizer/split.h"

#define TOKENIZER_NONE BPE_NONE
#define TOKENIZER_ADDED_MAX 4096

/* Positions at which a space is put before the text, so that its first word is like any other. */
enum tokenizer_prefix {
    TOKENIZER_PREFIX_NONE,
    TOKENIZER_PREFIX_FIRST,   /* at the beginning of a document */
    TOKENIZER_PREFIX_SEGMENT, /* and after each added token that is split off first */
    TOKENIZER_PREFIX_SPACED,  /* as FIRST, unless there is a space */
    TOKENIZER_PREFIX_ALL      /* as SPACED, and after each added token */
};

/* A token that is split off before anything is merged. */
struct tokenizer_added {
    uint32_t id;
    const uint8_t *text;
    size_t n;
    bool is_normalized;             /* found in the text after normalisation */
    bool is_word;                   /* found only if no word character is next to it */
    bool strips_left, strips_right; /* white space next to it belongs to it */
    bool is_special;                /* a control token: stays text in the content of a chat */
};

struct tokenizer_config {
    const char *name; /* for messages */
    struct bpe *bpe;  /* tokenizer_new owns it, even when it fails */
    enum pretoken_kind kind;
    /* Steps in place of kind and before is_spm, or NULL: tokenizer_new owns them, even when it
     * fails. */
    struct split *split;
    struct normal *normal;
    bool is_nfc;
    bool is_spm; /* SentencePiece: U+2581 is ' ' */
    enum tokenizer_prefix prefix;
    const struct tokenizer_added *added;
    size_t added_n;
    uint32_t end;   /* TOKENIZER_NONE: unknown */
    uint32_t begin; /* the model expects it before a text; TOKENIZER_NONE: none */
    bool is_built_in;
};

struct tokenizer;
/* tokenizer_new — makes a tokenizer. Fails ST_BAD_DATA: added tokens that cannot be cut off
 * exactly. */
enum status tokenizer_new(const struct tokenizer_config *config, struct tokenizer **out);
void tokenizer_close(struct tokenizer *tokenizer); /* accepts NULL */

/* tokenizer_name — returns the name for logs and messages; valid until tokenizer_close. */
const char *tokenizer_name(const struct tokenizer *tokenizer);
uint32_t tokenizer_vocab(const struct tokenizer *tokenizer); /* every id is below it */
uint32_t tokenizer_begin(const struct tokenizer *tokenizer); /* begins a text, or NONE */
uint32_t tokenizer_end(const struct tokenizer *tokenizer);   /* ends a document, or NONE */
/* tokenizer_identity — returns a hash of tables and rules; {0, 0}: the built-in one. */
void tokenizer_identity(const struct tokenizer *tokenizer, uint64_t out[2]);
/* tokenizer_is_same — returns true if texts without added tokens have the same ids. */
bool tokenizer_is_same(const struct tokenizer *a, const struct tokenizer *b);

/* tokenizer_cap — returns the most ids of a text of n_bytes. */
size_t tokenizer_cap(const struct tokenizer *tokenizer, size_t n_bytes);
/* tokenizer_encode — writes the ids of text to out, which has space for tokenizer_cap. is_begin:
 * a document begins here. Fails ST_RETRY: out of memory; ST_BAD_DATA: its pattern needs too many
 * steps for this text. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const void *text, size_t n_bytes,
                             bool is_begin, uint32_t *out, size_t *n_out);
/* tokenizer_encode_watched — does the same, ended by watch (NULL allowed): then ST_RETRY. */
enum status tokenizer_encode_watched(const struct tokenizer *tokenizer,
                                     const struct encode_watch *watch, const void *text,
                                     size_t n_bytes, bool is_begin, uint32_t *out, size_t *n_out);
/* tokenizer_encode_turn — does the same for a text between two special tokens of a chat. Names of
 * special tokens in the text stay text. is_begin: no token precedes the text. */
enum status tokenizer_encode_turn(const struct tokenizer *tokenizer,
                                  const struct encode_watch *watch, const void *text,
                                  size_t n_bytes, bool is_begin, uint32_t *out, size_t *n_out);
/* tokenizer_normal_bytes — returns in *n_out the bytes of the normal form of a text, without a
 * space that is put before it; SIZE_MAX / 2: the parts of a text do not add up, because steps
 * change its ends. Fails ST_RETRY: out of memory. */
enum status tokenizer_normal_bytes(const struct tokenizer *tokenizer, const void *text, size_t n,
                                   size_t *n_out);
/* tokenizer_is_plain_added — returns true if the id, below the vocabulary, is an added token that
 * is not special, and so is also split off in a turn. */
bool tokenizer_is_plain_added(const struct tokenizer *tokenizer, uint32_t id);
/* tokenizer_find — returns the id whose bytes are this name, also of a special token; NONE: there
 * is none. Reads the whole vocabulary. */
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name);
/* tokenizer_prompt — writes the ids that a model continues: the token that begins a prompt, then
 * the text. Without text it is the id that ends a document, if no token begins one; without both
 * *n_out is 0. Space: tokenizer_prompt_cap. */
enum status tokenizer_prompt(const struct tokenizer *tokenizer, const void *text, size_t n_bytes,
                             uint32_t *out, size_t *n_out);
/* tokenizer_prompt_cap — returns the most ids that tokenizer_prompt writes for n_bytes. */
size_t tokenizer_prompt_cap(const struct tokenizer *tokenizer, size_t n_bytes);
/* tokenizer_cut — returns the length of a long prefix of text[0, n_bytes) that has the same ids by
 * itself as within the whole text, for any following bytes; 0: none is certain. The rest is encoded
 * with is_begin false. So a long text can be encoded in chunks, by several threads. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const void *text, size_t n_bytes);
/* tokenizer_config_of — returns the rules; name and added tokens are NULL. Valid until
 * tokenizer_close. */
const struct tokenizer_config *tokenizer_config_of(const struct tokenizer *tokenizer);
/* tokenizer_visit_added — calls fn for every added token; its text is valid until
 * tokenizer_close. */
void tokenizer_visit_added(const struct tokenizer *tokenizer,
                           void (*fn)(void *arg, const struct tokenizer_added *added), void *arg);
/* tokenizer_bytes — returns the bytes of one id (for a special token its name); NULL: there is
 * none. */
const uint8_t *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *n_out);

#endif
