/* tokenizer_pieces — a tokenizer of SentencePiece's BPE from its pieces and their scores: of the
 * pairs that together are a piece, the one with the highest score is merged first. It must not know
 * where pieces come from.
 *
 * User-defined pieces are split off first; control pieces are never found in a text. Source: Kudo
 * and Richardson 2018; google/sentencepiece, src/bpe_model.cc. */
#ifndef CONVOY_DATA_TOKENIZER_PIECES_H
#define CONVOY_DATA_TOKENIZER_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

/* The numbers are the same as in SentencePiece's files and in GGUF. */
enum tokenizer_piece_type {
    TOKENIZER_PIECE_NORMAL = 1,
    TOKENIZER_PIECE_UNKNOWN,
    TOKENIZER_PIECE_CONTROL,
    TOKENIZER_PIECE_USER_DEFINED,
    TOKENIZER_PIECE_UNUSED,
    TOKENIZER_PIECE_BYTE
};

struct tokenizer_piece {
    const char *text; /* not closed by 0 */
    size_t n;
    float score;
    int type;
};

struct tokenizer_pieces {
    const char *name; /* for messages */
    const struct tokenizer_piece *piece;
    size_t n;
    bool adds_space;    /* a space is put before the text */
    int64_t begin, end; /* ids; −1: none */
};

/* tokenizer_pieces_open — opens it. ST_BAD_DATA: pieces that exist twice or are not UTF-8, unused
 * ones that texts lead to, and bytes that are missing. The ids of other unused ones have no
 * text. */
enum status tokenizer_pieces_open(const struct tokenizer_pieces *pieces, struct tokenizer **out);
/* tokenizer_pieces_byte — returns the byte of "<0x0A>"; else −1. */
int tokenizer_pieces_byte(const void *text, size_t n);
/* tokenizer_pieces_unmark — replaces U+2581 by ' ', in place. Returns the length. */
size_t tokenizer_pieces_unmark(uint8_t *text, size_t n);
/* tokenizer_pieces_is_inner — returns true if a space comes after another character. */
bool tokenizer_pieces_is_inner(const uint8_t *text, size_t n);

#endif
