/* bench_bpe — megabytes of English a second on one core, for each kind of tokenizer. Text: the file
 * of the argument, else ../shared/data/tinyshakespeare.txt, else a licence that every Debian has;
 * repeated to 16 MB. Prints the median of five runs, and the time to open. Fails below the gate.
 *
 * All kinds have GPT-2's vocabulary, so that nothing is downloaded: in the built-in table, as
 * tokenizer.json with the patterns of Llama 3, Qwen, o200k and DeepSeek-V3, as a tiktoken file, and
 * its tokens of whole characters as SentencePiece's pieces. The last two patterns run through
 * PCRE2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <utf8proc.h>

#include "base/file.h"
#include "base/quantile.h"
#include "base/text.h"
#include "data/tokenizer/file.h"
#include "data/tokenizer/gpt2.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/rules.h"
#include "patterns.h"

enum { GATE_MB = 50, GATE_PATTERN_MB = 15 };
enum { BYTES = 16000000, RUNS = 5 };

static struct tokenizer *gpt2;
enum pattern_kind { LLAMA3, QWEN, O200K, DEEPSEEK, PATTERN_KINDS };
static struct text json[PATTERN_KINDS], tiktoken;
static struct tokenizer_piece piece[TOKENIZER_GPT2_VOCAB + 257];
static size_t pieces_n;

/* of this thread: others share the machine */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the same vocabulary in other forms ---- */

/* add_split — a step of the pre_tokenizer. */
static void add_split(struct text *out, const char *regex)
{
    text_add(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    for (const char *p = regex; *p; p++)
        text_add(out, "%s%c", *p == '\\' || *p == '"' ? "\\" : "", *p);
    text_add(out, "\"}, \"behavior\": \"Isolated\", \"invert\": false}, ");
}

/* make_json — GPT-2's tokenizer.json with the patterns of another kind. */
static void make_json(enum pattern_kind kind, const char *const regex[3])
{
    static const char was[] = "\"pre_tokenizer\": {\"type\": \"ByteLevel\", ";
    struct text plain = {.limit = TOKENIZER_GPT2_WRITE_BYTES_MAX};
    json[kind].limit = TOKENIZER_GPT2_WRITE_BYTES_MAX;
    tokenizer_gpt2_write_tokenizer_json(gpt2, &plain);
    const char *at = strstr(plain.data, was), *behind = strchr(at, '}') + 1;
    text_add_bytes(&json[kind], plain.data, (size_t)(at - plain.data));
    text_add(&json[kind], "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (int i = 0; i < 3 && regex[i] != NULL; i++)
        add_split(&json[kind], regex[i]);
    text_add(&json[kind],
             "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}");
    text_add_bytes(&json[kind], behind, strlen(behind));
    text_free(&plain);
}

static void add_base64(struct text *t, const uint8_t *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t b = i + 1 < n ? bytes[i + 1] : 0, c = i + 2 < n ? bytes[i + 2] : 0,
                       v = (uint32_t)bytes[i] << 16 | b << 8 | c;
        text_add(t, "%c%c%c%c", digit[v >> 18], digit[v >> 12 & 63],
                 i + 1 < n ? digit[v >> 6 & 63] : '=', i + 2 < n ? digit[v & 63] : '=');
    }
}

static void make_tiktoken(void)
{
    tiktoken.limit = TOKENIZER_GPT2_WRITE_BYTES_MAX;
    for (uint32_t id = 0; id < TOKENIZER_GPT2_END; id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        add_base64(&tiktoken, bytes, n);
        text_add(&tiktoken, " %u\n", id);
    }
}

static bool is_whole(const uint8_t *text, size_t n)
{
    int32_t c;
    for (size_t i = 0; i < n;) {
        const utf8proc_ssize_t more = utf8proc_iterate(text + i, (utf8proc_ssize_t)(n - i), &c);
        if (more <= 0)
            return false;
        i += (size_t)more;
    }
    return true;
}

/* marked — a copy with U+2581 for each space. */
static const char *marked(const uint8_t *text, size_t n, size_t *n_out)
{
    char *out = malloc(3 * n + 1);
    *n_out = 0;
    for (size_t i = 0; out && i < n; i++) {
        memcpy(out + *n_out, text[i] == ' ' ? "\xe2\x96\x81" : (const char *)text + i,
               text[i] == ' ' ? 3 : 1);
        *n_out += text[i] == ' ' ? 3 : 1;
    }
    return out;
}

static void make_pieces(void)
{
    static char byte[256][8];
    piece[pieces_n++] = (struct tokenizer_piece){"<unk>", 5, 0, TOKENIZER_PIECE_UNKNOWN};
    for (unsigned b = 0; b < 256; b++) {
        text_format(byte[b], sizeof byte[b], "<0x%02X>", b);
        piece[pieces_n++] = (struct tokenizer_piece){byte[b], 6, 0, TOKENIZER_PIECE_BYTE};
    }
    for (uint32_t id = 0; id < TOKENIZER_GPT2_END; id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        if (!is_whole(bytes, n))
            continue;
        struct tokenizer_piece *p = &piece[pieces_n++];
        *p = (struct tokenizer_piece){.score = -(float)id, .type = TOKENIZER_PIECE_NORMAL};
        p->text = marked(bytes, n, &p->n);
    }
}

/* ---- kinds ---- */

static enum status open_llama3(struct tokenizer **out)
{
    const struct text *t = &json[LLAMA3];
    return tokenizer_json_open(t->data, t->len, "llama3", "", out);
}

static enum status open_qwen(struct tokenizer **out)
{
    const struct text *t = &json[QWEN];
    return tokenizer_json_open(t->data, t->len, "qwen", "", out);
}

static enum status open_o200k(struct tokenizer **out)
{
    const struct text *t = &json[O200K];
    return tokenizer_json_open(t->data, t->len, "o200k", "", out);
}

static enum status open_deepseek(struct tokenizer **out)
{
    const struct text *t = &json[DEEPSEEK];
    return tokenizer_json_open(t->data, t->len, "deepseek-v3", "", out);
}

static enum status open_tiktoken(struct tokenizer **out)
{
    return tokenizer_tiktoken_open(tiktoken.data, tiktoken.len, "tiktoken", out);
}

static enum status open_pieces(struct tokenizer **out)
{
    const struct tokenizer_pieces pieces = {.name = "pieces",
                                            .piece = piece,
                                            .n = pieces_n,
                                            .adds_space = true,
                                            .begin = -1,
                                            .end = -1};
    return tokenizer_pieces_open(&pieces, out);
}

static const struct {
    const char *name;
    enum status (*open)(struct tokenizer **out);
    int gate_mb;
} kinds[] = {{"gpt2", tokenizer_gpt2_open, GATE_MB},
             {"llama3", open_llama3, GATE_MB},
             {"qwen", open_qwen, GATE_MB},
             {"tiktoken", open_tiktoken, GATE_MB},
             {"sentencepiece", open_pieces, GATE_MB},
             {"o200k", open_o200k, GATE_PATTERN_MB},
             {"deepseek-v3", open_deepseek, GATE_PATTERN_MB}};

/* ---- measuring ---- */

static double open_ms(enum status (*open)(struct tokenizer **out), struct tokenizer **out)
{
    const int64_t began_ns = cpu_ns();
    if (open(out) != ST_OK) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    return (double)(cpu_ns() - began_ns) / 1e6;
}

/* run_kind — prints its row; true: it is fast enough. */
static bool run_kind(int kind, const uint8_t *text, uint32_t *ids)
{
    struct tokenizer *tokenizer;
    double rate[RUNS];
    size_t tokens = 0;
    const double ms = open_ms(kinds[kind].open, &tokenizer);
    for (int i = 0; i < RUNS; i++) {
        const int64_t began_ns = cpu_ns();
        if (tokenizer_encode(tokenizer, text, BYTES, true, ids, &tokens) != ST_OK)
            exit(1);
        rate[i] = BYTES * 1e3 / (double)(cpu_ns() - began_ns);
    }
    const double median = quantile_median(rate, RUNS);
    const bool is_good = median >= kinds[kind].gate_mb;
    printf("bpe  %-13s  open %5.1f ms  encode %4.0f MB/s on one core (median of %d, %.2f bytes a "
           "token)%s\n",
           kinds[kind].name, ms, median, RUNS, (double)BYTES / (double)tokens,
           is_good ? "" : "  FAILED");
    tokenizer_close(tokenizer);
    return is_good;
}

/* read_text — BYTES of the file, repeated. */
static uint8_t *read_text(const char *path)
{
    char *sample;
    size_t n;
    uint8_t *text = malloc(BYTES);
    if (!text || file_read(path, BYTES, &sample, &n) != ST_OK || n == 0) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    for (size_t at = 0; at < BYTES; at += n)
        memcpy(text + at, sample, n < BYTES - at ? n : BYTES - at);
    free(sample);
    return text;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "../shared/data/tinyshakespeare.txt";
    if (argc < 2 && !file_exists(path))
        path = "/usr/share/common-licenses/GPL-3";
    uint8_t *text = read_text(path);
    uint32_t *ids = malloc((BYTES + 1) * sizeof *ids);
    bool is_good = ids != NULL && tokenizer_gpt2_open(&gpt2) == ST_OK;
    if (!is_good)
        return 1;
    make_json(LLAMA3, (const char *const[3]){tokenizer_rules_regex(PRETOKEN_KIND_LLAMA3)});
    make_json(QWEN, (const char *const[3]){tokenizer_rules_regex(PRETOKEN_KIND_QWEN)});
    make_json(O200K, (const char *const[3]){PATTERN_O200K});
    make_json(DEEPSEEK, (const char *const[3]){PATTERN_DIGITS, PATTERN_CJK, PATTERN_DEEPSEEK});
    make_tiktoken();
    make_pieces();
    printf("bpe  text %s\n", path);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        is_good = run_kind(i, text, ids) && is_good;
    if (!is_good)
        printf("bpe  FAILED: the gates are %d and, for other patterns, %d MB/s\n", GATE_MB,
               GATE_PATTERN_MB);
    free(ids);
    free(text);
    return is_good ? 0 : 1;
}
