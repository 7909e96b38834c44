/* llmc — a model file of llm.c gives every parameter in our layout, whole or in any ranges;
 * its header is checked against its contents. */
#include "harness.h"

#include "format/hf.h"
#include "format/llmc.h"

#define DIR "tests/golden/hf_export/"
static const struct hf_config gpt2 = {.arch = HF_ARCH_GPT2, .is_tied = true};
#define PARAMS 28
#define LAYER 12

static void names(int i, char out[64], int *dims_n, int64_t dim[2])
{
    static const struct {
        const char *name;
        int in, out;
    } row[] = {{"ln_1.weight", 0, 12},         {"ln_1.bias", 0, 12},
               {"attn.c_attn.weight", 12, 36}, {"attn.c_attn.bias", 0, 36},
               {"attn.c_proj.weight", 12, 12}, {"attn.c_proj.bias", 0, 12},
               {"ln_2.weight", 0, 12},         {"ln_2.bias", 0, 12},
               {"mlp.c_fc.weight", 12, 48},    {"mlp.c_fc.bias", 0, 48},
               {"mlp.c_proj.weight", 48, 12},  {"mlp.c_proj.bias", 0, 12}},
      end[] = {{"wte.weight", 31, 12},
               {"wpe.weight", 24, 12},
               {"ln_f.weight", 0, 12},
               {"ln_f.bias", 0, 12}};
    bool is_end = i >= 2 * LAYER;
    int in = is_end ? end[i - 2 * LAYER].in : row[i % LAYER].in;
    int to = is_end ? end[i - 2 * LAYER].out : row[i % LAYER].out;
    if (is_end)
        text_copy(out, 64, end[i - 2 * LAYER].name);
    else
        text_format(out, 64, "h.%d.%s", i / LAYER, row[i % LAYER].name);
    *dims_n = in > 0 ? 2 : 1;
    dim[0] = in > 0 ? in : to;
    dim[1] = to;
}

/* The same weights as transformers' folder, bit for bit; bf16: rounded to its 8 bits of
 * precision. */
TEST(test_same_as_folder)
{
    struct hf_model *hf;
    assert_int_equal(hf_open(DIR "lm", &gpt2, &hf), ST_OK);
    for (int half = 0; half < 2; half++) {
        struct llmc_file *file;
        assert_int_equal(llmc_open(half ? DIR "lm_bf16.bin" : DIR "lm_f32.bin", &file), ST_OK);
        const struct llmc *llmc = llmc_of(file);
        assert_true(llmc->layers == 2 && llmc->heads == 3 && llmc->embed == 12 &&
                    llmc->context == 24);
        assert_true(llmc->vocab == 31 && llmc->vocab_padded == 128);
        for (int i = 0; i < PARAMS; i++) {
            char name[64];
            int dims_n;
            int64_t dim[2];
            const struct safetensors_entry *want;
            struct llmc_entry entry;
            float a[600], b[600], c[600];
            names(i, name, &dims_n, dim);
            assert_int_equal(hf_tensor(hf, name, dims_n, dim, &want), ST_OK);
            assert_int_equal(llmc_tensor(llmc, name, dims_n, dim, &entry), ST_OK);
            assert_int_equal(entry.elems, want->elems);
            safetensors_to_f32(want, 0, want->elems, a);
            llmc_to_f32(&entry, 0, entry.elems, b);
            for (int64_t k = 0; k < entry.elems; k++)
                assert_float_equal(a[k], b[k], half ? 0.004 * (a[k] < 0 ? -a[k] : a[k]) : 0);
            for (int64_t k = 0; k < entry.elems; k += 7) /* in odd runs */
                llmc_to_f32(&entry, k, entry.elems - k < 7 ? entry.elems - k : 7, c + k);
            assert_memory_equal(b, c, (size_t)entry.elems * sizeof(float));
        }
        llmc_close(file);
    }
    hf_close(hf);
}

TEST(test_asked_wrongly)
{
    struct llmc_file *file;
    struct llmc_entry entry;
    assert_int_equal(llmc_open(DIR "lm_f32.bin", &file), ST_OK);
    static const char *const unknown[] = {"",
                                          "h.2.ln_1.bias",
                                          "h.-1.ln_1.bias",
                                          "h.0.ln_3.bias",
                                          "ln_1.bias",
                                          "h.0.wte.weight",
                                          "h.99999999999999999999999999999.ln_1.bias",
                                          "qa_outputs.weight"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_int_equal(llmc_tensor(llmc_of(file), unknown[i], 1, (int64_t[]){12}, &entry),
                         ST_BAD_DATA);
    assert_int_equal(
        llmc_tensor(llmc_of(file), "h.1.attn.c_attn.weight", 2, (int64_t[]){36, 12}, &entry),
        ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "(12, 36), expected (36, 12)"));
    assert_int_equal(llmc_tensor(llmc_of(file), "ln_f.bias", 2, (int64_t[]){1, 12}, &entry),
                     ST_BAD_DATA);
    assert_int_equal(llmc_tensor(llmc_of(file), "wte.weight", 2, (int64_t[]){128, 12}, &entry),
                     ST_BAD_DATA);
    llmc_close(file);
    llmc_close(NULL);
    assert_true(llmc_is_file(DIR "lm_f32.bin"));
    assert_false(llmc_is_file(DIR "lm") || llmc_is_file(DIR "nothing"));
    assert_int_equal(llmc_open(DIR "nothing", &file), ST_NO_INPUT);
}

TEST(test_header)
{
    static const struct {
        int word;
        int32_t value;
        const char *says;
    } bad_list[] = {
        {0, 20240327, "but is 20240327"},
        {0, 20240520, "token file"},
        {1, 1, "version 1"},
        {1, 5, "need"},
        {2, 0, "0 positions"},
        {2, 25, "need"},
        {3, -1, "-1 vocabulary"},
        {3, 129, "padded vocabulary 128 is below 129"},
        {3, 30, "row 30 of the token embedding is not zero"},
        {4, 3, "need"},
        {4, 2147483647, "2147483647 layers"},
        {5, 5, "not divisible"},
        {5, 0, "0 heads"},
        {6, 24, "need"},
        {6, 1 << 25, "width in the header"},
        {7, 1 << 24, "need"},
        {8, 1, "word 8 of the header is 1"},
        {255, -1, "word 255"},
    };
    char *bytes;
    size_t n;
    struct llmc llmc;
    assert_int_equal(file_read(DIR "lm_f32.bin", 1 << 20, &bytes, &n), ST_OK);
    assert_int_equal(llmc_parse((uint8_t *)bytes, n, "FILE", &llmc), ST_OK);
    for (size_t i = 0; i < sizeof(bad_list) / sizeof(bad_list[0]); i++) {
        char kept[4];
        memcpy(kept, bytes + 4 * bad_list[i].word, 4);
        memcpy(bytes + 4 * bad_list[i].word, &bad_list[i].value, 4);
        assert_int_equal(llmc_parse((uint8_t *)bytes, n, "FILE", &llmc), ST_BAD_DATA);
        if (!strstr(status_message(), bad_list[i].says) || !text_starts(status_message(), "FILE"))
            fail_msg("word %d = %d: expected \"%s\" in: %s", bad_list[i].word, bad_list[i].value,
                     bad_list[i].says, status_message());
        memcpy(bytes + 4 * bad_list[i].word, kept, 4);
    }
    assert_int_equal(llmc_parse((uint8_t *)bytes, n, "FILE", &llmc), ST_OK);
    assert_int_equal(llmc_parse(NULL, 0, "FILE", &llmc), ST_BAD_DATA);
    free(bytes);
}

HARNESS_RUN_ALL()
