/* Each allocation of each reader fails in turn, in a process of its own: the process ends with the
 * code for missing memory (base/memory.h), or the reader says that memory is short (never that the
 * input is damaged), or does without, and leaves nothing behind. This program's malloc stands
 * before the C library's, for the libraries too. */
#include "harness.h"

#include <stdatomic.h>
#include <sys/wait.h>

#include "base/json.h"
#include "ckpt_sample.h"
#include "data/corpus.h"
#include "data/mix.h"
#include "data/qa/squad.h"
#include "format/llmc.h"
#include "file_share/file_list.h"
#include "cluster/message.h"
#include "serve/chart.h"
#include "train/weights/weights.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static atomic_bool is_armed;
static atomic_int calls, fail_at, live;
static bool is_onward;

#if !IS_SANITIZED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *data);
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *data, size_t bytes);
void *aligned_alloc(size_t align, size_t bytes);
int posix_memalign(void **out, size_t align, size_t bytes);
void free(void *data);

static bool must_fail(void)
{
    if (!atomic_load(&is_armed))
        return false;
    int i = atomic_fetch_add(&calls, 1) + 1;
    if (i != atomic_load(&fail_at) && !(is_onward && i > atomic_load(&fail_at)))
        return false;
    errno = ENOMEM;
    return true;
}

static void *count(void *data)
{
    if (data && atomic_load(&is_armed))
        atomic_fetch_add(&live, 1);
    return data;
}

void *malloc(size_t bytes) { return must_fail() ? NULL : count(__libc_malloc(bytes)); }
void *calloc(size_t n, size_t bytes) { return must_fail() ? NULL : count(__libc_calloc(n, bytes)); }
void *aligned_alloc(size_t align, size_t bytes)
{
    return must_fail() ? NULL : count(__libc_memalign(align, bytes));
}
int posix_memalign(void **out, size_t align, size_t bytes)
{
    *out = aligned_alloc(align, bytes);
    return *out ? 0 : ENOMEM;
}
void *realloc(void *data, size_t bytes)
{
    if (must_fail())
        return NULL;
    return data ? __libc_realloc(data, bytes) : count(__libc_malloc(bytes));
}
void free(void *data)
{
    if (data && atomic_load(&is_armed))
        atomic_fetch_sub(&live, 1);
    __libc_free(data);
}
#endif

typedef enum status reader(void);
static enum status show_history(void); /* has no status */

/* run_with — the reader with its allocation i failing (0: none, and those from it on); how many it
 * made, and what it left. */
static enum status run_with(reader *read, int i, int *calls_out, int *live_out)
{
    atomic_store(&calls, 0);
    atomic_store(&live, 0);
    atomic_store(&fail_at, i > 0 ? i : -1);
    atomic_store(&is_armed, true);
    enum status st = read();
    atomic_store(&is_armed, false);
    *calls_out = atomic_load(&calls);
    *live_out = atomic_load(&live);
    return st;
}

/* Runs the reader without allocation i in a child; returns the child's exit code, 1: the reader is
 * at fault. A child that ends for want of memory must say so on stderr. */
static int try_without(const char *name, reader *read_it, int i)
{
    int made, left = 0, ends[2];
    char said[4096] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child != 0) {
        close(ends[1]);
        for (ssize_t at = 0, n; (n = read(ends[0], said + at, sizeof said - 1 - (size_t)at)) > 0;)
            at += n;
        close(ends[0]);
        const bool is_ended = waitpid(child, &left, 0) == child && WIFEXITED(left),
                   is_silent = is_ended && WEXITSTATUS(left) != 0 && !strstr(said, "emory");
        if (!is_ended || is_silent)
            print_message("# %s: status %x, stderr: %s\n", name, (unsigned)left, said);
        return is_ended && !is_silent ? WEXITSTATUS(left) : 1;
    }
    dup2(ends[1], STDERR_FILENO);
    status_clear();
    const enum status st = run_with(read_it, i, &made, &left);
    fprintf(stderr, "# %s: %s, %d left: %s\n", name, status_name(st), left, status_message());
    _exit((st == ST_OK || st == ST_RETRY) && left == 0 ? status_exit_code(st) : 1);
}

/* starve — most: so many of its allocations at most, in equal strides. */
static void starve(const char *name, reader *read, int most)
{
    int all, left, tried = 0, refused = 0;
    if (IS_SANITIZED) {
        HARNESS_SKIP("sanitizers have their own malloc");
    }
    is_onward = false;
    run_with(read, 0, &all, &left); /* what is made once for the process */
    enum status st = run_with(read, 0, &all, &left);
    if (st != ST_OK || left != 0)
        fail_msg("%s: %s, %d allocations left: %s", name, status_name(st), left, status_message());
    for (int onward = 0; onward < 2; onward++)
        for (int i = 1; i <= all; i += all / most + 1, tried++) {
            is_onward = onward;
            const int code = try_without(name, read, i);
            if (code != 0 && code != status_exit_code(ST_RETRY))
                fail_msg("%s: allocation %d of %d%s", name, i, all, onward ? " and on" : "");
            refused += code != 0;
        }
    print_message("# %s: %d allocations, %d failures tried, %d refused\n", name, all, tried,
                  refused);
    assert_true(refused > 0 || read == show_history);
}

static const char *in(const char *name)
{
    static char out[4][FILE_PATH_MAX];
    static int i;
    i = (i + 1) % 4;
    bool armed = atomic_exchange(&is_armed, false);
    assert_int_equal(file_join(out[i], FILE_PATH_MAX, harness_tmpdir(), name), ST_OK);
    atomic_store(&is_armed, armed);
    return out[i];
}

static enum status read_json(void)
{
    static const char text[] = "{\"a\":[1,2,{\"b\":\"c\"}],\"d\":null,\"e\":{\"f\":1,\"g\":\"h\"}}";
    cJSON *root = NULL;
    enum status st = json_parse(text, sizeof text - 1, "text", &root);
    cJSON_Delete(root);
    return st;
}

static enum status read_weights(const char *path)
{
    static float data[1 << 17];
    struct model_dims dims;
    struct param_table table = {.params_n = 0};
    TRY(weights_dims(path, &dims));
    enum status st = model_ops(&dims)->describe(&dims, &table);
    if (st == ST_OK)
        st = weights_load(path, &(struct load_target){.table = &table, .data = {data, DTYPE_F32}});
    param_table_free(&table);
    return st;
}

static enum status read_folder(void) { return read_weights("tests/golden/hf_export/lm"); }
static enum status read_llmc(void) { return read_weights("tests/golden/hf_export/lm_bf16.bin"); }

static enum status read_ckpt(void)
{
    struct ckpt *ckpt = NULL;
    struct model_dims dims;
    enum status st = weights_checkpoint("tests/golden/ckpt_1", &ckpt, &dims);
    ckpt_close(st == ST_OK ? ckpt : NULL);
    return st;
}

static void *nowhere(void *arg, const char *array, const struct safetensors_entry *entry)
{
    (void)arg, (void)array, (void)entry;
    return NULL;
}

static enum status read_ckpt_fill(void)
{
    struct ckpt *ckpt = NULL;
    struct ckpt_fill fill = {nowhere, NULL};
    TRY(ckpt_find_newest("tests/golden/ckpt_1", INT64_MAX, NULL, &ckpt));
    enum status st = ckpt_fill(ckpt, &fill, NULL);
    ckpt_close(ckpt);
    return st;
}

static enum status read_squad(void)
{
    const struct data_file_config config = {.data = in("qa.json")};
    struct squad *squad = NULL;
    enum status st = squad_open(&config, &squad);
    squad_close(st == ST_OK ? squad : NULL);
    return st;
}

static enum status read_tokens(void)
{
    const struct corpus_config config = {
        .data = in("data"), .cache_dir = in("cache"), .vocab = 50257};
    struct corpus *corpus = NULL;
    enum status st = corpus_open(&config, &corpus);
    corpus_close(st == ST_OK ? corpus : NULL);
    return st;
} /* texts and token files, in the cache */
static enum status read_text(void)
{
    const struct corpus_config config = {.data = in("data"), .vocab = 50257};
    int64_t tokens;
    return corpus_write(&config, in("out.bin"), &tokens);
}

/* ---- what nodes send ---- */

static struct {
    char *bytes;
    size_t n;
} seed;

static void read_seed(const char *path)
{
    free(seed.bytes);
    assert_int_equal(file_read(path, 1 << 20, &seed.bytes, &seed.n), ST_OK);
}

static struct message_body body;
static enum status read_heartbeat(void)
{
    return message_read_heartbeat(seed.bytes, seed.n, &body);
}

static enum status read_reply(void)
{
    struct message_reply reply;
    return message_read_reply(seed.bytes, seed.n, &reply);
}

static enum status read_bill(void)
{
    struct file_list list;
    enum status st = file_list_read(seed.bytes, seed.n, &list);
    if (st == ST_OK)
        file_list_free(&list);
    return st;
}

static enum status read_mix(void)
{
    struct mix mix;
    TRY(mix_parse("a:0.7,b:0.3", &mix));
    mix_order_close(mix_order_open(&mix, 1, true));
    mix_free(&mix);
    return ST_OK;
}

/* What cannot be shown for want of memory is left out. */
static enum status show_history(void)
{
    struct text shown = {.limit = 1 << 20};
    chart_write(seed.bytes, seed.n, &shown);
    text_free(&shown);
    return ST_OK;
}

static void write_data(void)
{
    char text[8192];
    assert_int_equal(file_make_dirs(in("data")), ST_OK);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "She sells sea shells by the shore.\n"[i % 35];
    assert_int_equal(file_replace(in("data/a.txt"), text, sizeof text), ST_OK);
    assert_int_equal(
        file_replace(in("data/b.jsonl"), "{\"text\":\"one\"}\n{\"text\":\"two\"}\n", 30), ST_OK);
    int32_t header[256] = {20240520, 1, 8};
    char tokens[sizeof header + 16] = {0};
    memcpy(tokens, header, sizeof header);
    assert_int_equal(file_replace(in("data/c.bin"), tokens, sizeof tokens), ST_OK);
    /* and Megatron's two files of it all */
    const struct corpus_config config = {.data = in("data"), .vocab = 50257};
    int64_t n;
    assert_int_equal(corpus_write(&config, in("pair.idx"), &n), ST_OK);
    assert_int_equal(rename(in("pair.idx"), in("data/pair.idx")), 0);
    assert_int_equal(rename(in("pair.bin"), in("data/pair.bin")), 0);
    static const char qa[] = "{\"data\":[{\"paragraphs\":[{\"context\":\"abc "
                             "def\",\"qas\":[{\"id\":\"1\",\"question\":\"q\",\"answers\":[{"
                             "\"text\":\"def\",\"answer_start\":4}]}]}]}]}";
    assert_int_equal(file_replace(in("qa.json"), qa, sizeof qa - 1), ST_OK);
}

TEST(test_base) { starve("json", read_json, 100); }

TEST(test_meet)
{
    struct text text = {.limit = 1 << 20};
    message_write_heartbeat(
        &text,
        &(struct message_heartbeat){.node_id = 1, .incarnation = {1, 2}, .sequence = 1, .step = -1},
        &(struct message_join){.protocol = MESSAGE_PROTOCOL,
                               .nodes_n = 2,
                               .workers_n = 1,
                               .pid = 1,
                               .agree_json = "{}"},
        0);
    seed.bytes = text.data;
    seed.n = text.len;
    starve("a node's hello", read_heartbeat, 100);
    seed.n = text.len = 0;
    message_write_reply(&text, &(struct message_reply){.coordinator = {1, 2}, .sequence = 1});
    seed.bytes = text.data;
    seed.n = text.len;
    starve("node 0's answer", read_reply, 100);
    read_seed("tests/fuzz/file_list/ready");
    starve("a list of files", read_bill, 100);
    read_seed("tests/fuzz/chart/course");
    starve("a history", show_history, 100);
}

TEST(test_models)
{
    starve("a Hugging Face folder", read_folder, 120);
    starve("a model file of llm.c", read_llmc, 100);
}

TEST(test_checkpoints)
{
    (void)state; /* each failure is tried again after 0.1 s, and 0.4 s */
    starve("a checkpoint", read_ckpt, 10);
    starve("a checkpoint, read into place", read_ckpt_fill, 10);
}

TEST(test_data)
{
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    write_data();
    starve("questions", read_squad, 100);
    starve("a mixture", read_mix, 100);
    starve("a folder of data", read_tokens, 100);
    starve("tokenising", read_text, 60);
}

HARNESS_RUN_ALL()
