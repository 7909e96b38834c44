/* pattern — see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/pattern.h"

#include <stdlib.h>
#include <string.h>

#include <pcre2.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    STARTS = 64,            /* positions at which one call tries to begin a match */
    CALLS = 64,             /* calls between two looks at the clock */
    HEAP_KIB = 64 << 10,    /* memory of a match without PCRE2's compiler */
    STACK_BYTES = 16 << 20, /* and with it */
    TIME_BASE_MS = 2000,
    TIME_BYTE_NS = 10000, /* a thousand times what published patterns need */
};
/* Steps of a match: some for each byte, and not more than Oniguruma's limit. */
static const uint32_t steps_base = 1000000, steps_byte = 16, steps_max = 10000000;

struct pattern {
    pcre2_code *code;
    char *name, *source;
    enum pattern_edge edge;
    bool is_empty;
};

struct pattern_search {
    const struct encode_watch *watch;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: the thread's own, until that is too small */
    int64_t began_ns, checked_ns, limit_ns;
    unsigned calls;
};

/* ---- expressions ---- */

enum { SHOWN = 200 };

static enum status refuse_pattern(const char *name, const char *source, size_t n, size_t at,
                                  const char *why)
{
    return FAIL(ST_BAD_DATA,
                "%s: the pattern %.*s%s is not supported: %s, at byte %zu; use another tokenizer",
                name, (int)(n < SHOWN ? n : SHOWN), source, n < SHOWN ? "" : "…", why, at);
}

/* Returns the byte of the source from which byte `made` of the expression was written. */
static size_t source_at(const struct pattern_syntax *syntax, size_t n, size_t made)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if (syntax->made[i] <= made)
            at = i;
    return at;
}

static enum status compile_pattern(const char *name, const char *source, size_t n,
                                   const struct pattern_syntax *syntax, struct pattern **out)
{
    int code;
    PCRE2_SIZE at = 0;
    uint32_t shortest = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return FAIL(ST_RETRY, "out of memory: the pattern of %s", name);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)syntax->text.data, syntax->text.len,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                         PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                     &code, &at, context);
    pcre2_compile_context_free(context);
    if (made == NULL) {
        PCRE2_UCHAR why[256];
        pcre2_get_error_message(code, why, sizeof why);
        return refuse_pattern(name, source, n, source_at(syntax, n, at), (const char *)why);
    }
    /* Without the compiler (no executable memory, another processor) PCRE2 interprets. */
    (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    pcre2_pattern_info(made, PCRE2_INFO_MATCHEMPTY, &shortest);
    struct pattern *pattern = memory_new(1, sizeof *pattern);
    *pattern = (struct pattern){.code = made,
                                .name = memory_text(name),
                                .source = memory_new(1, n + 1),
                                .edge = syntax->edge,
                                .is_empty = shortest != 0};
    memcpy(pattern->source, source, n);
    *out = pattern;
    return ST_OK;
}

enum status pattern_open(const char *source, size_t n, const char *name, struct pattern **out)
{
    struct pattern_syntax syntax;
    if (n == 0 || n > PATTERN_BYTES_MAX)
        return FAIL(ST_BAD_DATA, "%s: a pattern of %zu bytes, not 1 to %d; use another tokenizer",
                    name, n, PATTERN_BYTES_MAX);
    pattern_syntax_write(source, n, &syntax);
    const enum status st = syntax.fault != NULL
                               ? refuse_pattern(name, source, n, syntax.fault_at, syntax.fault)
                               : compile_pattern(name, source, n, &syntax, out);
    pattern_syntax_free(&syntax);
    return st;
}

enum status pattern_open_literal(const char *text, size_t n, const char *name, struct pattern **out)
{
    struct text escaped = {0};
    for (size_t i = 0; i < n && i <= PATTERN_BYTES_MAX; i++) {
        const char c = text[i];
        const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                              (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
        text_add(&escaped, is_plain ? "" : "\\");
        text_add_bytes(&escaped, &c, 1);
    }
    const enum status st = pattern_open(escaped.data, escaped.len, name, out);
    text_free(&escaped);
    return st;
}

void pattern_close(struct pattern *pattern)
{
    if (pattern == NULL)
        return;
    pcre2_code_free(pattern->code);
    free(pattern->name);
    free(pattern->source);
    free(pattern);
}

enum pattern_edge pattern_edge(const struct pattern *pattern) { return pattern->edge; }
uint64_t pattern_identity(const struct pattern *pattern)
{
    return XXH3_64bits(pattern->source, strlen(pattern->source));
}
bool pattern_is_empty(const struct pattern *pattern) { return pattern->is_empty; }

/* ---- searches ---- */

struct pattern_search *pattern_search_new(const struct encode_watch *watch, size_t n_bytes)
{
    struct pattern_search *search = memory_new(1, sizeof *search);
    search->watch = watch;
    search->match = pcre2_match_data_create(1, NULL);
    search->context = pcre2_match_context_create(NULL);
    if (search->match == NULL || search->context == NULL)
        memory_end(__FILE__, __LINE__, 1, sizeof *search);
    pcre2_set_heap_limit(search->context, HEAP_KIB);
    search->limit_ns = (int64_t)TIME_BASE_MS * 1000000 + (int64_t)n_bytes * TIME_BYTE_NS;
    search->began_ns = clock_thread_ns();
    search->checked_ns = clock_ns();
    return search;
}

void pattern_search_free(struct pattern_search *search)
{
    if (search == NULL)
        return;
    pcre2_match_data_free(search->match);
    pcre2_match_context_free(search->context);
    pcre2_jit_stack_free(search->stack);
    free(search);
}

static enum status fail_steps(const struct pattern *pattern, size_t n, const char *why)
{
    return FAIL(
        ST_BAD_DATA,
        "%s: its pattern %.*s needs too many steps for a text of %zu bytes (%s); use another "
        "tokenizer, or remove the text",
        pattern->name, SHOWN, pattern->source, n, why);
}

/* Looks at the clocks, and lets the watch stop the search. */
static enum status check_time(const struct pattern *pattern, struct pattern_search *search,
                              size_t n)
{
    const int64_t now = clock_ns();
    if (now - search->checked_ns < 10000000)
        return ST_OK;
    search->checked_ns = now;
    TRY(encode_watch_check(search->watch));
    return clock_thread_ns() - search->began_ns > search->limit_ns
               ? fail_steps(pattern, n, "processor time")
               : ST_OK;
}

static size_t next_char(const uint8_t *text, size_t n, size_t at)
{
    at++;
    while (at < n && (text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Calls PCRE2 for matches that begin in [from, to]: compiled with the thread's stack, then with a
 * larger stack, then interpreted, until the memory is enough. */
static int call_pcre2(const struct pattern *pattern, struct pattern_search *search,
                      const uint8_t *text, size_t n, size_t from, size_t to)
{
    pcre2_set_offset_limit(search->context, to);
    int rc = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK, search->match,
                         search->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && search->stack == NULL) {
        search->stack = pcre2_jit_stack_create(1 << 16, STACK_BYTES, NULL);
        if (search->stack == NULL)
            return PCRE2_ERROR_NOMEMORY;
        pcre2_jit_stack_assign(search->context, NULL, search->stack);
        rc = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK, search->match,
                         search->context);
    }
    return rc == PCRE2_ERROR_JIT_STACKLIMIT
               ? pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             search->match, search->context)
               : rc;
}

/* Finds the first match that begins at or after `from`. */
static enum status find_first(const struct pattern *pattern, struct pattern_search *search,
                              const uint8_t *text, size_t n, size_t from, bool *found_out)
{
    const uint64_t steps = (uint64_t)steps_base + (uint64_t)steps_byte * (n - from);
    *found_out = false;
    pcre2_set_match_limit(search->context, steps < steps_max ? (uint32_t)steps : steps_max);
    while (from <= n) {
        const size_t to = n - from > STARTS ? from + STARTS : n;
        if (search->calls++ % CALLS == 0)
            TRY(check_time(pattern, search, n));
        const int rc = call_pcre2(pattern, search, text, n, from, to);
        if (rc >= 0) {
            *found_out = true;
            return ST_OK;
        }
        if (rc == PCRE2_ERROR_NOMEMORY)
            return FAIL(ST_RETRY, "out of memory: a text of %zu bytes with the pattern of %s", n,
                        pattern->name);
        if (rc != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR why[256];
            pcre2_get_error_message(rc, why, sizeof why);
            return fail_steps(pattern, n, (const char *)why);
        }
        from = next_char(text, n, to);
    }
    return ST_OK;
}

enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         const uint8_t *text, size_t n, struct pattern_match *match,
                         bool *found_out)
{
    for (*found_out = false; match->from <= n;) {
        TRY(find_first(pattern, search, text, n, match->from, found_out));
        if (!*found_out)
            match->from = n + 1;
        if (!*found_out)
            break;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(search->match);
        if (at[0] == at[1] && match->has_one && at[1] == match->end) {
            match->from = next_char(text, n, at[1]);
            *found_out = false;
            continue;
        }
        *match = (struct pattern_match){at[0], at[1], at[1], true};
        break;
    }
    return ST_OK;
}

#ifdef FUZZ
#include "base/assert.h"

/* A pattern up to the first line feed, and a text after it: matches are in order. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    struct pattern *pattern;
    if (line == NULL ||
        pattern_open((const char *)data, (size_t)(line - data), "fuzz", &pattern) != ST_OK)
        return 0;
    const uint8_t *text = line + 1;
    size_t n = 0, at = 0;
    for (size_t bytes; text + n < data + size; n += bytes) {
        bytes = text_utf8_bytes(text + n, size - (size_t)(text + n - data));
        if (bytes == 0)
            break;
    }
    struct pattern_search *search = pattern_search_new(NULL, n);
    struct pattern_match match = {0};
    bool found = true;
    while (found && pattern_next(pattern, search, text, n, &match, &found) == ST_OK && found) {
        ASSERT(match.begin >= at && match.end >= match.begin && match.end <= n);
        at = match.end;
    }
    pattern_search_free(search);
    pattern_close(pattern);
    return 0;
}
#endif
