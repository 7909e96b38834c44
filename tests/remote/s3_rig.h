/* s3_rig — a fake S3 server (fake_s3.h) in a process of its own, for the tests of a program: its
 * control, the environment of the client, and failures without secrets. */
#ifndef CONVOY_TESTS_REMOTE_S3_RIG_H
#define CONVOY_TESTS_REMOTE_S3_RIG_H

#include "harness.h"

#include <sys/wait.h>

#include "base/file.h"
#include "remote/fake_s3.h"
#include "remote/s3.h"
#include "remote/s3_request.h"

enum { MANY = 3 << 20 }; /* bytes of a large object */

static pid_t server;
static int port;
static char dir[FILE_PATH_MAX], *large;

/* ---- the server ---- */

/* Sends a request without a signature; returns the answer's body, valid until the next call. */
static inline const char *control(const char *method, const char *target, const void *body,
                                  size_t n)
{
    return fake_s3_control(port, method, target, body, n);
}

static inline void set_fault(const char *query)
{
    char target[300];
    snprintf(target, sizeof target, "/_fault?%s", query);
    control("PUT", target, "", 0);
}

static inline void set_object(const char *name, const void *bytes, size_t n)
{
    char target[300];
    snprintf(target, sizeof target, "/_object/%s", name);
    control("PUT", target, bytes, n);
}

/* A number of the server's state, such as "requests". */
static inline long long count(const char *name)
{
    const char *state = control("GET", "/_state", "", 0);
    char line[100];
    snprintf(line, sizeof line, "%s ", name);
    const char *at = strncmp(state, line, strlen(line)) == 0 ? state : NULL;
    for (const char *c = state; at == NULL && (c = strchr(c, '\n')) != NULL; c++)
        if (strncmp(c + 1, line, strlen(line)) == 0)
            at = c + 1;
    assert_non_null(at);
    return atoll(at + strlen(line));
}

/* The bytes of an object that were sent so far. */
static inline long long sent(const char *path)
{
    char name[200];
    const char *state = control("GET", "/_state", "", 0);
    snprintf(name, sizeof name, "object %s ", path);
    const char *at = strstr(state, name);
    assert_non_null(at);
    at = strchr(at + strlen(name), ' ');
    return atoll(at);
}

static inline void on_port(int at) { assert_int_equal(write(3, &at, sizeof at), sizeof at); }

static inline void set_environment(void)
{
    char url[64];
    static const char *const names[] = {"AWS_PROFILE",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_CA_BUNDLE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",
                                        "http_proxy",
                                        "HTTP_PROXY",
                                        "https_proxy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "fake/secret+key", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("HOME", dir, 1);
}

static inline int set_up(void **state)
{
    (void)state;
    int ends[2];
    snprintf(dir, sizeof dir, "%s/test-s3-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(dir) == NULL || pipe(ends) != 0)
        return -1;
    server = fork();
    if (server == 0) {
        dup2(ends[1], 3);
        fake_s3_serve(0, on_port);
    }
    if (read(ends[0], &port, sizeof port) != sizeof port)
        return -1;
    large = malloc(MANY);
    for (int i = 0; i < MANY; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    set_environment();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    free(large);
    return file_remove_tree(dir) == ST_OK ? 0 : -1;
}

/* After each test: no fault is left, and no request was forged unless the test expects it. */
static inline int end_test(void **state)
{
    (void)state;
    control("DELETE", "/_fault?expires=3600", "", 0);
    set_environment();
    return 0;
}
#define S3_TEST(name) TEST_WITH(name, NULL, end_test)

static inline struct s3 *open_bucket(const char *bucket)
{
    struct s3 *s3;
    const struct s3_config config = {.bucket = bucket,
                                     .allows_local = true,
                                     .part_bytes = 1 << 20,
                                     .range_bytes = 1 << 18,
                                     .retry_ms = 1,
                                     .slow_ms = 1000};
    assert_int_equal(s3_open(&config, &s3), ST_OK);
    return s3;
}

static inline void name_path(char out[FILE_PATH_MAX], const char *name)
{
    assert_int_equal(file_join(out, FILE_PATH_MAX, dir, name), ST_OK);
}

static inline void assert_file(const char *path, const void *bytes, size_t n)
{
    char *data;
    size_t got;
    assert_int_equal(file_read(path, MANY + 1, &data, &got), ST_OK);
    assert_int_equal(got, n);
    assert_memory_equal(data, bytes, n);
    free(data);
}

/* Downloads bucket/NAME to a file of that name. */
static inline enum status download(struct s3 *s3, const char *key, char path[FILE_PATH_MAX])
{
    struct s3_object object;
    bool found;
    name_path(path, key);
    TRY(s3_head(s3, key, &object, &found));
    assert_true(found);
    return s3_download(s3, &object, path);
}

/* The last failure has this status and these words, and no secret. */
static inline void assert_failure(enum status st, enum status expected, const char *words)
{
    if (st != expected)
        fail_msg("%s, expected %s: %s", status_name(st), status_name(expected), status_message());
    harness_assert_message(words);
    static const char *const secrets[] = {"fake/secret", "fake%2Fsecret", "fake-token",
                                          "Signature=",  "web.token",     "metadata-token"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        assert_null(strstr(status_message(), secrets[i]));
}

#endif
