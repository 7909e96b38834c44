/* split — see split.h. */
#include "data/tokenizer/split.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/newer.h"
#include "data/tokenizer/normal_text.h"

enum { STEPS_MAX = 16 };

enum step_kind { STEP_PATTERN, STEP_KIND, STEP_BYTES };

struct step {
    enum step_kind kind;
    struct pattern *pattern;
    enum split_behavior behavior;
    bool invert;
    enum pretoken_kind pretoken;
};

struct split {
    struct step step[STEPS_MAX];
    int n;
};

/* A text with other bytes for each character of the original, and a position in both. */
struct mapping {
    bool is_used;
    bool is_bytes; /* a character of the original is one byte */
    const uint8_t *copy_at, *at, *end;
};

struct split_work {
    const struct split *split;
    struct pattern_search *search;
    struct mapping map;
    uint8_t *plain, *chars; /* the text for patterns; a piece in the characters of bpe_chars */
    size_t plain_cap, chars_cap;
    uint16_t char_of[256];
    split_put_fn *put;
    void *arg;
};

/* ---- steps ---- */

struct split *split_new(void) { return memory_new(1, sizeof(struct split)); }

void split_close(struct split *split)
{
    for (int i = 0; split != NULL && i < split->n; i++)
        pattern_close(split->step[i].pattern);
    free(split);
}

static void add_step(struct split *split, const struct step *step)
{
    ASSERT(split->n < STEPS_MAX);
    split->step[split->n++] = *step;
}

void split_add_pattern(struct split *split, struct pattern *pattern, enum split_behavior behavior,
                       bool invert)
{
    add_step(split,
             &(struct step){
                 .kind = STEP_PATTERN, .pattern = pattern, .behavior = behavior, .invert = invert});
}

void split_add_kind(struct split *split, enum pretoken_kind kind)
{
    add_step(split, &(struct step){.kind = STEP_KIND, .pretoken = kind});
}

void split_add_bytes(struct split *split) { add_step(split, &(struct step){.kind = STEP_BYTES}); }

int split_steps(const struct split *split) { return split->n; }

uint64_t split_identity(const struct split *split)
{
    uint64_t sum = 0;
    for (int i = 0; i < split->n; i++) {
        const struct step *step = split->step + i;
        const uint64_t facts[] = {sum,
                                  step->kind,
                                  step->behavior,
                                  step->invert,
                                  step->pretoken,
                                  step->pattern != NULL ? pattern_identity(step->pattern) : 0};
        sum = XXH3_64bits(facts, sizeof facts);
    }
    return sum;
}

bool split_has_edges(const struct split *split)
{
    for (int i = 0; i < split->n; i++) {
        const struct step *step = split->step + i;
        if (step->kind == STEP_KIND)
            return true;
        /* Other behaviors may join the pieces on both sides again. */
        const bool is_joined = step->behavior != SPLIT_ISOLATED && step->behavior != SPLIT_REMOVED;
        const enum pattern_edge edge =
            step->kind == STEP_PATTERN ? pattern_edge(step->pattern) : PATTERN_EDGE_NONE;
        if (edge == PATTERN_EDGE_NONE || (edge == PATTERN_EDGE_MATCH && !is_joined))
            return edge != PATTERN_EDGE_NONE;
    }
    return false;
}

/* ---- texts ---- */

struct split_work *split_work_new(const struct split *split, const struct encode_watch *watch,
                                  size_t n_bytes)
{
    struct split_work *work = memory_new(1, sizeof *work);
    work->split = split;
    work->search = pattern_search_new(watch, (size_t)split->n * n_bytes);
    bpe_chars_fill(work->char_of);
    return work;
}

void split_work_free(struct split_work *work)
{
    if (work == NULL)
        return;
    pattern_search_free(work->search);
    free(work->plain);
    free(work->chars);
    free(work);
}

static enum status run_step(struct split_work *work, int step_i, const uint8_t *p, size_t n);

/* Returns the bytes of the character at p, which may be a byte outside of UTF-8. */
static size_t char_bytes(const uint8_t *p, const uint8_t *end)
{
    const size_t n = text_utf8_bytes(p, (size_t)(end - p));
    return n > 0 ? n : 1;
}

/* Returns the position in the original of a position of the copy, not before the previous one. */
static const uint8_t *original_of(struct mapping *map, const uint8_t *p)
{
    if (!map->is_used)
        return p;
    while (map->copy_at < p) {
        map->copy_at += char_bytes(map->copy_at, p);
        map->at += map->is_bytes ? 1 : char_bytes(map->at, map->end);
    }
    return map->at;
}

static enum status put_piece(struct split_work *work, const uint8_t *p, size_t n)
{
    const uint8_t *begin = original_of(&work->map, p), *end = original_of(&work->map, p + n);
    return work->put(work->arg, begin, (size_t)(end - begin));
}

/* Passes a piece on in the characters of bpe_chars. */
static enum status run_bytes(struct split_work *work, int step_i, const uint8_t *p, size_t n)
{
    const uint8_t *begin = original_of(&work->map, p), *end = original_of(&work->map, p + n);
    const struct mapping outer = work->map;
    size_t made = 0;
    n = (size_t)(end - begin);
    if (2 * n > work->chars_cap)
        work->chars = memory_resize(work->chars, work->chars_cap = 2 * n, 1);
    for (size_t i = 0; i < n; i++)
        made += text_utf8_put(work->chars + made, work->char_of[begin[i]]);
    work->map = (struct mapping){true, true, work->chars, begin, end};
    const enum status st = run_step(work, step_i + 1, work->chars, made);
    work->map = outer;
    return st;
}

/* A run of neighbouring parts, matches or gaps, that become one piece. */
struct piece {
    size_t begin, end;
    bool is_there, is_match; /* the last part is a match */
};

/* Returns true if a part is joined with the piece before it. */
static bool joins_piece(enum split_behavior behavior, bool before, bool is_match)
{
    switch (behavior) {
    case SPLIT_CONTIGUOUS:
        return before == is_match;
    case SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !before;
    case SPLIT_MERGED_WITH_NEXT:
        return before && !is_match;
    case SPLIT_REMOVED:
    case SPLIT_ISOLATED:
        break;
    }
    return false;
}

static enum status end_piece(struct split_work *work, int step_i, const uint8_t *text,
                             const struct piece *piece)
{
    if (!piece->is_there || piece->begin == piece->end ||
        (piece->is_match && work->split->step[step_i].behavior == SPLIT_REMOVED))
        return ST_OK;
    return run_step(work, step_i + 1, text + piece->begin, piece->end - piece->begin);
}

static enum status add_part(struct split_work *work, int step_i, const uint8_t *text,
                            struct piece *piece, size_t begin, size_t end, bool is_match)
{
    const struct step *step = work->split->step + step_i;
    is_match = is_match != step->invert;
    if (piece->is_there && joins_piece(step->behavior, piece->is_match, is_match)) {
        piece->end = end;
        piece->is_match = is_match;
        return ST_OK;
    }
    TRY(end_piece(work, step_i, text, piece));
    *piece = (struct piece){begin, end, true, is_match};
    return ST_OK;
}

static enum status run_pattern(struct split_work *work, int step_i, const uint8_t *text, size_t n)
{
    struct pattern_match match = {0};
    struct piece piece = {0};
    size_t at = 0;
    for (;;) {
        bool found;
        TRY(pattern_next(work->split->step[step_i].pattern, work->search, text, n, &match, &found));
        if (!found)
            break;
        if (match.begin > at)
            TRY(add_part(work, step_i, text, &piece, at, match.begin, false));
        TRY(add_part(work, step_i, text, &piece, match.begin, match.end, true));
        at = match.end;
    }
    if (at < n)
        TRY(add_part(work, step_i, text, &piece, at, n, false));
    return end_piece(work, step_i, text, &piece);
}

/* Runs the steps from step_i on over a piece of the step before. */
static enum status run_step(struct split_work *work, int step_i, const uint8_t *p, size_t n)
{
    if (step_i == work->split->n)
        return put_piece(work, p, n);
    const struct step *step = work->split->step + step_i;
    if (step->kind == STEP_BYTES)
        return run_bytes(work, step_i, p, n);
    if (step->kind == STEP_PATTERN)
        return run_pattern(work, step_i, p, n);
    for (const uint8_t *end = p + n, *stop; p < end; p = stop) {
        stop = pretoken_end(step->pretoken, p, end);
        TRY(run_step(work, step_i + 1, p, (size_t)(stop - p)));
    }
    return ST_OK;
}

/* Returns the bytes of the character at p if patterns can read it as it is. 0: it is newer than
 * libraries may be (*stand_in_out is written in its place), or a byte outside of UTF-8. */
static size_t plain_bytes(const uint8_t *p, const uint8_t *end, uint32_t *stand_in_out)
{
    if (*p < 0x80)
        return 1;
    size_t n;
    const int32_t c = normal_text_char(p, end, &n);
    const enum newer_class kind = newer_class_of(c);
    *stand_in_out = c < 0 ? 0xfffd : newer_stand_in(kind);
    return c < 0 || kind != NEWER_NONE ? 0 : n;
}

/* Copies a text with another character for each byte outside of UTF-8 and each newer character; the
 * first plain_n bytes have none. */
static size_t copy_plain(struct split_work *work, const uint8_t *text, size_t n, size_t plain_n)
{
    if (3 * n > work->plain_cap)
        work->plain = memory_resize(work->plain, work->plain_cap = 3 * n, 1);
    memcpy(work->plain, text, plain_n);
    size_t made = plain_n;
    for (size_t at = plain_n, bytes; at < n; at += bytes) {
        uint32_t stand_in;
        bytes = plain_bytes(text + at, text + n, &stand_in);
        if (bytes == 0) {
            made += text_utf8_put(work->plain + made, stand_in);
            bytes = char_bytes(text + at, text + n);
            continue;
        }
        memcpy(work->plain + made, text + at, bytes);
        made += bytes;
    }
    return made;
}

enum status split_run(struct split_work *work, const uint8_t *text, size_t n, split_put_fn *put,
                      void *arg)
{
    size_t at = 0;
    work->put = put;
    work->arg = arg;
    work->map = (struct mapping){.is_used = false};
    for (size_t bytes = 1; at < n && bytes > 0; at += bytes)
        bytes = plain_bytes(text + at, text + n, &(uint32_t){0});
    if (at == n)
        return run_step(work, 0, text, n);
    const size_t made = copy_plain(work, text, n, at);
    work->map = (struct mapping){true, false, work->plain, text, text + n};
    return run_step(work, 0, work->plain, made);
}
