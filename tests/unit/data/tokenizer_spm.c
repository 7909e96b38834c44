/* tokenizer_spm — SentencePiece's file, byte by byte: what it says is read, and damage is
 * refused. tests/tokenizers compares ids with the package sentencepiece. */
#include "harness.h"

#include "data/tokenizer/file.h"

#define MARK "\xe2\x96\x81"

static void add_varint(struct text *t, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        text_add_bytes(t, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    text_add_bytes(t, &(uint8_t){(uint8_t)value}, 1);
}

static void add_bytes(struct text *t, uint32_t number, const void *bytes, size_t n)
{
    add_varint(t, number << 3 | 2);
    add_varint(t, n);
    text_add_bytes(t, bytes, n);
}

static void add_number(struct text *t, uint32_t number, uint64_t value)
{
    add_varint(t, number << 3);
    add_varint(t, value);
}

static void add_piece(struct text *t, const char *text, float score, int type)
{
    struct text piece = {.data = NULL};
    add_bytes(&piece, 1, text, strlen(text));
    add_varint(&piece, 2 << 3 | 5);
    text_add_bytes(&piece, &score, 4);
    if (type != 1)
        add_number(&piece, 3, (uint64_t)type);
    add_bytes(t, 1, piece.data, piece.len);
    text_free(&piece);
}

/* What a test changes of a sound file. */
struct options {
    bool has_bytes, lacks_byte, removes_spaces, has_charsmap, space_behind, no_space_first;
    uint64_t model_type;
};

/* model — <unk> 0, <s> 1, </s> 2, the bytes 3 to 258 if it has them, then ▁, a, b, ab, ▁a. */
static struct text model(const struct options *o)
{
    struct text t = {.data = NULL};
    static const char *const text[] = {MARK, "a", "b", "ab", MARK "a"};
    char byte[16];
    add_piece(&t, "<unk>", 0, 2);
    add_piece(&t, "<s>", 0, 3);
    add_piece(&t, "</s>", 0, 3);
    for (unsigned b = 0; o->has_bytes && b < (o->lacks_byte ? 255 : 256); b++) {
        text_format(byte, sizeof byte, "<0x%02X>", b);
        add_piece(&t, byte, 0, 6);
    }
    for (int i = 0; i < 5; i++)
        add_piece(&t, text[i], -(float)i, 1);
    struct text trainer = {.data = NULL}, normalizer = {.data = NULL};
    add_number(&trainer, 3, o->model_type ? o->model_type : 2);
    add_number(&trainer, 24, o->space_behind);
    add_bytes(&t, 2, trainer.data, trainer.len);
    if (o->has_charsmap)
        add_bytes(&normalizer, 2, "map", 3);
    add_number(&normalizer, 3, !o->no_space_first);
    add_number(&normalizer, 4, o->removes_spaces);
    add_bytes(&t, 3, normalizer.data, normalizer.len);
    text_free(&trainer);
    text_free(&normalizer);
    return t;
}

static enum status open_text(const struct text *t, struct tokenizer **out)
{
    *out = NULL;
    return tokenizer_spm_open((const uint8_t *)t->data, t->len, "model", out);
}

static void assert_ids(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                       const uint32_t *want, size_t want_n)
{
    uint32_t ids[64];
    size_t n;
    assert_true(tokenizer_cap(tokenizer, bytes) <= 64);
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, true, ids, &n), ST_OK);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof *ids);
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4

TEST(test_bytes)
{
    struct text t = model(&(struct options){.has_bytes = true});
    struct tokenizer *tokenizer;
    assert_int_equal(open_text(&t, &tokenizer), ST_OK);
    assert_int_equal(tokenizer_vocab(tokenizer), 264);
    assert_int_equal(tokenizer_begin(tokenizer), 1);
    assert_int_equal(tokenizer_end(tokenizer), 2);
    assert_ids(tokenizer, "", 0, NULL, 0);
    assert_ids(tokenizer, "ab", 2, IDS(259, 262));            /* ab before ▁a, by its score */
    assert_ids(tokenizer, "a", 1, IDS(263));                  /* ▁a */
    assert_ids(tokenizer, "\xc3\xa9", 2, IDS(259, 198, 172)); /* é by its bytes */
    assert_ids(tokenizer, "\0", 1, IDS(259, 3));              /* a byte 0 */
    assert_ids(tokenizer, "<s>", 3, IDS(259, 63, 118, 65));   /* no control piece in a text */
    tokenizer_close(tokenizer);
    text_free(&t);
}

TEST(test_unknown)
{
    struct text t = model(&(struct options){.no_space_first = true});
    struct tokenizer *tokenizer;
    assert_int_equal(open_text(&t, &tokenizer), ST_OK);
    assert_ids(tokenizer, "a", 1, IDS(4));
    assert_ids(tokenizer, "xya", 3, IDS(0, 4)); /* one for all that follow each other */
    assert_ids(tokenizer, "xax", 3, IDS(0, 4, 0));
    tokenizer_close(tokenizer);
    text_free(&t);
}

TEST(test_refused)
{
    static const struct {
        struct options options;
        const char *says;
    } row[] = {{{.model_type = 1}, "model of type 1"},
               {{.has_charsmap = true}, "a normalisation other than identity"},
               {{.removes_spaces = true}, "remove_extra_whitespaces"},
               {{.space_behind = true}, "treat_whitespace_as_suffix"},
               {{.has_bytes = true, .lacks_byte = true}, "255 of the 256 byte pieces"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct text t = model(&row[i].options);
        struct tokenizer *tokenizer;
        assert_int_equal(open_text(&t, &tokenizer), ST_BAD_DATA);
        assert_non_null(strstr(status_message(), row[i].says));
        text_free(&t);
    }
}

/* Pieces that damage makes, behind a sound file. */
TEST(test_pieces)
{
    static const struct {
        const char *text;
        int type;
        const char *says;
    } row[] = {{"a", 1, "is there twice"},
               {"<0x41>", 6, "is not one of the 256 bytes, or is there twice"},
               {"<0xZZ>", 6, "is not one of the 256 bytes"},
               {"\xff", 1, "is not UTF-8"},
               {"", 1, "is empty or too long"},
               {"q", 77, "has an unknown type"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct text t = model(&(struct options){.has_bytes = true});
        struct tokenizer *tokenizer;
        add_piece(&t, row[i].text, -9, row[i].type);
        assert_int_equal(open_text(&t, &tokenizer), ST_BAD_DATA);
        assert_non_null(strstr(status_message(), row[i].says));
        text_free(&t);
    }
}

/* Every shorter file is refused, or ends between two fields and is one with less in it. */
TEST(test_cut)
{
    struct text t = model(&(struct options){.no_space_first = true});
    struct tokenizer *tokenizer;
    int refused_n = 0;
    for (size_t n = 0; n < t.len; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, t.data, n);
        refused_n += tokenizer_spm_open(copy, n, "cut", &tokenizer) == ST_BAD_DATA;
        free(copy);
    }
    assert_int_equal(refused_n, t.len); /* remove_extra_whitespaces, set unless the end says not */
    text_free(&t);
}

/* Lengths and numbers of fields that no file has. */
TEST(test_hostile)
{
    static const struct {
        const char *bytes;
        size_t n;
    } row[] = {{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10}, /* a piece of 2^63 bytes */
               {"\x0a\x05", 2},
               {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13}, /* 11 bytes a number */
               {"\x00\x00", 2},                                              /* field 0 */
               {"\x0b", 1},                                                  /* a group */
               {"\x0f\x01", 2},                                              /* no kind of value */
               {"\x09\x01\x02", 3},                                          /* 64 bits, cut */
               {"\x0a\x02\x0a\x7f", 4}};                                     /* inside a piece */
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct tokenizer *tokenizer;
        assert_int_equal(
            tokenizer_spm_open((const uint8_t *)row[i].bytes, row[i].n, "bad", &tokenizer),
            ST_BAD_DATA);
        assert_non_null(strstr(status_message(), "is not a SentencePiece model, or is damaged"));
    }
}

HARNESS_RUN_ALL()
