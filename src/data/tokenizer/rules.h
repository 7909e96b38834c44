/* tokenizer_rules — the rules of tokenizer.json for texts, apart from its vocabulary: normalizer,
 * pre_tokenizer, post_processor. The usual ones become the kinds that have a fast splitter of
 * their own, the others lists of steps (normal.h, split.h); the rest is refused with its name. It
 * must not know vocabularies.
 *
 * Source: Hugging Face's tokenizers 0.23, src/normalizers, src/pre_tokenizers, src/processors. */
#ifndef CONVOY_DATA_TOKENIZER_RULES_H
#define CONVOY_DATA_TOKENIZER_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/tokenizer/pretoken.h"
#include "data/tokenizer/tokenizer.h"

struct tokenizer_rules {
    enum pretoken_kind kind;
    struct split *split;   /* in place of kind, or NULL; tokenizer_rules_free frees both lists */
    struct normal *normal; /* NULL: no steps but is_nfc and is_spm */
    bool is_byte_level;    /* the vocabulary is written in the characters of bpe_chars */
    bool is_nfc, is_spm;
    enum tokenizer_prefix prefix;
    char begin[128]; /* the special token that the template puts first; "": none */
};

/* A value within the document; NULL: it is missing. */
struct tokenizer_rules_text {
    const char *text;
    size_t n;
};

/* tokenizer_rules_read — reads the rules; name is for messages. kind WHOLE without split: the
 * caller may use WORDS if its vocabulary has no space after another character. Free *out, also
 * after a failure. */
enum status tokenizer_rules_read(struct tokenizer_rules_text normalizer,
                                 struct tokenizer_rules_text pre_tokenizer,
                                 struct tokenizer_rules_text post_processor, const char *name,
                                 struct tokenizer_rules *out);

void tokenizer_rules_free(struct tokenizer_rules *rules);

/* tokenizer_rules_regex — returns a pattern of this kind; "": it has none. */
const char *tokenizer_rules_regex(enum pretoken_kind kind);

#endif
