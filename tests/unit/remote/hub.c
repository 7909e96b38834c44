/* hub — repositories of a fake hub (tests/remote/fake_hub.h): the right files of each kind, their
 * commit, pinned and offline; gated, missing, limited, cut off, damaged and hostile answers; no
 * token to another port. */
#include "harness.h"

#include <sys/resource.h>

#include "remote/fake_hub.h"
#include "remote/hub_name.h"
#include "remote/remote.h"

#define ONE "1111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222"

static struct fake_hub hub;
static char root[FILE_PATH_MAX], cache[FILE_PATH_MAX], path[FILE_PATH_MAX],
    commit[REMOTE_REVISION_MAX];
static int64_t seen_done, seen_total;

static void put(const char *name, const char *text)
{
    char file[2 * FILE_PATH_MAX];
    snprintf(file, sizeof file, "%s/%s", root, name);
    *strrchr(file, '/') = '\0';
    assert_int_equal(file_make_dirs(file), ST_OK);
    file[strlen(file)] = '/';
    assert_int_equal(file_replace(file, text, strlen(text)), ST_OK);
}

static void put_large(const char *name, char c, size_t n)
{
    char *text = calloc(1, n + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(c + (i * i + i / 100) % 20);
    put(name, text);
    free(text);
}

#define LARGE "models/org/small/" ONE "/model.safetensors?Signature=secret token= "
#define MODEL "models/org/small/" ONE "/"
#define INDEXED "models/org/indexed/" ONE "/"
#define SET "datasets/org/set/" ONE "/"

static void fill(void)
{
    static const char *const others[] = {"README.md",          ".gitattributes",
                                         "pytorch_model.bin",  "consolidated.safetensors",
                                         "onnx/model.onnx",    "generation_config.json",
                                         "config.json",        "tokenizer.json",
                                         "chat_template.jinja"};
    char name[200];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, MODEL "%s", others[i]);
        put(name, others[i]);
    }
    put("models/org/small/refs/main", ONE);
    put("models/org/small/refs/tag", ONE);
    put("models/org/small/refs/feature%2Fx", ONE);
    put_large(MODEL "model.safetensors", 'a', 50000);
    put("models/org/indexed/refs/main", ONE);
    put(INDEXED "config.json", "{}");
    put(INDEXED "model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}");
    put_large(INDEXED "model-1.safetensors", 'a', 3000);
    put_large(INDEXED "model-2.safetensors", 'b', 3000);
    put_large(INDEXED "model-3.safetensors", 'c', 3000);
    put("models/org/quants/refs/main", ONE);
    put("models/org/quants/" ONE "/q4.gguf", "GGUF");
    put("models/org/quants/" ONE "/q8.gguf", "GGUF 8");
    put("models/org/pickle/refs/main", ONE);
    put("models/org/pickle/" ONE "/config.json", "{}");
    put("models/org/pickle/" ONE "/pytorch_model.bin", "pickle");
    put("models/org/adapter/refs/main", ONE);
    put("models/org/adapter/" ONE "/adapter_config.json", "{}");
    put("models/org/adapter/" ONE "/adapter_model.safetensors", "weights");
    put("models/org/adapter/" ONE "/tokenizer.json", "not its own");
    put("datasets/org/set/refs/main", ONE);
    put(SET "README.md", "about");
    put(SET "data/train-0.jsonl", "{\"text\":\"zero\"}\n");
    put(SET "data/train-1.jsonl", "{\"text\":\"one\"}\n");
    put(SET "data/test.jsonl", "{\"text\":\"test\"}\n");
    put(SET "data/.hidden", "hidden");
    put(SET "data/deep/er/a b.txt", "deep");
    put(SET "data/empty.txt", "");
    put(SET "data/x.idx", "index");
    put(SET "data/x.bin", "tokens");
    put(SET "odd[1].txt", "odd");
}

static int start(void **state)
{
    static char endpoint[64];
    log_init(&(struct log_config){.level = LOG_LEVEL_ERROR, .node_id = -1, .rank = -1});
    text_format(root, sizeof root, "%s/hub", harness_tmpdir());
    fill();
    fake_hub_start(&hub, root);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d/", hub.hub_port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("HF_HOME", harness_tmpdir(), 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_TOKEN_PATH");
    unsetenv("HF_HUB_OFFLINE");
    return 0;
}

static int stop(void **state)
{
    kill(hub.hub, SIGKILL);
    kill(hub.cdn, SIGKILL);
    waitpid(hub.hub, NULL, 0);
    waitpid(hub.cdn, NULL, 0);
    return 0;
}

/* An empty cache, an empty log, and no faults. */
static int fresh(void **state)
{
    static int n;
    static const char *const faults[] = {"token", "answer", "sum",  "busy",
                                         "cut",   "slow",   "gone", "log"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i], "log") != 0)
            fake_set(&hub, faults[i], NULL);
    text_format(cache, sizeof cache, "%s/cache[%d]", harness_tmpdir(), n++);
    char file[2 * FILE_PATH_MAX];
    snprintf(file, sizeof file, "%s/log", root);
    if (truncate(file, 0) != 0 && errno != ENOENT)
        return -1;
    put("models/org/small/refs/main", ONE);
    unsetenv("HF_TOKEN");
    unsetenv("HF_TOKEN_PATH");
    unsetenv("HF_HUB_OFFLINE");
    seen_done = seen_total = 0;
    return 0;
}

static bool on_progress(void *arg, int64_t done, int64_t total)
{
    assert_true(done <= total);
    seen_done = done;
    seen_total = total;
    return arg == NULL;
}

static enum status get(enum remote_kind kind, const char *name)
{
    const struct remote_config config = {.setting = kind == REMOTE_KIND_DATA ? "DATA" : "MODEL",
                                         .cache_dir = cache,
                                         .allows_local = true,
                                         .progress = on_progress,
                                         .retry_ms = 1};
    return remote_fetch(&config, kind, name, path, commit);
}

static void assert_got(enum remote_kind kind, const char *name)
{
    if (get(kind, name) != ST_OK)
        fail_msg("%s: %s", name, status_message());
}

static void assert_refused(enum remote_kind kind, const char *name, enum status st,
                           const char *words)
{
    const enum status got = get(kind, name);
    if (got != st)
        fail_msg("%s: %s: %s", name, status_name(got), status_message());
    harness_assert_message(words);
}

/* Names of the files below a folder, such as "a b/c". */
static const char *files_of(const char *dir) { return harness_files(dir, "%P"); }

static const char *hub_log(void)
{
    static char out[65536];
    char file[2 * FILE_PATH_MAX];
    snprintf(file, sizeof file, "%s/log", root);
    FILE *log = fopen(file, "r");
    const size_t n = fread(out, 1, sizeof out - 1, log);
    out[n] = '\0';
    fclose(log);
    return out;
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

TEST(test_names)
{
    struct hub_name name;
    static const char *const bad[] = {"hf://",
                                      "hf://org/",
                                      "hf://org//file",
                                      "hf:///name",
                                      "hf://../name",
                                      "hf://org/..",
                                      "hf://org/na me",
                                      "hf://org/a--b",
                                      "hf://-org/name",
                                      "hf://org/name@",
                                      "hf://org/name@../x",
                                      "hf://org/name@a%2F..%2Fb",
                                      "hf://org/name/../secret",
                                      "hf://org/name/a/./b",
                                      "hf://org/name/a//b",
                                      "hf://org/name/%2e%2e/secret",
                                      "hf://org/name/a%00b",
                                      "hf://org/name/a%0ab",
                                      "hf://org/name/a%5cb",
                                      "hf://org/name/a%4",
                                      "hf://org/name/a\nb",
                                      "hf://org/name?x",
                                      "hf://datasets/",
                                      "s3://org/name"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (hub_name_parse("MODEL", bad[i], &name) != ST_BAD_SETTING)
            fail_msg("accepted: %s", bad[i]);
        harness_assert_message("MODEL=");
    }
    assert_int_equal(hub_name_parse("MODEL", "hf://gpt2", &name), ST_OK);
    assert_string_equal(name.repo, "gpt2");
    assert_string_equal(name.revision, "main");
    assert_int_equal(hub_name_parse("MODEL", "hf://org/name@v1.0/a/b.gguf", &name), ST_OK);
    assert_string_equal(name.repo, "org/name");
    assert_string_equal(name.revision, "v1.0");
    assert_string_equal(name.path, "a/b.gguf");
    assert_int_equal(hub_name_parse("MODEL", "hf://org/name@refs/pr/3/x", &name), ST_OK);
    assert_string_equal(name.revision, "refs/pr/3");
    assert_string_equal(name.path, "x");
    assert_int_equal(hub_name_parse("DATA", "hf://datasets/o/n@a%2Fb/d/*%2C*/", &name), ST_OK);
    assert_true(name.is_dataset);
    assert_string_equal(name.revision, "a/b");
    assert_string_equal(name.path, "d/*,*");
    assert_true(remote_is_name("hf://x") && remote_is_name("s3://x") &&
                remote_is_name("HTTPS://x"));
    assert_false(remote_is_name("x/hf://y") || remote_is_name("hf:/x") || remote_is_name(""));
}

TEST_WITH(test_model, fresh, NULL)
{
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_string_equal(commit, ONE);
    assert_true(text_ends(path, "/hub/models--org--small/" ONE));
    assert_string_equal(files_of(path), "chat_template.jinja config.json generation_config.json "
                                        "model.safetensors tokenizer.json");
    assert_int_equal(seen_done, seen_total);
    assert_true(seen_total > 50000);
    assert_int_equal(count(hub_log(), "\n"), 1 + 5 + 1);
    /* a second start requests the commit of the branch only */
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_int_equal(count(hub_log(), "\n"), 1 + 5 + 1 + 1);
    /* a commit never changes */
    assert_got(REMOTE_KIND_MODEL, "hf://org/small@" ONE);
    assert_int_equal(count(hub_log(), "\n"), 1 + 5 + 1 + 1);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small@tag");
    assert_got(REMOTE_KIND_MODEL, "hf://org/small@feature%2Fx");
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small/tokenizer.json");
    assert_true(text_ends(path, ONE "/tokenizer.json"));
}

TEST_WITH(test_kinds, fresh, NULL)
{
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    assert_string_equal(files_of(path), "chat_template.jinja tokenizer.json");
    assert_got(REMOTE_KIND_ADAPTER, "hf://org/adapter");
    assert_string_equal(files_of(path), "adapter_config.json adapter_model.safetensors");
    assert_got(REMOTE_KIND_MODEL, "hf://org/indexed");
    assert_string_equal(files_of(path), "config.json model-1.safetensors model-2.safetensors "
                                        "model.safetensors.index.json");
    assert_got(REMOTE_KIND_MODEL, "hf://org/quants/q4.gguf");
    assert_true(text_ends(path, ONE "/q4.gguf"));
    *strrchr(path, '/') = '\0';
    assert_string_equal(files_of(path), "q4.gguf");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/quants", ST_NO_INPUT, "hf://org/quants/q4.gguf");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/pickle", ST_NO_INPUT, "pytorch_model.bin is a");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/adapter", ST_NO_INPUT, "ADAPTER=hf://org/adapter");
    assert_refused(REMOTE_KIND_ADAPTER, "hf://org/small", ST_NO_INPUT, "no adapter_config.json");
    assert_refused(REMOTE_KIND_TOKENIZER, "hf://org/quants", ST_NO_INPUT, "its files: q4.gguf");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small/no.gguf", ST_NO_INPUT, "no such file");
    assert_refused(REMOTE_KIND_MODEL, "hf://datasets/org/set", ST_BAD_SETTING, "set DATA to it");
}

TEST_WITH(test_data, fresh, NULL)
{
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/data/test.jsonl");
    assert_true(text_ends(path, "/hub/datasets--org--set/" ONE "/data/test.jsonl"));
    assert_int_equal(harness_entries(cache), 1);
    /* both files of a Megatron pair */
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/data/x.idx");
    *strrchr(path, '/') = '\0';
    assert_string_equal(files_of(path), "test.jsonl x.bin x.idx");
    /* a glob: the local one has the cache's folder as it is, brackets and all */
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/data/train-*.jsonl");
    assert_true(text_ends(path, "/data/train-*.jsonl"));
    assert_non_null(strstr(path, "cache\\["));
    /* a folder, without hidden files */
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/data/");
    assert_string_equal(files_of(path), "deep/er/a b.txt empty.txt test.jsonl train-0.jsonl "
                                        "train-1.jsonl x.bin x.idx");
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/d*");
    assert_got(REMOTE_KIND_DATA, "hf://datasets/org/set/odd[1].txt");
    assert_true(file_exists(path));
    assert_refused(REMOTE_KIND_DATA, "hf://datasets/org/set/none-*", ST_NO_INPUT, "README.md");
    assert_refused(REMOTE_KIND_DATA, "hf://datasets/org/set/dat", ST_NO_INPUT, "no such file");
    assert_refused(REMOTE_KIND_DATA, "hf://datasets/org/set", ST_BAD_SETTING, "/*.jsonl");
}

TEST_WITH(test_token, fresh, NULL)
{
    fake_set(&hub, "token", "hf_secret");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING,
                   "ask for access on https://huggingface.co/org/small");
    harness_assert_message("HF_TOKEN");
    setenv("HF_TOKEN", "hf_other", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "HTTP 403");
    harness_assert_message("https://huggingface.co/org/small");
    assert_null(strstr(status_message(), "hf_other"));
    setenv("HF_TOKEN", " hf_secret\n", 1);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    /* the large file came from the other port, which has not seen the token */
    assert_int_equal(
        count(hub_log(), "cdn GET /" MODEL "model.safetensors?Signature=secret token= "), 1);
    assert_int_equal(count(hub_log(), "cdn GET"), 1);
    assert_true(count(hub_log(), "token=hf_secret") >= 6);
    setenv("HF_TOKEN", "two words", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "HF_TOKEN holds no token");
    assert_null(strstr(status_message(), "two words"));
}

TEST_WITH(test_token_files, fresh, NULL)
{
    char file[FILE_PATH_MAX];
    fake_set(&hub, "token", "hf_file");
    text_format(file, sizeof file, "%s/token", harness_tmpdir());
    assert_int_equal(file_replace(file, "hf_file\n", 8), ST_OK);
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    assert_int_equal(file_replace(file, "hf_old", 6), ST_OK);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, file);
    text_format(file, sizeof file, "%s/mine", harness_tmpdir());
    setenv("HF_TOKEN_PATH", file, 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "HF_TOKEN_PATH");
    assert_int_equal(file_replace(file, "hf_file", 7), ST_OK);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    text_format(file, sizeof file, "%s/token", harness_tmpdir());
    unlink(file);
}

TEST_WITH(test_missing, fresh, NULL)
{
    assert_refused(REMOTE_KIND_MODEL, "hf://org/none", ST_BAD_SETTING, "check the name");
    setenv("HF_TOKEN", "hf_x", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/none", ST_NO_INPUT, "no model of that name");
    assert_refused(REMOTE_KIND_DATA, "hf://datasets/org/none/x", ST_NO_INPUT, "no data set");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small@v9", ST_NO_INPUT,
                   "no branch, tag or commit \"v9\"");
}

TEST_WITH(test_busy, fresh, NULL)
{
    const int64_t began_ms = clock_ms();
    fake_set(&hub, "busy", "1");
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    assert_true(clock_ms() - began_ms >= 1000); /* Retry-After: 1 */
    fake_set(&hub, "gone", "503");
    assert_refused(REMOTE_KIND_TOKENIZER, "hf://org/indexed", ST_RETRY, "503");
    fake_set(&hub, "gone", "429");
    assert_refused(REMOTE_KIND_TOKENIZER, "hf://org/indexed", ST_RETRY, "set HF_TOKEN");
    /* the hub is away: the last known commit is used */
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    assert_string_equal(commit, ONE);
}

TEST_WITH(test_cut, fresh, NULL)
{
    fake_set(&hub, "cut", "2");
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_int_equal(count(hub_log(), "cdn GET"), 3);
    assert_int_equal(count(hub_log(), "range=25000"), 2); /* hub and CDN */
    assert_int_equal(count(hub_log(), "range=37500"), 2);
    char partial[2 * FILE_PATH_MAX];
    snprintf(partial, sizeof partial, "%s/hub/models--org--small/partial", cache);
    assert_int_equal(harness_entries(partial), 0);
}

TEST_WITH(test_wrong_sum, fresh, NULL)
{
    fake_set(&hub, "sum", "00000000000000000000000000000000000000000000000000000000000000ff");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_DATA, "expected 0000000000");
    assert_null(strstr(status_message(), "Signature"));
    fake_set(&hub, "sum", NULL);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_int_equal(file_bytes(strcat(path, "/model.safetensors")), 50000);
}

TEST_WITH(test_moved, fresh, NULL)
{
    put("models/org/small/" TWO "/config.json", "{\"two\":2}");
    put_large("models/org/small/" TWO "/model.safetensors", 'k', 40000);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_string_equal(commit, ONE);
    put("models/org/small/refs/main", TWO);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small@" ONE);
    assert_string_equal(commit, ONE);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_string_equal(commit, TWO);
    assert_string_equal(files_of(path), "config.json model.safetensors");
}

/* Pins a value as MODEL and DATA are; the text is valid until the next call. */
static const char *pin(const char *value, const cJSON *recorded, cJSON *used)
{
    static struct text out;
    const struct remote_config config = {
        .setting = "DATA", .cache_dir = cache, .allows_local = true, .retry_ms = 1};
    text_free(&out);
    out = (struct text){.data = NULL};
    if (remote_pin(&config, value, recorded, used, &out) != ST_OK)
        fail_msg("%s: %s", value, status_message());
    return out.data;
}

/* A run records the commits of its names, and the next process uses them although the branch moved
 * on. */
TEST_WITH(test_pin, fresh, NULL)
{
    cJSON *first = cJSON_CreateObject(), *second = cJSON_CreateObject();
    static const char mix[] =
        "a.txt:0.5,hf://datasets/org/set/data/train-*.jsonl:0.3,hf://org/small@tag/config.json:0.2";
    static const char pinned[] = "a.txt:0.5,hf://datasets/org/set@" ONE
                                 "/data/train-*.jsonl:0.3,hf://org/small@" ONE "/config.json:0.2";
    assert_string_equal(pin("hf://org/small", NULL, first), "hf://org/small@" ONE);
    assert_string_equal(pin(mix, NULL, first), pinned);
    char *json = cJSON_PrintUnformatted(first);
    assert_string_equal(json, "{\"hf://org/small@main\":\"" ONE "\",\"hf://datasets/org/set@main\":"
                              "\"" ONE "\",\"hf://org/small@tag\":\"" ONE "\"}");
    free(json);
    put("models/org/small/" TWO "/config.json", "{\"two\":2}");
    put("models/org/small/refs/main", TWO);
    put("models/org/small/refs/tag", TWO);
    const int requests = count(hub_log(), "\n");
    assert_string_equal(pin("hf://org/small", first, second), "hf://org/small@" ONE);
    assert_string_equal(pin(mix, first, second), pinned);
    assert_true(cJSON_Compare(first, second, true));
    assert_string_equal(pin("hf://org/small@" TWO, first, second), "hf://org/small@" TWO);
    assert_string_equal(pin("/x/a.bin,s3://b/c", first, second), "/x/a.bin,s3://b/c");
    /* neither these names nor the files of a pinned one need the list again */
    assert_int_equal(get(REMOTE_KIND_TOKENIZER, "hf://org/small@" ONE), ST_OK);
    assert_int_equal(count(hub_log(), "/api/"), requests);
    assert_string_equal(pin("hf://org/small", NULL, second), "hf://org/small@" TWO);
    put("models/org/small/refs/tag", ONE);
    cJSON_Delete(first);
    cJSON_Delete(second);
}

TEST_WITH(test_offline, fresh, NULL)
{
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_NO_INPUT, "HF_HUB_OFFLINE=1");
    unsetenv("HF_HUB_OFFLINE");
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    const int requests = count(hub_log(), "\n");
    setenv("HF_HUB_OFFLINE", "ON", 1);
    put("models/org/small/refs/main", TWO);
    assert_got(REMOTE_KIND_TOKENIZER, "hf://org/small");
    assert_string_equal(commit, ONE);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_NO_INPUT, "does not have config.json");
    assert_int_equal(count(hub_log(), "\n"), requests);
    setenv("HF_HUB_OFFLINE", "perhaps", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "neither 1 nor 0");
}

TEST_WITH(test_hostile, fresh, NULL)
{
    static const char *const answers[] = {
        "",
        "{",
        "[]",
        "null",
        "<!doctype html><html>log in</html>",
        "{\"sha\":\"" ONE "\"}",
        "{\"sha\":\"main\",\"siblings\":[]}",
        "{\"sha\":\"../../../../../../../../../../../../x\",\"siblings\":[]}",
        "{\"sha\":7,\"siblings\":[]}",
        "{\"sha\":\"" ONE "\",\"siblings\":{}}",
        "{\"sha\":\"" ONE "\",\"siblings\":[7]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":7}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"../../x\"}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"/etc/x\"}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"a\\u000ab\"}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"a\\\\b\"}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"\"}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"config.json\",\"size\":-1}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"config.json\",\"size\":1e30}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"config.json\"}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{}]}",
        "{\"sha\":\"" ONE "\",\"siblings\":[{\"rfilename\":\"config.json\"},"
        "{\"rfilename\":\"config.json-x\"},{\"rfilename\":\"config.json/b\"}]}",
    };
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", hub.hub_port);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        fake_set(&hub, "answer", answers[i]);
        if (get(REMOTE_KIND_MODEL, "hf://org/small") != ST_BAD_DATA)
            fail_msg("%s: %s", answers[i], status_message());
        harness_assert_message("MODEL=hf://org/small");
        harness_assert_message(endpoint);
    }
    assert_int_equal(count(hub_log(), "resolve"), 0);
    harness_assert_message("\"config.json\" and \"config.json/b\"");
    /* another commit than the one requested */
    fake_set(&hub, "answer", "{\"sha\":\"" TWO "\",\"siblings\":[]}");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small@" ONE, ST_BAD_DATA, "another one");
    /* an index that names files elsewhere */
    fake_set(&hub, "answer", NULL);
    put("models/org/evil/refs/main", ONE);
    put("models/org/evil/" ONE "/config.json", "{}");
    put("models/org/evil/" ONE "/model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"../../../x.safetensors\"}}");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/evil", ST_BAD_DATA, "does not have");
    put("models/org/odd/refs/main", ONE);
    put("models/org/odd/" ONE "/config.json", "{}");
    put("models/org/odd/" ONE "/model.safetensors.index.json", "[]");
    assert_refused(REMOTE_KIND_MODEL, "hf://org/odd", ST_BAD_DATA, "MODEL=hf://org/odd@" ONE);
}

TEST_WITH(test_huge_answer, fresh, NULL)
{
    char *text = malloc(34 << 20);
    size_t n = (size_t)sprintf(text, "{\"sha\":\"" ONE "\",\"siblings\":[");
    while (n < 33u << 20)
        n += (size_t)sprintf(text + n, "{\"rfilename\":\"a%zu\"},", n);
    text[n - 1] = ']';
    strcpy(text + n, "}");
    fake_set(&hub, "answer", text);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_DATA, "values");
    free(text);
}

TEST_WITH(test_checksum, fresh, NULL)
{
    assert_refused(REMOTE_KIND_DATA, "hf://datasets/org/set/data/test.jsonl#sha256=00",
                   ST_BAD_SETTING, "DATA=hf://datasets/org/set/data/test.jsonl#sha256=00: only");
}

/* Sizes that no disk has: refused before the first byte. */
TEST_WITH(test_no_room, fresh, NULL)
{
    struct text answer = {.limit = 4096};
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "vocab.json", "merges.txt"};
    text_add(&answer, "{\"sha\":\"" ONE "\",\"siblings\":[");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        text_add(&answer, "%s{\"rfilename\":\"%s\",\"size\":1099511627776}", i > 0 ? "," : "",
                 names[i]);
    text_add(&answer, "]}");
    fake_set(&hub, "answer", answer.data);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_STORE, "5.0 TiB more to fetch");
    assert_int_equal(count(hub_log(), "resolve"), 0);
    text_free(&answer);
}

/* A disk that is full in the middle of a file; with room the next start continues there. */
TEST_WITH(test_full_disk, fresh, NULL)
{
    int how = -1;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){30000, 30000});
        _exit(get(REMOTE_KIND_MODEL, "hf://org/small") == ST_STORE ? 0 : 1);
    }
    waitpid(child, &how, 0);
    assert_int_equal(how, 0);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_int_equal(file_bytes(strcat(path, "/model.safetensors")), 50000);
    assert_int_equal(count(hub_log(), "cdn GET"), 2);
    assert_int_equal(count(hub_log(), "cdn GET /" LARGE "range=0"), 1); /* the second continues */
}

TEST_WITH(test_local, fresh, NULL)
{
    const struct remote_config config = {.setting = "MODEL", .cache_dir = cache};
    assert_int_equal(remote_fetch(&config, REMOTE_KIND_MODEL, "hf://org/small", path, commit),
                     ST_BAD_SETTING);
    harness_assert_message("ALLOW_LOCAL_URLS=1");
    setenv("HF_ENDPOINT", "file:///etc", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "HF_ENDPOINT");
    setenv("HF_ENDPOINT", "http://user:password@127.0.0.1", 1);
    assert_refused(REMOTE_KIND_MODEL, "hf://org/small", ST_BAD_SETTING, "HF_ENDPOINT");
    assert_null(strstr(status_message(), "password"));
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", hub.hub_port);
    setenv("HF_ENDPOINT", endpoint, 1);
}

/* Two processes want the model at the same time: each file is sent once. */
TEST_WITH(test_two_processes, fresh, NULL)
{
    fake_set(&hub, "slow", "1");
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(get(REMOTE_KIND_MODEL, "hf://org/small") == ST_OK ? 0 : 1);
    }
    for (int i = 0; i < 3; i++) {
        int how = -1;
        waitpid(child[i], &how, 0);
        assert_int_equal(how, 0);
    }
    assert_int_equal(count(hub_log(), "cdn GET"), 1);
    assert_int_equal(count(hub_log(), "/resolve/" ONE "/config.json"), 1);
}

/* kill -9 in the middle of a file: nothing half-written has the file's name, and the next start
 * continues there. */
TEST_WITH(test_killed, fresh, NULL)
{
    char file[2 * FILE_PATH_MAX], partial[2 * FILE_PATH_MAX];
    fake_set(&hub, "slow", "1");
    snprintf(partial, sizeof partial, "%s/hub/models--org--small/partial", cache);
    snprintf(file, sizeof file, "%s/hub/models--org--small/" ONE "/model.safetensors", cache);
    const pid_t child = fork();
    if (child == 0)
        _exit(get(REMOTE_KIND_MODEL, "hf://org/small") == ST_OK ? 0 : 1);
    const int64_t end_ms = clock_ms() + harness_patience_ms(20000);
    while (count(hub_log(), "cdn GET") == 0 && clock_ms() < end_ms)
        usleep(10000);
    usleep(500000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_false(file_exists(file));
    assert_int_equal(harness_entries(partial), 2); /* the bytes, and their validator */
    fake_set(&hub, "slow", NULL);
    assert_got(REMOTE_KIND_MODEL, "hf://org/small");
    assert_int_equal(file_bytes(file), 50000);
    assert_int_equal(count(hub_log(), "cdn GET"), 2);
    assert_int_equal(count(hub_log(), "cdn GET /" LARGE "range=0"), 1); /* the second continues */
}

TEST_WITH(test_stopped, fresh, NULL)
{
    const struct remote_config config = {.setting = "MODEL",
                                         .cache_dir = cache,
                                         .allows_local = true,
                                         .progress = on_progress,
                                         .progress_arg = cache,
                                         .retry_ms = 1};
    assert_int_equal(remote_fetch(&config, REMOTE_KIND_MODEL, "hf://org/small", path, commit),
                     ST_RETRY);
}

HARNESS_RUN_ALL_WITH(start, stop)
