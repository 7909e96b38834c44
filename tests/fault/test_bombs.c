/* Documents that are made to take memory and time: each reader has a budget of bytes, values and
 * depth, so what it refuses or takes costs at most 64 MiB beyond what it keeps, and seconds. Each
 * is read in a process of its own, whose peak is looked at. */
#include "harness.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "base/json.h"
#include "data/tokenizer/bpe.h"
#include "data/qa/squad.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/file.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/rules.h"
#include "patterns.h"
#include "format/hf_config.h"
#include "format/safetensors.h"

#define MIB ((size_t)1 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

/* A document on disk, mapped by the child only. */
static char path[FILE_PATH_MAX];
static FILE *file;

static void begin(const char *text)
{
    assert_int_equal(file_join(path, sizeof path, harness_tmpdir(), "bomb"), ST_OK);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
}

/* fill — the same unit again and again, to a size of the file. */
static void fill(size_t to, const char *unit)
{
    while ((size_t)ftell(file) + strlen(unit) < to)
        for (int i = 0; i < 64; i++)
            fputs(unit, file);
}

static void end(const char *text)
{
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* header — the length of what follows, in the first 8 bytes. */
static void set_header(void)
{
    uint64_t n = (uint64_t)file_bytes(path) - 8;
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &n, 8, 0), 8);
    close(fd);
}

typedef enum status reader(const char *bytes, size_t n);

struct cost {
    enum status st;
    double seconds;
    size_t grown_bytes, file_bytes;
    char message[256];
};

/* explode — read the document; refused (ST_BAD_DATA) or taken, within so many MiB (the file's own
 * pages count) and seconds. */
static void explode(const char *name, reader *read, enum status want, double mib, double seconds)
{
    int wait_status;
    struct cost *cost =
        mmap(NULL, sizeof *cost, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(cost != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        struct rusage before, after;
        struct file_map map;
        getrusage(RUSAGE_SELF, &before);
        assert_int_equal(file_map_open(path, &map), ST_OK);
        cost->st = read((const char *)map.data, map.bytes);
        getrusage(RUSAGE_SELF, &after);
        cost->file_bytes = map.bytes;
        cost->grown_bytes = (size_t)(after.ru_maxrss - before.ru_maxrss) * 1024;
        cost->seconds = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                        (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6;
        text_copy(cost->message, sizeof cost->message, cost->st == ST_OK ? "" : status_message());
        _exit(0);
    }
    waitpid(pid, &wait_status, 0);
    assert_true(WIFEXITED(wait_status));
    print_message("# %s: %zu MB, %s in %.2f s, %.0f MiB more%s%.90s\n", name,
                  cost->file_bytes / 1000000, status_name(cost->st), cost->seconds,
                  (double)cost->grown_bytes / (double)MIB, cost->message[0] ? ": " : "",
                  cost->message);
    if (cost->st != want)
        fail_msg("%s: %s, expected %s", name, status_name(cost->st), status_name(want));
    if (!IS_SANITIZED && (double)cost->grown_bytes > mib * (double)MIB)
        fail_msg("%s: %.0f MiB, at most %.0f", name, (double)cost->grown_bytes / (double)MIB, mib);
    if (!IS_SANITIZED && cost->seconds > seconds)
        fail_msg("%s: %.2f s, at most %.2f", name, cost->seconds, seconds);
    munmap(cost, sizeof *cost);
    unlink(path);
}

static enum status read_safetensors(const char *bytes, size_t n)
{
    struct safetensors tensors = {.entry = NULL};
    enum status st = safetensors_parse((const uint8_t *)bytes, n, "bomb.safetensors", &tensors);
    safetensors_free(&tensors);
    return st;
}

static enum status read_json(const char *bytes, size_t n)
{
    cJSON *root = NULL;
    enum status st = json_parse(bytes, n, "bomb.json", &root);
    cJSON_Delete(root);
    return st;
}

static enum status read_index(const char *bytes, size_t n)
{
    struct hf_index index = {.rows_n = 0};
    enum status st = hf_index_parse(bytes, n, "bomb.index.json", &index);
    hf_index_free(&index);
    return st;
}

static enum status read_squad(const char *bytes, size_t n)
{
    struct squad *squad = NULL;
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    enum status st = squad_parse(bytes, n, "bomb.json", &squad);
    squad_close(squad);
    return st;
}

TEST(test_safetensors)
{
    char unit[256];
    begin("01234567{\"a\":{\"dtype\":[");
    fill(94000000, "[[],{}],");
    end("0]}}");
    set_header();
    explode("a header of 94 MB", read_safetensors, ST_BAD_DATA, 64, 1);
    begin("01234567{\"a\":{\"dtype\":[");
    fill(16 * MIB - 4096, "[[],{}],");
    end("0]}}");
    set_header();
    explode("one tensor of 16 MB", read_safetensors, ST_BAD_DATA, 64, 2);
    begin("01234567{");
    fill(16 * MIB - 4096, "\"a\":{},");
    end("\"b\":{}}");
    set_header();
    explode("two million tensors", read_safetensors, ST_BAD_DATA, 64, 2);
    begin("01234567{\"__metadata__\":{");
    fill(16 * MIB - 4096, "\"a\":\"\",");
    end("\"b\":\"\"}}");
    set_header();
    explode("metadata of 16 MB", read_safetensors, ST_BAD_DATA, 64, 2);
    begin("01234567{");
    for (int i = 0; i < 65000; i++) { /* as large as one that is taken can be */
        text_format(unit, sizeof unit,
                    "%s\"%0190d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    i ? "," : "", i);
        fputs(unit, file);
    }
    end("}");
    set_header();
    explode("65,000 tensors", read_safetensors, ST_OK, 64, 4);
}

TEST(test_json)
{
    begin("[");
    fill(16 * MIB, "[],");
    end("0]");
    explode("five million arrays", read_json, ST_BAD_DATA, 64, 2);
    begin("{\"a\":");
    for (int i = 0; i < 1000000; i++)
        fputs("[", file);
    end("");
    explode("a million levels", read_json, ST_BAD_DATA, 64, 1);
    begin("[");
    for (int i = 0; i < 250000; i++)
        fputs("\"abcdefghijklmnop\",", file);
    end("0]");
    explode("as many values as are taken", read_json, ST_OK, 64, 2);
    begin("{\"weight_map\":{");
    fill(16 * MIB - 4096, "\"a\":\"b.safetensors\",");
    end("\"c\":\"b.safetensors\"}}");
    explode("an index of 16 MB", read_index, ST_BAD_DATA, 64, 2);
}

#define PARAGRAPH(questions) \
    "{\"context\":\"The quick brown fox jumps over the lazy dog. \",\"qas\":[" questions "]}"
#define QUESTION                                                                                \
    "{\"id\":\"57333\",\"question\":\"What does the quick brown fox that is told of here jump " \
    "over?\",\"answers\":"                                                                      \
    "[{\"text\":\"the lazy "                                                                    \
    "dog\",\"answer_start\":31}],\"plausible_answers\":[{\"text\":\"x\",\"answer_start\":1}]}"

TEST(test_squad)
{
    begin("{\"version\":\"v2.0\",\"data\":[{\"title\":\"x\",\"paragraphs\":[");
    fill(100000000, PARAGRAPH(QUESTION "," QUESTION "," QUESTION "," QUESTION) ",");
    end(PARAGRAPH(QUESTION) "]}]}");
    /* its own pages, and what is kept of it */
    explode("SQuAD of 100 MB", read_squad, ST_OK, 95.4 + 128, 20);
    begin("{\"data\":[{\"paragraphs\":[{\"context\":\"\",\"qas\":[");
    fill(100000000, "{\"a\":[[],[]]},");
    end("{}]}]}]}");
    explode("a paragraph of 100 MB", read_squad, ST_BAD_DATA, 95.4 + 64, 4);
    begin("{\"a\":[");
    fill(100000000, "[{}],");
    end("0],\"data\":[]}");
    explode("100 MB that are not read", read_squad, ST_BAD_DATA, 95.4 + 64, 4);
    begin("{\"data\":[{\"paragraphs\":[");
    fill(20000000, "{\"context\":\"\",\"qas\":[]},");
    end("{\"context\":\"\",\"qas\":[]}]}]}");
    explode("800,000 paragraphs of nothing", read_squad, ST_BAD_DATA, 19.1 + 64, 8);
}

/* ---- texts ---- */

/* The character that stands for a byte in a vocabulary, in JSON. */
static void add_byte(struct text *out, int byte)
{
    uint16_t of[256];
    bpe_chars_fill(of);
    text_add(out, "\\u%04x", of[byte]);
}

/* A byte-level vocabulary whose merges reach far into a run of any one byte and of any two. */
static void add_byte_level(struct text *out)
{
    static const int two[][2] = {
        {0xcc, 0x81}, {0xcc, 0xa3}, {0xe4, 0xb8}, {'\r', '\n'}, {'a', 'b'}};
    struct text merges = {0};
    text_add(out, "{\"type\":\"BPE\",\"vocab\":{\"");
    for (int b = 0, id = 0; b < 256; b++)
        for (int n = 1; n <= 8; n *= 2) {
            for (int i = 0; i < n; i++)
                add_byte(out, b);
            text_add(out, "\":%d,\"", id++);
            for (int i = 0; n > 1 && i < n; i++) {
                text_add(&merges, "%s", i == 0 ? "\"" : i == n / 2 ? " " : "");
                add_byte(&merges, b);
            }
            text_add(&merges, "%s", n > 1 ? "\"," : "");
        }
    for (int i = 0; i < 5; i++) {
        add_byte(out, two[i][0]);
        add_byte(out, two[i][1]);
        text_add(out, "\":%d%s", 1024 + i, i < 4 ? ",\"" : "},\"merges\":[");
        text_add(&merges, "\"");
        add_byte(&merges, two[i][0]);
        text_add(&merges, " ");
        add_byte(&merges, two[i][1]);
        text_add(&merges, "\"%s", i < 4 ? "," : "]}");
    }
    text_add(out, "%s", merges.data);
    text_free(&merges);
}

/* Characters and bytes, as SentencePiece's models have them. */
static void add_pieces(struct text *out, bool has_inner_space)
{
    text_add(out, "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{");
    for (int b = 0; b < 256; b++)
        text_add(out, "\"<0x%02X>\":%d,", b, b);
    text_add(
        out,
        "\"\\u2581\":256,\"\\u2581\\u2581\":257,\"a\":258,\"aa\":259,\"aaaa\":260%s},\"merges\":["
        "\"\\u2581 \\u2581\",\"a a\",\"aa aa\"]}",
        has_inner_space ? ",\"a\\u2581a\":261" : "");
}

#define LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"

static struct tokenizer *open_kind(enum pretoken_kind kind)
{
    struct text json = {0};
    struct tokenizer *made;
    const bool is_spm = kind >= PRETOKEN_KIND_WORDS;
    text_add(&json, "{\"normalizer\":");
    if (is_spm && kind != PRETOKEN_KIND_METASPACE)
        text_add(&json,
                 "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}");
    else
        text_add(&json, "%s", is_spm ? "null" : "{\"type\":\"NFC\"}");
    text_add(&json, ",\"pre_tokenizer\":");
    if (kind == PRETOKEN_KIND_GPT2)
        text_add(&json, LEVEL "true}");
    else if (kind == PRETOKEN_KIND_METASPACE)
        text_add(&json, "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"split\":true}");
    else if (is_spm)
        text_add(&json, "null");
    else {
        text_add(&json, "{\"type\":\"Sequence\",\"pretokenizers\":[");
        if (kind == PRETOKEN_KIND_SMOLLM)
            text_add(&json, "{\"type\":\"Digits\",\"individual_digits\":true}," LEVEL "true}]}");
        else {
            text_add(&json,
                     "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
            /* files hold none of the kind CL100K: o200k, which has no kind, in its place */
            const char *c =
                kind == PRETOKEN_KIND_CL100K ? PATTERN_O200K : tokenizer_rules_regex(kind);
            for (; *c != 0; c++)
                text_add(&json, *c == '\\' ? "\\\\" : "%c", *c);
            text_add(&json, "\"}}," LEVEL "false}]}");
        }
    }
    text_add(&json, ",\"model\":");
    if (is_spm)
        add_pieces(&json, kind == PRETOKEN_KIND_WHOLE);
    else
        add_byte_level(&json);
    text_add(&json, "}");
    if (tokenizer_json_open(json.data, json.len, "bomb.json", "", &made) != ST_OK)
        fail_msg("kind %d: %s", kind, status_message());
    text_free(&json);
    return made;
}

static double processor_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6;
}

/* Every normaliser and pre-tokeniser on runs that some rule could go over again and again. */
TEST(test_texts)
{
    static const char *const units[] = {"\n",
                                        " ",
                                        "\r\n ",
                                        "\t",
                                        "a",
                                        "ab",
                                        "1",
                                        "'",
                                        "'s",
                                        "!",
                                        "a,",
                                        "\xcc\x88\xcc\xa3\xcc\x81",
                                        "\xcd\x84",
                                        "\xe1\x84\x80",
                                        "\xe1\x85\xa1\xcc\xa3",
                                        "\xe4\xb8\xad",
                                        "\xe2\x96\x81",
                                        "\xff",
                                        "\xc2\xa0",
                                        "<|x"};
    enum { MOST = 1000000 };
    static uint8_t text[MOST];
    uint32_t *ids = malloc((3 * MOST + 1) * sizeof *ids);
    assert_non_null(ids);
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    for (int kind = PRETOKEN_KIND_GPT2; kind <= PRETOKEN_KIND_WHOLE; kind++) {
        struct tokenizer *tokenizer = open_kind((enum pretoken_kind)kind);
        const size_t n = kind < PRETOKEN_KIND_WORDS ? MOST / 10 : MOST;
        double worst = 0;
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            size_t ids_n, k = strlen(units[i]);
            for (size_t at = 0; at < n; at++)
                text[at] = (uint8_t)units[i][at % k];
            const double before = processor_s();
            assert_int_equal(tokenizer_encode(tokenizer, text, n, true, ids, &ids_n), ST_OK);
            (void)tokenizer_cut(tokenizer, text, n);
            const double seconds = processor_s() - before;
            worst = seconds > worst ? seconds : worst;
            if (!IS_SANITIZED && seconds > 1)
                fail_msg("kind %d: %zu bytes of piece %zu in %.1f s", kind, n, i, seconds);
        }
        print_message("# kind %d: %zu bytes of the slowest piece in %.2f s\n", kind, n, worst);
        tokenizer_close(tokenizer);
    }
    free(ids);
}

static enum status read_text(const char *bytes, size_t n)
{
    struct tokenizer *gpt2;
    size_t ids_n;
    uint32_t *ids = malloc(n * sizeof *ids);
    if (ids == NULL || tokenizer_gpt2_open(&gpt2) != ST_OK)
        return ST_RETRY;
    const enum status st = tokenizer_encode(gpt2, bytes, n, true, ids, &ids_n);
    tokenizer_close(gpt2);
    free(ids);
    return st;
}

TEST(test_memory)
{
    begin("\n");
    fill(8 * MIB, "\n\n\n\n\n\n\n\n");
    end("x");
    /* its own pages, the ids, and little more */
    explode("line ends of 8 MiB", read_text, ST_OK, 8 + 16 + 32, 20);
}

HARNESS_RUN_ALL()
