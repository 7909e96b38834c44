/* test_s3 — buckets: lists, objects, parallel transfers, faults and errors, against the fake
 * server. It is also a program for scripts:
 *
 *   test_s3 serve [PORT] [PAGE]        the fake server, with PAGE keys in a page; prints its port
 *   test_s3 list s3://BUCKET/PREFIX    "BYTES ETAG KEY" of each object
 *   test_s3 put FILE s3://BUCKET/KEY; get s3://BUCKET/KEY FILE; delete s3://BUCKET/KEY
 *
 * with the endpoint and the credentials of the environment. PART and RANGE set their bytes. */
#include "remote/s3_rig.h"

/* ---- names and endpoints ---- */

TEST(test_names)
{
    struct s3_address address;
    assert_int_equal(s3_address_parse("s3://my-bucket/a/b c+\xc3\xbc", &address), ST_OK);
    assert_string_equal(address.bucket, "my-bucket");
    assert_string_equal(address.key, "a/b c+\xc3\xbc");
    assert_int_equal(s3_address_parse("s3://a.b.c", &address), ST_OK);
    assert_string_equal(address.key, "");
    char long_name[1200] = "s3://bucket/";
    memset(long_name + 12, 'k', 1024);
    assert_int_equal(s3_address_parse(long_name, &address), ST_OK);
    long_name[12 + 1024] = 'k';
    assert_int_equal(s3_address_parse(long_name, &address), ST_BAD_SETTING);
    static const char *const bad[] = {
        "",
        "s3:",
        "s3://",
        "s3:///key",
        "s3://ab/k",
        "s3://Bucket/k",
        "s3://-ab/k",
        "s3://ab-/k",
        "s3://a..b/k",
        "s3://a_b/k",
        "s3://user@bucket/k",
        "s3://bucket/a\nb",
        "s3://bucket/\xff",
        "http://bucket/k",
        "s3://0123456789012345678901234567890123456789012345678901234567890123/k"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (s3_address_parse(bad[i], &address) != ST_BAD_SETTING)
            fail_msg("accepted: %s", bad[i]);
    assert_true(s3_address_is("s3://x/") && !s3_address_is("s3:/x"));
}

S3_TEST(test_endpoints)
{
    static const struct {
        const char *bucket, *region, *endpoint, *base, *host, *path, *store;
    } rows[] = {
        {"bucket", NULL, NULL, "https://bucket.s3.us-east-1.amazonaws.com",
         "bucket.s3.us-east-1.amazonaws.com", "", "aws"},
        {"bucket", "eu-west-3", NULL, "https://bucket.s3.eu-west-3.amazonaws.com",
         "bucket.s3.eu-west-3.amazonaws.com", "", "aws"},
        {"a.bucket", "cn-north-1", NULL, "https://s3.cn-north-1.amazonaws.com.cn",
         "s3.cn-north-1.amazonaws.com.cn", "/a.bucket", "aws"},
        {"bucket", NULL, "https://minio.example:9000/", "https://minio.example:9000",
         "minio.example:9000", "/bucket", "minio.example:9000"},
        {"bucket", NULL, "https://h.example:443/s3/", "https://h.example", "h.example",
         "/s3/bucket", "h.example:443:s3"},
        {"bucket", NULL, "http://[::1]:80", "http://[::1]", "[::1]", "/bucket", "[::1]:80"},
        {"bucket", NULL, "http://aws", "http://aws", "aws", "/bucket", "aws:80"},
    };
    unsetenv("AWS_ENDPOINT_URL_S3");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].region != NULL)
            setenv("AWS_REGION", rows[i].region, 1);
        else
            unsetenv("AWS_REGION");
        if (rows[i].endpoint != NULL)
            setenv("AWS_ENDPOINT_URL", rows[i].endpoint, 1);
        struct s3 *s3 = open_bucket(rows[i].bucket);
        assert_string_equal(s3->base, rows[i].base);
        assert_string_equal(s3->host, rows[i].host);
        assert_string_equal(s3->path, rows[i].path);
        char store[S3_STORE_MAX];
        assert_int_equal(s3_store_name(store), ST_OK);
        assert_string_equal(store, rows[i].store);
        s3_close(s3);
    }
    static const char *const bad[] = {"minio",
                                      "ftp://host",
                                      "https://user:secret@host",
                                      "https://host/?x=1",
                                      "https://host/#f",
                                      "https://",
                                      "https://ho st"};
    struct s3 *s3;
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        setenv("AWS_ENDPOINT_URL", bad[i], 1);
        assert_failure(s3_open(&(struct s3_config){.bucket = "bucket"}, &s3), ST_BAD_SETTING,
                       "AWS_ENDPOINT_URL");
        assert_failure(s3_store_name((char[S3_STORE_MAX]){""}), ST_BAD_SETTING, "AWS_ENDPOINT_URL");
    }
    setenv("AWS_REGION", "us east/1", 1);
    assert_failure(s3_open(&(struct s3_config){.bucket = "bucket"}, &s3), ST_BAD_SETTING,
                   "AWS_REGION");
}

/* ---- lists and small objects ---- */

static const char *const odd_keys[] = {"odd/%41&b=c~d",  "odd/'()*!", "odd/..",
                                       "odd/a b+c",      "odd/dir/",  "odd/\xc3\xbc/\xe6\x97\xa5",
                                       "odd/x?y#z;@:,$", "odd//two",  "odd/<&>\"'",
                                       "odd/-._~",       "odd/%",     "odd/../up"};
enum { ODD_KEYS = sizeof odd_keys / sizeof *odd_keys };

S3_TEST(test_list_and_odd_keys)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_list list;
    for (int i = 0; i < ODD_KEYS; i++)
        assert_int_equal(s3_write(s3, odd_keys[i], odd_keys[i], strlen(odd_keys[i])), ST_OK);
    assert_int_equal(s3_list(s3, "odd/", &list), ST_OK);
    assert_int_equal(list.n, ODD_KEYS);
    for (int i = 0; i < ODD_KEYS; i++) {
        struct text text = {0};
        struct s3_object object;
        bool found;
        assert_true(i == 0 || strcmp(list.item[i - 1].key, list.item[i].key) < 0);
        assert_int_equal(list.item[i].bytes, strlen(list.item[i].key));
        assert_int_equal(s3_read(s3, list.item[i].key, 100, &text, &found), ST_OK);
        assert_true(found);
        assert_string_equal(text.data, list.item[i].key);
        assert_int_equal(s3_head(s3, list.item[i].key, &object, &found), ST_OK);
        assert_true(found && object.bytes == list.item[i].bytes);
        assert_string_equal(object.etag, list.item[i].etag);
        text_free(&text);
    }
    for (int i = 0; i < ODD_KEYS; i++)
        assert_int_equal(s3_delete(s3, odd_keys[i]), ST_OK);
    s3_list_free(&list);
    assert_int_equal(s3_list(s3, "odd/", &list), ST_OK);
    assert_int_equal(list.n, 0);
    s3_list_free(&list);
    assert_int_equal(count("forged"), 0);
    s3_close(s3);
}

S3_TEST(test_small_objects)
{
    struct s3 *s3 = open_bucket("bucket");
    struct text text = {0};
    struct s3_object object;
    bool found;
    assert_int_equal(s3_head(s3, "none", &object, &found), ST_OK);
    assert_false(found);
    assert_int_equal(s3_read(s3, "none", 10, &text, &found), ST_OK);
    assert_true(!found && text.data == NULL);
    assert_int_equal(s3_delete(s3, "none"), ST_OK);
    assert_int_equal(s3_write(s3, "small", "12345", 5), ST_OK);
    assert_int_equal(s3_write(s3, "small", "1234567890", 10), ST_OK); /* replaced */
    assert_int_equal(s3_read(s3, "small", 10, &text, &found), ST_OK);
    assert_string_equal(text.data, "1234567890");
    assert_failure(s3_read(s3, "small", 9, &text, &found), ST_BAD_DATA, "more than 9 bytes");
    assert_true(!found && text.data == NULL);
    assert_int_equal(s3_write(s3, "empty", NULL, 0), ST_OK);
    assert_int_equal(s3_head(s3, "empty", &object, &found), ST_OK);
    assert_true(found && object.bytes == 0);
    assert_int_equal(s3_read(s3, "empty", 10, &text, &found), ST_OK);
    assert_true(found && text.len == 0);
    text_free(&text);
    s3_close(s3);
}

/* Answers that are no lists: of another service, cut, with a bad size. */
S3_TEST(test_bad_lists)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_list list;
    set_fault("kind=page");
    assert_failure(s3_list(s3, "", &list), ST_BAD_DATA, "AWS_ENDPOINT_URL");
    assert_true(list.n == 0 && list.item == NULL);
    s3_close(s3);
}

/* ---- downloads ---- */

static long long reported_done, reported_total, stop_at;
static bool on_progress_test(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    reported_done = done;
    reported_total = total;
    return stop_at == 0 || done < stop_at;
}

S3_TEST(test_download)
{
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    set_object("bucket/large", large, MANY);
    set_object("bucket/one", large, 1);
    set_object("bucket/nothing", "", 0);
    set_object("bucket/edge", large, 1 << 19);
    assert_int_equal(download(s3, "large", path), ST_OK);
    assert_file(path, large, MANY);
    assert_int_equal(sent("bucket/large"), MANY); /* each byte once */
    assert_int_equal(download(s3, "large", path), ST_OK);
    assert_int_equal(sent("bucket/large"), MANY); /* the file is there */
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(download(s3, "large", path), ST_OK);
    assert_file(path, large, MANY);
    assert_int_equal(download(s3, "one", path), ST_OK);
    assert_file(path, large, 1);
    assert_int_equal(download(s3, "nothing", path), ST_OK);
    assert_file(path, "", 0);
    assert_int_equal(download(s3, "edge", path), ST_OK);
    assert_file(path, large, 1 << 19);
    assert_int_equal(harness_entries(dir), 4); /* neither .part nor .ranges */
    s3_close(s3);
}

/* Failures that pass: errors of the server, connections that end, a transfer that stalls. */
S3_TEST(test_download_retries)
{
    static const char *const faults[] = {"kind=503&n=3&method=GET&key=retry",
                                         "kind=500&n=7&method=GET&key=retry",
                                         "kind=503&n=2&method=HEAD",
                                         "kind=cut&n=6&at=100000&method=GET&key=retry",
                                         "kind=cut&n=2&at=0&method=GET&key=retry",
                                         "kind=retry-after&n=1&at=1&method=GET&key=retry",
                                         "kind=slow&n=1&at=1000&method=GET&key=retry"};
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    set_object("bucket/retry", large, MANY);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const int64_t began_ms = clock_ms();
        const long long before = sent("bucket/retry");
        set_fault(faults[i]);
        assert_int_equal(download(s3, "retry", path), ST_OK);
        assert_file(path, large, MANY);
        assert_int_equal(unlink(path), 0);
        /* no byte is requested twice, except by what was on the way when a connection ended */
        if (strstr(faults[i], "slow") == NULL)
            assert_int_equal(sent("bucket/retry") - before, MANY);
        if (strstr(faults[i], "retry-after") != NULL)
            assert_true(clock_ms() - began_ms >= 1000);
    }
    s3_close(s3);
}

/* A server that fails always: as many tries as allowed, then an end. */
S3_TEST(test_tries_end)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_object object;
    bool found;
    const long long before = count("requests");
    set_fault("kind=503&n=100&method=HEAD");
    assert_failure(s3_head(s3, "x", &object, &found), ST_RETRY,
                   "the store answers HTTP 503; start");
    /* 8 tries, the fault, and the two requests of count */
    assert_int_equal(count("requests") - before, 8 + 2);
    control("DELETE", "/_fault", "", 0);
    set_fault("kind=retry-after&at=1000000&method=HEAD");
    assert_failure(s3_head(s3, "x", &object, &found), ST_RETRY, "wants no request for 86400 s");
    s3_close(s3);
}

S3_TEST(test_download_resumes)
{
    char path[FILE_PATH_MAX], part[FILE_PATH_MAX + 8];
    struct s3_object object;
    struct s3 *s3;
    bool found;
    const struct s3_config config = {.bucket = "bucket",
                                     .allows_local = true,
                                     .range_bytes = 1 << 18,
                                     .retry_ms = 1,
                                     .progress = on_progress_test};
    assert_int_equal(s3_open(&config, &s3), ST_OK);
    set_object("bucket/resume", large, MANY);
    name_path(path, "resume");
    assert_int_equal(s3_head(s3, "resume", &object, &found), ST_OK);
    stop_at = 1;
    set_fault("kind=slow&n=8&at=131072&method=GET&key=resume");
    assert_failure(s3_download(s3, &object, path), ST_RETRY, "stopped");
    assert_false(file_exists(path));
    snprintf(part, sizeof part, "%s.part", path);
    assert_true(file_exists(part));
    assert_true(reported_done > 0 && reported_done < 9 << 17 && reported_total == MANY);
    stop_at = 0;
    assert_int_equal(s3_download(s3, &object, path), ST_OK);
    assert_file(path, large, MANY);
    assert_false(file_exists(part));
    s3_close(s3);
}

/* The ranges that a killed process completed are not requested again; those of another version
 * are. */
S3_TEST(test_download_after_kill)
{
    char path[FILE_PATH_MAX];
    set_object("bucket/killed", large, MANY);
    name_path(path, "killed");
    for (int round = 0; round < 2; round++) {
        /* all requests after the first six stall, in a process that is then killed */
        for (int i = 0; i < 6; i++)
            set_fault("kind=none&n=1&method=GET&key=killed");
        set_fault("kind=slow&n=1000&at=0&method=GET&key=killed");
        const long long before = sent("bucket/killed");
        const pid_t child = fork();
        if (child == 0) {
            struct s3 *s3 = open_bucket("bucket");
            (void)download(s3, "killed", path);
            _exit(0);
        }
        while (sent("bucket/killed") - before < 6 << 18)
            usleep(10000);
        usleep(200000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        control("DELETE", "/_fault", "", 0);
        if (round == 1) { /* another version */
            large[5] ^= 1;
            set_object("bucket/killed", large, MANY);
        }
        const long long middle = sent("bucket/killed");
        struct s3 *s3 = open_bucket("bucket");
        assert_int_equal(download(s3, "killed", path), ST_OK);
        assert_file(path, large, MANY);
        const long long rest = sent("bucket/killed") - middle;
        /* the stalled requests of the killed process may add a few bytes */
        const long long expected = round == 0 ? MANY - (6 << 18) : MANY;
        if (rest < expected || rest > expected + 4096)
            fail_msg("round %d: %lld bytes were sent after the kill", round, rest);
        s3_close(s3);
        assert_int_equal(unlink(path), 0);
    }
}

/* Several processes want one object: the server sends it once. */
S3_TEST(test_download_once)
{
    enum { PROCESSES = 4 };
    pid_t child[PROCESSES];
    char path[FILE_PATH_MAX];
    set_object("bucket/once", large, MANY);
    set_fault("kind=slow&n=1&at=100000&method=GET&key=once"); /* long enough for all to begin */
    for (int i = 0; i < PROCESSES; i++)
        if ((child[i] = fork()) == 0) {
            struct s3 *s3 = open_bucket("bucket");
            _exit(download(s3, "once", path) == ST_OK ? 0 : 1);
        }
    for (int i = 0; i < PROCESSES; i++) {
        int end;
        waitpid(child[i], &end, 0);
        assert_int_equal(end, 0);
    }
    name_path(path, "once");
    assert_file(path, large, MANY);
    const long long all = sent("bucket/once");
    if (all > MANY + 4096)
        fail_msg("%lld bytes were sent for %d", all, MANY);
    assert_int_equal(unlink(path), 0);
}

S3_TEST(test_download_changed)
{
    static const struct {
        const char *fault, *words;
    } rows[] = {{"kind=change&method=GET&key=changed", "changed while it was downloaded"},
                {"kind=swap&method=GET&key=changed", "its ETag is \"swapped\""},
                {"kind=whole&n=20&method=GET&key=changed", "does not support ranges"}};
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    const int before = harness_entries(dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_object("bucket/changed", large, MANY);
        set_fault(rows[i].fault);
        assert_failure(download(s3, "changed", path), ST_BAD_DATA, rows[i].words);
        assert_int_equal(harness_entries(dir), before); /* nothing is left */
        control("DELETE", "/_fault", "", 0);
    }
    s3_close(s3);
}

S3_TEST(test_download_without_room)
{
    struct s3 *s3 = open_bucket("bucket");
    struct s3_object object = {.key = "huge", .bytes = (int64_t)1 << 55, .etag = "\"x\""};
    char path[FILE_PATH_MAX];
    name_path(path, "huge");
    const long long before = count("requests");
    assert_failure(s3_download(s3, &object, path), ST_STORE, "room");
    assert_int_equal(count("requests") - before, 1);
    name_path(path, "no-folder/huge");
    assert_failure(s3_download(s3, &object, path), ST_STORE, "no-folder");
    s3_close(s3);
}

/* ---- uploads ---- */

static void write_file(const char *name, size_t n, char path[FILE_PATH_MAX])
{
    name_path(path, name);
    assert_int_equal(file_replace(path, large, n), ST_OK);
}

/* The object has the bytes of the file. */
static void assert_object(struct s3 *s3, const char *key, size_t n)
{
    struct text text = {0};
    bool found;
    assert_int_equal(s3_read(s3, key, MANY, &text, &found), ST_OK);
    assert_true(found);
    assert_int_equal(text.len, n);
    if (n > 0)
        assert_memory_equal(text.data, large, n);
    text_free(&text);
}

S3_TEST(test_upload)
{
    static const size_t sizes[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, MANY};
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct s3_object object;
        bool found;
        write_file("up", sizes[i], path);
        assert_int_equal(s3_upload(s3, path, "up"), ST_OK);
        assert_object(s3, "up", sizes[i]);
        assert_int_equal(s3_head(s3, "up", &object, &found), ST_OK);
        assert_true((strchr(object.etag, '-') != NULL) == (sizes[i] > 1 << 20)); /* multipart */
    }
    assert_int_equal(count("uploads"), 0);
    assert_failure(s3_upload(s3, "/nothing/there", "x"), ST_NO_INPUT, "/nothing/there");
    assert_failure(s3_upload(s3, dir, "x"), ST_NO_INPUT, "regular file");
    s3_close(s3);
}

S3_TEST(test_upload_retries)
{
    static const char *const faults[] = {
        "kind=503&n=3&method=PUT&key=again", "kind=500&n=2&method=POST&key=again",
        "kind=cut&n=2&at=70000&method=PUT&key=again", "kind=sum&n=2&method=PUT&key=again",
        "kind=error200&n=2&method=POST&key=again"};
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int is_multipart = 0; is_multipart < 2; is_multipart++) {
            const size_t n = is_multipart ? MANY : 200000;
            if (!is_multipart && strstr(faults[i], "POST") != NULL)
                continue;
            write_file("again", n, path);
            set_fault(faults[i]);
            if (strstr(faults[i], "error200") != NULL) /* not the request that begins */
                set_fault("kind=none&n=1&method=POST&key=again");
            assert_int_equal(s3_upload(s3, path, "again"), ST_OK);
            assert_object(s3, "again", n);
            assert_int_equal(s3_delete(s3, "again"), ST_OK);
            assert_int_equal(count("uploads"), 0);
            control("DELETE", "/_fault", "", 0);
        }
    s3_close(s3);
}

/* An upload that fails leaves neither an object nor parts. */
S3_TEST(test_upload_fails)
{
    static const struct {
        const char *fault;
        enum status st;
        const char *words;
    } rows[] = {{"kind=403&n=1000&method=PUT&key=fails", ST_BAD_SETTING, "s3:PutObject"},
                {"kind=500&n=1000&method=PUT&key=fails", ST_RETRY, "InternalError"},
                {"kind=full&n=1000&method=PUT&key=fails", ST_STORE, "quota"},
                {"kind=skew&n=1000&method=PUT&key=fails", ST_BAD_SETTING, "clock"}};
    struct s3 *s3 = open_bucket("bucket");
    char path[FILE_PATH_MAX];
    bool found;
    struct s3_object object;
    write_file("fails", MANY, path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_fault(rows[i].fault);
        assert_failure(s3_upload(s3, path, "fails"), rows[i].st, rows[i].words);
        control("DELETE", "/_fault", "", 0);
        assert_int_equal(count("uploads"), 0);
        assert_int_equal(s3_head(s3, "fails", &object, &found), ST_OK);
        assert_false(found);
    }
    s3_close(s3);
}

/* The parts of a killed process are freed by the next upload to the same key; not other uploads. */
S3_TEST(test_upload_after_kill)
{
    static const char *const keys[] = {"dead", "dead-other"};
    char path[FILE_PATH_MAX];
    write_file("dead", MANY, path);
    set_fault("kind=500&n=1000&method=PUT&key=dead");
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        if (child == 0) {
            struct s3_config config = {.bucket = "bucket", .allows_local = true};
            struct s3 *s3;
            config.part_bytes = 1 << 20;
            if (s3_open(&config, &s3) == ST_OK)
                (void)s3_upload(s3, path, keys[i]);
            _exit(0);
        }
        while (count("uploads") < i + 1)
            usleep(10000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    control("DELETE", "/_fault", "", 0);
    struct s3 *s3 = open_bucket("bucket");
    assert_int_equal(s3_upload(s3, path, "dead"), ST_OK);
    assert_object(s3, "dead", MANY);
    assert_int_equal(count("uploads"), 1); /* of the other key */
    set_fault("kind=403&n=1&method=GET");  /* uploads may not be listed: no failure */
    assert_int_equal(s3_upload(s3, path, "dead-other"), ST_OK);
    assert_int_equal(count("uploads"), 1);
    assert_int_equal(s3_upload(s3, path, "dead-other"), ST_OK);
    assert_int_equal(count("uploads"), 0);
    s3_close(s3);
}

/* The user stops an upload, and a file changes meanwhile. */
static char shrinking[FILE_PATH_MAX];
static bool shrink_file(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)done, (void)total;
    return truncate(shrinking, 1000) == 0;
}

S3_TEST(test_upload_stopped)
{
    struct s3 *s3;
    char path[FILE_PATH_MAX];
    struct s3_config config = {.bucket = "bucket",
                               .allows_local = true,
                               .part_bytes = 1 << 20,
                               .retry_ms = 500,
                               .progress = on_progress_test};
    write_file("stopped", MANY, path);
    set_fault("kind=503&n=1000&method=PUT&key=stopped");
    stop_at = -1; /* at the first report */
    assert_int_equal(s3_open(&config, &s3), ST_OK);
    s3->reported_ms = clock_ms() + harness_patience_ms(300); /* after the upload has begun */
    assert_failure(s3_upload(s3, path, "stopped"), ST_RETRY, "stopped");
    assert_int_equal(count("uploads"), 0);
    s3_close(s3);
    stop_at = 0;
    config.progress = shrink_file;
    text_copy(shrinking, sizeof shrinking, path);
    control("DELETE", "/_fault", "", 0);
    set_fault("kind=503&n=8&method=PUT&key=stopped");
    assert_int_equal(s3_open(&config, &s3), ST_OK);
    s3->reported_ms = clock_ms() - 100;
    assert_failure(s3_upload(s3, path, "stopped"), ST_BAD_DATA, "while it was uploaded");
    assert_int_equal(count("uploads"), 0);
    s3_close(s3);
}

/* ---- errors ---- */

S3_TEST(test_errors_by_name)
{
    static const struct {
        const char *bucket, *fault, *words;
        enum status st;
    } rows[] = {
        {"missing", NULL, "NoSuchBucket", ST_BAD_SETTING},
        {"elsewhere", NULL, "set AWS_REGION=eu-west-1", ST_BAD_SETTING},
        {"bucket", "kind=skew&n=2", "timedatectl", ST_BAD_SETTING},
        {"bucket", "kind=403&n=2", "s3:GetObject", ST_BAD_SETTING},
        {"bucket", "kind=expired&n=2", "AWS_SESSION_TOKEN", ST_BAD_SETTING},
        {"bucket", "kind=key&n=2", "InvalidAccessKeyId", ST_BAD_SETTING},
        {"bucket", "kind=redirect&n=2", "AWS_REGION", ST_BAD_SETTING},
        {"bucket", "kind=garbage&n=2", "does not answer in HTTP", ST_BAD_SETTING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct s3 *s3 = open_bucket(rows[i].bucket);
        struct s3_object object;
        struct s3_list list;
        bool found;
        if (rows[i].fault != NULL)
            set_fault(rows[i].fault);
        const long long before = count("requests");
        assert_failure(s3_head(s3, "key", &object, &found), rows[i].st, rows[i].words);
        assert_true(count("requests") - before <= 3); /* no retry */
        control("DELETE", "/_fault", "", 0);
        if (rows[i].fault == NULL)
            assert_failure(s3_list(s3, "key", &list), rows[i].st, rows[i].words);
        s3_close(s3);
    }
}

S3_TEST(test_no_permission)
{
    struct s3 *s3 = open_bucket("readonly");
    struct s3_list list;
    char path[FILE_PATH_MAX];
    write_file("denied", MANY, path);
    assert_int_equal(s3_list(s3, "", &list), ST_OK);
    s3_list_free(&list);
    assert_failure(s3_write(s3, "x", "y", 1), ST_BAD_SETTING, "allow s3:PutObject");
    assert_failure(s3_upload(s3, path, "x"), ST_BAD_SETTING, "AWS_ACCESS_KEY_ID");
    assert_failure(s3_delete(s3, "x"), ST_BAD_SETTING, "s3:DeleteObject");
    s3_close(s3);
    setenv("AWS_SECRET_ACCESS_KEY", "another/secret", 1);
    s3 = open_bucket("bucket");
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, "SignatureDoesNotMatch");
    s3_close(s3);
}

/* Addresses of this machine need ALLOW_LOCAL_URLS, also of an endpoint that the user has set. */
S3_TEST(test_local_addresses)
{
    struct s3 *s3;
    struct s3_list list;
    assert_int_equal(s3_open(&(struct s3_config){.bucket = "bucket"}, &s3), ST_OK);
    const long long before = count("requests");
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, "ALLOW_LOCAL_URLS=1");
    assert_int_equal(count("requests") - before, 1);
    s3_close(s3);
    setenv("AWS_ENDPOINT_URL_S3", "http://169.254.169.254", 1); /* not for objects */
    assert_int_equal(s3_open(&(struct s3_config){.bucket = "bucket"}, &s3), ST_OK);
    assert_failure(s3_list(s3, "", &list), ST_BAD_SETTING, "169.254.169.254");
    s3_close(s3);
}

/* ---- the program ---- */

static void print_port(int at)
{
    printf("%d\n", at);
    fflush(stdout);
}

static enum status run_list(struct s3 *s3, const char *prefix)
{
    struct s3_list list;
    TRY(s3_list(s3, prefix, &list));
    for (int64_t i = 0; i < list.n; i++)
        printf("%lld %s %s\n", (long long)list.item[i].bytes, list.item[i].etag, list.item[i].key);
    s3_list_free(&list);
    return ST_OK;
}

static enum status run_get(struct s3 *s3, const char *key, const char *path)
{
    struct s3_object object;
    bool found;
    TRY(s3_head(s3, key, &object, &found));
    if (!found)
        return FAIL(ST_NO_INPUT, "there is no object %s", key);
    return s3_download(s3, &object, path);
}

static enum status run_command(int argc, char **argv)
{
    struct s3_address address;
    struct s3 *s3;
    const bool is_put = strcmp(argv[1], "put") == 0;
    if (argc < 3 + (is_put || strcmp(argv[1], "get") == 0))
        return FAIL(ST_USAGE, "test_s3 serve | list NAME | put FILE NAME | get NAME FILE | delete "
                              "NAME");
    TRY(s3_address_parse(argv[is_put ? 3 : 2], &address));
    const struct s3_config config = {.bucket = address.bucket,
                                     .allows_local = true,
                                     .part_bytes = harness_number("PART", 0),
                                     .range_bytes = harness_number("RANGE", 0)};
    TRY(s3_open(&config, &s3));
    enum status st = is_put                           ? s3_upload(s3, argv[2], address.key)
                     : strcmp(argv[1], "get") == 0    ? run_get(s3, address.key, argv[3])
                     : strcmp(argv[1], "delete") == 0 ? s3_delete(s3, address.key)
                                                      : run_list(s3, address.key);
    s3_close(s3);
    return st;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        fake_page_n = argc > 3 ? atoi(argv[3]) : fake_page_n;
        fake_s3_serve(argc > 2 ? atoi(argv[2]) : 0, print_port);
    }
    if (argc > 1) {
        const enum status st = run_command(argc, argv);
        if (st != ST_OK)
            fprintf(stderr, "%s: %s\n", status_name(st), status_message());
        return status_exit_code(st);
    }
    harness_quiet();
    return harness_run_all(__FILE__, set_up, tear_down);
}
