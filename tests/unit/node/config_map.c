/* config_map — settings reach the right fields, and those that depend on the model's
 * dimensions are checked. */
#include "harness.h"

#include "base/json.h"
#include "node/choose/config_map.h"

/* The result of one mapping. */
struct mapped {
    struct conf *conf;
    struct model_dims dims;
    bool has_weights;
    struct trainer_config trainer;
    enum status st;
};

/* map — "A=1 B=2" as arguments, no environment. */
static struct mapped map(const char *words)
{
    struct mapped m = {0};
    static char copy[1024];
    char *argv[32], *none[] = {NULL}, *rest = NULL;
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word && argc < 32;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    m.st = conf_open(argc, argv, none, &m.conf);
    if (m.st == ST_OK)
        m.st = config_map_dims(m.conf, &m.dims, &m.has_weights);
    if (m.st == ST_OK)
        m.st = config_map_trainer(m.conf, &m.dims, m.has_weights, &m.trainer);
    return m;
}

TEST(test_preset)
{
    struct mapped m = map("MODEL=gpt2-mini");
    assert_int_equal(m.st, ST_OK);
    assert_int_equal(m.dims.layers, 6);
    assert_int_equal(m.dims.embed, 384);
    assert_int_equal(m.trainer.step.seq_tokens, 1024);
    assert_int_equal(m.trainer.step.global_samples, 8);
    assert_string_equal(m.trainer.model_path, "");
    conf_close(m.conf);
    m = map("MODEL=gpt2-nano TASK=qa");
    assert_int_equal(m.trainer.step.seq_tokens, 512);
    assert_int_equal(m.dims.task, MODEL_TASK_QA);
    conf_close(m.conf);
    m = map("MODEL=gpt2-nano TASK=qa CONTEXT=64");
    assert_int_equal(m.trainer.step.seq_tokens, 64);
    conf_close(m.conf);
}

TEST(test_numbers_arrive)
{
    struct mapped m =
        map("MODEL=gpt2-nano LAYERS=3 HEADS=2 EMBED=8 CONTEXT=16 VOCAB=99 SEQ_LEN=9 BATCH_SIZE=2 "
            "GLOBAL_BATCH=6 EPOCHS=7 STEPS=11 LR=0.5 MIN_LR=0.25 LR_SCHEDULE=wsd WARMUP_STEPS=3 "
            "BETA1=0.1 BETA2=0.2 EPS=0.001 WEIGHT_DECAY=0.4 GRAD_CLIP=5 DROPOUT=0.5 SEED=77 "
            "RECOMPUTE=block:2 EVAL_EVERY=2 VAL_DATA=v CHECKPOINT_DIR=d CHECKPOINT_EVERY=4 "
            "CHECKPOINT_KEEP=9 RESUME=never METRICS_FILE=m DATA=t SHUFFLE=0 MAX_RESTARTS=0");
    struct mapped text = map("SAMPLE_EVERY=3 PROMPT=p TEMPERATURE=0.5 TOP_K=7 TOP_P=0.9 "
                             "TENSORBOARD_DIR=b CUDA_GRAPH=off STOP_AFTER=5");
    const struct trainer_config *t = &m.trainer;
    assert_int_equal(m.st, ST_OK);
    assert_int_equal(m.dims.layers * 1000000 + m.dims.heads * 10000 + m.dims.embed * 100 +
                         m.dims.vocab,
                     3020899);
    assert_int_equal(t->step.seq_tokens, 9);
    assert_int_equal(t->step.batch_samples, 2);
    assert_int_equal(t->step.global_samples, 6);
    assert_int_equal(t->epochs, 7);
    assert_int_equal(t->steps, 11);
    assert_true(t->lr_schedule.lr == 0.5 && t->lr_schedule.lr_min == 0.25 &&
                t->lr_schedule.warmup_steps == 3);
    assert_int_equal(t->lr_schedule.kind, LR_SCHEDULE_KIND_WSD);
    assert_true(t->step.optim.beta1 == 0.1 && t->step.optim.beta2 == 0.2 &&
                t->step.optim.eps == 0.001);
    assert_true(t->step.optim.weight_decay == 0.4 && t->step.optim.grad_clip == 5);
    assert_true(t->step.dropout == 0.5f && t->step.seed == 77);
    assert_int_equal(t->step.recompute.way, MODEL_RECOMPUTE_BLOCK);
    assert_int_equal(t->step.recompute.layers, 2);
    assert_true(text.trainer.step.is_eager && !t->step.is_eager);
    struct mapped timed = map("CUDA_TIMES=1 COMM_SMS=16");
    assert_true(timed.trainer.step.comm_sms == 16 && t->step.comm_sms == 0);
    assert_true(timed.trainer.step.is_timed && timed.trainer.step.is_eager && !t->step.is_timed);
    assert_int_equal(t->resume, TRAINER_RESUME_NEVER);
    assert_int_equal(text.trainer.stop_after, 5);
    assert_true(t->eval_every == 2 && t->checkpoint_every == 4 && t->checkpoint_keep == 9);
    assert_string_equal(t->checkpoint_dir, "d");
    assert_string_equal(t->metrics_file, "m");
    const struct sampling_params *rule = &text.trainer.sampling_params;
    assert_true(text.trainer.sample_every == 3 && rule->temperature == 0.5 && rule->top_k == 7 &&
                rule->top_p == 0.9);
    assert_string_equal(text.trainer.sample_prompt, "p");
    assert_string_equal(text.trainer.tensorboard_dir, "b");
    conf_close(timed.conf);
    conf_close(text.conf);
    struct feed_config feed;
    config_map_feed(m.conf, t, false, &feed);
    assert_string_equal(feed.data, "t");
    assert_true(!feed.is_shuffled && feed.seq_tokens == 9 && feed.global_samples == 6 &&
                feed.vocab == 99 && feed.seed == 77);
    config_map_feed(m.conf, t, true, &feed);
    assert_string_equal(feed.data, "v");
    conf_close(m.conf);
}

TEST(test_held_out_data_keeps_its_order)
{
    struct mapped m = map("MODEL=gpt2-nano DATA=t VAL_DATA=v");
    struct feed_config feed;
    config_map_feed(m.conf, &m.trainer, false, &feed);
    assert_true(feed.is_shuffled);
    config_map_feed(m.conf, &m.trainer, true, &feed);
    assert_false(feed.is_shuffled);
    conf_close(m.conf);
}

/* EXACT=layout: shards by GLOBAL_BATCH alone; a pass has their samples at most, and checkpoints
 * record those. */
TEST(test_virtual_shards)
{
    static const struct {
        const char *words;
        int shards;
        int64_t pass;
    } rows[] = {
        {"GLOBAL_BATCH=12 BATCH_SIZE=1", 12, 1},
        {"GLOBAL_BATCH=12 BATCH_SIZE=5", 12, 1},
        {"GLOBAL_BATCH=64", 64, 1},
        {"GLOBAL_BATCH=64 BATCH_SIZE=64", 64, 1},
        {"GLOBAL_BATCH=127", 127, 1},
        {"GLOBAL_BATCH=128", 64, 2},
        {"GLOBAL_BATCH=192 BATCH_SIZE=3", 64, 3},
        {"GLOBAL_BATCH=254", 127, 2},
        {"GLOBAL_BATCH=512", 64, 8},
        {"GLOBAL_BATCH=4096 BATCH_SIZE=100", 512, 8},
        {"GLOBAL_BATCH=65536 BATCH_SIZE=16", 4096, 16},
        {"GLOBAL_BATCH=64 VIRTUAL_SHARDS=8", 8, 8},
        {"GLOBAL_BATCH=64 VIRTUAL_SHARDS=8 BATCH_SIZE=16", 8, 8},
        {"GLOBAL_BATCH=64 VIRTUAL_SHARDS=8 BATCH_SIZE=2", 8, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[256], recorded[64];
        struct text settings = {0};
        snprintf(words, sizeof words, "MODEL=gpt2-nano DEVICE=cpu EXACT=layout %s", rows[i].words);
        struct mapped m = map(words);
        if (m.st != ST_OK)
            fail_msg("%s: %s", words, status_message());
        if (m.trainer.step.shards != rows[i].shards || m.trainer.step.batch_samples != rows[i].pass)
            fail_msg("%s: %d shards, passes of %lld", words, m.trainer.step.shards,
                     (long long)m.trainer.step.batch_samples);
        config_map_settings(m.conf, &m.trainer, NULL, "", &settings);
        snprintf(recorded, sizeof recorded, "\"BATCH_SIZE\":%lld,", (long long)rows[i].pass);
        assert_non_null(strstr(settings.data, recorded));
        assert_null(strstr(settings.data, "DETERMINISTIC"));
        text_free(&settings);
        conf_close(m.conf);
    }
}

/* The kernels that compute decide bits with EXACT=layout only. */
TEST(test_arithmetic)
{
    struct mapped exact = map("MODEL=gpt2-nano EXACT=layout GLOBAL_BATCH=8 DEVICE=cuda"),
                  other = map("MODEL=gpt2-nano");
    struct text settings = {0};
    assert_int_equal(exact.st, ST_OK);
    config_map_settings(exact.conf, &exact.trainer, NULL, "A chip, cuBLASLt 13.0.2", &settings);
    assert_non_null(strstr(settings.data, ",\"arithmetic\":\"A chip, cuBLASLt 13.0.2\""));
    text_free(&settings);
    config_map_settings(other.conf, &other.trainer, NULL, "A chip, cuBLASLt 13.0.2", &settings);
    assert_null(strstr(settings.data, "arithmetic"));
    text_free(&settings);
    conf_close(exact.conf);
    conf_close(other.conf);
}

static void assert_refused(const char *words, enum status want, const char *says)
{
    struct mapped m = map(words);
    assert_int_equal(m.st, want);
    assert_non_null(strstr(status_message(), says));
    conf_close(m.conf);
}

TEST(test_refusals)
{
    assert_refused("MODEL=gpt2-nano DEVICE=cpu EXACT=layout GLOBAL_BATCH=256 BATCH_SIZE=2",
                   ST_BAD_SETTING,
                   "64 virtual shards of 4 samples, each one pass, and BATCH_SIZE=2 (argument) "
                   "allows 2; set BATCH_SIZE=4, or VIRTUAL_SHARDS=128, which changes the bits");
    assert_refused("MODEL=gpt2-nano SEQ_LEN=1025", ST_BAD_SETTING,
                   "SEQ_LEN=1025 (argument) is over the model's CONTEXT of 1024");
    assert_refused("MODEL=gpt2-nano HEADS=3", ST_BAD_SETTING, "3");
    assert_refused("MODEL=gpt2-nano RECOMPUTE=block:5", ST_BAD_SETTING,
                   "RECOMPUTE=block:5 (argument) names more layers than the 4 of the model");
    assert_refused("MODEL=gpt3", ST_BAD_SETTING, "MODEL=gpt3");
    assert_refused("MODEL=/no/where", ST_NO_INPUT, "MODEL=/no/where");
    assert_refused("MODEL=/", ST_NO_INPUT, "config.json");
    assert_refused("MODEL=tests/golden/lm LAYERS=4", ST_BAD_SETTING,
                   "LAYERS=4 (argument), but the weights of MODEL=tests/golden/lm have 3");
}

static void check_dims(const char *words, int64_t kv_heads, int64_t head_dim, int64_t ffn)
{
    struct mapped m = map(words);
    if (m.st != ST_OK)
        print_error("%s: %s\n", words, status_message());
    assert_int_equal(m.st, ST_OK);
    if (m.dims.kv_heads != kv_heads || m.dims.head_dim != head_dim || m.dims.ffn != ffn)
        print_error("%s: KV_HEADS %d, HEAD_DIM %d, FFN %d\n", words, (int)m.dims.kv_heads,
                    (int)m.dims.head_dim, (int)m.dims.ffn);
    assert_true(m.dims.kv_heads == kv_heads && m.dims.head_dim == head_dim && m.dims.ffn == ffn);
    conf_close(m.conf);
}

/* What HEADS and EMBED change, what they leave, and what is set. */
TEST(test_derived_dims)
{
    check_dims("MODEL=gpt2", 12, 64, 3072);
    check_dims("MODEL=gpt2 EMBED=96", 12, 8, 384);
    check_dims("MODEL=llama-3-8b", 8, 128, 14336);
    check_dims("MODEL=llama-3-8b LAYERS=2", 8, 128, 14336);
    check_dims("MODEL=llama-3-8b HEADS=8 EMBED=256", 2, 32, 768);
    check_dims("MODEL=llama-3-8b HEADS=6 EMBED=192", 6, 32, 512);
    check_dims("MODEL=llama-3-8b HEADS=6 KV_HEADS=3 EMBED=192 HEAD_DIM=48 FFN=100", 3, 48, 100);
    check_dims("MODEL=qwen3-0.6b", 8, 128, 3072);
    check_dims("MODEL=qwen3-0.6b EMBED=512", 8, 32, 1536);
    check_dims("MODEL=pythia-70m EMBED=64", 8, 8, 256);
    check_dims("MODEL=tests/golden/llama KV_HEADS=2 FFN=136", 2, 12, 136);
    assert_refused("MODEL=tests/golden/llama KV_HEADS=4", ST_BAD_SETTING, "KV_HEADS=4 (argument)");
    assert_refused("MODEL=tests/golden/lm KV_HEADS=2", ST_BAD_SETTING, "have 4");
    assert_refused("MODEL=gpt2 FFN=100", ST_BAD_SETTING, "FFN is 100, but gpt2 needs 3072");
    assert_refused("MODEL=gpt2 KV_HEADS=4", ST_BAD_SETTING, "KV_HEADS is 4, but gpt2 needs 12");
    assert_refused("MODEL=pythia-70m HEAD_DIM=32", ST_BAD_SETTING, "HEAD_DIM is 32");
    assert_refused("MODEL=llama-toy KV_HEADS=3", ST_BAD_SETTING, "KV_HEADS=3 does not divide");
    assert_refused("MODEL=llama-toy HEAD_DIM=15", ST_BAD_SETTING, "HEAD_DIM=15");
    assert_refused("MODEL=llama-toy TASK=qa", ST_BAD_SETTING, "TASK=qa is for GPT-2");
    assert_refused("MODEL=llama", ST_BAD_SETTING, "llama-3.2-1b, smollm2-135m");
}

static struct model_features features_of(const char *words)
{
    struct mapped m = map(words);
    if (m.st != ST_OK)
        print_error("%s: %s\n", words, status_message());
    assert_int_equal(m.st, ST_OK);
    conf_close(m.conf);
    return m.dims.features;
}

/* Each setting changes its part alone, of a preset of GPT-2. */
TEST(test_features)
{
    const struct model_features modern = features_of("MODEL=gpt2-modern-nano"), plain = {0};
    struct model_features p = features_of("MODEL=gpt2-nano");
    assert_memory_equal(&p, &plain, sizeof p);
    p = features_of("MODEL=gpt2-nano ACTIVATION=relu2 LOGIT_CAP=7.5");
    assert_true(p.mlp == MODEL_MLP_RELU2 && p.logit_cap == 7.5 && !p.has_qk_norm && !p.is_untied);
    p = features_of("MODEL=gpt2-nano QK_NORM=1 TIE_EMBEDDINGS=0 ZERO_INIT=1");
    assert_true(p.has_qk_norm && p.is_untied && p.has_zero_init && p.mlp == MODEL_MLP_GELU_TANH);
    p = features_of("MODEL=gpt2-nano POSITIONS=rope");
    assert_true(p.position == MODEL_POSITION_ROPE && p.rope.theta == 10000 && p.rope.fraction == 1);
    p = features_of("MODEL=gpt2-nano POSITIONS=rope ACTIVATION=relu2 LOGIT_CAP=15 QK_NORM=1 "
                    "TIE_EMBEDDINGS=0 ZERO_INIT=1");
    assert_memory_equal(&p, &modern, sizeof p);
    p = features_of("MODEL=gpt2-modern-nano POSITIONS=learned ACTIVATION=gelu LOGIT_CAP=0 "
                    "QK_NORM=0 TIE_EMBEDDINGS=1 ZERO_INIT=0");
    assert_memory_equal(&p, &plain, sizeof p);
    (void)features_of("MODEL=tests/golden/lm ACTIVATION=gelu QK_NORM=0"); /* as it is */
}

TEST(test_refused_features)
{
    assert_refused("MODEL=llama-toy LOGIT_CAP=15", ST_BAD_SETTING,
                   "LOGIT_CAP=15 (argument) is for GPT-2");
    assert_refused("MODEL=qwen3-0.6b QK_NORM=0", ST_BAD_SETTING, "QK_NORM=0 (argument) is for");
    assert_refused("MODEL=tests/golden/lm POSITIONS=rope", ST_BAD_SETTING,
                   "POSITIONS=rope (argument) differs from the value with which the weights of "
                   "MODEL=tests/golden/lm");
    assert_refused("MODEL=gpt2-modern-nano TASK=qa", ST_BAD_SETTING,
                   "LOGIT_CAP and TIE_EMBEDDINGS");
    assert_refused("MODEL=gpt2-nano LOGIT_CAP=0.01", ST_BAD_SETTING, "LOGIT_CAP is 0.01, outside");
    assert_refused("MODEL=gpt2-nano HEADS=128 POSITIONS=rope", ST_BAD_SETTING,
                   "elements of a head");
}

TEST(test_model_file)
{
    struct mapped m = map("MODEL=tests/golden/hf_export/lm_f32.bin TASK=qa");
    assert_int_equal(m.st, ST_OK);
    assert_true(m.has_weights && m.dims.task == MODEL_TASK_QA && m.dims.layers == 2 &&
                m.dims.vocab == 31);
    assert_string_equal(m.trainer.model_path, "tests/golden/hf_export/lm_f32.bin");
    conf_close(m.conf);
    assert_refused("MODEL=tests/golden/hf_export/lm_f32.bin VOCAB=32", ST_BAD_SETTING, "have 31");
    assert_refused("MODEL=tests/golden/lm/tokens.bin", ST_BAD_DATA, "token file");
}

TEST(test_folder)
{
    struct mapped m = map("MODEL=tests/golden/lm HEADS=4");
    assert_int_equal(m.st, ST_OK);
    assert_true(m.has_weights);
    assert_string_equal(m.trainer.model_path, "tests/golden/lm");
    assert_string_equal(m.dims.name, "lm");
    assert_int_equal(m.trainer.step.seq_tokens, m.dims.context);
    struct board_model board;
    config_map_board_model(&m.dims, &board);
    assert_string_equal(board.name, "lm");
    assert_int_equal(board.layers, 3);
    assert_int_equal(board.parameters, -1);
    assert_int_equal(board.adapter.rank, 0);
    conf_close(m.conf);
    m = map("MODEL=tests/golden/lm HEADS=4 LORA=8 LORA_TARGETS=mlp");
    assert_int_equal(m.st, ST_OK);
    config_map_board_model(&m.dims, &board);
    assert_int_equal(board.adapter.rank, 8);
    assert_true(board.adapter.alpha == 16);
    assert_string_equal(board.adapter.targets, "mlp");
    conf_close(m.conf);
    m = map("MODEL=tests/golden/lm HEADS=4 LORA=8 LORA_TARGETS=down,qkv");
    config_map_board_model(&m.dims, &board);
    assert_string_equal(board.adapter.targets, "qkv,down");
    conf_close(m.conf);
    assert_refused("MODEL=tests/golden/lm HEADS=4 LORA=8 LORA_TARGETS=q,v", ST_BAD_SETTING,
                   "one matrix, attn.c_attn");
}

TEST(test_settings_are_json)
{
    struct mapped m =
        map("MODEL=gpt2-nano SEED=9007199254740991 LR=1e-3 OPTIMIZER=sgd MOMENTUM=0.9 "
            "DETERMINISTIC=0");
    struct text text = {0};
    cJSON *object = NULL;
    const char *optimizer;
    int64_t seed, moments, deterministic;
    double lr;
    config_map_settings(m.conf, &m.trainer, NULL, "", &text);
    assert_null(strstr(text.data, "DETERMINISTIC")); /* no effect on a CPU */
    text_free(&text);
    m.trainer.step.store.dtype = DTYPE_BF16; /* as on a GPU */
    config_map_settings(m.conf, &m.trainer, NULL, "", &text);
    assert_int_equal(json_parse(text.data, text.len, "settings", &object), ST_OK);
    assert_int_equal(json_get_string(object, "OPTIMIZER", &optimizer), ST_OK);
    assert_string_equal(optimizer, "sgd");
    assert_int_equal(json_get_i64(object, "SEED", 0, INT64_MAX, &seed), ST_OK);
    assert_int_equal(seed, 9007199254740991);
    assert_int_equal(json_get_i64(object, "moments", 0, 2, &moments), ST_OK);
    assert_int_equal(moments, 1);
    assert_int_equal(json_get_i64(object, "DETERMINISTIC", 0, 1, &deterministic), ST_OK);
    assert_int_equal(deterministic, 0);
    assert_int_equal(json_get_f64(object, "LR", &lr), ST_OK);
    assert_true(lr == 1e-3);
    assert_true(text.len < 1024); /* the manifest has room for 2048 */
    cJSON_Delete(object);
    text_free(&text);
    conf_close(m.conf);
}

/* What decides rounding, with SHARD as it was chosen; nodes, workers and device are not in it. */
TEST(test_layout_is_json)
{
    struct mapped m = map("MODEL=gpt2-nano N_GPU_EACH_NODE=4 TP=2 PP=2 COMPRESS=bf16");
    struct text text = {0};
    cJSON *object = NULL;
    int64_t ranks;
    m.trainer.step.store.shard = LAYOUT_SHARD_FULL;
    config_map_layout(m.conf, &m.trainer, &text);
    assert_int_equal(json_parse(text.data, text.len, "layout", &object), ST_OK);
    assert_string_equal(json_text(object, "SHARD"), "full");
    assert_string_equal(json_text(object, "COMPRESS"), "bf16");
    assert_int_equal(json_get_i64(object, "TP", 2, 2, &ranks), ST_OK);
    assert_int_equal(json_get_i64(object, "PP", 2, 2, &ranks), ST_OK);
    assert_false(cJSON_HasObjectItem(object, "N_GPU_EACH_NODE"));
    assert_false(cJSON_HasObjectItem(object, "LR"));
    cJSON_Delete(object);
    text_free(&text);
    conf_close(m.conf);
}

HARNESS_RUN_ALL()
