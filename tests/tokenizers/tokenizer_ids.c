/* tokenizer_ids — the ids of many texts, for tests/tokenizers/test_tokenizers.sh.
 *
 *   tokenizer_ids TOKENIZER <texts >ids
 *
 * stdin: for each text its bytes as uint32 and the text. stdout: for each its ids as uint32, and
 * their number before them. Each text is also encoded in chunks, at the places that tokenizer_cut
 * gives; other ids in chunks than in one are an error. With a third argument: MB of CPU time a
 * second for the text of stdin, repeated to 16 MB.
 *
 *   tokenizer_ids MODEL.gguf json TOKENIZER.json
 *
 * writes the tokenizer of a GGUF file as `convoy export` does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "data/tokenizer/file.h"
#include "node/choose/tokenizer_source.h"

static struct tokenizer *tokenizer;

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static size_t encode(const uint8_t *text, size_t n, bool is_begin, uint32_t *ids)
{
    size_t ids_n;
    if (tokenizer_encode(tokenizer, text, n, is_begin, ids, &ids_n) != ST_OK ||
        ids_n > tokenizer_cap(tokenizer, n)) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    return ids_n;
}

/* The text in windows of a few bytes, as src/data/tokenizer/encode.c cuts a file. */
static size_t encode_chunks(uint32_t number, const uint8_t *text, size_t n, uint32_t *ids)
{
    size_t at = 0, ids_n = 0;
    for (uint64_t i = 0; at < n; i++) {
        size_t seen = 1 + rand_u32(2, RAND_STREAM(TEST, number), i) % 60;
        size_t cut = seen < n - at ? tokenizer_cut(tokenizer, text + at, seen) : n - at;
        if (cut == 0 && i < 1000)
            continue;
        cut = cut > 0 ? cut : n - at;
        ids_n += encode(text + at, cut, at == 0, ids + ids_n);
        at += cut;
    }
    return ids_n;
}

static int run_speed(void)
{
    enum { BYTES = 16000000 };
    uint8_t *text = malloc(BYTES);
    uint32_t *ids = malloc((tokenizer_cap(tokenizer, BYTES) + 1) * sizeof *ids);
    const size_t n = fread(text, 1, BYTES, stdin);
    double best = 0;
    if (n == 0)
        return 1;
    for (size_t at = n; at < BYTES; at++)
        text[at] = text[at - n];
    size_t ids_n = 0;
    for (int i = 0; i < 5; i++) {
        const int64_t began_ns = cpu_ns();
        ids_n = encode(text, BYTES, true, ids);
        const double rate = BYTES * 1e3 / (double)(cpu_ns() - began_ns);
        best = rate > best ? rate : best;
    }
    printf("%.0f MB/s on one core (best of 5, %.2f bytes a token)\n", best,
           (double)BYTES / (double)ids_n);
    free(text);
    free(ids);
    return 0;
}

/* write_json — the tokenizer of a GGUF file as export writes it. */
static int write_json(const char *from, const char *to)
{
    struct text json = {.limit = 64 << 20}, config = {.data = NULL};
    FILE *file = fopen(to, "wb");
    if (!file || tokenizer_source_write_json(from, 512, &json, &config) != ST_OK ||
        fwrite(json.data, 1, json.len, file) != json.len || fclose(file) != 0) {
        fprintf(stderr, "%s: %s\n", to, status_message());
        return 1;
    }
    text_free(&json);
    text_free(&config);
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t text[1 << 20];
    static uint32_t ids[4 << 20], chunks[4 << 20];
    uint32_t n;
    const int64_t began_ns = cpu_ns();
    if (argc == 4)
        return write_json(argv[1], argv[3]);
    if (argc < 2 || tokenizer_file_open(argv[1], &tokenizer) != ST_OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    fprintf(stderr, "open %.0f ms\n", (double)(cpu_ns() - began_ns) / 1e6);
    if (argc > 2)
        return run_speed();
    for (uint32_t number = 0; fread(&n, 4, 1, stdin) == 1; number++) {
        if (n > sizeof text || fread(text, 1, n, stdin) != n)
            return 1;
        const uint32_t whole = (uint32_t)encode(text, n, true, ids);
        const size_t cut = encode_chunks(number, text, n, chunks);
        if (cut != whole || memcmp(ids, chunks, cut * sizeof *ids) != 0) {
            fprintf(stderr, "text %u has other ids in parts\n", number);
            return 1;
        }
        fwrite(&whole, 4, 1, stdout);
        fwrite(ids, 4, whole, stdout);
    }
    tokenizer_close(tokenizer);
    return 0;
}
