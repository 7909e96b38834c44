/* damage — what the tests of damaged data files share: files in a folder of the test, the ways in
 * which bytes are damaged, and the check: a reader refuses with ST_BAD_DATA and a sentence, or it
 * takes just the tokens of the whole file. Must not know the formats. */
#ifndef CONVOY_TESTS_FAULT_DAMAGE_H
#define CONVOY_TESTS_FAULT_DAMAGE_H
#include "harness.h"

#include "base/rand.h"
#include "data/tokenizer/gpt2.h"
#include "data/corpus.h"
#include "data/tokenizer/encode.h"

enum { IDS_MAX = 4096, BYTES_MAX = 1 << 16 };

/* What came of a file. */
struct content {
    int64_t n;
    int32_t id[IDS_MAX];
};

static char dir[FILE_PATH_MAX];
static struct encode *encode;
static struct content want, have;
static uint8_t copy[BYTES_MAX];
static int refused_n, same_n, all_refused_n;

static inline const char *in(const char *name)
{
    static char path[4][FILE_PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    text_format(path[next], FILE_PATH_MAX, "%s/%s", dir, name);
    return path[next];
}

static inline void put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline uint8_t *get(const char *name, size_t *n_out)
{
    char *bytes;
    assert_int_equal(file_read(in(name), BYTES_MAX, &bytes, n_out), ST_OK);
    return (uint8_t *)bytes;
}

static inline int setup(void **state)
{
    harness_quiet();
    text_copy(dir, sizeof dir, harness_tmpdir());
    return encode_open(&(struct encode_config){.bytes_total = BYTES_MAX}, &encode) == ST_OK ? 0
                                                                                            : -1;
}

static inline int teardown(void **state)
{
    encode_close(encode);
    print_message("# %d damaged data files refused\n", all_refused_n);
    return all_refused_n >= 2000 ? 0 : -1;
}

/* ---- refused, or taken as the whole file is ---- */

static inline enum status append(void *arg, const uint32_t *ids, int64_t n)
{
    struct content *to = arg;
    assert_true(n <= IDS_MAX - to->n);
    for (int64_t i = 0; i < n; i++)
        to->id[to->n++] = ids[i];
    return ST_OK;
}

/* Text of any kind, without a cache. */
static inline enum status read_text(const char *name, enum data_file_kind kind, bool is_packed,
                                    struct content *out)
{
    char path[FILE_PATH_MAX];
    struct shard_key key;
    struct encode_sink sink = {.append = append, .arg = out, .end = TOKENIZER_GPT2_END};
    text_copy(path, sizeof path, in(name));
    const struct data_file source = {
        .path = path, .kind = kind, .is_packed = is_packed, .bytes = file_bytes(path)};
    out->n = 0;
    return encode_files(encode, &source, 1, &sink, &key);
}

/* DATA as a run takes it. */
static inline enum status read_data(const char *name, struct content *out)
{
    const struct corpus_config config = {
        .data = in(name), .cache_dir = in("cache"), .vocab = TOKENIZER_GPT2_VOCAB};
    struct corpus *corpus;
    out->n = 0;
    enum status st = corpus_open(&config, &corpus);
    if (st != ST_OK)
        return st;
    out->n = corpus_tokens(corpus);
    assert_in_range(out->n, 1, IDS_MAX);
    corpus_read(corpus, 0, out->n, out->id);
    corpus_close(corpus);
    return ST_OK;
}

static inline bool is_same(void)
{
    return have.n == want.n && memcmp(have.id, want.id, (size_t)want.n * sizeof *want.id) == 0;
}

/* Refused with a sentence, or taken as the whole file is. Returns whether it was refused. */
static inline bool judge(enum status st, const char *what, int64_t detail)
{
    if (st != ST_OK && (st != ST_BAD_DATA || status_message()[0] == 0))
        fail_msg("%s %lld: %s %s", what, (long long)detail, status_name(st), status_message());
    if (st == ST_OK && !is_same())
        fail_msg("%s %lld: taken with other tokens", what, (long long)detail);
    refused_n += st != ST_OK;
    same_n += st == ST_OK;
    return st != ST_OK;
}

static inline void must_refuse(enum status st, const char *what, int64_t detail)
{
    if (!judge(st, what, detail))
        fail_msg("%s %lld: taken", what, (long long)detail);
}

static inline void tell(const char *what)
{
    print_message("# %s: %d damaged files refused, %d injuries changed nothing that is read\n",
                  what, refused_n, same_n);
    all_refused_n += refused_n;
    refused_n = same_n = 0;
}

/* ---- injuries ---- */

static inline uint64_t draw(uint64_t injury, uint64_t i, uint64_t n)
{
    return rand_below(20260103, RAND_STREAM(TEST, 3), injury * 16 + i, n);
}

/* One bit flips; two bytes change places; a byte becomes another; a run of bytes is copied over
 * another, or zeroed. */
static inline void injure(uint64_t injury, uint8_t *data, size_t n)
{
    const size_t a = draw(injury, 2, n), b = draw(injury, 3, n), most = n - (a > b ? a : b);
    const size_t wish = 1 + draw(injury, 6, 40), run = wish < most ? wish : most;
    const uint8_t kept = data[a];
    switch (draw(injury, 4, 5)) {
    case 0:
        data[a] ^= (uint8_t)(1 << draw(injury, 5, 8));
        return;
    case 1:
        data[a] = data[b];
        data[b] = kept;
        return;
    case 2:
        data[a] = (uint8_t)draw(injury, 5, 256);
        return;
    case 3:
        memmove(data + a, data + b, run);
        return;
    default:
        memset(data + a, 0, run);
    }
}

/* Marks the bytes of JSON that are inside a string: 1 in a key, 2 in a value; marks of the string
 * itself are 0. */
static inline void mark_strings(const char *json, size_t n, uint8_t *mark)
{
    memset(mark, 0, n);
    for (size_t i = 0; i < n; i++) {
        if (json[i] != '"')
            continue;
        size_t end = i + 1;
        while (json[end] != '"')
            end += json[end] == '\\' ? 2 : 1;
        const size_t next = end + 1 + strspn(json + end + 1, " ");
        memset(mark + i + 1, json[next] == ':' ? 1 : 2, end - i - 1);
        i = end;
    }
}
#endif
