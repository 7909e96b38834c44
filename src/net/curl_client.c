/* curl_client — see curl_client.h. */
#include "net/curl_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/ip_address.h"

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

bool curl_client_is_final(const char error[CURL_ERROR_SIZE], CURLcode code)
{
    static const CURLcode finals[] = {CURLE_PEER_FAILED_VERIFICATION,
                                      CURLE_SSL_CACERT_BADFILE,
                                      CURLE_SSL_CERTPROBLEM,
                                      CURLE_SSL_CIPHER,
                                      CURLE_SSL_ISSUER_ERROR,
                                      CURLE_SSL_INVALIDCERTSTATUS,
                                      CURLE_URL_MALFORMAT,
                                      CURLE_UNSUPPORTED_PROTOCOL,
                                      CURLE_WEIRD_SERVER_REPLY,
                                      CURLE_BAD_CONTENT_ENCODING};
    const char *said = curl_client_error(error, code);
    for (size_t i = 0; i < sizeof finals / sizeof *finals; i++)
        if (code == finals[i])
            return true;
    /* No TLS on that port, or our TLS is refused; a broken connection has another error. */
    return code == CURLE_SSL_CONNECT_ERROR &&
           (strstr(said, "wrong version number") || strstr(said, "alert"));
}

/* ---- addresses ---- */

/* Returns true for the addresses of the services of credentials: of EC2 instances, ECS tasks and
 * EKS pods. */
static bool is_metadata(const struct curl_sockaddr *to)
{
    static const uint8_t v6[][16] = {
        {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, /* fd00:ec2::254 */
        {0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23},              /* fd00:ec2::23 */
    };
    if (to->family == AF_INET && to->addrlen >= sizeof(struct sockaddr_in)) {
        const uint32_t address = ntohl(((const struct sockaddr_in *)&to->addr)->sin_addr.s_addr);
        return address == 0xa9fea9fe || address == 0xa9feaa02 || address == 0xa9feaa17;
    }
    if (to->family != AF_INET6 || to->addrlen < sizeof(struct sockaddr_in6))
        return false;
    const struct in6_addr *address = &((const struct sockaddr_in6 *)&to->addr)->sin6_addr;
    return memcmp(address, v6[0], 16) == 0 || memcmp(address, v6[1], 16) == 0;
}

/* on_socket — is called for every connection, for any name, redirect or proxy that led to it. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct curl_client_guard *guard = arg;
    (void)purpose;
    if (!guard->allows_local && !ip_address_is_public(&to->addr, to->addrlen) &&
        !(guard->allows_metadata && is_metadata(to))) {
        ip_address_text(&to->addr, to->addrlen, guard->refused, sizeof guard->refused);
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

void curl_client_guard_set(CURL *easy, struct curl_client_guard *guard)
{
    guard->refused[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, guard);
}

/* ---- the partial file ---- */

/* Adds the folder to the message of a disk that refused a write. */
static enum status name_folder(const struct curl_client_partial *partial, enum status st)
{
    return st != ST_STORE
               ? st
               : FAIL(ST_STORE,
                      "%s (%s is kept in %s; set CACHE_DIR to another disk if this one is full)",
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

enum status curl_client_partial_lock(struct curl_client_partial *partial, const char *path,
                                     bool *is_done)
{
    for (;;) {
        struct stat mine, named;
        *is_done = path != NULL && file_exists(path);
        if (*is_done)
            return ST_OK;
        TRY(curl_client_partial_open(partial));
        if (flock(partial->fd, LOCK_EX | LOCK_NB) == 0 && fstat(partial->fd, &mine) == 0 &&
            stat(partial->path, &named) == 0 && mine.st_ino == named.st_ino &&
            (path == NULL || !file_exists(path)))
            return ST_OK;
        curl_client_partial_close(partial);
        TRY(curl_client_partial_wait(partial, 200));
    }
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
                "%s: %lld bytes more to fetch, but %s has room for %lld; make room, or set "
                "CACHE_DIR to another disk",
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
