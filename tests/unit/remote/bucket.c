/* bucket — objects, prefixes and globs of a fake S3 server as local files: fetched once, again only
 * what changed, without removed objects and keys that would leave the folder. */
#include "harness.h"

#include "remote/fake_s3.h"
#include "remote/remote.h"
#include "remote/s3.h"

static pid_t server;
static int port;
static char cache[FILE_PATH_MAX], path[FILE_PATH_MAX];
static int64_t seen_done, seen_total;

static void put(const char *name, const char *text)
{
    char target[600];
    snprintf(target, sizeof target, "/_object/%s", name);
    fake_s3_control(port, "PUT", target, text, strlen(text));
}

static void drop(const char *key)
{
    const struct s3_config config = {.bucket = "bucket", .allows_local = true};
    struct s3 *s3;
    assert_int_equal(s3_open(&config, &s3), ST_OK);
    assert_int_equal(s3_delete(s3, key), ST_OK);
    s3_close(s3);
}

/* How often the bytes of an object were requested. */
static int gets(const char *name)
{
    char line[300];
    long long bytes, sent, n = 0;
    snprintf(line, sizeof line, "object %s ", name);
    const char *at = strstr(fake_s3_control(port, "GET", "/_state", "", 0), line);
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(line), "%lld %lld %lld", &bytes, &sent, &n), 3);
    return (int)n;
}

static void on_port(int at) { assert_int_equal(write(3, &at, sizeof at), sizeof at); }

static int start(void **state)
{
    int ends[2];
    char url[64];
    harness_tmpdir();
    if (pipe(ends) != 0)
        return -1;
    server = fork();
    if (server == 0) {
        dup2(ends[1], 3);
        fake_s3_serve(0, on_port);
    }
    if (read(ends[0], &port, sizeof port) != sizeof port)
        return -1;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "fake/secret+key", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("HOME", harness_tmpdir(), 1);
    put("bucket/set/a.txt", "aaa");
    put("bucket/set/b.txt", "bbbb");
    put("bucket/set/deep/c.jsonl", "ccccc");
    put("bucket/set/empty.txt", "");
    put("bucket/set/.hidden", "hidden");
    put("bucket/set/folder/", "");
    put("bucket/setting.txt", "other");
    put("bucket/x.idx", "index");
    put("bucket/x.bin", "tokens");
    put("bucket/evil/../../up.txt", "up");
    put("bucket/both/a", "file");
    put("bucket/both/a-b", "between");
    put("bucket/both/a/b", "below");
    return 0;
}

static int stop(void **state)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}

static int fresh(void **state)
{
    static int n;
    text_format(cache, sizeof cache, "%s/cache[%d]", harness_tmpdir(), n++);
    return 0;
}

static bool on_progress(void *arg, int64_t done, int64_t total)
{
    seen_done = done;
    seen_total = total;
    return true;
}

static enum status get(const char *name)
{
    char revision[REMOTE_REVISION_MAX];
    const struct remote_config config = {.setting = "DATA",
                                         .cache_dir = cache,
                                         .allows_local = true,
                                         .progress = on_progress,
                                         .retry_ms = 1};
    const enum status st = remote_fetch(&config, REMOTE_KIND_DATA, name, path, revision);
    assert_string_equal(revision, "");
    return st;
}

static void assert_got(const char *name)
{
    if (get(name) != ST_OK)
        fail_msg("%s: %s", name, status_message());
}

static void assert_refused(const char *name, enum status st, const char *words)
{
    const enum status got = get(name);
    if (got != st)
        fail_msg("%s: %s: %s", name, status_name(got), status_message());
    harness_assert_message(words);
    assert_null(strstr(status_message(), "fake/secret"));
}

/* Names and bytes of the files below a folder, such as "a:3 b/c:4". */
static const char *files_of(const char *dir) { return harness_files(dir, "%P:%s"); }

TEST_WITH(test_prefix, fresh, NULL)
{
    char first[FILE_PATH_MAX];
    const int before = gets("bucket/set/a.txt");
    assert_got("s3://bucket/set/");
    assert_string_equal(files_of(path), "a.txt:3 b.txt:4 deep/c.jsonl:5 empty.txt:0");
    assert_true(text_ends(path, "/set"));
    text_copy(first, sizeof first, path);
    /* the same list: the same folder, and nothing is fetched */
    assert_got("s3://bucket/set");
    assert_string_equal(path, first);
    assert_int_equal(gets("bucket/set/a.txt"), before + 1);
    /* one object changes, with the same size: another folder, and the others are not fetched */
    const int others = gets("bucket/set/deep/c.jsonl");
    char *bytes, file[FILE_PATH_MAX + 8];
    size_t n;
    put("bucket/set/a.txt", "AAA");
    assert_got("s3://bucket/set/");
    assert_string_not_equal(path, first);
    text_format(file, sizeof file, "%s/a.txt", path);
    assert_int_equal(file_read(file, 10, &bytes, &n), ST_OK);
    assert_string_equal(bytes, "AAA");
    free(bytes);
    assert_int_equal(gets("bucket/set/a.txt"), 1); /* the server counts a new object from 0 */
    assert_int_equal(gets("bucket/set/deep/c.jsonl"), others);
    /* an object is removed: it is not in the next folder, and the first folder stays as it was */
    drop("set/b.txt");
    assert_got("s3://bucket/set/");
    assert_string_equal(files_of(path), "a.txt:3 deep/c.jsonl:5 empty.txt:0");
    assert_string_equal(files_of(first), "a.txt:3 b.txt:4 deep/c.jsonl:5 empty.txt:0");
    put("bucket/set/a.txt", "aaa");
    put("bucket/set/b.txt", "bbbb");
}

TEST_WITH(test_one, fresh, NULL)
{
    assert_got("s3://bucket/set/deep/c.jsonl");
    assert_true(text_ends(path, "/set/deep/c.jsonl"));
    assert_int_equal(file_bytes(path), 5);
    /* another store with a bucket of this name has another folder */
    char folder[64];
    snprintf(folder, sizeof folder, "/s3/127.0.0.1:%d/bucket/folders/", port);
    assert_non_null(strstr(path, folder));
    /* both files of a Megatron pair */
    assert_got("s3://bucket/x.bin");
    *strrchr(path, '/') = '\0';
    assert_string_equal(files_of(path), "x.bin:6 x.idx:5");
    assert_refused("s3://bucket/none.txt", ST_NO_INPUT, "no such object");
    assert_refused("s3://bucket/none/", ST_NO_INPUT, "no such object");
    assert_refused("s3://missing/x", ST_BAD_SETTING, "missing");
}

TEST_WITH(test_glob, fresh, NULL)
{
    assert_got("s3://bucket/set/*.txt");
    assert_true(text_ends(path, "/set/*.txt"));
    assert_non_null(strstr(path, "cache\\["));
    assert_got("s3://bucket/set*/[ab].txt");
    *strstr(path, "/set*") = '\0';
    assert_true(text_starts(files_of(harness_tmpdir()), "cache["));
    assert_refused("s3://bucket/set/*.csv", ST_NO_INPUT, "no match");
}

TEST_WITH(test_hostile, fresh, NULL)
{
    assert_refused("s3://bucket/evil/", ST_BAD_DATA, "evil/../../up.txt");
    assert_refused("s3://bucket/evil/../../up.txt", ST_BAD_DATA, "rename the object");
    assert_refused("s3://bucket/x.bin#sha256=00", ST_BAD_SETTING, "DATA=s3://bucket/x.bin#sha256=");
    assert_refused("s3://bucket/both/", ST_BAD_DATA, "\"both/a\" and \"both/a/b\"");
    assert_refused("s3://bucket/both/*", ST_BAD_DATA, "\"both/a\" and \"both/a/b\"");
    assert_false(file_exists(cache));
    assert_got("s3://bucket/both/a");
    assert_got("s3://bucket/both/a/");
}

/* Three processes want the prefix at the same time. */
TEST_WITH(test_processes, fresh, NULL)
{
    const int before = gets("bucket/set/b.txt");
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(get("s3://bucket/set/") == ST_OK ? 0 : 1);
    }
    for (int i = 0; i < 3; i++) {
        int how = -1;
        waitpid(child[i], &how, 0);
        assert_int_equal(how, 0);
    }
    assert_int_equal(gets("bucket/set/b.txt"), before + 1);
}

TEST_WITH(test_progress, fresh, NULL)
{
    char *text = calloc(1, 3001);
    memset(text, 'x', 3000);
    put("bucket/two/a", text);
    put("bucket/two/b", text);
    assert_got("s3://bucket/two/");
    assert_int_equal(seen_total, 6000);
    assert_int_equal(seen_done, 6000);
    free(text);
}

HARNESS_RUN_ALL_WITH(start, stop)
