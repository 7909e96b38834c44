/* feed — a batch is a function of numbers: the same for any rank and division, and every
 * window once an epoch. */
#include "harness.h"

#include <xxhash.h>

#include "data/feed.h"

enum { T = 16, G = 6, VOCAB = 97 };

static struct feed_config synthetic(enum feed_task task)
{
    return (struct feed_config){.task = task,
                                .data = FEED_SYNTHETIC,
                                .cache_dir = "",
                                .seq_tokens = T,
                                .global_samples = G,
                                .vocab = VOCAB,
                                .seed = 7,
                                .is_shuffled = true};
}

struct buffers {
    int32_t tokens[64 * T], targets[64 * T], first_key[64 * T], starts[64], ends[64];
    uint8_t mask[64 * T];
};
static struct feed_batch batch_of(struct buffers *b)
{
    memset(b, 0xee, sizeof *b);
    return (struct feed_batch){.tokens = b->tokens,
                               .targets = b->targets,
                               .first_key = b->first_key,
                               .mask = b->mask,
                               .starts = b->starts,
                               .ends = b->ends};
}

TEST(test_synthetic_lm)
{
    static struct buffers a, b;
    struct feed *feed;
    const struct feed_config config = synthetic(FEED_TASK_LM);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_samples(feed), G);
    assert_int_equal(feed_tokens(feed), G * T);
    assert_string_equal(feed_name(feed), "synthetic");
    struct feed_batch out = batch_of(&a);
    out.mask = NULL, out.starts = out.ends = NULL;
    feed_get(feed, 0, G, &out);
    int seen = 0;
    for (int i = 0; i < G * T; i++) {
        assert_in_range(a.tokens[i], 0, VOCAB - 1);
        assert_in_range(a.targets[i], 0, VOCAB - 1);
        if (i % T != T - 1)
            assert_int_equal(a.targets[i], a.tokens[i + 1]);
        seen += a.tokens[i] != a.tokens[0];
    }
    assert_true(seen > G * T / 2);
    out = batch_of(&b);
    feed_get(feed, 3 * G, G, &out); /* the same batch every step */
    assert_memory_equal(a.tokens, b.tokens, sizeof(int32_t) * G * T);
    assert_memory_equal(a.targets, b.targets, sizeof(int32_t) * G * T);
    out = batch_of(&b);
    feed_get(feed, 2, 3, &out); /* some of it */
    assert_memory_equal(a.tokens + 2 * T, b.tokens, sizeof(int32_t) * 3 * T);
    assert_int_equal(feed_epoch(feed, G - 1), 0);
    assert_int_equal(feed_epoch(feed, 5 * G), 5);
    feed_close(feed);
    feed_close(NULL);
}

TEST(test_synthetic_qa)
{
    static struct buffers a;
    struct feed *feed;
    struct feed_config config = synthetic(FEED_TASK_QA);
    config.global_samples = 64;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    struct feed_batch out = batch_of(&a);
    out.targets = NULL;
    feed_get(feed, 0, 64, &out);
    int ones = 0, differ = 0;
    for (int i = 0; i < 64 * T; i++) {
        assert_in_range(a.tokens[i], 0, VOCAB - 1);
        assert_in_range(a.mask[i], 0, 1);
        ones += a.mask[i];
    }
    for (int i = 0; i < 64; i++) {
        assert_in_range(a.starts[i], 0, T - 1);
        assert_in_range(a.ends[i], 0, T - 1);
        differ += a.starts[i] != a.ends[i];
    }
    assert_in_range(ones, 64 * T * 2 / 5, 64 * T * 3 / 5);
    assert_true(differ > 32);
    feed_close(feed);
}

TEST(test_fingerprint_tells_settings_apart)
{
    struct feed *a, *b;
    struct feed_config config = synthetic(FEED_TASK_LM);
    assert_int_equal(feed_open(&config, &a), ST_OK);
    assert_int_equal(feed_open(&config, &b), ST_OK);
    assert_true(feed_fingerprint(a) == feed_fingerprint(b));
    feed_close(b);
    config.seed++;
    assert_int_equal(feed_open(&config, &b), ST_OK);
    assert_true(feed_fingerprint(a) != feed_fingerprint(b));
    feed_close(a);
    feed_close(b);
}

/* A token file whose id at position i is i: a window shows where it came from. */
static const char *counting_file(int32_t tokens)
{
    static char path[FILE_PATH_MAX];
    static uint8_t bytes[1024 + 2 * 4096];
    const int32_t header[3] = {20240520, 1, tokens};
    text_format(path, sizeof path, "%s/count%d.bin", harness_tmpdir(), tokens);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < tokens; i++) {
        bytes[1024 + 2 * i] = (uint8_t)i;
        bytes[1025 + 2 * i] = (uint8_t)(i >> 8);
    }
    assert_int_equal(file_replace(path, bytes, 1024 + 2 * (size_t)tokens), ST_OK);
    return path;
}

/* The same with an end of text at each seventh position. */
static const char *marked_file(void)
{
    static char path[FILE_PATH_MAX];
    enum { TOKENS = 20 * T + 1 };
    static uint8_t bytes[1024 + 2 * TOKENS];
    const int32_t header[3] = {20240520, 1, TOKENS};
    text_format(path, sizeof path, "%s/marked.bin", harness_tmpdir());
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < TOKENS; i++) {
        const int id = i % 7 == 0 ? 50256 : i;
        bytes[1024 + 2 * i] = (uint8_t)id;
        bytes[1025 + 2 * i] = (uint8_t)(id >> 8);
    }
    assert_int_equal(file_replace(path, bytes, sizeof bytes), ST_OK);
    return path;
}

static struct feed_config counting(int32_t tokens)
{
    struct feed_config config = synthetic(FEED_TASK_LM);
    config.data = counting_file(tokens);
    config.cache_dir = harness_tmpdir();
    config.vocab = 50257;
    return config;
}

TEST(test_windows_in_order)
{
    static struct buffers a;
    struct feed *feed;
    struct feed_config config = counting(50 * T + 1);
    config.is_shuffled = false;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_samples(feed), 50);
    struct feed_batch out = batch_of(&a);
    feed_get(feed, 40, 20, &out); /* over the end of the epoch */
    for (int row = 0; row < 20; row++)
        for (int t = 0; t < T; t++) {
            assert_int_equal(a.tokens[row * T + t], (40 + row) % 50 * T + t);
            assert_int_equal(a.targets[row * T + t], (40 + row) % 50 * T + t + 1);
        }
    feed_close(feed);
}

TEST(test_each_epoch_is_a_permutation)
{
    static struct buffers a, b;
    struct feed *feed;
    const struct feed_config config = counting(53 * T);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_samples(feed), 52); /* the last token is only a target */
    int moved = 0, first_order[52];
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[52] = {false};
        struct feed_batch out = batch_of(&a);
        feed_get(feed, epoch * 52, 52, &out);
        for (int row = 0; row < 52; row++) {
            const int window = a.tokens[row * T] / T;
            assert_int_equal(a.tokens[row * T] % T, 0);
            assert_false(seen[window]);
            seen[window] = true;
            if (epoch == 0)
                first_order[row] = window;
            moved += window != (epoch == 0 ? row : first_order[row]);
        }
    }
    assert_true(moved > 120);
    struct feed_batch whole = batch_of(&a), rows = batch_of(&b);
    feed_get(feed, 45, 12, &whole);
    for (int row = 0; row < 12; row++) {
        feed_get(feed, 45 + row, 1, &rows);
        assert_memory_equal(a.tokens + row * T, b.tokens, sizeof(int32_t) * T);
    }
    feed_close(feed);
}

/* The end of text begins a document; the first of a sample may have begun before it. */
static uint64_t order_of(const struct feed_config *config)
{
    struct feed *feed;
    assert_int_equal(feed_open(config, &feed), ST_OK);
    const uint64_t order = feed_order(feed);
    feed_close(feed);
    return order;
}

/* Which sample a number is follows the data, their cut and the shuffle, and not the batch. */
TEST(test_order)
{
    struct feed *feed;
    struct feed_config config = counting(53 * T);
    const uint64_t order = order_of(&config);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_pass_samples(feed), 52);
    feed_close(feed);
    config.global_samples = 2 * G;
    assert_true(order_of(&config) == order);
    config.seed++;
    assert_true(order_of(&config) != order);
    config.is_shuffled = false;
    const uint64_t plain = order_of(&config);
    assert_true(plain != order);
    config.seed++; /* shuffles nothing */
    assert_true(order_of(&config) == plain);
    config.seq_tokens = T / 2;
    assert_true(order_of(&config) != plain);
    config = counting(54 * T);
    assert_true(order_of(&config) != order);
    config = synthetic(FEED_TASK_LM);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_pass_samples(feed), 0);
    feed_close(feed);
}

TEST(test_documents)
{
    static struct buffers a, b;
    struct feed *feed;
    struct feed_config config = counting(20 * T + 1);
    config.is_shuffled = false;
    config.knows_documents = true;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    struct feed_batch out = batch_of(&a);
    feed_get(feed, 0, 20, &out);
    for (int i = 0; i < 20 * T; i++)
        assert_int_equal(a.first_key[i], 0); /* no end of text: one document */
    feed_close(feed);
    config.data = marked_file();
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    feed_get(feed, 0, 20, &out);
    for (int i = 0, first = 0; i < 20 * T; i++) {
        first = a.tokens[i] == 50256 ? i % T : i % T == 0 ? 0 : first;
        assert_int_equal(a.first_key[i], first);
    }
    assert_int_equal(a.first_key[T - 1], 14);
    out = batch_of(&b);
    feed_get(feed, 7, 5, &out); /* of any rank */
    assert_memory_equal(a.first_key + 7 * T, b.first_key, sizeof(int32_t) * 5 * T);
    feed_close(feed);
    config.knows_documents = false;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    feed_get(feed, 0, 20, &out);
    for (int i = 0; i < 20 * T; i++)
        assert_int_equal(b.first_key[i], 0);
    feed_close(feed);
    config.knows_documents = true, config.vocab = 50256;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "documents cannot be separated"));
    config.vocab = 50257, config.model = "pythia";
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "pythia"));
}

TEST(test_refusals)
{
    struct feed *feed = NULL;
    struct feed_config config = synthetic(FEED_TASK_LM);
    config.seq_tokens = 0;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    config.seq_tokens = INT64_MAX;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    config = synthetic(FEED_TASK_LM);
    config.global_samples = INT64_MAX;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    config = synthetic(FEED_TASK_LM);
    config.vocab = 0;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    config = counting(T);
    assert_int_equal(feed_open(&config, &feed), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "16 tokens"));
    assert_non_null(strstr(status_message(), "SEQ_LEN"));
    config = counting(T + 1);
    config.task = FEED_TASK_QA;
    config.stride_tokens = 8;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "SQuAD"));
    config.data = "tests/fuzz/qa_squad/v2:1,tests/fuzz/qa_squad/v2";
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "no weight"));
    config = counting(T + 1);
    config.task = FEED_TASK_LM;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_samples(feed), 1);
    feed_close(feed);
}

/* Two token files in one mixture: shares are kept, each item runs through all of its windows before
 * one comes again. */
TEST(test_mixture)
{
    enum { N = 2000, A = 40, B = 200 };
    static struct buffers a;
    static int seen[2][B];
    char data[2 * FILE_PATH_MAX];
    struct feed *feed, *same;
    struct feed_config config = counting(A * T + 1);
    size_t n = (size_t)snprintf(data, sizeof data, "%s:3,", config.data);
    /* ids beyond A·T tell it apart: its windows hold larger ones, or the second id */
    config = counting(B * T + 2);
    snprintf(data + n, sizeof data - n, "%s:1", config.data);
    config.data = data;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_int_equal(feed_open(&config, &same), ST_OK);
    assert_int_equal(feed_samples(feed), A + B);
    assert_non_null(strstr(feed_name(feed), "mixture of 2"));
    assert_true(feed_fingerprint(feed) == feed_fingerprint(same));
    int large = 0;
    for (int64_t j = 0; j < N; j++) {
        struct feed_batch out = batch_of(&a);
        feed_get(j % 2 ? feed : same, j, 1, &out);
        const int window = a.tokens[0] / T;
        assert_int_equal(a.tokens[0] % T, 0);
        large += window >= A;
        seen[window >= A][window]++;
    }
    /* a quarter of the samples are of B, four in five of those with ids that A has not */
    assert_in_range(large, N / 5 - 60, N / 5 + 60);
    for (int w = A; w < B; w++)
        assert_in_range(seen[1][w], N / 4 / B - 1, N / 4 / B + 2);
    for (int w = 0; w < A; w++)
        assert_in_range(seen[0][w], N * 3 / 4 / A - 2, N * 3 / 4 / A + 6);
    feed_close(feed);
    feed_close(same);
    text_copy(strrchr(data, ':'), 3, ":2");
    assert_int_equal(feed_open(&config, &same), ST_OK);
    config.is_shuffled = false;
    feed_close(same);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    struct feed_batch out = batch_of(&a);
    feed_get(feed, 0, 10, &out); /* three of five from A, in its order */
    int of_a = 0;
    for (int row = 0; row < 10; row++)
        of_a += a.tokens[row * T] / T < 6;
    assert_int_equal(of_a, 10);
    feed_close(feed);
}

/* TASK=qa with a file of questions: by numbers alone, each window once an epoch, labels where they
 * belong. */
TEST(test_questions)
{
    static struct buffers a, b;
    static char path[FILE_PATH_MAX];
    struct feed *feed;
    struct feed_config config = synthetic(FEED_TASK_QA);
    char *json;
    size_t n;
    assert_int_equal(file_read("tests/fuzz/qa_squad/v2", 1 << 20, &json, &n), ST_OK);
    text_format(path, sizeof path, "%s/v2.json", harness_tmpdir());
    assert_int_equal(file_replace(path, json, n), ST_OK);
    free(json);
    config.data = path;
    config.vocab = 50257;
    config.stride_tokens = 4;
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    const int64_t samples = feed_samples(feed);
    assert_in_range(samples, 14, 64 * 8);
    assert_int_equal(feed_tokens(feed), samples * T);
    assert_non_null(strstr(feed_name(feed), "13 questions"));
    int answered = 0;
    for (int64_t j = 0; j < 2 * samples; j++) {
        struct feed_batch out = batch_of(&a);
        out.targets = NULL;
        feed_get(feed, j, 1, &out);
        assert_in_range(a.starts[0], 0, T - 1);
        assert_in_range(a.ends[0], a.starts[0], T - 1);
        assert_int_equal(a.mask[0], 1);
        answered += a.ends[0] > 0 && a.mask[a.ends[0]] == 1;
        out = batch_of(&b);
        out.targets = NULL;
        feed_get(feed, j, 1, &out);
        assert_memory_equal(a.tokens, b.tokens, sizeof(int32_t) * T);
    }
    assert_true(answered >= 2 * 10 && answered % 2 == 0);
    feed_close(feed);
    config.vocab = 97;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_DATA);
    config.vocab = 50257;
    config.task = FEED_TASK_LM;
    assert_int_equal(feed_open(&config, &feed), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "TASK=qa"));
}

/* The files that a feed names, copied elsewhere item by item, are the same data. */
static void copy_files(const struct feed *feed, const char *to, char *data, size_t cap)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct feed_file file;
    int64_t n = 0;
    int items = 0;
    data[0] = '\0';
    for (; feed_file(feed, n, &file); n++) {
        char *bytes;
        size_t size;
        text_format(dir, sizeof dir, "%s/%d", to, file.item);
        text_format(path, sizeof path, "%s/%02d%s", dir, (int)n, file.suffix);
        assert_int_equal(file_make_dirs(dir), ST_OK);
        assert_int_equal(file_read(file.path, 1 << 24, &bytes, &size), ST_OK);
        assert_int_equal(size, file.bytes);
        assert_true(XXH3_64bits(bytes + file.skip, size - (size_t)file.skip) == file.sum);
        assert_int_equal(file_replace(path, bytes, size), ST_OK);
        free(bytes);
        if (file.item < items)
            continue;
        const size_t at = strlen(data);
        snprintf(data + at, cap - at, file.weight > 0 ? "%s%s:%g" : "%s%s", items++ > 0 ? "," : "",
                 dir, file.weight);
    }
    assert_true(n > 0);
    assert_false(feed_file(feed, n, &file));
}

TEST(test_files_make_the_same_data)
{
    enum { CASES = 4 };
    static char data[4 * FILE_PATH_MAX], cache[FILE_PATH_MAX], to[FILE_PATH_MAX],
        mixed[2 * FILE_PATH_MAX];
    struct feed_config config = counting(40 * T + 1);
    text_format(mixed, sizeof mixed, "/usr/share/common-licenses/GPL-3:0.7,%s:0.3", config.data);
    text_format(cache, sizeof cache, "%s/cache", harness_tmpdir());
    const char *const from[CASES] = {config.data, "/usr/share/common-licenses/GPL-*", mixed,
                                     "tests/fuzz/qa_squad"};
    for (int i = 0; i < CASES; i++) {
        struct feed *feed, *same;
        char json[FILE_PATH_MAX];
        config.data = from[i];
        config.cache_dir = cache;
        config.vocab = 50257;
        config.task = FEED_TASK_LM;
        if (i == 3) { /* as in test_questions */
            config.task = FEED_TASK_QA;
            config.stride_tokens = 4;
            text_format(json, sizeof json, "%s/v2.json", harness_tmpdir());
            config.data = json;
        }
        text_format(to, sizeof to, "%s/copy-%d", harness_tmpdir(), i);
        assert_int_equal(feed_open(&config, &feed), ST_OK);
        copy_files(feed, to, data, sizeof data);
        config.data = data;
        assert_int_equal(feed_open(&config, &same), ST_OK);
        assert_true(feed_fingerprint(feed) == feed_fingerprint(same));
        assert_int_equal(feed_samples(feed), feed_samples(same));
        feed_close(feed);
        feed_close(same);
    }
    struct feed_file file;
    struct feed *feed;
    config = synthetic(FEED_TASK_LM);
    assert_int_equal(feed_open(&config, &feed), ST_OK);
    assert_false(feed_file(feed, 0, &file));
    feed_close(feed);
}

TEST(test_what_is_here)
{
    assert_true(feed_is_here("/usr/share/common-licenses/GPL-3"));
    assert_true(feed_is_here("/usr/share/common-licenses"));
    assert_true(feed_is_here("/usr/share/common-licenses/GPL-*"));
    assert_true(
        feed_is_here("/usr/share/common-licenses/GPL-3:1,/usr/share/common-licenses/GPL-2:2"));
    assert_false(feed_is_here("https://example.org/x.txt"));
    assert_false(feed_is_here("hf://datasets/org/name/x.txt"));
    assert_true(feed_is_here("a,,b:x")); /* no data at all: feed_open says so */
    assert_false(feed_is_here("/no/such/file.txt"));
    assert_false(feed_is_here("/usr/share/common-licenses/GPL-3/below-a-file"));
    assert_false(feed_is_here("/no/such/*.txt"));
    assert_false(feed_is_here("/usr/share/common-licenses/GPL-3,/no/such"));
    assert_false(feed_is_here("/usr/share/common-licenses/GPL-3:1,/no/such:1"));
}

HARNESS_RUN_ALL()
