/* patterns — published expressions of pre-tokens that no fast splitter knows. */
#ifndef CONVOY_TESTS_PATTERNS_H
#define CONVOY_TESTS_PATTERNS_H

#define PATTERN_CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define PATTERN_SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PATTERN_SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define PATTERN_ANY "[^\\r\\n\\p{L}\\p{N}]?"
/* GPT-4o, gpt-oss */
#define PATTERN_O200K                                                                          \
    PATTERN_ANY PATTERN_CAPITALS                                                               \
        "*" PATTERN_SMALL "+" PATTERN_SHORT "|" PATTERN_ANY PATTERN_CAPITALS "+" PATTERN_SMALL \
        "*" PATTERN_SHORT                                                                      \
        "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* DeepSeek-V3, three steps */
#define PATTERN_DIGITS "\\p{N}{1,3}"
#define PATTERN_CJK "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define PATTERN_DEEPSEEK                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L" \
    "}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#endif
