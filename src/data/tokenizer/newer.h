/* newer — characters of Unicode 15, 15.1 and 16 that older libraries take for unassigned, so that a
 * text has the same pre-tokens with any version of them. It must not know texts.
 *
 * Source: the categories of Oniguruma in Hugging Face's tokenizers 0.23.3, over all code points. */
#ifndef CONVOY_DATA_NEWER_H
#define CONVOY_DATA_NEWER_H

#include <stdint.h>

/* Letters are all from CAPITAL to HAN. */
enum newer_class {
    NEWER_NONE,
    NEWER_CAPITAL,
    NEWER_SMALL,
    NEWER_MODIFIER,
    NEWER_LETTER,
    NEWER_HAN,
    NEWER_DIGIT,
    NEWER_NUMBER,
    NEWER_MARK,
    NEWER_PUNCTUATION,
    NEWER_SYMBOL
};

/* newer_class_of — returns the class of a newer character; NEWER_NONE: the character is older. */
enum newer_class newer_class_of(int32_t c);
/* newer_stand_in — returns an older character of the class, which patterns treat alike. */
uint32_t newer_stand_in(enum newer_class kind);

#endif
