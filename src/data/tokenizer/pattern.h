/* pattern — finds the matches of a tokenizer's regular expression in texts, by PCRE2 with its
 * compiler, where that works.
 *
 * An expression that needs too many steps fails; it never hangs: each match has a limit of steps
 * and memory, and a search a limit of processor time. \s is White_Space, and the categories are
 * Unicode's in the version of libpcre2-8. It must not know pre-tokens. Source: pcre2api(3). */
#ifndef CONVOY_DATA_PATTERN_H
#define CONVOY_DATA_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "data/tokenizer/encode_watch.h"

enum { PATTERN_BYTES_MAX = 1 << 14 };

/* The position of a text after an ASCII letter and before a space or a line feed is an edge. */
enum pattern_edge {
    PATTERN_EDGE_NONE,    /* matches depend on both sides of an edge, or may depend */
    PATTERN_EDGE_NEUTRAL, /* no match crosses an edge, nor depends on the other side */
    PATTERN_EDGE_MATCH    /* and one begins at each edge */
};

struct pattern;
/* pattern_open — compiles an expression of Oniguruma, n bytes; threads may share the result. name:
 * the file, for messages. Fails ST_BAD_DATA with the byte at which it is wrong. */
enum status pattern_open(const char *source, size_t n, const char *name, struct pattern **out);
/* pattern_open_literal — does the same for n ≥ 1 bytes that stand for themselves. */
enum status pattern_open_literal(const char *text, size_t n, const char *name,
                                 struct pattern **out);
void pattern_close(struct pattern *pattern); /* accepts NULL */
/* pattern_edge — returns whether texts can be cut at edges. */
enum pattern_edge pattern_edge(const struct pattern *pattern);
/* pattern_identity — returns a hash of the expression. */
uint64_t pattern_identity(const struct pattern *pattern);
/* pattern_is_empty — returns true if the expression may match nothing. */
bool pattern_is_empty(const struct pattern *pattern);

/* The memory of searches in one thread. */
struct pattern_search;
/* pattern_search_new — begins a search through n_bytes of texts in all. watch: NULL allowed. */
struct pattern_search *pattern_search_new(const struct encode_watch *watch, size_t n_bytes);
void pattern_search_free(struct pattern_search *search); /* accepts NULL */

struct pattern_match {
    size_t begin, end; /* bytes of the text */
    size_t from;       /* where the next search begins */
    bool has_one;
};
/* pattern_next — finds the next match in text[0, n), which is UTF-8; zero *match before the first.
 * An empty match after a match is none, as in Oniguruma. *found_out: there is one. Fails
 * ST_BAD_DATA if the pattern needs too many steps, ST_RETRY if there is no memory or the watch
 * stops it. */
enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         const uint8_t *text, size_t n, struct pattern_match *match,
                         bool *found_out);

/* pattern_syntax — rewrites a regular expression of a tokenizer file for PCRE2.
 *
 * The files hold expressions of Oniguruma in Ruby's syntax, which differs: `{n,m}+` repeats instead
 * of being possessive, `^` and `$` belong to lines, (?m) is dotall, \h is a hexadecimal digit,
 * \s and \w are other sets, and \p{Han} is the script without its extensions. An expression that
 * PCRE2 cannot express in the same meaning is refused. It must not know texts.
 *
 * Source: Oniguruma 6.9, doc/RE and doc/SYNTAX.md; pcre2pattern(3). */

struct pattern_syntax {
    struct text text;  /* the expression for PCRE2 */
    size_t *made;      /* length of text when byte i of the source was read; SIZE_MAX: inside */
    const char *fault; /* why it is refused; NULL: it is not */
    size_t fault_at;   /* byte of the source */
    enum pattern_edge edge;
};

/* pattern_syntax_write — rewrites n bytes, at most PATTERN_BYTES_MAX, of UTF-8. Free it. */
void pattern_syntax_write(const char *source, size_t n, struct pattern_syntax *out);
void pattern_syntax_free(struct pattern_syntax *syntax);

#endif
