/* corpus — DATA of every kind becomes one sequence of ids, or is refused with a helpful
 * message; the cache never returns other ids. */
#include "data_folder.h"

#include <sys/resource.h>

#include "data/tokenizer/gpt2.h"
#include "data/shard.h"

static int64_t calls; /* of progress with something done: text was tokenised */

static bool count_calls(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    (void)arg;
    assert_in_range(bytes_done, 0, bytes_total);
    calls += bytes_done > 0;
    return true;
}

static int fresh(void **state)
{
    calls = 0;
    return data_folder_make();
}

static void put_tokens(const char *name, const uint16_t *ids, int32_t n)
{
    static uint8_t bytes[1024 + 2 * 4096];
    const int32_t header[3] = {20240520, 1, n};
    memset(bytes, 0, 1024);
    memcpy(bytes, header, sizeof header);
    memcpy(bytes + 1024, ids, 2 * (size_t)n);
    put(name, bytes, 1024 + 2 * (size_t)n);
}

static struct corpus_config with(const char *data)
{
    return (struct corpus_config){
        .data = data, .cache_dir = cache, .vocab = TOKENIZER_GPT2_VOCAB, .progress = count_calls};
}

static struct corpus *opened(const char *data)
{
    struct corpus *corpus = NULL;
    const struct corpus_config config = with(data);
    if (corpus_open(&config, &corpus) != ST_OK)
        fail_msg("%s", status_message());
    return corpus;
}

static void expect(const struct corpus *corpus, const int32_t *ids, int64_t n)
{
    int32_t got[256], one;
    assert_int_equal(corpus_tokens(corpus), n);
    corpus_read(corpus, 0, n, got);
    assert_memory_equal(got, ids, (size_t)n * sizeof *ids);
    for (int64_t first = 0; first < n; first++)
        for (int64_t len = 0; len <= n - first; len++) {
            corpus_read(corpus, first, len, got);
            assert_memory_equal(got, ids + first, (size_t)len * sizeof *ids);
        }
    corpus_read(corpus, n - 1, 1, &one);
    assert_int_equal(one, ids[n - 1]);
}

static void refuse(const char *data, int64_t vocab, enum status want, const char *word,
                   const char *other)
{
    struct corpus *corpus = NULL;
    struct corpus_config config = with(data);
    config.vocab = vocab;
    const enum status st = corpus_open(&config, &corpus);
    assert_null(corpus);
    if (st != want || strstr(status_message(), word) == NULL ||
        strstr(status_message(), other) == NULL)
        fail_msg("%s: %s \"%s\", expected %s with \"%s\" and \"%s\"", data, status_name(st),
                 status_message(), status_name(want), word, other);
}

TEST_WITH(test_text_file, fresh, NULL)
{
    put_text("a.txt", "Hello, world!");
    struct corpus *corpus = opened(in("a.txt"));
    expect(corpus, (const int32_t[]){15496, 11, 995, 0}, 4);
    assert_non_null(strstr(corpus_name(corpus), "a.txt"));
    const uint64_t fingerprint = corpus_fingerprint(corpus);
    corpus_close(corpus);
    assert_int_equal(calls, 1);
    corpus = opened(in("a.txt")); /* from the cache */
    expect(corpus, (const int32_t[]){15496, 11, 995, 0}, 4);
    assert_true(corpus_fingerprint(corpus) == fingerprint);
    corpus_close(corpus);
    assert_int_equal(calls, 1);
    put_text("a.txt", "Hello, world?");
    corpus = opened(in("a.txt"));
    expect(corpus, (const int32_t[]){15496, 11, 995, 30}, 4);
    assert_true(corpus_fingerprint(corpus) != fingerprint);
    corpus_close(corpus);
    assert_int_equal(calls, 2);
    corpus_close(NULL);
}

TEST_WITH(test_remembered_without_reading, fresh, NULL)
{
    put_text("a.txt", "Hello, world!");
    clock_sleep_ms(2100); /* until the file's times are settled */
    corpus_close(opened(in("a.txt")));
    put_text("b.txt", "Hello, world!");
    corpus_close(opened(in("b.txt"))); /* the same content under another name */
    assert_int_equal(calls, 1);
    char command[FILE_PATH_MAX + 64];
    text_format(command, sizeof command, "ls %s/tokens | grep -c 'key$' | grep -qx 1", cache);
    assert_int_equal(system(command), 0);
    text_format(command, sizeof command, "echo nonsense > \"$(ls %s/tokens/*.key)\"", cache);
    assert_int_equal(system(command), 0);
    corpus_close(opened(in("a.txt")));
    assert_int_equal(calls, 1);
}

TEST_WITH(test_folder_and_glob, fresh, NULL)
{
    const int32_t ids[] = {64, TOKENIZER_GPT2_END, 65, TOKENIZER_GPT2_END, 66};
    put_text("d/b.txt", "b");
    put_text("d/a", "a");
    put_text("d/sub/c.txt", "c");
    put_text("d/.hidden", "hidden");
    put_text("d/.git/x", "hidden");
    put_text("d/empty", "");
    assert_int_equal(symlink("a", in("d/z-link")), 0); /* the same file again */
    assert_int_equal(symlink("nowhere", in("d/broken")), 0);
    assert_int_equal(symlink(".", in("d/loop")), 0);
    assert_int_equal(mkfifo(in("d/fifo"), 0600), 0);
    struct corpus *corpus = opened(in("d"));
    expect(corpus, ids, 5);
    assert_non_null(strstr(corpus_name(corpus), "3 files"));
    const uint64_t fingerprint = corpus_fingerprint(corpus);
    corpus_close(corpus);
    corpus = opened(in("d/[ab]*"));
    expect(corpus, ids, 3);
    corpus_close(corpus);
    /* as one token file: the same sequence, the same fingerprint */
    int64_t tokens = 0;
    const struct corpus_config config = with(in("d"));
    assert_int_equal(corpus_write(&config, in("out.bin"), &tokens), ST_OK);
    assert_int_equal(tokens, 5);
    assert_int_equal(file_bytes(in("out.bin")), 1024 + 10);
    corpus = opened(in("out.bin"));
    expect(corpus, ids, 5);
    assert_true(corpus_fingerprint(corpus) == fingerprint);
    corpus_close(corpus);
}

TEST_WITH(test_token_files, fresh, NULL)
{
    put_tokens("t/1.bin", (const uint16_t[]){1, 2, 3}, 3);
    /* told by its content, not its name */
    put_tokens("t/2", (const uint16_t[]){4, TOKENIZER_GPT2_END}, 2);
    put_tokens("t/3.bin", (const uint16_t[]){5}, 1);
    put_text("t/4.txt", "a");
    put_tokens("t/5.bin", (const uint16_t[]){TOKENIZER_GPT2_END, 6}, 2);
    put_tokens("t/6.bin", (const uint16_t[]){0}, 0);
    struct corpus *corpus = opened(in("t"));
    const int32_t ids[] = {1,  2,
                           3,  TOKENIZER_GPT2_END,
                           4,  TOKENIZER_GPT2_END,
                           5,  TOKENIZER_GPT2_END,
                           64, TOKENIZER_GPT2_END,
                           6};
    expect(corpus, ids, 11);
    const uint64_t fingerprint = corpus_fingerprint(corpus);
    corpus_close(corpus);
    int64_t tokens;
    const struct corpus_config config = with(in("t"));
    assert_int_equal(corpus_write(&config, in("all.bin"), &tokens), ST_OK);
    corpus = opened(in("all.bin"));
    expect(corpus, ids, 11);
    assert_true(corpus_fingerprint(corpus) == fingerprint);
    corpus_close(corpus);
    refuse(in("t/6.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "no tokens", "check the path");
    refuse(in("t"), 3, ST_BAD_DATA, "token 2 has id 3", "VOCAB");
    corpus = NULL;
    put_tokens("s/1.bin", (const uint16_t[]){1}, 1);
    put_tokens("s/2.bin", (const uint16_t[]){1}, 1);
    refuse(in("s"), 256, ST_BAD_DATA, "joined", "VOCAB=256");
    refuse(in("t/4.txt"), 64, ST_BAD_DATA, "has id 64", "VOCAB=50257");
}

/* A word of the header set to `value`. */
static void put_header(const char *name, int word, int32_t value)
{
    uint8_t bytes[1024 + 6] = {0};
    int32_t header[3] = {20240520, 1, 3};
    header[word] = value;
    memcpy(bytes, header, sizeof header);
    put(name, bytes, sizeof bytes);
}

TEST_WITH(test_refusals, fresh, NULL)
{
    refuse(in("missing.txt"), TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "missing.txt", "No such file");
    refuse(in("no*match"), TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "no*match", "check the pattern");
    put_text("empty.txt", "");
    refuse(in("empty.txt"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "empty", "check the path");
    /* as in a folder and a glob: left out beside others */
    char two[1300];
    put_text("beside.txt", "a");
    text_format(two, sizeof two, "%s,", in("empty.txt"));
    text_format(two + strlen(two), sizeof two - strlen(two), "%s", in("beside.txt"));
    struct corpus *corpus = opened(two);
    expect(corpus, (int32_t[]){64}, 1);
    corpus_close(corpus);
    refuse(in("empt[y].txt"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "empty", "check the path");
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
                      *const names[] = {"p.txt", "p.bin", "p.idx", "p.jsonl", "p.json", "p.zst"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put_text(names[i], pointer);
        refuse(in(names[i]), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, names[i],
               "is a Git LFS pointer, not the file itself; run `git lfs pull`");
    }
    assert_int_equal(file_make_dirs(in("folder")), ST_OK);
    refuse(in("folder"), TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "no files found", "check the path");
    assert_int_equal(mkfifo(in("fifo"), 0600), 0);
    refuse(in("fifo"), TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "not a regular file", "fifo");
    refuse("/dev/null", TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "not a regular file", "/dev/null");
    refuse("ftp://example.org/a.txt", TOKENIZER_GPT2_VOCAB, ST_BAD_SETTING, "ftp://", "https://");
    put_text("a.JSON", "{}\n");
    refuse(in("a.JSON"), TOKENIZER_GPT2_VOCAB, ST_BAD_SETTING, ".json", "TASK=qa");
    put_text("a.idx", "MMIDIDX");
    refuse(in("a.idx"), TOKENIZER_GPT2_VOCAB, ST_NO_INPUT, "a.bin", "next to it");
    put("a.gz", "\x1f\x8b\x08", 3);
    refuse(in("a.gz"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "gzip", "unpack");
    put_text("raw.bin", "not tokens");
    refuse(in("raw.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "not a token file", "20240520");
    put_header("model.bin", 0, 20240326);
    refuse(in("model.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "20240326", "model");
    put_header("version.bin", 1, 7);
    refuse(in("version.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "version 7", "expected 1");
    put_header("count.bin", 2, 4);
    refuse(in("count.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "counts 4",
           "1032 bytes are expected");
    put_header("negative.bin", 2, -1);
    refuse(in("negative.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "-1", "damaged");
    struct corpus_config config = with(in("text"));
    corpus = NULL;
    put_text("text", "text");
    config.cache_dir = "";
    assert_int_equal(corpus_open(&config, &corpus), ST_BAD_SETTING);
    config.cache_dir = "/proc/nothing";
    assert_int_equal(corpus_open(&config, &corpus), ST_STORE);
    assert_non_null(strstr(status_message(), "CACHE_DIR=/proc/nothing"));
}

static int unreadable_refused(void)
{
    struct corpus *corpus;
    const struct corpus_config config = with(in("secret.txt"));
    const bool is_refused = corpus_open(&config, &corpus) == ST_NO_INPUT;
    return is_refused && strstr(status_message(), "Permission denied") != NULL &&
           strstr(status_message(), "permission to") != NULL;
}

TEST_WITH(test_unreadable, fresh, NULL)
{
    put_text("secret.txt", "text");
    assert_int_equal(chmod(in("secret.txt"), 0), 0);
    assert_int_equal(chmod(harness_tmpdir(), 0755), 0);
    const pid_t child = fork();
    if (child == 0) { /* the superuser may read everything: become somebody else */
        if (getuid() == 0 && setuid(65534) != 0)
            _exit(2);
        _exit(unreadable_refused() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Cut at every length; each bit of the header flipped: refused, or (in words nobody reads) the same
 * tokens. */
TEST_WITH(test_damaged_token_file, fresh, NULL)
{
    static uint8_t whole[1024 + 16];
    const uint16_t ids[8] = {7, 8, 9, 10, 11, 12, 13, 14};
    struct corpus *corpus;
    int64_t tokens;
    char *made;
    size_t bytes;
    put_tokens("in.bin", ids, 8);
    const struct corpus_config write = with(in("in.bin")), read = with(in("cut.bin"));
    assert_int_equal(corpus_write(&write, in("whole.bin"), &tokens), ST_OK);
    assert_int_equal(file_read(in("whole.bin"), 1 << 20, &made, &bytes), ST_OK);
    assert_int_equal(bytes, sizeof whole);
    memcpy(whole, made, sizeof whole);
    free(made);
    for (size_t n = 0; n < sizeof whole; n++) {
        put("cut.bin", whole, n);
        assert_int_equal(corpus_open(&read, &corpus), ST_BAD_DATA);
    }
    for (size_t bit = 0; bit < 8 * sizeof whole; bit++) {
        whole[bit / 8] ^= (uint8_t)(1 << bit % 8);
        put("cut.bin", whole, sizeof whole);
        const enum status st = corpus_open(&read, &corpus);
        whole[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit < 96 || bit >= 8 * 1024) { /* magic, version, count; ids (the checksum tells) */
            assert_int_equal(st, ST_BAD_DATA);
        } else if (st == ST_OK) {
            expect(corpus, (const int32_t[]){7, 8, 9, 10, 11, 12, 13, 14}, 8);
            corpus_close(corpus);
        } else
            assert_int_equal(st, ST_BAD_DATA);
    }
}

TEST_WITH(test_damaged_cache_is_made_again, fresh, NULL)
{
    char command[FILE_PATH_MAX + 128];
    const int32_t ids[] = {15496, 11, 995, 0};
    put_text("a.txt", "Hello, world!");
    static const char *const damage[] = {
        "truncate -s 1027",
        "truncate -s 0",
        "sh -c 'printf x | dd of=$0 bs=1 seek=1025 conv=notrunc 2>/dev/null'",
        "sh -c 'printf xy | dd of=$0 bs=1 seek=2 conv=notrunc 2>/dev/null'",
    };
    corpus_close(opened(in("a.txt")));
    for (int i = 0; i < 4; i++) {
        text_format(command, sizeof command, "%s %s/tokens/*.bin", damage[i], cache);
        assert_int_equal(system(command), 0);
        struct corpus *corpus = opened(in("a.txt"));
        expect(corpus, ids, 4);
        corpus_close(corpus);
        assert_int_equal(calls, i + 2);
    }
    /* Nothing left over but what was checked. (On a slow machine the text counts as settled, and
     * its key is kept too.) */
    text_format(command, sizeof command, "test $(ls %s/tokens | grep -vcE '[.](key|sum)$') -eq 1",
                cache);
    assert_int_equal(system(command), 0);
}

/* A text of several blocks, with runs that cannot be cut, is the same in blocks and by several
 * threads. */
TEST_WITH(test_long_text_equals_whole, fresh, NULL)
{
    enum { BYTES = 9000000 };
    static const char *const word[] = {
        "the", " and", "\n\n", " it's", " 1984", ", ", "\xc3\xa9t\xc3\xa9", "  ", " tokenization"};
    char *text = malloc(BYTES + 64);
    uint32_t *want = malloc(4 * (BYTES + 64));
    struct tokenizer *gpt2;
    size_t n = 0;
    uint32_t x = 1;
    while (n < BYTES) {
        x = x * 1664525 + 1013904223;
        const char *w = word[(x >> 16) % 9];
        memcpy(text + n, w, strlen(w));
        n += strlen(w);
        if (n > 2000000 && n < 6000000) { /* longer than a block for one or two threads */
            memset(text + n, 'x', 3000000);
            n += 3000000;
        }
    }
    put("long.txt", text, n);
    assert_int_equal(tokenizer_gpt2_open(&gpt2), ST_OK);
    size_t tokens;
    assert_int_equal(tokenizer_encode(gpt2, text, n, true, want, &tokens), ST_OK);
    struct corpus *corpus = opened(in("long.txt"));
    int32_t *got = malloc(tokens * sizeof *got);
    assert_int_equal(corpus_tokens(corpus), tokens);
    corpus_read(corpus, 0, (int64_t)tokens, got);
    for (size_t i = 0; i < tokens; i++)
        if ((uint32_t)got[i] != want[i])
            fail_msg("token %zu: %d, expected %u", i, got[i], want[i]);
    corpus_close(corpus);
    tokenizer_close(gpt2);
    free(got);
    free(want);
    free(text);
}

static bool stop_at_once(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    (void)arg, (void)bytes_done, (void)bytes_total;
    return false;
}

TEST_WITH(test_stopped, fresh, NULL)
{
    struct corpus *corpus = NULL;
    int64_t tokens;
    put_text("a.txt", "Hello, world!");
    struct corpus_config config = with(in("a.txt"));
    config.progress = stop_at_once;
    assert_int_equal(corpus_open(&config, &corpus), ST_RETRY);
    assert_int_equal(corpus_write(&config, in("out.bin"), &tokens), ST_RETRY);
    assert_false(file_exists(in("out.bin")));
    char command[FILE_PATH_MAX + 64];
    text_format(command, sizeof command, "! ls %s | grep tmp", dir);
    assert_int_equal(system(command), 0);
}

TEST_WITH(test_write_refusals, fresh, NULL)
{
    int64_t tokens;
    put_text("a.txt", "Hello");
    char data[FILE_PATH_MAX];
    text_copy(data, sizeof data, in("a.txt"));
    struct corpus_config config = with(data);
    assert_int_equal(corpus_write(&config, "", &tokens), ST_BAD_SETTING);
    assert_int_equal(corpus_write(&config, dir, &tokens), ST_BAD_SETTING);
    assert_int_equal(corpus_write(&config, in("no/such/x.idx"), &tokens), ST_STORE);
    assert_int_equal(corpus_write(&config, in("no/such/x.bin"), &tokens), ST_STORE);
    config.vocab = 256;
    assert_int_equal(corpus_write(&config, in("x.bin"), &tokens), ST_BAD_DATA);
    assert_int_equal(corpus_write(&config, in("x.idx"), &tokens), ST_BAD_DATA);
    assert_false(file_exists(in("x.bin")) || file_exists(in("x.idx")));
}

/* A limit on the size of files stands for the full disk. */
TEST_WITH(test_full_disk, fresh, NULL)
{
    enum { BYTES = 300000 };
    char *text = malloc(BYTES), command[FILE_PATH_MAX + 64];
    for (int i = 0; i < BYTES; i++)
        text[i] = " abcdefgh\n"[(i * 7 + i / 13) % 10];
    put("big.txt", text, BYTES);
    free(text);
    const pid_t child = fork();
    if (child == 0) {
        struct corpus *corpus;
        int64_t tokens;
        const struct corpus_config config = with(in("big.txt"));
        const struct rlimit small = {65536, 65536};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        if (corpus_write(&config, in("out.bin"), &tokens) != ST_STORE)
            _exit(1);
        if (corpus_open(&config, &corpus) != ST_STORE ||
            strstr(status_message(), "CACHE_DIR") == NULL)
            _exit(2);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* nothing left */
    text_format(command, sizeof command, "test \"$(find %s -type f)\" = %s/big.txt", dir, dir);
    assert_int_equal(system(command), 0);
}

TEST_WITH(test_two_processes_at_once, fresh, NULL)
{
    enum { BYTES = 3000000 };
    char *text = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        text[i] = " abcdefgh\n"[(i * 7 + i / 13) % 10];
    put("big.txt", text, BYTES);
    free(text);
    pid_t child[3];
    for (int i = 0; i < 3; i++)
        if ((child[i] = fork()) == 0) {
            struct corpus *corpus;
            const struct corpus_config config = with(in("big.txt"));
            _exit(corpus_open(&config, &corpus) == ST_OK && corpus_tokens(corpus) > BYTES / 8 ? 0
                                                                                              : 1);
        }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    corpus_close(opened(in("big.txt")));
    assert_int_equal(calls, 0);
}

/* ---- ids are checked when they are read ---- */

TEST_WITH(test_late_id, fresh, NULL)
{
    enum { N = 2000000, BAD = 10000, WINDOW = 16 };
    static uint8_t bytes[1024 + 2 * N];
    const int32_t header[3] = {20240520, 1, N};
    int32_t got[WINDOW];
    memcpy(bytes, header, sizeof header);
    memcpy(bytes + 1024 + 2 * BAD, &(uint16_t){60000}, 2);
    put("late.bin", bytes, sizeof bytes);
    struct corpus *corpus = opened(in("late.bin"));
    const uint64_t fingerprint = corpus_fingerprint(corpus);
    for (int64_t first = BAD - 2 * WINDOW; first < BAD + 2 * WINDOW; first++) {
        const bool has_it = first <= BAD && BAD < first + WINDOW;
        assert_int_equal(corpus_read(corpus, first, WINDOW, got), has_it ? ST_BAD_DATA : ST_OK);
        assert_true(!has_it || strstr(status_message(), "late.bin: token 10000 has id 60000, but "
                                                        "the vocabulary has VOCAB=50257 ids"));
    }
    corpus_close(corpus);
    /* the same number of ids, and another one at the end */
    memcpy(bytes + 1024 + 2 * (N - 1), &(uint16_t){7}, 2);
    put("late.bin", bytes, sizeof bytes);
    corpus = opened(in("late.bin"));
    assert_true(corpus_fingerprint(corpus) != fingerprint);
    corpus_close(corpus);
    memcpy(bytes + 1024 + 2 * (N - 1), &(uint16_t){60001}, 2);
    put("late.bin", bytes, sizeof bytes);
    refuse(in("late.bin"), TOKENIZER_GPT2_VOCAB, ST_BAD_DATA, "token 1999999 has id 60001",
           "VOCAB");
}

/* ---- checksums are verified once ---- */

enum { LARGE = 36 << 20 }; /* ids: more than a start checks itself */

static void put_large(const char *name)
{
    static uint32_t ids[1 << 16];
    struct shard_writer *writer;
    for (int i = 0; i < 1 << 16; i++)
        ids[i] = (uint32_t)(i % 50000);
    assert_int_equal(shard_create(in(name), INT64_MAX, 2, &writer), ST_OK);
    for (int64_t n = 0; n < LARGE; n += 1 << 16)
        assert_int_equal(shard_append(writer, ids, 1 << 16), ST_OK);
    assert_int_equal(shard_commit(writer, (struct shard_key){{0, 0}}), ST_OK);
    shard_abandon(writer);
}

static int remembered(void)
{
    char command[FILE_PATH_MAX + 64];
    text_format(command, sizeof command, "ls %s/tokens 2>/dev/null | grep -q 'sum$'", cache);
    return system(command) == 0;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

TEST_WITH(test_large_file_is_checked_once, fresh, NULL)
{
    int32_t id;
    put_large("large.bin");
    clock_sleep_ms(2100); /* until the file's times are settled */
    struct corpus *corpus = opened(in("large.bin"));
    for (int i = 0; i < 3000 && !remembered(); i++)
        clock_sleep_ms(20);
    assert_true(remembered());
    assert_int_equal(corpus_read(corpus, LARGE - 1, 1, &id), ST_OK);
    corpus_close(corpus);
    const long before = faults();
    corpus = opened(in("large.bin"));
    clock_sleep_ms(200);
    const long elapsed = faults() - before;
    print_message("# %ld page faults\n", elapsed);
    assert_true(elapsed < 600); /* of 18,432 pages; the system maps 16 at a fault */
    corpus_close(corpus);
    /* Damaged: its times tell, and it is found while the ids are used. */
    FILE *file = fopen(in("large.bin"), "r+b");
    assert_true(file != NULL && fseek(file, 1024 + LARGE + 1, SEEK_SET) == 0);
    assert_int_equal(fputc(1, file), 1);
    fclose(file);
    corpus = opened(in("large.bin"));
    enum status st = ST_OK;
    for (int i = 0; i < 3000 && st == ST_OK; i++, clock_sleep_ms(20))
        st = corpus_read(corpus, 0, 1, &id);
    assert_int_equal(st, ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "large.bin is damaged: its content has checksum"));
    corpus_close(corpus);
    corpus = opened(in("large.bin"));
    corpus_close(corpus); /* stops the check */
}

/* ---- documents ---- */

/* An index of these documents over a .bin of 16-bit ids. */
static void put_pair(const char *idx, const char *bin, const uint16_t *ids, const int32_t *lengths,
                     uint64_t n)
{
    uint8_t bytes[34 + 20 * 16 + 8] = "MMIDIDX";
    const uint64_t words[] = {n, n + 1};
    int64_t tokens = 0;
    bytes[9] = 1;
    bytes[17] = 8;
    memcpy(bytes + 18, words, sizeof words);
    memcpy(bytes + 34, lengths, 4 * n);
    for (uint64_t i = 0; i < n; i++) {
        memcpy(bytes + 34 + 4 * n + 8 * i, &(int64_t){2 * tokens}, 8);
        tokens += lengths[i];
    }
    for (uint64_t i = 0; i <= n; i++)
        memcpy(bytes + 34 + 12 * n + 8 * i, &i, 8);
    put(idx, bytes, 34 + 20 * n + 8);
    put(bin, ids, 2 * (size_t)tokens);
}

/* From every place to every other. */
static void documents_are(const struct corpus *corpus, const int64_t separator[2],
                          const int64_t *begins, int n)
{
    const int64_t tokens = corpus_tokens(corpus);
    for (int64_t at = 0; at < tokens; at++)
        for (int64_t end = at; end <= tokens; end++) {
            int64_t want = end, got = -1;
            for (int i = n - 1; i >= 0; i--)
                want = begins[i] >= at && begins[i] < end ? begins[i] : want;
            assert_int_equal(corpus_next_document(corpus, at, end, separator, &got), ST_OK);
            if (got != want)
                fail_msg("in [%lld, %lld): a document at %lld, expected %lld", (long long)at,
                         (long long)end, (long long)got, (long long)want);
        }
}

/* "b" (id 65) separates documents in texts and token files, and nothing in records. */
TEST_WITH(test_documents, fresh, NULL)
{
    enum { END = TOKENIZER_GPT2_END };
    const int32_t ids[] = {65, 0,  65, END, 65, 0,  65, END, END, 0,  END,
                           7,  65, 8,  END, 64, 65, 66, 65,  END, 65, 0};
    const int64_t b[] = {65, -1}, both[] = {END, 65}, none[] = {-1, -1};
    put_text("d/1.txt", "b!b");
    put_text("d/2.jsonl", "{\"text\":\"b!b\"}\n{\"text\":\"\"}\n{\"text\":\"!\"}\n");
    put_tokens("d/3.bin", (const uint16_t[]){7, 65, 8}, 3);
    put_pair("d/4.idx", "d/4.bin", (const uint16_t[]){64, 65, 66, 65, END}, (int32_t[]){2, 1, 2},
             3);
    put_text("d/5.txt", "b!");
    struct corpus *corpus = opened(in("d"));
    expect(corpus, ids, sizeof ids / sizeof *ids);
    assert_int_equal(corpus_records(corpus), 6);
    documents_are(corpus, both, (int64_t[]){0, 2, 3, 7, 8, 10, 12, 14, 17, 18, 19, 20}, 12);
    documents_are(corpus, b, (int64_t[]){0, 2, 3, 7, 8, 10, 12, 14, 17, 18, 19, 20}, 12);
    documents_are(corpus, none, (int64_t[]){0, 3, 7, 8, 10, 14, 17, 18, 19}, 9);
    corpus_close(corpus);
    corpus = opened(in("d")); /* from the cache */
    assert_int_equal(corpus_records(corpus), 6);
    documents_are(corpus, both, (int64_t[]){0, 2, 3, 7, 8, 10, 12, 14, 17, 18, 19, 20}, 12);
    corpus_close(corpus);
}

HARNESS_RUN_ALL()
