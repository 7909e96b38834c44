/* ledger — what an audit finds: a gap, a sample twice, what was done again, a line that was
 * changed; and bytes that are no ledger. */
#include "harness.h"

#include "format/ledger.h"

/* A ledger that is being written. */
struct book {
    struct text text;
    uint64_t hash;
    int64_t generation;
};

static void start_order(struct book *b, int64_t after, int64_t sample, int64_t epoch,
                        uint64_t order)
{
    char line[LEDGER_LINE_MAX];
    ledger_write_start(
        &(struct ledger_start){++b->generation, after, sample, 7, .epoch = epoch, .order = order},
        &b->hash, line);
    text_add(&b->text, "%s", line);
}

static void start(struct book *b, int64_t after, int64_t sample)
{
    start_order(b, after, sample, 0, 0);
}

static void add_trained(struct book *b, int64_t step, int64_t steps, int64_t sample,
                        int64_t samples, enum ledger_outcome outcome, int64_t trained)
{
    char line[LEDGER_LINE_MAX];
    ledger_write_run(
        &(struct ledger_run){b->generation, step, steps, sample, samples, outcome, trained},
        &b->hash, line);
    text_add(&b->text, "%s", line);
}

static void add(struct book *b, int64_t step, int64_t steps, int64_t sample, int64_t samples,
                enum ledger_outcome outcome)
{
    add_trained(b, step, steps, sample, samples, outcome, 0);
}

static struct ledger_audit audit(struct book *b)
{
    struct ledger_audit a;
    assert_int_equal(ledger_audit_bytes(b->text.data, b->text.len, "l", &a), ST_OK);
    assert_int_equal(a.bytes, b->text.len);
    assert_true(a.hash == b->hash);
    text_free(&b->text);
    ledger_audit_free(&a);
    *b = (struct book){.generation = 0};
    return a;
}

/* Fifty steps of 8 samples, of which the 41st was skipped. */
static void fifty_steps(struct book *b)
{
    start(b, 0, 0);
    add(b, 1, 40, 0, 8, LEDGER_OUTCOME_APPLIED);
    add(b, 41, 1, 320, 8, LEDGER_OUTCOME_SPIKE);
    add(b, 42, 9, 328, 8, LEDGER_OUTCOME_APPLIED);
}

TEST(test_whole)
{
    struct book b = {.generation = 0};
    fifty_steps(&b);
    add(&b, 51, 1, 400, 16, LEDGER_OUTCOME_NOT_FINITE); /* another size of batch */
    struct ledger_audit a = audit(&b);
    assert_string_equal(a.problem, "");
    assert_true(a.first == 1 && a.last == 51 && a.sample == 0 && a.end == 416);
    assert_int_equal(a.steps[LEDGER_OUTCOME_APPLIED], 49);
    assert_int_equal(a.samples[LEDGER_OUTCOME_APPLIED], 49 * 8);
    assert_int_equal(a.steps[LEDGER_OUTCOME_SPIKE], 1);
    assert_int_equal(a.samples[LEDGER_OUTCOME_NOT_FINITE], 16);
    assert_true(a.again == 0 && a.generations == 1 && !a.is_torn && a.data == 7);
}

/* A return to a checkpoint supersedes what is behind it, wherever it cuts. */
TEST(test_superseded)
{
    struct book b = {.generation = 0};
    fifty_steps(&b);
    start(&b, 30, 240);
    add(&b, 31, 5, 240, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 30, 240);
    start(&b, 30, 240);
    add(&b, 31, 70, 240, 8, LEDGER_OUTCOME_APPLIED);
    struct ledger_audit a = audit(&b);
    assert_string_equal(a.problem, "");
    assert_int_equal(a.last, 100);
    assert_int_equal(a.steps[LEDGER_OUTCOME_SPIKE], 0);
    assert_int_equal(a.again, 20 + 5);
    assert_int_equal(a.generations, 4);
    start(&b, 0, 0);
    add(&b, 1, 5, 0, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 0, 0); /* begun anew with other batches, and ended at once */
    a = audit(&b);
    assert_true(a.problem[0] == 0 && a.last == 0 && a.end == 0 && a.again == 5);
}

/* The tokens of steps that were done again count once, wherever a run of equal steps is cut. */
TEST(test_trained_tokens)
{
    struct book b = {.generation = 0};
    start(&b, 0, 0);
    add_trained(&b, 1, 1, 0, 8, LEDGER_OUTCOME_APPLIED, 5);
    add_trained(&b, 2, 4, 8, 8, LEDGER_OUTCOME_APPLIED, 7);
    add_trained(&b, 6, 1, 40, 8, LEDGER_OUTCOME_SPIKE, 3);
    start(&b, 3, 24);
    add_trained(&b, 4, 2, 24, 8, LEDGER_OUTCOME_APPLIED, 7);
    add_trained(&b, 6, 1, 40, 8, LEDGER_OUTCOME_SPIKE, 4);
    add(&b, 7, 1, 48, 8, LEDGER_OUTCOME_APPLIED);
    struct ledger_audit a = audit(&b);
    assert_string_equal(a.problem, "");
    assert_int_equal(a.trained[LEDGER_OUTCOME_APPLIED], 5 + 4 * 7);
    assert_int_equal(a.trained[LEDGER_OUTCOME_SPIKE], 4);
    assert_true(a.last == 7 && a.again == 3);
    start(&b, 0, 0);
    add_trained(&b, 1, 1 << 20, 0, 1, LEDGER_OUTCOME_APPLIED, (int64_t)1 << 40);
    assert_int_equal(ledger_audit_bytes(b.text.data, b.text.len, "l", &a), ST_BAD_DATA);
    text_free(&b.text);
}

static void expect(struct book *b, const char *problem)
{
    struct ledger_audit a = audit(b);
    if (strstr(a.problem, problem) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", problem, a.problem);
}

TEST(test_problems)
{
    struct book b = {.generation = 0};
    start(&b, 0, 0);
    add(&b, 1, 10, 0, 8, LEDGER_OUTCOME_APPLIED);
    add(&b, 12, 1, 88, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "steps 11 to 11 are missing");
    start(&b, 0, 0);
    add(&b, 1, 10, 0, 8, LEDGER_OUTCOME_APPLIED);
    add(&b, 10, 2, 72, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "steps 10 to 10 are there twice");
    start(&b, 0, 0);
    add(&b, 1, 10, 0, 8, LEDGER_OUTCOME_APPLIED);
    add(&b, 11, 1, 96, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b,
           "step 11 begins with sample 96, but 80 is the next: samples 80 to 95 are in no step");
    start(&b, 0, 0);
    add(&b, 1, 10, 0, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 5, 32);
    add(&b, 6, 10, 32, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "step 6 begins with sample 32, but 40 is the next: samples 32 to 39 are in two");
    start(&b, 0, 0);
    add(&b, 1, 10, 0, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 20, 160); /* the ledger was lost in between */
    add(&b, 21, 1, 160, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "steps 11 to 20 are missing");
    start(&b, 20, 160);
    add(&b, 21, 1, 160, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "steps 1 to 20 are not in it");
    start(&b, 0, 4);
    expect(&b, "step 1 begins with sample 4, not with sample 0");
    start(&b, 0, 0); /* a gap that was superseded is none */
    add(&b, 3, 10, 16, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 0, 0);
    add(&b, 1, 1, 0, 8, LEDGER_OUTCOME_APPLIED);
    expect(&b, "");
}

/* Cut at each byte: the lines before count. Each flipped bit, and each missing line, is found. */
TEST(test_cuts_and_flips)
{
    struct book b = {.generation = 0};
    struct ledger_audit a;
    start(&b, 0, 0);
    add(&b, 1, 40, 0, 8, LEDGER_OUTCOME_APPLIED);
    start(&b, 30, 240);
    add(&b, 31, 1, 240, 8, LEDGER_OUTCOME_SPIKE);
    size_t line_end = 0;
    for (size_t n = 0; n <= b.text.len; n++) {
        if (n > 0 && b.text.data[n - 1] == '\n')
            line_end = n;
        assert_int_equal(ledger_audit_bytes(b.text.data, n, "cut", &a), ST_OK);
        assert_true(a.bytes == line_end && a.is_torn == (n != line_end));
    }
    for (size_t bit = 0; bit < 8 * b.text.len; bit++) {
        b.text.data[bit / 8] = (char)(b.text.data[bit / 8] ^ (1 << bit % 8));
        enum status st = ledger_audit_bytes(b.text.data, b.text.len, "flip", &a);
        if (st == ST_OK && (bit / 8 != b.text.len - 1 || !a.is_torn)) /* the last line's end */
            fail_msg("bit %zu was not found", bit);
        b.text.data[bit / 8] = (char)(b.text.data[bit / 8] ^ (1 << bit % 8));
    }
    const char *second = strchr(b.text.data, '\n') + 1, *third = strchr(second, '\n') + 1;
    struct text without = {0};
    text_add(&without, "%.*s%s", (int)(second - b.text.data), b.text.data, third);
    assert_int_equal(ledger_audit_bytes(without.data, without.len, "less", &a), ST_BAD_DATA);
    text_free(&without);
    text_free(&b.text);
}

/* A pass over the data is known as long as all steps that are left have one order. */
TEST(test_epochs)
{
    struct book b = {.generation = 0};
    start_order(&b, 0, 0, 64, 5);
    add(&b, 1, 16, 0, 2, LEDGER_OUTCOME_APPLIED);
    start_order(&b, 16, 32, 64, 5);
    add(&b, 17, 7, 32, 4, LEDGER_OUTCOME_APPLIED);
    struct ledger_audit a = audit(&b);
    assert_string_equal(a.problem, "");
    assert_true(a.epoch == 64 && a.reordered == 0 && a.end == 60 && a.step_samples == 4);
    start_order(&b, 0, 0, 64, 5);
    add(&b, 1, 16, 0, 2, LEDGER_OUTCOME_APPLIED);
    start_order(&b, 8, 16, 64, 6); /* another SEED */
    add(&b, 9, 8, 16, 2, LEDGER_OUTCOME_APPLIED);
    start_order(&b, 16, 32, 64, 6);
    add(&b, 17, 1, 32, 2, LEDGER_OUTCOME_APPLIED);
    struct book changed = {.hash = b.hash, .generation = b.generation};
    text_add(&changed.text, "%s", b.text.data);
    a = audit(&b);
    assert_true(a.problem[0] == 0 && a.epoch == 0 && a.reordered == 8);
    start_order(&changed, 8, 16, 64, 5); /* and back: its steps were done again */
    add(&changed, 9, 1, 16, 2, LEDGER_OUTCOME_APPLIED);
    a = audit(&changed);
    assert_true(a.problem[0] == 0 && a.epoch == 64 && a.reordered == 0);
    start_order(&b, 0, 0, 64, 5);
    add(&b, 1, 16, 0, 2, LEDGER_OUTCOME_APPLIED);
    start(&b, 16, 32); /* of a version that records no order */
    a = audit(&b);
    assert_true(a.epoch == 0 && a.reordered == 16);
    start(&b, 0, 0);
    add(&b, 1, 16, 0, 2, LEDGER_OUTCOME_APPLIED);
    start_order(&b, 16, 32, 64, 5);
    a = audit(&b);
    assert_true(a.epoch == 0 && a.reordered == 0);
}

TEST(test_hostile)
{
    static const char *const bad[] = {
        "\n",
        "x\n",
        "{}\n",
        "[1]\n",
        "null\n",
        "{\"generation\":1}\n",
        "{\"generation\":1,\"after\":0,\"sample\":0,\"data\":\"0000000000000007\"}\n",
        "{\"generation\":1,\"after\":0,\"sample\":0,\"data\":\"0000000000000007\",\"xxh3_64\":"
        "\"0000000000000000\"}\n",
        "{\"generation\":1,\"after\":-1,\"sample\":0,\"data\":\"0000000000000007\"}\n",
        "{\"generation\":1e99,\"after\":0,\"sample\":0,\"data\":\"0000000000000007\"}\n",
        "{\"generation\":1,\"step\":1,\"steps\":1000000000000,\"sample\":0,\"samples\":"
        "1000000000000,"
        "\"outcome\":\"applied\"}\n",
        "{\"generation\":1,\"step\":1,\"steps\":1,\"sample\":0,\"samples\":1,\"outcome\":\"?\"}\n",
    };
    struct ledger_audit a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ledger_audit_bytes(bad[i], strlen(bad[i]), "bad", &a) != ST_BAD_DATA)
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(status_message(), "bad: line 1 is not a line of a ledger"));
    }
    char *long_line = malloc(1 << 20);
    memset(long_line, '{', 1 << 20);
    assert_int_equal(ledger_audit_bytes(long_line, 1 << 20, "long", &a), ST_BAD_DATA);
    free(long_line);
    struct book b = {.generation = 0};
    start(&b, 0, 0);
    b.generation = 0;
    start(&b, 0, 0); /* the same generation again */
    assert_int_equal(ledger_audit_bytes(b.text.data, b.text.len, "twice", &a), ST_BAD_DATA);
    assert_non_null(
        strstr(status_message(), "line 2 is not a line of a ledger: generation 1 follows"));
    text_free(&b.text);
    b = (struct book){.generation = 0};
    start(&b, 0, 0);
    b.generation = 3;
    add(&b, 1, 1, 0, 8, LEDGER_OUTCOME_APPLIED); /* of a process that did not begin */
    assert_int_equal(ledger_audit_bytes(b.text.data, b.text.len, "other", &a), ST_BAD_DATA);
    text_free(&b.text);
    assert_int_equal(ledger_audit_bytes("", 0, "empty", &a), ST_OK);
    assert_true(a.generations == 0 && a.last == 0 && a.problem[0] == 0);
}

/* A sparse file of a terabyte is refused at once. */
TEST(test_files)
{
    char path[600];
    struct ledger_audit a;
    text_format(path, sizeof path, "%s/huge", harness_tmpdir());
    assert_int_equal(ledger_audit(path, &a), ST_NO_INPUT);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(ledger_audit(path, &a), ST_OK);
    assert_int_equal(ftruncate(fileno(f), (off_t)1 << 40), 0);
    fclose(f);
    assert_int_equal(ledger_audit(path, &a), ST_BAD_DATA);
    assert_int_equal(ledger_audit(harness_tmpdir(), &a), ST_NO_INPUT);
}

static void provenance(struct book *b, const char *json)
{
    char line[LEDGER_LINE_MAX];
    assert_true(ledger_write_provenance(b->generation, json, &b->hash, line));
    text_add(&b->text, "%s", line);
}

static void checkpoint(struct book *b, int64_t step, uint64_t weights)
{
    char line[LEDGER_LINE_MAX];
    ledger_write_checkpoint(&(struct ledger_checkpoint){b->generation, step, weights, 1}, &b->hash,
                            line);
    text_add(&b->text, "%s", line);
}

/* The same step with other weights: suspect only where they must be equal. */
TEST(test_weights)
{
    static const struct {
        const char *first, *second;
        uint64_t weights;
        bool is_suspect;
    } cases[] = {
        {"{\"exact\":true,\"LR\":1}", "{\"exact\":true,\"LR\":1}", 5, false},
        {"{\"exact\":true,\"LR\":1}", "{\"exact\":true,\"LR\":1}", 6, true},
        {"{\"exact\":true,\"LR\":1}", "{\"exact\":true,\"LR\":2}", 6, false},
        {"{\"exact\":false}", "{\"exact\":false}", 6, false},
        {"{}", "{}", 6, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct book b = {.generation = 0};
        start(&b, 0, 0);
        provenance(&b, cases[i].first);
        add(&b, 1, 30, 0, 8, LEDGER_OUTCOME_APPLIED);
        checkpoint(&b, 10, 4);
        checkpoint(&b, 20, 5);
        checkpoint(&b, 30, 9);
        start(&b, 10, 80);
        provenance(&b, cases[i].second);
        add(&b, 11, 10, 80, 8, LEDGER_OUTCOME_APPLIED);
        checkpoint(&b, 20, cases[i].weights);
        struct ledger_audit a;
        assert_int_equal(ledger_audit_bytes(b.text.data, b.text.len, "l", &a), ST_OK);
        assert_int_equal(a.checkpoints_n, 3);
        assert_true(a.checkpoint[1].step == 20 && a.checkpoint[1].weights == cases[i].weights &&
                    a.checkpoint[1].generation == 2);
        assert_string_equal(a.provenance, cases[i].second);
        if (cases[i].is_suspect != (strstr(a.problem, "the weights after step 20 were") != NULL))
            fail_msg("case %zu: %s", i, a.problem);
        ledger_audit_free(&a);
        text_free(&b.text);
    }
    char line[LEDGER_LINE_MAX], json[LEDGER_LINE_MAX];
    memset(json, ' ', sizeof json);
    json[sizeof json - 1] = 0;
    uint64_t hash = 7;
    assert_false(ledger_write_provenance(1, json, &hash, line));
    assert_int_equal(hash, 7);
}

/* More checkpoints than are kept, in any order: the newest steps stay, in order. */
TEST(test_many_checkpoints)
{
    struct book b = {.text = {.limit = 64 << 20}};
    const int n = LEDGER_CHECKPOINTS_MAX + 500;
    start(&b, 0, 0);
    for (int i = 0; i < n; i++)
        checkpoint(&b, (i ^ 1) + 1, (uint64_t)i);
    checkpoint(&b, 1, 1);
    struct ledger_audit a;
    assert_int_equal(ledger_audit_bytes(b.text.data, b.text.len, "l", &a), ST_OK);
    assert_int_equal(a.checkpoints_n, LEDGER_CHECKPOINTS_MAX);
    for (int i = 0; i < a.checkpoints_n; i++)
        assert_int_equal(a.checkpoint[i].step, n - LEDGER_CHECKPOINTS_MAX + i + 1);
    ledger_audit_free(&a);
    text_free(&b.text);
}

TEST(test_append)
{
    struct ledger_run a = {1, 1, 1, 0, 8, LEDGER_OUTCOME_APPLIED, 0};
    const struct ledger_run next = {1, 2, 3, 8, 8, LEDGER_OUTCOME_APPLIED, 0};
    assert_true(ledger_append(&a, &next));
    assert_true(a.steps == 4 && a.step == 1);
    struct ledger_run other = {1, 5, 1, 32, 8, LEDGER_OUTCOME_APPLIED, 0}, bad;
    bad = other, bad.step = 6;
    assert_false(ledger_append(&a, &bad));
    bad = other, bad.sample = 40;
    assert_false(ledger_append(&a, &bad));
    bad = other, bad.samples = 4;
    assert_false(ledger_append(&a, &bad));
    bad = other, bad.outcome = LEDGER_OUTCOME_SPIKE;
    assert_false(ledger_append(&a, &bad));
    struct ledger_run none = {0};
    assert_false(ledger_append(&none, &other));
    assert_true(ledger_append(&a, &other));
}

HARNESS_RUN_ALL()
