/* Damaged models of others: every cut of an index, of the headers of its files and of a model file
 * of llm.c, and thousands of random injuries. What is taken in spite of one gives the same
 * dimensions and weights as the whole model; none crashes the reader. (An injury of a weight shows
 * in no format: none has checksums.) */
#include "harness.h"

#include "base/rand.h"
#include "format/llmc.h"
#include "model/model.h"
#include "train/weights/weights.h"

#define DIR "tests/golden/hf_export/"
#define FILES 5
#define INJURIES 4000
static const char *const file_name[FILES] = {
    "model.safetensors.index.json", "model-00001-of-00004.safetensors",
    "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors",
    "model-00004-of-00004.safetensors"};

static char folder[FILE_PATH_MAX];
static char *good[FILES], *llmc_good;
static size_t good_bytes[FILES], llmc_bytes;
static struct param_table table;
static float *want, *have;

static void put(const char *name, const void *data, size_t n)
{
    char path[FILE_PATH_MAX];
    assert_int_equal(file_join(path, sizeof(path), folder, name), ST_OK);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    struct log_config quiet = {.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1};
    struct model_dims dims;
    char path[FILE_PATH_MAX], *config;
    size_t n;
    log_init(&quiet);
    text_copy(folder, sizeof(folder), harness_tmpdir());
    assert_int_equal(file_read(DIR "lm/config.json", 1 << 20, &config, &n), ST_OK);
    put("config.json", config, n);
    free(config);
    for (int f = 0; f < FILES; f++) {
        text_format(path, sizeof(path), DIR "lm/%s", file_name[f]);
        assert_int_equal(file_read(path, 1 << 20, &good[f], &good_bytes[f]), ST_OK);
        put(file_name[f], good[f], good_bytes[f]);
    }
    assert_int_equal(file_read(DIR "lm_f32.bin", 1 << 20, &llmc_good, &llmc_bytes), ST_OK);
    assert_int_equal(weights_dims(DIR "lm", &dims), ST_OK);
    assert_int_equal(model_ops(&dims)->describe(&dims, &table), ST_OK);
    want = calloc((size_t)table.total_elems, sizeof(float));
    have = calloc((size_t)table.total_elems, sizeof(float));
    const struct load_target to = {.table = &table, .data = {want, DTYPE_F32}};
    return weights_load(DIR "lm", &to) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    for (int f = 0; f < FILES; f++)
        free(good[f]);
    free(llmc_good);
    free(want);
    free(have);
    param_table_free(&table);
    return 0;
}

/* judge — refused with a sentence (false), or taken with just the whole model's weights (true). */
static bool judge(const char *what, int64_t detail)
{
    const struct load_target to = {.table = &table, .data = {have, DTYPE_F32}};
    memset(have, 0, (size_t)table.total_elems * sizeof(float));
    enum status st = weights_load(folder, &to);
    if (st != ST_OK && (st != ST_BAD_DATA || status_message()[0] == 0))
        fail_msg("%s %lld: %s %s", what, (long long)detail, status_name(st), status_message());
    if (st == ST_OK && memcmp(have, want, (size_t)table.total_elems * sizeof(float)) != 0)
        fail_msg("%s %lld: taken with other weights", what, (long long)detail);
    return st == ST_OK;
}

static size_t header_bytes(int f)
{
    uint64_t n = 0;
    if (f == 0)
        return good_bytes[0];
    memcpy(&n, good[f], 8);
    return 8 + (size_t)n;
}

TEST(test_every_cut)
{
    int refused_n = 0, same_n = 0;
    assert_true(judge("whole", 0));
    for (int f = 0; f < FILES; f++) {
        for (size_t n = 0; n < good_bytes[f]; n += n < header_bytes(f) ? 1 : 97) {
            put(file_name[f], good[f], n);
            bool is_same = judge(file_name[f], (int64_t)n);
            /* white space at the end of the index */
            assert_true(!is_same || (f == 0 && n + 2 > good_bytes[f]));
            refused_n += !is_same;
            same_n += is_same;
        }
        put(file_name[f], good[f], good_bytes[f]);
    }
    print_message("# folder: %d cuts refused, %d changed nothing\n", refused_n, same_n);
    struct llmc llmc;
    for (size_t n = 0; n < llmc_bytes; n++) {
        uint8_t *copy = malloc(n + 1); /* just so long: reading beyond is seen */
        memcpy(copy, llmc_good, n);
        assert_int_equal(llmc_parse(copy, n, "cut", &llmc), ST_BAD_DATA);
        free(copy);
    }
    print_message("# model file: %zu cuts refused\n", llmc_bytes);
}

static uint64_t draw(uint64_t injury, uint64_t i, uint64_t n)
{
    return rand_below(20260102, RAND_STREAM(TEST, 2), injury * 16 + i, n);
}

/* injure — one bit flips; two bytes change places; a byte becomes another; a run of bytes is copied
 * over another. */
static void injure(uint64_t injury, char *data, size_t n)
{
    size_t a = draw(injury, 2, n), b = draw(injury, 3, n), run = 1 + draw(injury, 6, 40);
    char kept = data[a];
    switch (draw(injury, 4, 4)) {
    case 0:
        data[a] = (char)(data[a] ^ (1 << draw(injury, 5, 8)));
        return;
    case 1:
        data[a] = data[b];
        data[b] = kept;
        return;
    case 2:
        data[a] = (char)draw(injury, 5, 256);
        return;
    default:
        run = run < n - a ? run : n - a;
        run = run < n - b ? run : n - b;
        memmove(data + a, data + b, run);
    }
}

TEST(test_random_injuries)
{
    int refused_n = 0, same_n = 0;
    for (uint64_t injury = 0; injury < INJURIES; injury++) {
        int f = draw(injury, 0, 2) ? 0 : (int)(1 + draw(injury, 1, FILES - 1));
        char copy[8192];
        assert_true(good_bytes[f] <= sizeof(copy));
        memcpy(copy, good[f], good_bytes[f]);
        injure(injury, copy, header_bytes(f));
        put(file_name[f], copy, good_bytes[f]);
        bool is_same = judge(file_name[f], (int64_t)injury);
        refused_n += !is_same;
        same_n += is_same;
        put(file_name[f], good[f], good_bytes[f]);
    }
    print_message("# folder: %d injuries refused, %d changed no weight\n", refused_n, same_n);
    assert_true(refused_n >= 2000);
}

/* Two numbers of the header can become others that fit as well: a vocabulary that takes in padding,
 * and another number of heads that divides the width. Everything else must be as it was. */
TEST(test_llmc_injuries)
{
    int refused_n = 0, same_n = 0, other_n = 0;
    struct llmc whole, llmc;
    assert_int_equal(llmc_parse((uint8_t *)llmc_good, llmc_bytes, "whole", &whole), ST_OK);
    for (uint64_t injury = 0; injury < INJURIES; injury++) {
        uint8_t *copy = malloc(llmc_bytes);
        memcpy(copy, llmc_good, llmc_bytes);
        injure(injury, (char *)copy, injury % 2 ? 32 : 1024);
        enum status st = llmc_parse(copy, llmc_bytes, "injured", &llmc);
        assert_true(st == ST_OK || (st == ST_BAD_DATA && status_message()[0] != 0));
        if (st == ST_OK) {
            bool is_same = llmc.vocab == whole.vocab && llmc.heads == whole.heads;
            assert_true(llmc.layers == whole.layers && llmc.embed == whole.embed &&
                        llmc.context == whole.context && llmc.vocab_padded == whole.vocab_padded &&
                        llmc.dtype == whole.dtype);
            assert_true(llmc.vocab >= whole.vocab && llmc.vocab <= whole.vocab_padded &&
                        llmc.embed % llmc.heads == 0);
            same_n += is_same;
            other_n += !is_same;
        }
        refused_n += st != ST_OK;
        free(copy);
    }
    print_message("# model file: %d injuries refused, %d changed nothing, %d gave another "
                  "vocabulary or heads that fit\n",
                  refused_n, same_n, other_n);
    assert_true(refused_n >= 2000);
}

int main(void) { return harness_run_all(__FILE__, setup, teardown); }
