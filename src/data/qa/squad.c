/* squad — see squad.h.
 *
 * The document is walked; only one paragraph at a time becomes a tree, and the needed members are
 * copied. So the questions bound the memory, for any other contents of the document. */
#include "data/qa/squad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/log.h"
#include "base/memory.h"

enum {
    SQUAD_MARK_EVERY = 256, /* code points between two marks of a context */
    SQUAD_NAMED_MAX = 5,    /* questions without a matching answer that are logged one by one */
    SQUAD_MISMATCH_SHARE = 10,
    SQUAD_CHUNK_BYTES = 1 << 18,
    SQUAD_OTHER_BYTES_MAX = 1 << 20 /* bytes of a member that is not used: titles, versions */
};

/* Strings of a file, stored one after the other. */
struct squad_chunk {
    struct squad_chunk *next;
    size_t used, cap;
    char bytes[];
};

struct squad_read {
    char *path;
    int64_t bytes;
    uint64_t sum;
};

struct squad {
    struct squad_read *read; /* one for each file read */
    int64_t read_n;
    struct squad_chunk *chunks;
    struct squad_answer **answers; /* one list for each file */
    int64_t files_n;
    struct squad_example *example;
    int64_t examples_n, paragraphs_n, mismatched_n;
};

static void reads_free(struct squad_read *read, int64_t n)
{
    for (int64_t i = 0; read != NULL && i < n; i++)
        free(read[i].path);
    free(read);
}

void squad_close(struct squad *squad)
{
    if (squad == NULL)
        return;
    for (int64_t i = 0; i < squad->files_n; i++)
        free(squad->answers[i]);
    for (struct squad_chunk *chunk = squad->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    reads_free(squad->read, squad->read_n);
    free(squad->answers);
    free(squad->example);
    free(squad);
}

bool squad_file(const struct squad *squad, int64_t file_i, const char **path_out,
                int64_t *bytes_out, uint64_t *sum_out)
{
    if (file_i >= squad->read_n)
        return false;
    *path_out = squad->read[file_i].path;
    *bytes_out = squad->read[file_i].bytes;
    *sum_out = squad->read[file_i].sum;
    return true;
}

int64_t squad_examples(const struct squad *squad) { return squad->examples_n; }
int64_t squad_paragraphs(const struct squad *squad) { return squad->paragraphs_n; }
int64_t squad_mismatched(const struct squad *squad) { return squad->mismatched_n; }
const struct squad_example *squad_example(const struct squad *squad, int64_t example_i)
{
    ASSERTF(example_i >= 0 && example_i < squad->examples_n, "example %lld of %lld",
            (long long)example_i, (long long)squad->examples_n);
    return squad->example + example_i;
}

/* ---- position in the document ---- */

struct squad_reader {
    const char *name;
    struct squad *squad;
    struct squad_answer *answer; /* answers of this file; answers_n are used */
    int64_t answers_n;
    size_t answers_cap, examples_cap;
    int article_i, paragraph_i, question_i; /* -1: outside of one */
    const char *context;
    int64_t context_bytes, context_points;
    int64_t *mark; /* byte of code point 0, 256, 512, … of the context */
    size_t marks_cap;
};

/* Adds the position to the message of a failed getter. */
static enum status add_position(const struct squad_reader *r, enum status st)
{
    if (st == ST_OK || st == ST_RETRY)
        return st;
    if (r->article_i < 0)
        return FAIL(st, "%s is not a SQuAD file: %s", r->name, status_message());
    if (r->paragraph_i < 0)
        return FAIL(st, "%s: data[%d]: %s", r->name, r->article_i, status_message());
    if (r->question_i < 0)
        return FAIL(st, "%s: data[%d].paragraphs[%d]: %s", r->name, r->article_i, r->paragraph_i,
                    status_message());
    return FAIL(st, "%s: data[%d].paragraphs[%d].qas[%d]: %s", r->name, r->article_i,
                r->paragraph_i, r->question_i, status_message());
}

/* ---- code points and bytes ---- */

static bool is_point_start(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

/* find_answer — computes the answer's position; both -1 if the context differs there. */
static void find_answer(const struct squad_reader *r, int64_t point, struct squad_answer *answer)
{
    const int64_t n = (int64_t)strlen(answer->text);
    answer->first_bytes = answer->end_bytes = -1;
    if (n == 0 || point >= r->context_points)
        return;
    /* The byte at which code point number `point` < context_points begins. */
    int64_t first = r->mark[point / SQUAD_MARK_EVERY];
    for (int64_t left = point % SQUAD_MARK_EVERY; left > 0; left--)
        do
            first++;
        while (!is_point_start(r->context[first]));
    if (n > r->context_bytes - first || memcmp(r->context + first, answer->text, (size_t)n) != 0)
        return;
    answer->first_bytes = first;
    answer->end_bytes = first + n;
}

/* ---- memory ---- */

static enum status get_kept(struct squad_reader *r, const cJSON *object, const char *key,
                            const char **out)
{
    TRY(json_get_string(object, key, out));
    /* Copies a string for the lifetime of the squad. */
    const char **string = out;
    const size_t n = strlen(*string) + 1;
    struct squad_chunk *chunk = r->squad->chunks;
    if (chunk == NULL || chunk->cap - chunk->used < n) {
        const size_t cap = n > SQUAD_CHUNK_BYTES ? n : SQUAD_CHUNK_BYTES;
        chunk = memory_resize(NULL, 1, sizeof *chunk + cap);
        *chunk = (struct squad_chunk){.next = r->squad->chunks, .cap = cap};
        r->squad->chunks = chunk;
    }
    *string = memcpy(chunk->bytes + chunk->used, *string, n);
    chunk->used += n;
    return ST_OK;
}

/* ---- reading ---- */

static enum status read_answer(struct squad_reader *r, const cJSON *item)
{
    struct squad_answer *answer = r->answer + r->answers_n;
    int64_t point;
    TRY(get_kept(r, item, "text", &answer->text));
    TRY(json_get_i64(item, "answer_start", -1, INT32_MAX, &point));
    if (point >= 0)
        find_answer(r, point, answer);
    else
        answer->first_bytes = answer->end_bytes = -1;
    r->answers_n++;
    return ST_OK;
}

static enum status read_question(struct squad_reader *r, const cJSON *item)
{
    const cJSON *answers, *answer, *flag = cJSON_GetObjectItemCaseSensitive(item, "is_impossible");
    bool any = false;
    r->squad->example = memory_grow(r->squad->example, (size_t)r->squad->examples_n,
                                    &r->examples_cap, sizeof *r->squad->example);
    struct squad_example *example = r->squad->example + r->squad->examples_n;
    *example = (struct squad_example){.context = r->context,
                                      .context_bytes = r->context_bytes,
                                      .paragraph_i = r->squad->paragraphs_n};
    TRY(get_kept(r, item, "id", &example->id));
    TRY(get_kept(r, item, "question", &example->question));
    TRY(json_get_array(item, "answers", &answers));
    r->answer = memory_grow(r->answer, (size_t)(r->answers_n + cJSON_GetArraySize(answers)),
                            &r->answers_cap, sizeof *r->answer);
    /* valid until the list grows; see squad_parse */
    example->answer = r->answer + r->answers_n;
    if (flag != NULL && !cJSON_IsBool(flag))
        return FAIL(ST_BAD_DATA, "JSON key \"is_impossible\" is not true or false");
    example->is_impossible = cJSON_IsTrue(flag) || cJSON_GetArraySize(answers) == 0;
    if (!example->is_impossible)
        cJSON_ArrayForEach(answer, answers)
        {
            TRY(read_answer(r, answer));
            any |= example->answer[example->answers_n++].first_bytes >= 0;
        }
    if (!example->is_impossible && !any) {
        if (r->squad->mismatched_n++ < SQUAD_NAMED_MAX)
            LOG_WARN("%s: question %.80s: the answer \"%.60s\" is not at its answer_start (which "
                     "counts Unicode characters of the context); the question is not used",
                     r->name, example->id, example->answer[0].text);
    }
    r->squad->examples_n++;
    return ST_OK;
}

static enum status read_paragraph(struct squad_reader *r, const cJSON *item)
{
    const cJSON *questions, *question;
    r->question_i = -1;
    TRY(add_position(r, get_kept(r, item, "context", &r->context)));
    TRY(add_position(r, json_get_array(item, "qas", &questions)));
    /* Marks every SQUAD_MARK_EVERY-th code point of the context. */
    const int64_t n = (int64_t)strlen(r->context);
    r->mark = memory_grow(r->mark, (size_t)(n / SQUAD_MARK_EVERY), &r->marks_cap, sizeof *r->mark);
    int64_t points = 0;
    for (int64_t i = 0; i < n; i++)
        if (is_point_start(r->context[i])) {
            if (points % SQUAD_MARK_EVERY == 0)
                r->mark[points / SQUAD_MARK_EVERY] = i;
            points++;
        }
    r->context_bytes = n;
    r->context_points = points;
    cJSON_ArrayForEach(question, questions)
    {
        r->question_i++;
        TRY(add_position(r, read_question(r, question)));
    }
    r->squad->paragraphs_n++;
    return ST_OK;
}

typedef enum status read_item(struct squad_reader *r, const struct json_item *item);

/* for_each — calls fn for each item of the object's array of this name; *number is its number. */
static enum status for_each(struct squad_reader *r, const char *object, size_t n, const char *key,
                            read_item *fn, int *number)
{
    struct json_walk members, elements;
    struct json_item item, list = {.value = NULL};
    bool is_end = false;
    TRY(json_walk_begin(&members, object, n, '{', r->name));
    for (;;) {
        TRY(json_walk_next(&members, &item, &is_end));
        if (is_end)
            break;
        if (!json_walk_is(&item, key)) {
            /* A member that is not used must be valid JSON too. */
            cJSON *value;
            if (item.value_n > SQUAD_OTHER_BYTES_MAX)
                return FAIL(ST_BAD_DATA, "%s: %.40s… has %zu bytes; SQuAD has no such member",
                            r->name, item.key, item.value_n);
            TRY(json_parse(item.value, item.value_n, r->name, &value));
            cJSON_Delete(value);
        } else if (list.value != NULL)
            return FAIL(ST_BAD_DATA, "%s: key \"%s\" appears twice in one JSON object; keep one",
                        r->name, key);
        else
            list = item;
    }
    if (list.value == NULL || list.value[0] != '[')
        return add_position(r, FAIL(ST_BAD_DATA, "JSON key \"%s\" is %s, expected an array", key,
                                    list.value == NULL ? "missing" : "something else"));
    TRY(json_walk_begin(&elements, list.value, list.value_n, '[', r->name));
    for (*number = 0;; ++*number) {
        TRY(json_walk_next(&elements, &item, &is_end));
        if (is_end)
            return ST_OK;
        TRY(fn(r, &item));
    }
}

static enum status walk_paragraph(struct squad_reader *r, const struct json_item *item)
{
    cJSON *paragraph;
    TRY(json_parse(item->value, item->value_n, r->name, &paragraph));
    const enum status st = read_paragraph(r, paragraph);
    cJSON_Delete(paragraph);
    r->question_i = -1;
    return st;
}

static enum status walk_article(struct squad_reader *r, const struct json_item *item)
{
    r->paragraph_i = -1;
    if (item->value[0] != '{')
        return add_position(
            r, FAIL(ST_BAD_DATA, "JSON key \"paragraphs\" is missing, expected an array"));
    return for_each(r, item->value, item->value_n, "paragraphs", walk_paragraph, &r->paragraph_i);
}

static enum status read_document(struct squad_reader *r, const char *bytes, size_t n)
{
    r->article_i = r->paragraph_i = r->question_i = -1;
    const char *first = bytes;
    while (first < bytes + n && strchr(" \t\r\n", *first) != NULL && *first != 0)
        first++;
    if (first < bytes + n && *first == '[')
        return add_position(r,
                            FAIL(ST_BAD_DATA, "JSON key \"data\" is missing, expected an array"));
    return for_each(r, bytes, n, "data", walk_article, &r->article_i);
}

/* ---- one document ---- */

static enum status check_document(const struct squad *squad, const char *name)
{
    if (squad->examples_n == 0)
        return FAIL(ST_BAD_DATA, "%s holds no questions; SQuAD has data[].paragraphs[].qas[]",
                    name);
    if (squad->mismatched_n > 0)
        LOG_WARN("%s: %lld of %lld questions have no answer at its offset", name,
                 (long long)squad->mismatched_n, (long long)squad->examples_n);
    if (squad->mismatched_n > squad->examples_n / SQUAD_MISMATCH_SHARE)
        return FAIL(
            ST_BAD_DATA,
            "%s: the answers of %lld of %lld questions are not at their answer_start, more than "
            "one in %d; offsets count Unicode characters (not bytes or UTF-16 units) from 0",
            name, (long long)squad->mismatched_n, (long long)squad->examples_n,
            SQUAD_MISMATCH_SHARE);
    return ST_OK;
}

enum status squad_parse(const char *bytes, size_t n_bytes, const char *name, struct squad **out)
{
    struct squad_reader r = {.name = name, .squad = memory_new(1, sizeof *r.squad)};
    r.squad->answers = memory_new(1, sizeof *r.squad->answers);
    enum status st = read_document(&r, bytes, n_bytes);
    /* After the lists have moved: answers are in the order of their questions. */
    int64_t at = 0;
    for (int64_t i = 0; i < r.squad->examples_n; i++) {
        r.squad->example[i].answer = r.answer != NULL ? r.answer + at : NULL;
        at += r.squad->example[i].answers_n;
    }
    r.squad->answers[0] = r.answer;
    r.squad->files_n = 1;
    free(r.mark);
    if (st == ST_OK)
        st = check_document(r.squad, name);
    if (st == ST_OK)
        *out = r.squad;
    else
        squad_close(r.squad);
    return st;
}

/* ---- several files as one ---- */

/* Moves all of `more` to the end of `all`. */
static void append_squad(struct squad *all, struct squad *more)
{
    all->answers = memory_resize(all->answers, (size_t)(all->files_n + 1), sizeof *all->answers);
    all->example = memory_resize(all->example, (size_t)(all->examples_n + more->examples_n),
                                 sizeof *all->example);
    for (int64_t i = 0; i < more->examples_n; i++) {
        all->example[all->examples_n] = more->example[i];
        all->example[all->examples_n++].paragraph_i += all->paragraphs_n;
    }
    all->answers[all->files_n++] = more->answers[0];
    struct squad_chunk **last = &all->chunks;
    while (*last != NULL)
        last = &(*last)->next;
    *last = more->chunks;
    more->chunks = NULL;
    all->paragraphs_n += more->paragraphs_n;
    all->mismatched_n += more->mismatched_n;
    more->files_n = 0;
}

static enum status open_file(const struct data_file *file, struct squad_read *read,
                             struct squad **out)
{
    struct file_map map;
    if (file->kind != DATA_FILE_KIND_SQUAD)
        return FAIL(ST_BAD_SETTING,
                    "TASK=qa reads SQuAD files (.json), but %s is not one; check the path",
                    file->path);
    TRY(file_map_open(file->path, &map));
    const char *bytes = (const char *)map.data;
    *read = (struct squad_read){memory_text(file->path), (int64_t)map.bytes,
                                XXH3_64bits(bytes, map.bytes)};
    enum status st = ST_OK;
    if (map.bytes > SQUAD_BYTES_MAX)
        st = FAIL(ST_BAD_DATA, "%s has %zu bytes, at most %zu are expected; is it the right file?",
                  file->path, map.bytes, SQUAD_BYTES_MAX);
    if (st == ST_OK)
        st = squad_parse(bytes, map.bytes, file->path, out);
    file_map_close(&map);
    return st;
}

enum status squad_open(const struct data_file_config *config, struct squad **out)
{
    struct data_file_list files = {0};
    struct squad *all = NULL;
    struct squad_read *read = NULL;
    enum status st;
    TRY(data_file_find(config, &files));
    read = memory_new((size_t)files.n, sizeof *read);
    for (int64_t i = 0; i < files.n; i++) {
        struct squad *one = NULL;
        TRY_OR(open_file(files.item + i, read + i, &one), out_free);
        if (all == NULL) {
            all = one;
            continue;
        }
        append_squad(all, one);
        squad_close(one);
    }
    all->read = read;
    all->read_n = files.n;
    data_file_free(&files);
    *out = all;
    return ST_OK;
out_free:
    reads_free(read, files.n);
    data_file_free(&files);
    squad_close(all);
    return st;
}

void squad_span_begin(struct squad_span_best *best)
{
    memset(best, 0, sizeof *best);
    best->null_score = INFINITY;
}

void squad_span_window(struct squad_span_best *best, int64_t window, const float *logits,
                       int64_t first, int64_t last, int64_t null_i)
{
    for (int64_t start = first; start <= last; start++)
        for (int64_t end = start; end <= last && end < start + SQUAD_SPAN_TOKENS_MAX; end++) {
            struct squad_span span = {window, start, end,
                                      (double)logits[2 * start] + logits[2 * end + 1]};
            /* Inserted after all that are at least as good; the last one is dropped. */
            const bool is_full = best->n == SQUAD_SPAN_BEST;
            if (!isfinite(span.score) || (is_full && !(span.score > best->span[best->n - 1].score)))
                continue;
            int at = is_full ? best->n - 1 : best->n++;
            for (; at > 0 && span.score > best->span[at - 1].score; at--)
                best->span[at] = best->span[at - 1];
            best->span[at] = span;
        }
    if (null_i >= 0) {
        double score = (double)logits[2 * null_i] + logits[2 * null_i + 1];
        if (score < best->null_score)
            best->null_score = score;
    }
}

bool squad_span_is_null(const struct squad_span_best *best, double margin)
{
    return best->n == 0 ||
           (best->null_score < INFINITY && best->null_score - best->span[0].score > margin);
}

#ifdef FUZZ
#include "base/log.h"

/* Each matching answer is at its offset. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct squad *squad;
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    if (squad_parse((const char *)data, size, "fuzz", &squad) != ST_OK)
        return 0;
    for (int64_t i = 0; i < squad_examples(squad); i++) {
        const struct squad_example *e = squad_example(squad, i);
        ASSERT(e->is_impossible == (e->answers_n == 0) &&
               e->context_bytes == (int64_t)strlen(e->context));
        for (int64_t k = 0; k < e->answers_n; k++) {
            const struct squad_answer *a = e->answer + k;
            ASSERT(a->first_bytes < 0 ||
                   (a->end_bytes <= e->context_bytes &&
                    memcmp(e->context + a->first_bytes, a->text, strlen(a->text)) == 0));
        }
    }
    squad_close(squad);
    return 0;
}
#endif
