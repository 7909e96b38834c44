/* hf — folders of PyTorch are read with and without prefix, as one file and as several; files
 * that do not belong together are refused by name. */
#include "harness.h"

#include "format/hf.h"

static char dir[FILE_PATH_MAX];
static const struct hf_config gpt2 = {.arch = HF_ARCH_GPT2, .is_tied = true};

static int setup(void **state)
{
    static int n;
    text_format(dir, sizeof(dir), "%s/%d", harness_tmpdir(), n++);
    return mkdir(dir, 0777);
}

static void write_text(const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    assert_int_equal(file_join(path, sizeof(path), dir, name), ST_OK);
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

static void write_file(const char *name, const struct safetensors_source *source, int n)
{
    char path[FILE_PATH_MAX];
    uint64_t hash;
    int64_t bytes;
    assert_int_equal(file_join(path, sizeof(path), dir, name), ST_OK);
    unlink(path);
    assert_int_equal(safetensors_write(path, source, n, NULL, NULL, &hash, &bytes), ST_OK);
}

static void write_weights(const struct safetensors_source *source, int n)
{
    write_file("model.safetensors", source, n);
}

TEST(test_golden)
{
    for (int qa = 0; qa < 2; qa++) {
        const char *from = qa ? "tests/golden/qa" : "tests/golden/lm";
        struct hf_config config;
        struct hf_model *hf = NULL;
        const struct safetensors_entry *entry;
        assert_true(hf_is_folder(from));
        assert_int_equal(hf_read_config(from, &config), ST_OK);
        assert_int_equal(config.layers, 3);
        assert_int_equal(config.heads, 4);
        assert_int_equal(config.embed, 64);
        assert_int_equal(config.context, 48);
        assert_int_equal(config.vocab, 311);
        assert_int_equal(config.is_qa, qa);
        assert_int_equal(hf_open(from, &gpt2, &hf), ST_OK);
        assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){311, 64}, &entry), ST_OK);
        assert_string_equal(entry->name, "transformer.wte.weight");
        assert_int_equal(hf_tensor(hf, "h.2.attn.c_attn.weight", 2, (int64_t[]){64, 192}, &entry),
                         ST_OK);
        assert_int_equal(hf_tensor(hf, "h.2.attn.c_attn.weight", 2, (int64_t[]){192, 64}, &entry),
                         ST_BAD_DATA);
        harness_assert_message("(64, 192), expected (192, 64)");
        assert_int_equal(hf_tensor(hf, "h.3.ln_1.bias", 1, (int64_t[]){64}, &entry), ST_BAD_DATA);
        harness_assert_message("h.3.ln_1.bias");
        assert_int_equal(hf_has(hf, "qa_outputs.weight"), qa);
        hf_close(hf);
    }
    assert_false(hf_is_folder("tests/golden"));
    assert_false(hf_is_folder("tests/nothing"));
    hf_close(NULL);
}

#define NINE "[1,2,3,4,5,6,7,8,9]"

/* The limit counts the list that is taken. A generation_config.json that cannot be read leaves that
 * of config.json. */
TEST_WITH(test_generation, setup, NULL)
{
    static const char with[] = "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":2,"
                               "\"n_positions\":4,\"vocab_size\":32,\"eos_token_id\":%s}";
    static const struct {
        const char *eos, *generation;
        enum status st;
        int eos_n, first;
    } row[] = {{"[3,4]", "", ST_OK, 2, 3},
               {"[3,4]", "version https://git-lfs.github.com/spec/v1\noid sha256:0", ST_OK, 2, 3},
               {"[3,4]", "{\"eos_token_id\":", ST_OK, 2, 3},
               {"[3,4]", "[]", ST_OK, 2, 3},
               {"[3,4]", "{\"eos_token_id\":5}", ST_OK, 1, 5},
               {NINE, "{\"eos_token_id\":[6,7]}", ST_OK, 2, 6},
               {NINE, "{}", ST_BAD_DATA, 0, 0},
               {NINE, "", ST_BAD_DATA, 0, 0},
               {"3", "{\"eos_token_id\":" NINE "}", ST_BAD_DATA, 0, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char json[512];
        struct hf_config config;
        text_format(json, sizeof json, with, row[i].eos);
        write_text("config.json", json);
        write_text("generation_config.json", row[i].generation);
        assert_int_equal(hf_read_config(dir, &config), row[i].st);
        if (row[i].st == ST_OK) {
            assert_string_equal(status_message(), "");
            assert_int_equal(config.eos_n, row[i].eos_n);
            assert_int_equal(config.eos[0], row[i].first);
        } else
            harness_assert_message("more than 8");
        status_clear();
    }
}

TEST_WITH(test_weights, setup, NULL)
{
    static const float wte[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
    const struct safetensors_source source[] = {
        {"wte.weight", DTYPE_F32, 2, {2, 2}, .data = wte},
        {"h.0.attn.bias", DTYPE_U8, 1, {4}, .data = wte},
        {"lm_head.weight", DTYPE_F32, 2, {2, 2}, .data = wte},
        {"score.weight", DTYPE_F64, 1, {1}, .data = wte},
    };
    struct safetensors_source untied[2] = {source[0], source[2]};
    struct hf_model *hf = NULL;
    const struct safetensors_entry *entry;
    write_weights(source, 4);
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_OK);
    assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
    assert_int_equal(hf_tensor(hf, "score.weight", 1, (int64_t[]){1}, &entry), ST_BAD_DATA);
    harness_assert_message("dtype F64");
    hf_close(hf);
    untied[1].data = other;
    write_weights(untied, 2);
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("lm_head.weight differs");
}

/* The other architectures: prefix, head and buffers; a tied head may stand for the embedding, one
 * of its own may not. */
TEST_WITH(test_architectures, setup, NULL)
{
    static const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    const struct safetensors_source llama[] = {
        {"model.embed_tokens.weight", DTYPE_BF16, 2, {2, 2}, .data = a},
        {"model.layers.1.self_attn.rotary_emb.inv_freq", DTYPE_F32, 1, {4}, .data = a},
        {"model.layers.1.mlp.up_proj.weight", DTYPE_F16, 2, {1, 4}, .data = a},
        {"lm_head.weight", DTYPE_F32, 2, {2, 2}, .data = b},
    };
    struct hf_config config = {.arch = HF_ARCH_LLAMA};
    struct hf_model *hf = NULL;
    const struct safetensors_entry *entry;
    write_weights(llama, 4);
    assert_int_equal(hf_open(dir, &config, &hf), ST_OK);
    assert_int_equal(hf_tensor(hf, "embed_tokens.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
    assert_int_equal(hf_tensor(hf, "layers.1.mlp.up_proj.weight", 2, (int64_t[]){1, 4}, &entry),
                     ST_OK);
    assert_int_equal(hf_tensor(hf, "lm_head.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
    assert_string_equal(entry->name, "lm_head.weight");
    assert_int_equal(hf_check_layers(hf, 2), ST_OK);
    assert_int_equal(hf_check_layers(hf, 1), ST_BAD_DATA);
    harness_assert_message("num_hidden_layers 1");
    hf_close(hf);
    config.is_tied = true;
    assert_int_equal(hf_open(dir, &config, &hf), ST_BAD_DATA);
    harness_assert_message("tie_word_embeddings");
    config.is_tied = false;
    write_weights(llama, 3);
    assert_int_equal(hf_open(dir, &config, &hf), ST_OK);
    assert_int_equal(hf_tensor(hf, "lm_head.weight", 2, (int64_t[]){2, 2}, &entry), ST_BAD_DATA);
    harness_assert_message("is it a whole Llama?");
    hf_close(hf);
}

/* GPT-NeoX's head has two names. */
TEST_WITH(test_neox_head, setup, NULL)
{
    static const float a[4] = {1, 2, 3, 4};
    struct safetensors_source source[] = {
        {"gpt_neox.embed_in.weight", DTYPE_F32, 2, {2, 2}, .data = a},
        {"embed_out.weight", DTYPE_F32, 2, {2, 2}, .data = a},
        {"gpt_neox.layers.0.attention.masked_bias", DTYPE_F32, 0, {0}, .data = a},
        {"lm_head.weight", DTYPE_F32, 2, {2, 2}, .data = a},
    };
    const struct hf_config config = {.arch = HF_ARCH_NEOX};
    struct hf_model *hf = NULL;
    const struct safetensors_entry *entry;
    for (int i = 0; i < 2; i++) {
        write_weights(source, 3);
        assert_int_equal(hf_open(dir, &config, &hf), ST_OK);
        assert_int_equal(hf_tensor(hf, "embed_out.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
        hf_close(hf);
        source[1].name = "lm_head.weight";
    }
    source[1].name = "embed_out.weight";
    write_weights(source, 4);
    assert_int_equal(hf_open(dir, &config, &hf), ST_BAD_DATA);
    harness_assert_message("two tensors stand for embed_out.weight");
}

TEST_WITH(test_other_weights, setup, NULL)
{
    struct hf_model *hf = NULL;
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_NO_INPUT);
    harness_assert_message("no model.safetensors");
    write_text("pytorch_model.bin", "x");
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("safe_serialization");
    write_text("model.safetensors.index.json", "{}");
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("weight_map");
    write_text("model.safetensors", "");
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("0 bytes");
}

/* Two parameters in both spellings, and an output layer in place of the embedding. */
TEST_WITH(test_spellings, setup, NULL)
{
    static const float a[4] = {1, 2, 3, 4};
    const struct safetensors_source twice[] = {
        {"wte.weight", DTYPE_F32, 2, {2, 2}, .data = a},
        {"transformer.wte.weight", DTYPE_F32, 2, {2, 2}, .data = a}};
    const struct safetensors_source head[] = {
        {"lm_head.weight", DTYPE_F32, 2, {2, 2}, .data = a},
        {"transformer.ln_f.bias", DTYPE_F32, 1, {4}, .data = a}};
    struct hf_model *hf = NULL;
    const struct safetensors_entry *entry;
    write_weights(twice, 2);
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("two tensors stand for wte.weight");
    write_weights(head, 2);
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_OK);
    assert_true(hf_has(hf, "wte.weight") && hf_has(hf, "ln_f.bias"));
    assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
    assert_string_equal(entry->name, "lm_head.weight");
    hf_close(hf);
}

#define INDEX "model.safetensors.index.json"
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
#define MAP_OF(bytes, text) "{\"metadata\":{\"total_size\":" bytes "},\"weight_map\":{" text "}}"
#define MAP(text) MAP_OF("32", text)
#define WTE(file) "\"transformer.wte.weight\":\"" file "\""
#define LNF(file) "\"transformer.ln_f.bias\":\"" file "\""

static const float shard_a[4] = {1, 2, 3, 4};
static const struct safetensors_source shard_source[] = {
    {"transformer.wte.weight", DTYPE_F32, 2, {2, 2}, .data = shard_a},
    {"transformer.ln_f.bias", DTYPE_F32, 1, {4}, .data = shard_a},
    {"transformer.h.0.attn.bias", DTYPE_U8, 1, {4}, .data = shard_a}};

TEST_WITH(test_weights_sum, setup, NULL)
{
    uint64_t whole = 0, one = 0, two = 0;
    assert_int_equal(hf_weights_sum(dir, &one), ST_OK);
    assert_int_equal(one, 0); /* no weights */
    write_file(ONE, &shard_source[0], 1);
    write_file(TWO, &shard_source[1], 1);
    write_text(INDEX, MAP(WTE(ONE) "," LNF(TWO)));
    assert_int_equal(hf_weights_sum(dir, &one), ST_OK);
    write_file(TWO, &shard_source[2], 1); /* every file counts */
    assert_int_equal(hf_weights_sum(dir, &two), ST_OK);
    assert_true(one != 0 && two != 0 && one != two);
    write_weights(shard_source, 2); /* one file has precedence */
    assert_int_equal(hf_weights_sum(dir, &whole), ST_OK);
    assert_true(whole != two);
    write_text(INDEX, "{");
    assert_int_equal(hf_weights_sum(dir, &one), ST_OK);
    assert_true(one == whole);
}

TEST_WITH(test_shards, setup, NULL)
{
    static const struct {
        const char *index, *says; /* says NULL: good */
    } index_list[] = {
        {MAP(WTE(ONE) "," LNF(TWO)), NULL},
        {MAP(LNF(TWO) "," WTE(ONE)), NULL},
        {MAP(WTE(ONE) "," LNF(ONE)),
         "tensor transformer.ln_f.bias is listed in " ONE ", which does not hold it"},
        {MAP(WTE(TWO) "," LNF(TWO)),
         "tensor transformer.wte.weight is listed in " TWO ", which does not hold it"},
        {MAP(WTE(TWO) "," LNF(ONE)), "lies in"},
        {MAP(WTE(ONE)), "\"total_size\" is 32, but the tensors of its 1 file have 16 bytes"},
        {MAP(WTE(ONE) "," LNF(TWO) ",\"h.0.ln_1.bias\":\"" TWO "\""),
         "h.0.ln_1.bias is listed in " TWO},
        {MAP(WTE(ONE) "," LNF("model-00003-of-00002.safetensors")),
         "model-00003-of-00002.safetensors, which is not there"},
        {MAP(WTE(ONE) "," LNF("../" TWO)), "no plain file name"},
        {MAP("\"wte.weight\":\"" ONE "\"," LNF(TWO)), "wte.weight"},
        {MAP_OF("36", WTE(ONE) "," LNF(TWO)),
         "\"total_size\" is 36, but the tensors of its 2 files have 32 bytes"},
        {MAP_OF("\"32\"", WTE(ONE) "," LNF(TWO)), "\"total_size\" is not a number of bytes"},
        {MAP_OF("null", WTE(ONE) "," LNF(TWO)), NULL},
        {MAP_OF("16", WTE(ONE)), "ln_f.bias"},
    };
    for (size_t i = 0; i < sizeof(index_list) / sizeof(index_list[0]); i++) {
        struct hf_model *hf = NULL;
        const struct safetensors_entry *entry;
        write_file(ONE, &shard_source[0], 1);
        write_file(TWO, &shard_source[1], 1);
        write_text(INDEX, index_list[i].index);
        enum status st = hf_open(dir, &gpt2, &hf);
        /* a file that is not listed is not opened: what is missing shows on access */
        if (i == sizeof(index_list) / sizeof(index_list[0]) - 1) {
            assert_int_equal(st, ST_OK);
            assert_int_equal(hf_tensor(hf, "ln_f.bias", 1, (int64_t[]){4}, &entry), ST_BAD_DATA);
            harness_assert_message("ln_f.bias");
            hf_close(hf);
            continue;
        }
        if (st != (index_list[i].says ? ST_BAD_DATA : ST_OK))
            fail_msg("%s: %s %s", index_list[i].index, status_name(st), status_message());
        if (index_list[i].says) {
            harness_assert_message(index_list[i].says);
            continue;
        }
        assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){2, 2}, &entry), ST_OK);
        assert_memory_equal(entry->data, shard_a, sizeof(shard_a));
        assert_int_equal(hf_tensor(hf, "ln_f.bias", 1, (int64_t[]){3}, &entry), ST_BAD_DATA);
        harness_assert_message(TWO);
        hf_close(hf);
    }
}

/* A file that holds more than is listed, a tensor in two files, and a mask of a kind that is not
 * ours to read. */
TEST_WITH(test_shards_extra, setup, NULL)
{
    struct hf_model *hf = NULL;
    write_file(ONE, &shard_source[0], 1);
    write_file(TWO, &shard_source[1], 2);
    write_text(INDEX, MAP(WTE(ONE) "," LNF(TWO)));
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("does not list tensor transformer.h.0.attn.bias");
    write_text(INDEX,
               MAP_OF("36", WTE(ONE) "," LNF(TWO) ",\"transformer.h.0.attn.bias\":\"" TWO "\""));
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_OK);
    assert_int_equal(hf_check_names(hf), ST_OK); /* a causal mask belongs to a GPT-2 */
    hf_close(hf);
    write_file(ONE, &shard_source[0], 2);
    write_file(TWO, &shard_source[1], 1);
    write_text(INDEX, MAP(WTE(ONE) "," LNF(TWO)));
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("two tensors stand for ln_f.bias");
    char bytes[128] = "        {\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    bytes[0] = (char)(strlen(bytes) - 8);
    memset(bytes + 1, 0, 7);
    size_t n = 8 + (size_t)bytes[0] + 1;
    char path[FILE_PATH_MAX];
    assert_int_equal(file_join(path, sizeof(path), dir, ONE), ST_OK);
    assert_int_equal(file_replace(path, bytes, n), ST_OK);
    write_text(INDEX, MAP_OF("17", "\"a\":\"" ONE "\"," LNF(TWO)));
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_OK);
    assert_false(hf_has(hf, "a"));
    assert_int_equal(hf_check_names(hf), ST_BAD_DATA);
    harness_assert_message("tensor a does not belong to GPT-2 and would not be used");
    hf_close(hf);
    write_text("model.safetensors", ""); /* one file takes precedence over an index */
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("0 bytes");
}

TEST_WITH(test_index_missing_file, setup, NULL)
{
    struct hf_model *hf = NULL;
    write_text(INDEX, MAP(WTE(ONE)));
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message("lists " ONE ", which is not there");
    write_text(ONE, "not safetensors");
    assert_int_equal(hf_open(dir, &gpt2, &hf), ST_BAD_DATA);
    harness_assert_message(ONE);
}

HARNESS_RUN_ALL()
