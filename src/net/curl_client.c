/* curl_client — see curl_client.h. */
#include "net/curl_client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct text *body = arg;
    (void)one; /* always 1 */
    text_add_bytes(body, bytes, n);
    return body->overflow ? 0 : n; /* 0: libcurl ends the request */
}

enum status curl_client_open(const struct curl_client_config *config, CURL **out)
{
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot prepare a request to %s", config->server);
    config->error[0] = 0;
    if (config->url != NULL)
        curl_easy_setopt(easy, CURLOPT_URL, config->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!config->uses_proxy)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L); /* signals belong to the main thread */
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)config->connect_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)config->total_ms);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, config->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, config->body);
    *out = easy;
    return ST_OK;
}

const char *curl_client_error(const char error[CURL_ERROR_SIZE], CURLcode code)
{
    static const struct {
        CURLcode code;
        const char *text;
    } rows[] = {
        {CURLE_COULDNT_RESOLVE_HOST, "the name does not resolve"},
        {CURLE_COULDNT_RESOLVE_PROXY, "the name of the proxy does not resolve"},
        {CURLE_COULDNT_CONNECT, "no connection: nothing listens there, or a firewall is between"},
        {CURLE_OPERATION_TIMEDOUT, "no answer in time"},
        {CURLE_GOT_NOTHING, "it closed the connection without an answer"},
        {CURLE_PARTIAL_FILE, "the connection ended before all bytes had arrived"},
        {CURLE_SEND_ERROR, "the connection was lost while the request was sent"},
        {CURLE_RECV_ERROR, "the connection was lost while the answer was read"},
        {CURLE_URL_MALFORMAT, "it is not a URL such as http://host:8080/path"},
        {CURLE_UNSUPPORTED_PROTOCOL, "it is not an http or https address"},
        {CURLE_WEIRD_SERVER_REPLY, "it does not answer in HTTP"},
        {CURLE_TOO_MANY_REDIRECTS, "it redirects too often"},
        {CURLE_WRITE_ERROR, "the answer could not be stored"},
        {CURLE_OUT_OF_MEMORY, "out of memory"},
    };
    /* an answer without a status line counts as HTTP/0.9, which is not allowed */
    if (code == CURLE_UNSUPPORTED_PROTOCOL && strstr(error, "HTTP/0.9") != NULL)
        code = CURLE_WEIRD_SERVER_REPLY;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == code)
            return rows[i].text;
    return error[0] != 0 ? error : curl_easy_strerror(code);
}

long curl_client_http_code(CURL *easy)
{
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

/* ---- the partial file ---- */

/* Adds CACHE_DIR to the message of a disk that refused a write. */
static enum status name_folder(const struct curl_client_partial *partial, enum status st)
{
    return st != ST_STORE
               ? st
               : FAIL(ST_STORE,
                      "%s (%s is kept in CACHE_DIR=%s; set another folder if this one is "
                      "full)",
                      status_message(), partial->what, partial->cache_dir);
}

enum status curl_client_partial_open(struct curl_client_partial *partial)
{
    partial->fd = open(partial->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (partial->fd < 0)
        return FAIL(ST_STORE, "cannot create %s: %s; check CACHE_DIR", partial->path,
                    strerror(errno));
    partial->have = lseek(partial->fd, 0, SEEK_END);
    return ST_OK;
}

void curl_client_partial_close(struct curl_client_partial *partial)
{
    if (partial->fd >= 0)
        close(partial->fd);
    partial->fd = -1;
    partial->have = 0;
}

enum status curl_client_partial_restart(struct curl_client_partial *partial)
{
    if (ftruncate(partial->fd, 0) != 0)
        return FAIL(ST_STORE, "cannot empty %s: %s; check CACHE_DIR", partial->path,
                    strerror(errno));
    partial->have = 0;
    return ST_OK;
}

enum status curl_client_partial_append(struct curl_client_partial *partial, const void *bytes,
                                       size_t n)
{
    TRY(name_folder(partial, file_write_at(partial->fd, partial->path, bytes, n, partial->have)));
    partial->have += (int64_t)n;
    return ST_OK;
}

enum status curl_client_partial_commit(struct curl_client_partial *partial, const char *path)
{
    return name_folder(partial, file_commit(partial->fd, partial->path, path));
}

enum status curl_client_partial_room(const struct curl_client_partial *partial, int64_t n)
{
    const int64_t space = file_space_bytes(partial->cache_dir);
    if (space < 0 || n <= space)
        return ST_OK;
    return FAIL(ST_STORE,
                "%s: %lld bytes more to fetch, but CACHE_DIR=%s has room for %lld; make room or "
                "set another CACHE_DIR",
                partial->what, (long long)n, partial->cache_dir, (long long)space);
}

enum status curl_client_partial_remove(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return ST_OK;
    return FAIL(ST_STORE, "cannot remove %s: %s; check CACHE_DIR", path, strerror(errno));
}

enum status curl_client_partial_report(const struct curl_client_partial *partial)
{
    const int64_t done = partial->done + partial->have;
    if (partial->progress == NULL ||
        partial->progress(partial->progress_arg, done,
                          partial->total > done ? partial->total : done))
        return ST_OK;
    return FAIL(ST_RETRY,
                "stopped while downloading %s, after %lld bytes; the next start resumes there",
                partial->what, (long long)done);
}

enum status curl_client_partial_wait(const struct curl_client_partial *partial, int64_t ms)
{
    enum { POLL_MS = 50 };
    for (int64_t end = clock_ms() + ms; clock_ms() < end; clock_sleep_ms(POLL_MS))
        TRY(curl_client_partial_report(partial));
    return ST_OK;
}

enum status curl_client_partial_hash(const struct curl_client_partial *partial,
                                     const struct file_map *map, size_t skip,
                                     int (*add)(void *hash, const void *bytes, size_t n),
                                     void *hash)
{
    enum { HASH_BYTES = 16 << 20 }; /* between two reports */
    for (size_t at = skip, n; at < map->bytes; at += n) {
        n = map->bytes - at < HASH_BYTES ? map->bytes - at : HASH_BYTES;
        add(hash, map->data + at, n);
        TRY(curl_client_partial_report(partial));
    }
    return ST_OK;
}
