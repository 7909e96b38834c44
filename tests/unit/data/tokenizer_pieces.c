/* tokenizer_pieces — SentencePiece's pieces: unused ones keep their ids and have no text. */
#include "harness.h"

#include "data/tokenizer/pieces.h"

#define PIECES_MAX 16

/* The pieces "<unk>", "a", "b", "ab" (ids 0 to 3), then the unused one, then "bb" (id 5). */
static enum status open_with(const char *unused, struct tokenizer **out)
{
    const char *const text[] = {"<unk>", "a", "b", "ab", unused, "bb"};
    const int type[] = {TOKENIZER_PIECE_UNKNOWN, TOKENIZER_PIECE_NORMAL, TOKENIZER_PIECE_NORMAL,
                        TOKENIZER_PIECE_NORMAL,  TOKENIZER_PIECE_UNUSED, TOKENIZER_PIECE_NORMAL};
    struct tokenizer_piece piece[PIECES_MAX];
    for (int i = 0; i < 6; i++)
        piece[i] = (struct tokenizer_piece){text[i], strlen(text[i]), (float)-i, type[i]};
    const struct tokenizer_pieces pieces = {
        .name = "pieces", .piece = piece, .n = 6, .begin = -1, .end = -1};
    return tokenizer_pieces_open(&pieces, out);
}

TEST(test_unused)
{
    static const char *const unused[] = {"[PAD]", "", "zz", "abz"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        struct tokenizer *tokenizer;
        uint32_t ids[64];
        size_t n;
        assert_int_equal(open_with(unused[i], &tokenizer), ST_OK);
        assert_int_equal(tokenizer_vocab(tokenizer), 6);
        assert_null(tokenizer_bytes(tokenizer, 4, &n));
        assert_non_null(tokenizer_bytes(tokenizer, 5, &n));
        assert_true(tokenizer_cap(tokenizer, 4) <= 64);
        assert_int_equal(tokenizer_encode(tokenizer, "abbb", 4, true, ids, &n), ST_OK);
        assert_int_equal(n, 2);
        assert_int_equal(ids[0], 3);
        assert_int_equal(ids[1], 5);
        tokenizer_close(tokenizer);
    }
}

/* SentencePiece merges into such a piece, and splits it again: to leave it out gives other ids. */
TEST(test_unused_met)
{
    static const char *const unused[] = {"ab", "abb", "ba", "a", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        struct tokenizer *tokenizer = NULL;
        assert_int_equal(open_with(unused[i], &tokenizer), ST_BAD_DATA);
        assert_non_null(strstr(status_message(), "piece 4"));
        assert_non_null(strstr(status_message(), "is unused, but texts are merged into it"));
        assert_null(tokenizer);
    }
}

HARNESS_RUN_ALL()
