/* pack — documents that lie together in samples: which, against a plain search; and what a
 * sample then holds. */
#include "harness.h"

#include "base/rand.h"
#include "data/pack.h"

/* ---- which lie together ---- */

/* plain_fit — looks through all samples for each chunk, from the longest on. */
static int32_t plain_fit(const int32_t *tokens, int32_t n, int32_t seq, int32_t *room_out)
{
    int32_t samples = 0;
    for (int32_t length = seq; length > 0; length--)
        for (int32_t i = 0; i < n; i++) {
            int32_t best = -1;
            if (tokens[i] != length)
                continue;
            for (int32_t s = 0; s < samples; s++)
                if (room_out[s] >= length && (best < 0 || room_out[s] < room_out[best]))
                    best = s;
            if (best < 0)
                room_out[best = samples++] = seq;
            room_out[best] -= length;
        }
    return samples;
}

static int by_value(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void fit_like_plain(int32_t n, int32_t seq, uint64_t seed)
{
    int32_t *tokens = malloc((size_t)n * sizeof *tokens),
            *sample = malloc((size_t)n * sizeof *sample), *room = malloc((size_t)n * sizeof *room),
            *got = malloc((size_t)n * sizeof *got);
    int32_t samples, newest = -1;
    assert_true(tokens && sample && room && got);
    for (int32_t i = 0; i < n; i++) /* many short ones */
        tokens[i] =
            1 + (int32_t)(rand_below(seed, RAND_STREAM(TEST, 0), (uint64_t)i, (uint64_t)seq) *
                          rand_below(seed, RAND_STREAM(TEST, 1), (uint64_t)i, (uint64_t)seq) /
                          (uint64_t)seq);
    assert_int_equal(pack_fit(tokens, n, seq, sample, &samples), ST_OK);
    assert_int_equal(samples, plain_fit(tokens, n, seq, room));
    for (int32_t s = 0; s < samples; s++)
        got[s] = seq;
    for (int32_t i = 0; i < n; i++) {
        assert_true(sample[i] >= 0 && sample[i] <= newest + 1);
        newest = sample[i] > newest ? sample[i] : newest; /* numbered by their first chunks */
        got[sample[i]] -= tokens[i];
        assert_true(got[sample[i]] >= 0);
    }
    assert_int_equal(newest, samples - 1);
    qsort(got, (size_t)samples, sizeof *got, by_value);
    qsort(room, (size_t)samples, sizeof *room, by_value);
    assert_memory_equal(got, room, (size_t)samples * sizeof *got);
    free(tokens);
    free(sample);
    free(room);
    free(got);
}

TEST(test_fit)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (int32_t seq = 1; seq < 1000000; seq = 3 * seq + (int32_t)seed)
            fit_like_plain(1 + (int32_t)rand_below(seed, RAND_STREAM(TEST, 2), (uint64_t)seq, 300),
                           seq, seed);
}

TEST(test_fit_by_hand)
{
    const int32_t tokens[] = {3, 8, 5, 2, 6, 1}, want[] = {0, 1, 0, 2, 2, 3};
    int32_t sample[6], samples;
    /* 8; 6 and 2; 5 and 3; 1 */
    assert_int_equal(pack_fit(tokens, 6, 8, sample, &samples), ST_OK);
    assert_memory_equal(sample, want, sizeof want);
    assert_int_equal(samples, 4);
}

/* ---- what a sample holds ---- */

enum { SEP = 90, T = 8 };
static const uint16_t ids[] = {1,  2,  3,  SEP, 4,  5,   6,   7,  8,  9,
                               10, 11, 12, SEP, 13, SEP, SEP, 14, 15, SEP};

static struct corpus *corpus_new(const uint16_t *from, size_t n)
{
    char path[512];
    const int32_t header[256] = {20240520, 1, (int32_t)n};
    struct corpus *corpus;
    text_format(path, sizeof path, "%s/ids.bin", harness_tmpdir());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, sizeof header, 1, f) + fwrite(from, sizeof *from, n, f), n + 1);
    assert_int_equal(fclose(f), 0);
    const struct corpus_config config = {.data = path, .cache_dir = harness_tmpdir(), .vocab = 100};
    assert_int_equal(corpus_open(&config, &corpus), ST_OK);
    unlink(path);
    return corpus;
}

static struct pack *pack_new(const struct corpus *corpus, int64_t seq)
{
    struct pack *pack;
    const struct pack_config config = {.seq_tokens = seq, .separator = {SEP, -1}};
    assert_int_equal(pack_open(corpus, &config, &pack), ST_OK);
    return pack;
}

static void sample_is(const struct pack *pack, int64_t sample, const int32_t want[3][T])
{
    int32_t tokens[T], targets[T], first_key[T];
    pack_read(pack, sample, tokens, targets, first_key);
    assert_memory_equal(tokens, want[0], sizeof tokens);
    assert_memory_equal(targets, want[1], sizeof targets);
    assert_memory_equal(first_key, want[2], sizeof first_key);
    pack_read(pack, sample, tokens, targets, NULL);
    assert_memory_equal(targets, want[1], sizeof targets);
}

/* Documents of 3, 10 (cut into 8 and 2), 2, 1, 3 tokens; the separator at the end begins none. */
TEST(test_samples)
{
    static const int32_t want[3][3][T] = {
        {{1, 2, 3, 11, 12, SEP, 14, 15},
         {2, 3, SEP, 12, SEP, 14, 15, SEP},
         {0, 0, 0, 3, 3, 5, 5, 5}},
        {{SEP, 4, 5, 6, 7, 8, 9, 10}, {4, 5, 6, 7, 8, 9, 10, 11}, {0}},
        {{SEP, 13, SEP, SEP, SEP, SEP, SEP, SEP},
         {13, SEP, SEP, -1, -1, -1, -1, -1},
         {0, 0, 2, 3, 3, 3, 3, 3}}};
    struct corpus *corpus = corpus_new(ids, sizeof ids / sizeof *ids);
    struct pack *pack = pack_new(corpus, T);
    struct pack_facts facts;
    pack_facts(pack, &facts);
    assert_int_equal(pack_samples(pack), 3);
    assert_int_equal(facts.documents, 5);
    assert_int_equal(facts.cut, 1);
    assert_int_equal(facts.positions, 19);
    for (int s = 0; s < 3; s++)
        sample_is(pack, s, want[s]);
    pack_close(pack);
    corpus_close(corpus);
}

/* Every token but a separator at the end is once a token, and once a target of the one before. */
TEST(test_every_token_once)
{
    enum { N = 5000 };
    static uint16_t from[N];
    for (int i = 0; i < N; i++)
        from[i] = rand_below(3, RAND_STREAM(TEST, 3), (uint64_t)i, 12) == 0
                      ? SEP
                      : (uint16_t)rand_below(3, RAND_STREAM(TEST, 4), (uint64_t)i, 90);
    from[N - 1] = 7;
    struct corpus *corpus = corpus_new(from, N);
    for (int64_t seq = 1; seq <= 64; seq = 2 * seq + 1) {
        struct pack *pack = pack_new(corpus, seq);
        int32_t tokens[64], targets[64];
        int64_t counted = 0, sum = 0, want = 0;
        for (int i = 1; i < N; i++)
            want += from[i];
        for (int64_t s = 0; s < pack_samples(pack); s++) {
            pack_read(pack, s, tokens, targets, NULL);
            for (int64_t t = 0; t < seq; t++)
                if (targets[t] >= 0)
                    counted++, sum += targets[t];
        }
        assert_int_equal(counted, N - 1);
        assert_int_equal(sum, want);
        pack_close(pack);
    }
    corpus_close(corpus);
}

static bool stop(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return done > total; /* never */
}

TEST(test_stopped)
{
    struct corpus *corpus = corpus_new(ids, sizeof ids / sizeof *ids);
    struct pack *pack = NULL;
    const struct pack_config config = {.seq_tokens = T, .separator = {-1, SEP}, .progress = stop};
    assert_int_equal(pack_open(corpus, &config, &pack), ST_RETRY);
    assert_null(pack);
    pack_close(NULL);
    corpus_close(corpus);
}

HARNESS_RUN_ALL()
