/* normal — see normal.h. */
#include "data/tokenizer/normal.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"

struct normal {
    struct normal_step step[NORMAL_STEPS_MAX];
    int n;
};

struct normal_work {
    const struct normal *normal;
    const struct encode_watch *watch;
    struct pattern_search *search;
    uint8_t *buffer[2]; /* the result of a step, and of the step before */
    size_t cap[2];
};

/* ---- steps ---- */

struct normal *normal_new(void) { return memory_new(1, sizeof(struct normal)); }

void normal_close(struct normal *normal)
{
    for (int i = 0; normal != NULL && i < normal->n; i++) {
        pattern_close(normal->step[i].pattern);
        free((void *)(uintptr_t)normal->step[i].content);
    }
    free(normal);
}

void normal_add(struct normal *normal, const struct normal_step *step)
{
    ASSERT(normal->n < NORMAL_STEPS_MAX);
    normal->step[normal->n] = *step;
    normal->step[normal->n].content = memory_text(step->content != NULL ? step->content : "");
    normal->n++;
}

bool normal_is_nfc(const struct normal *normal)
{
    return normal->n == 1 && normal->step[0].kind == NORMAL_FORM &&
           normal->step[0].form == NORMAL_FORM_NFC;
}

/* Returns true if a step of this kind is in the list. */
static bool has_step(const struct normal *normal, enum normal_kind kind)
{
    for (int i = 0; i < normal->n; i++)
        if (normal->step[i].kind == kind)
            return true;
    return false;
}

/* Returns the most bytes of n bytes after one step. */
static size_t step_most(const struct normal_step *step, size_t n)
{
    const size_t content = strlen(step->content);
    switch (step->kind) {
    case NORMAL_FORM:
        return n * (step->form == NORMAL_FORM_NFC || step->form == NORMAL_FORM_NFD
                        ? NORMAL_TEXT_GROWTH
                        : NORMAL_TEXT_GROWTH_COMPAT);
    case NORMAL_LOWERCASE:
        return 2 * n;
    case NORMAL_REPLACE: /* a match has a byte at least */
        return n * (content > 1 ? content : 1);
    case NORMAL_PREPEND: /* each segment, of a byte at least */
        return n * (1 + content);
    case NORMAL_STRIP:
    case NORMAL_ACCENTS:
        break;
    }
    return n;
}

size_t normal_most(const struct normal *normal, size_t n)
{
    for (int i = 0; i < normal->n; i++)
        n = step_most(normal->step + i, n);
    return n;
}

uint64_t normal_identity(const struct normal *normal)
{
    uint64_t sum = 0;
    for (int i = 0; i < normal->n; i++) {
        const struct normal_step *step = normal->step + i;
        const uint64_t facts[] = {sum,
                                  step->kind,
                                  step->form,
                                  (uint64_t)step->left + 2 * (uint64_t)step->right,
                                  step->pattern != NULL ? pattern_identity(step->pattern) : 0,
                                  XXH3_64bits(step->content, strlen(step->content))};
        sum = XXH3_64bits(facts, sizeof facts);
    }
    return sum;
}

bool normal_has_edges(const struct normal *normal)
{
    return !has_step(normal, NORMAL_STRIP) && !has_step(normal, NORMAL_REPLACE) &&
           !has_step(normal, NORMAL_PREPEND);
}

/* ---- texts ---- */

struct normal_work *normal_work_new(const struct normal *normal, const struct encode_watch *watch,
                                    size_t n_bytes)
{
    struct normal_work *work = memory_new(1, sizeof *work);
    work->normal = normal;
    work->watch = watch;
    if (has_step(normal, NORMAL_REPLACE))
        work->search = pattern_search_new(watch, normal_most(normal, n_bytes));
    return work;
}

void normal_work_free(struct normal_work *work)
{
    if (work == NULL)
        return;
    pattern_search_free(work->search);
    free(work->buffer[0]);
    free(work->buffer[1]);
    free(work);
}

/* Writes the text in lower case, each character by itself. */
static size_t write_lower(const uint8_t *p, size_t n, uint8_t *out)
{
    size_t made = 0;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = 1;
        const int32_t c = p[at] < 0x80 ? p[at] : normal_text_char(p + at, p + n, &bytes);
        if (c >= 0 && c < 0x80)
            out[made++] = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        else if (c < 0)
            out[made++] = p[at];
        else if (c == 0x130) { /* the only one with two characters */
            memcpy(out + made, "i\xcc\x87", 3);
            made += 3;
        } else
            made += text_utf8_put(out + made, (uint32_t)utf8proc_tolower(c));
    }
    return made;
}

static size_t write_unaccented(const uint8_t *p, size_t n, uint8_t *out)
{
    size_t made = 0;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = 1;
        const int32_t c = p[at] < 0x80 ? p[at] : normal_text_char(p + at, p + n, &bytes);
        const utf8proc_category_t kind = c < 0x80 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
        if (kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
            kind == UTF8PROC_CATEGORY_ME)
            continue;
        memcpy(out + made, p + at, bytes);
        made += bytes;
    }
    return made;
}

static void strip_ends(const struct normal_step *step, const uint8_t **text, size_t *n)
{
    const uint8_t *p = *text, *end = p + *n;
    size_t bytes;
    while (step->left && p < end && normal_text_is_space(normal_text_char(p, end, &bytes)))
        p += bytes;
    while (step->right && end > p && normal_text_is_space(normal_text_char_before(p, end, &bytes)))
        end -= bytes;
    *text = p;
    *n = (size_t)(end - p);
}

static bool is_utf8(const uint8_t *p, size_t n)
{
    size_t at = 0;
    for (size_t bytes = 1; at < n && bytes > 0; at += bytes)
        bytes = text_utf8_bytes(p + at, n - at);
    return at == n;
}

static enum status write_replaced(struct normal_work *work, const struct normal_step *step,
                                  const uint8_t *p, size_t n, uint8_t *out, size_t *n_out)
{
    const size_t content = strlen(step->content);
    struct pattern_match match = {0};
    size_t at = 0, made = 0;
    bool found = is_utf8(p, n);
    while (found) {
        TRY(pattern_next(step->pattern, work->search, p, n, &match, &found));
        if (!found)
            break;
        memcpy(out + made, p + at, match.begin - at);
        made += match.begin - at;
        memcpy(out + made, step->content, content);
        made += content;
        at = match.end;
    }
    memcpy(out + made, p + at, n - at);
    *n_out = made + n - at;
    return ST_OK;
}

/* Runs a step that writes its result to out, with space for step_most. */
static enum status write_step(struct normal_work *work, const struct normal_step *step,
                              const uint8_t *p, size_t n, uint8_t *out, size_t *n_out)
{
    switch (step->kind) {
    case NORMAL_FORM:
        return normal_text_form(step->form, work->watch, p, n, out, n_out);
    case NORMAL_LOWERCASE:
        *n_out = write_lower(p, n, out);
        return ST_OK;
    case NORMAL_ACCENTS:
        *n_out = write_unaccented(p, n, out);
        return ST_OK;
    case NORMAL_REPLACE:
        return write_replaced(work, step, p, n, out, n_out);
    case NORMAL_PREPEND:
        *n_out = strlen(step->content);
        memcpy(out, step->content, *n_out);
        memcpy(out + *n_out, p, n);
        *n_out += n;
        return ST_OK;
    case NORMAL_STRIP:
        break;
    }
    *n_out = 0;
    return ST_OK;
}

enum status normal_run(struct normal_work *work, bool is_begin, const uint8_t **text, size_t *n)
{
    int to = 0;
    for (int i = 0; i<work->normal->n && * n> 0; i++) {
        const struct normal_step *step = work->normal->step + i;
        const bool is_ascii = normal_text_is_ascii(*text, *n);
        if (step->kind == NORMAL_STRIP)
            strip_ends(step, text, n);
        if (step->kind == NORMAL_STRIP || (step->kind == NORMAL_PREPEND && !is_begin) ||
            (is_ascii && (step->kind == NORMAL_FORM || step->kind == NORMAL_ACCENTS)))
            continue;
        const size_t most = step_most(step, *n);
        if (most > work->cap[to])
            work->buffer[to] = memory_resize(work->buffer[to], work->cap[to] = most, 1);
        TRY(write_step(work, step, *text, *n, work->buffer[to], n));
        *text = work->buffer[to];
        to = 1 - to;
    }
    return ST_OK;
}
