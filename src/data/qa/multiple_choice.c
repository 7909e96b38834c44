/* multiple_choice — see multiple_choice.h.
 *
 * All ids of a file are in one array, one question after the other: the context, then the endings.
 * A row holds the index of its lengths. */
#include "data/qa/multiple_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/tokenizer/gpt2.h"

#define HEADER_WORDS 256
#define EXAMPLE_BEGIN 65535
#define FILE_BYTES_MAX ((size_t)1 << 30)
#define LINE_BYTES_MAX ((size_t)1 << 20)

struct row {
    int64_t ids_at, lengths_at; /* lengths: of the context, then of each ending */
    int endings_n, label;
};

/* A growing array. */
struct array {
    void *data;
    int64_t n;
    size_t cap;
};

struct multiple_choice {
    const struct multiple_choice_config *config;
    struct array rows, ids, lengths; /* struct row, uint32_t, int64_t */
    int64_t longest;
};

static void *append_items(struct array *a, int64_t n, size_t each)
{
    a->data = memory_grow(a->data, (size_t)(a->n + n), &a->cap, each);
    a->n += n;
    return (char *)a->data + (size_t)(a->n - n) * each;
}

void multiple_choice_close(struct multiple_choice *m)
{
    if (!m)
        return;
    free(m->rows.data);
    free(m->ids.data);
    free(m->lengths.data);
    free(m);
}

int64_t multiple_choice_count(const struct multiple_choice *m) { return m->rows.n; }
int64_t multiple_choice_tokens(const struct multiple_choice *m) { return m->longest; }

void multiple_choice_get(const struct multiple_choice *m, int64_t i,
                         struct multiple_choice_question *out)
{
    ASSERTF(i >= 0 && i < m->rows.n, "question %lld of %lld", (long long)i, (long long)m->rows.n);
    const struct row *row = (const struct row *)m->rows.data + i;
    const int64_t *length = (const int64_t *)m->lengths.data + row->lengths_at;
    const uint32_t *ids = (const uint32_t *)m->ids.data + row->ids_at;
    *out = (struct multiple_choice_question){
        .context = ids, .context_n = *length, .endings_n = row->endings_n, .label = row->label};
    for (int k = 0; k < row->endings_n; k++) {
        ids += length[k];
        out->ending[k] = ids;
        out->ending_n[k] = length[k + 1];
    }
}

/* ---- building ---- */

/* The origin of a question, for messages. */
struct entry {
    const char *what; /* "question" or "line" */
    int64_t number;
};

static enum status fail_at(const struct multiple_choice *m, const struct entry *at, const char *why)
{
    return FAIL(ST_BAD_DATA, "%s: %s %lld %s; make the file again", m->config->path, at->what,
                (long long)at->number, why);
}

static enum status begin_row(struct multiple_choice *m, const struct entry *at, int64_t endings_n,
                             int64_t label)
{
    if (endings_n < 2 || endings_n > MULTIPLE_CHOICE_ENDINGS_MAX)
        return FAIL(ST_BAD_DATA, "%s: %s %lld has %lld ending%s, expected 2 to %d", m->config->path,
                    at->what, (long long)at->number, (long long)endings_n,
                    endings_n == 1 ? "" : "s", MULTIPLE_CHOICE_ENDINGS_MAX);
    if (label < 0 || label >= endings_n)
        return FAIL(ST_BAD_DATA, "%s: %s %lld has the label %lld, expected 0 to %lld",
                    m->config->path, at->what, (long long)at->number, (long long)label,
                    (long long)endings_n - 1);
    struct row *row = append_items(&m->rows, 1, sizeof *row);
    *row = (struct row){m->ids.n, m->lengths.n, (int)endings_n, (int)label};
    return ST_OK;
}

/* add_ids — turns the last n ids into the context or one ending of the last question. */
static enum status add_ids(struct multiple_choice *m, const struct entry *at, int64_t n)
{
    const uint32_t *ids = (const uint32_t *)m->ids.data + (m->ids.n - n);
    if (n == 0)
        return fail_at(m, at, "has an empty context or ending");
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= m->config->vocab)
            return FAIL(ST_BAD_DATA,
                        "%s: %s %lld has the token id %u, but the model has only ids below %lld; "
                        "use the model's tokenizer",
                        m->config->path, at->what, (long long)at->number, ids[i],
                        (long long)m->config->vocab);
    *(int64_t *)append_items(&m->lengths, 1, sizeof(int64_t)) = n;
    return ST_OK;
}

static void end_row(struct multiple_choice *m)
{
    const struct row *row = (const struct row *)m->rows.data + (m->rows.n - 1);
    const int64_t *length = (const int64_t *)m->lengths.data + row->lengths_at;
    for (int k = 0; k < row->endings_n; k++)
        if (length[0] + length[k + 1] > m->longest)
            m->longest = length[0] + length[k + 1];
}

/* ---- llm.c's file ---- */

/* The words of a file that are still to be read. */
struct words {
    const uint8_t *at;
    int64_t n;
};

static int32_t read_word(struct words *w)
{
    int32_t value = w->at[0] | w->at[1] << 8;
    w->at += 2;
    w->n--;
    return value;
}

static enum status read_ids(struct multiple_choice *m, const struct entry *at, struct words *w)
{
    int64_t n = w->n > 0 ? read_word(w) : 0;
    if (n > w->n)
        return fail_at(m, at, "is cut off");
    uint32_t *ids = append_items(&m->ids, n, sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint32_t)read_word(w);
    return add_ids(m, at, n);
}

static enum status read_question(struct multiple_choice *m, int64_t i, struct words *w)
{
    struct entry at = {"question", i};
    const struct words begin = *w;
    if (w->n < 6)
        return fail_at(m, &at, "is cut off");
    if (read_word(w) != EXAMPLE_BEGIN)
        return fail_at(m, &at, "does not begin with 65535");
    int32_t bytes = read_word(w), number = read_word(w), label = read_word(w),
            endings_n = read_word(w);
    if (number != (i & 65535))
        return fail_at(m, &at, "is stored with another number");
    TRY(begin_row(m, &at, endings_n, label));
    for (int k = 0; k <= endings_n; k++)
        TRY(read_ids(m, &at, w));
    if (bytes != ((begin.n - w->n) * 2 & 65535))
        return fail_at(m, &at, "does not have the length that is stored in it");
    end_row(m);
    return ST_OK;
}

static int32_t header_word(const uint8_t *bytes, int i)
{
    uint32_t value = 0;
    for (int k = 3; k >= 0; k--)
        value = value << 8 | bytes[4 * i + k];
    return (int32_t)value;
}

static enum status parse_words(struct multiple_choice *m, const uint8_t *bytes, size_t n)
{
    const char *path = m->config->path;
    if (n < HEADER_WORDS * 4 || n % 2 != 0)
        return FAIL(ST_BAD_DATA, "%s has %zu bytes: it is cut off; copy it again", path, n);
    int32_t version = header_word(bytes, 1), questions_n = header_word(bytes, 2);
    if (version != 1)
        return FAIL(ST_BAD_DATA, "%s has version %d of llm.c's evaluation file, expected 1", path,
                    version);
    /* The file has ids of GPT-2's tokenizer. */
    uint64_t identity[2];
    tokenizer_identity(m->config->tokenizer, identity);
    if (identity[0] != 0 || identity[1] != 0)
        return FAIL(ST_BAD_DATA,
                    "%s has token ids of GPT-2's tokenizer, but the model's is %s; use questions "
                    "in JSON lines, or set TOKENIZER=gpt2 if the model was trained with it",
                    m->config->path, tokenizer_name(m->config->tokenizer));
    struct words w = {bytes + HEADER_WORDS * 4, ((int64_t)n - HEADER_WORDS * 4) / 2};
    for (int64_t i = 0; i < questions_n; i++)
        TRY(read_question(m, i, &w));
    if (w.n > 0)
        return FAIL(ST_BAD_DATA, "%s has %lld bytes after its last question, number %d", path,
                    (long long)w.n * 2, questions_n - 1);
    return ST_OK;
}

/* ---- JSON lines ---- */

static const cJSON *find_member(const cJSON *line, const char *const *names)
{
    for (; *names; names++) {
        const cJSON *found = cJSON_GetObjectItemCaseSensitive(line, *names);
        if (found)
            return found;
    }
    return NULL;
}

static const char *const context_names[] = {"ctx", "context", "question", NULL};
static const char *const endings_names[] = {"endings", "choices", NULL};
static const char *const label_names[] = {"label", "answer", NULL};

/* label_of — returns the label; -1: it is none. A large number stays large, so that messages show
 * it. */
static int64_t label_of(const cJSON *item)
{
    if (cJSON_IsNumber(item) && fabs(item->valuedouble) < 1e9 &&
        item->valuedouble == floor(item->valuedouble))
        return (int64_t)item->valuedouble;
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (text[0] >= 'A' && text[0] <= 'Z' && text[1] == 0)
        return text[0] - 'A';
    int64_t value = text[0] ? 0 : -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > MULTIPLE_CHOICE_ENDINGS_MAX)
            return -1;
        value = 10 * value + (*text - '0');
    }
    return value;
}

/* check_label — refuses an item that is no label; begin_row refuses numbers out of range. */
static enum status check_label(const struct multiple_choice *m, const struct entry *at,
                               const cJSON *item)
{
    char *shown;
    if (label_of(item) != -1)
        return ST_OK;
    if (!item)
        return fail_at(m, at,
                       "lacks \"label\" (the number of the right ending from 0, or a letter)");
    shown = cJSON_PrintUnformatted(item);
    enum status st =
        FAIL(ST_BAD_DATA,
             "%s: %s %lld has the label %.60s, expected the number of the right ending "
             "from 0, or a letter from A",
             m->config->path, at->what, (long long)at->number, shown ? shown : "?");
    cJSON_free(shown);
    return st;
}

/* add_text — adds the context, or one ending. */
static enum status add_text(struct multiple_choice *m, const struct entry *at, const char *text,
                            size_t n, bool is_context)
{
    const struct tokenizer *tokenizer = m->config->tokenizer;
    size_t cap = tokenizer_prompt_cap(tokenizer, n), ids_n = 0;
    int64_t before = m->ids.n;
    uint32_t *ids = append_items(&m->ids, (int64_t)cap, sizeof *ids);
    if (n == 0)
        return fail_at(m, at, "has an empty context or ending");
    TRY(is_context ? tokenizer_prompt(tokenizer, text, n, ids, &ids_n)
                   : tokenizer_encode(tokenizer, text, n, false, ids, &ids_n));
    m->ids.n = before + (int64_t)ids_n;
    return add_ids(m, at, (int64_t)ids_n);
}

static enum status add_ending(struct multiple_choice *m, const struct entry *at, const cJSON *item)
{
    char text[LINE_BYTES_MAX / 64];
    const char *ending = cJSON_IsString(item) ? item->valuestring : "";
    size_t n = strlen(ending);
    if (n == 0)
        return fail_at(m, at, "has an ending that is empty or no text");
    if (n + 1 >= sizeof text)
        return fail_at(m, at, "has an ending of more than 16,383 bytes");
    text[0] = ' ';
    memcpy(text + 1, ending, n);
    return add_text(m, at, text, n + 1, false);
}

static enum status add_line(struct multiple_choice *m, const struct entry *at, const cJSON *line)
{
    const cJSON *context = find_member(line, context_names),
                *endings = find_member(line, endings_names),
                *label = find_member(line, label_names), *item;
    if (!cJSON_IsString(context) || !cJSON_IsArray(endings))
        return fail_at(m, at, "lacks \"ctx\" (a text) or \"endings\" (an array of texts)");
    TRY(check_label(m, at, label));
    TRY(begin_row(m, at, cJSON_GetArraySize(endings), label_of(label)));
    TRY(add_text(m, at, context->valuestring, strlen(context->valuestring), true));
    cJSON_ArrayForEach(item, endings) TRY(add_ending(m, at, item));
    end_row(m);
    return ST_OK;
}

static enum status parse_line(struct multiple_choice *m, const char *text, size_t n, int64_t number)
{
    struct entry at = {"line", number};
    char what[FILE_PATH_MAX + 32];
    cJSON *line;
    if (n > LINE_BYTES_MAX)
        return fail_at(m, &at, "has more than 1 MiB");
    text_format(what, sizeof what, "%s: line %lld", m->config->path, (long long)number);
    TRY(json_parse(text, n, what, &line));
    enum status st = add_line(m, &at, line);
    cJSON_Delete(line);
    return st;
}

static bool is_blank(const char *text, const char *end)
{
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\r'))
        text++;
    return text == end;
}

/* mark_bytes — returns the bytes of a byte order mark at the beginning, which editors on Windows
 * write. */
static size_t mark_bytes(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static enum status parse_lines(struct multiple_choice *m, const char *text, size_t n)
{
    int64_t number = 0;
    const char *end = text + n;
    for (text += mark_bytes(text, n); text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        number++;
        if (!is_blank(text, line_end))
            TRY(parse_line(m, text, (size_t)(line_end - text), number));
        text = line_end + 1;
    }
    return ST_OK;
}

/* ---- open ---- */

static bool is_words(const uint8_t *bytes, size_t n)
{
    return n >= 4 && header_word(bytes, 0) == MULTIPLE_CHOICE_MAGIC;
}

static enum status parse_file(struct multiple_choice *m, const uint8_t *bytes, size_t n)
{
    const struct multiple_choice_config *config = m->config;
    if (!is_words(bytes, n) && config->model)
        TRY(tokenizer_gpt2_check(config->path, config->model, config->vocab));
    TRY(is_words(bytes, n) ? parse_words(m, bytes, n) : parse_lines(m, (const char *)bytes, n));
    if (m->rows.n == 0)
        return FAIL(ST_BAD_DATA, "%s has no questions", m->config->path);
    return ST_OK;
}

enum status multiple_choice_parse(const uint8_t *bytes, size_t n,
                                  const struct multiple_choice_config *config,
                                  struct multiple_choice **out)
{
    struct multiple_choice *m = memory_new(1, sizeof *m);
    m->config = config;
    enum status st = parse_file(m, bytes, n);
    m->config = NULL; /* the caller's */
    if (st == ST_OK)
        *out = m;
    else
        multiple_choice_close(m);
    return st;
}

enum status multiple_choice_open(const struct multiple_choice_config *config,
                                 struct multiple_choice **out)
{
    char *bytes;
    size_t n;
    TRY(file_read(config->path, FILE_BYTES_MAX, &bytes, &n));
    enum status st = multiple_choice_parse((const uint8_t *)bytes, n, config, out);
    free(bytes);
    return st;
}

/* is_lines — returns true if the first line that is not blank is a question. */
static bool is_lines(const char *text, size_t n)
{
    const char *end = text + n, *newline;
    text += mark_bytes(text, n);
    newline = memchr(text, '\n', (size_t)(end - text));
    for (; newline && is_blank(text, newline); newline = memchr(text, '\n', (size_t)(end - text)))
        text = newline + 1;
    cJSON *line;
    size_t line_n = (size_t)((newline ? newline : end) - text);
    if (line_n == 0 || text[0] != '{' || line_n > LINE_BYTES_MAX)
        return false;
    if (json_parse(text, line_n, "line 1", &line) != ST_OK) {
        status_clear();
        return false;
    }
    bool is = cJSON_IsArray(find_member(line, endings_names)) ||
              (!cJSON_GetObjectItemCaseSensitive(line, "text") &&
               (find_member(line, endings_names) || find_member(line, context_names)));
    cJSON_Delete(line);
    return is;
}

bool multiple_choice_is(const char *path)
{
    struct file_map map = {0};
    if (file_bytes(path) <= 0)
        return false;
    if (file_map_open(path, &map) != ST_OK) {
        status_clear();
        return false;
    }
    bool is = is_words(map.data, map.bytes) || is_lines((const char *)map.data, map.bytes);
    file_map_close(&map);
    return is;
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct tokenizer *tokenizer;
    if (!tokenizer)
        ASSERT(tokenizer_gpt2_open(&tokenizer) == ST_OK);
    const struct multiple_choice_config config = {
        .path = "fuzz", .vocab = 60000, .tokenizer = tokenizer};
    struct multiple_choice_question q;
    struct multiple_choice *m;
    if (multiple_choice_parse(bytes, n, &config, &m) != ST_OK)
        return 0;
    for (int64_t i = 0; i < multiple_choice_count(m); i++) {
        multiple_choice_get(m, i, &q);
        for (int k = 0; k < q.endings_n; k++)
            ASSERT(q.context_n + q.ending_n[k] <= multiple_choice_tokens(m));
    }
    multiple_choice_close(m);
    return 0;
}
#endif
