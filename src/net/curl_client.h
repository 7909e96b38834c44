/* curl_client — the common options of all HTTP requests of this program, as options of one libcurl
 * handle, and the file that a download fills. Its users are downloads from the web and from buckets
 * (remote), and from node 0 (file_share/file_client), the members' requests to node 0
 * (tls_client) and `convoy status` (serve/status_client).
 *
 * Each user adds its own policy to the handle: redirects, TLS, retries. It must not know the
 * content of a request, nor its server. */
#ifndef CONVOY_NET_CURL_CLIENT_H
#define CONVOY_NET_CURL_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

struct curl_client_config {
    const char *server; /* in messages: a URL, "node 0" */
    const char *url;    /* NULL: CURLOPT_URL is set before each request */
    bool uses_proxy;    /* uses the proxy of the environment (http_proxy …); false: no proxy */
    int64_t connect_ms; /* ms to connect; 0: libcurl's 5 minutes */
    int64_t total_ms;   /* ms for a whole request; 0: no limit */
    /* body of the response; NULL: CURLOPT_WRITEDATA is set before each request */
    struct text *body;
    char *error; /* CURL_ERROR_SIZE bytes, for curl_client_error; lives as long as the handle */
};

/* curl_client_open — opens a handle for http and https, without redirects, that raises no signals.
 * The response is appended to a struct text; beyond the text's limit the request fails and
 * text->overflow is set. Free it with curl_easy_cleanup. Fails ST_RETRY: memory. */
enum status curl_client_open(const struct curl_client_config *config, CURL **out);
/* curl_client_error — returns why the last request failed, in words for users; for TLS and rare
 * errors in the words of the libraries. */
const char *curl_client_error(const char error[CURL_ERROR_SIZE], CURLcode code);
/* curl_client_http_code — returns the code of the last response; 0: none arrived. */
long curl_client_http_code(CURL *easy);

/* curl_client_is_final — returns true if a retry would meet the failure of the last request again:
 * not HTTP, an unknown protocol, a bad certificate, no TLS on that port. */
bool curl_client_is_final(const char error[CURL_ERROR_SIZE], CURLcode code);

/* The addresses that a handle may connect to. The address of each connection is checked, so neither
 * a name nor a redirect gets around it. A proxy would: use none unless local ones are allowed. */
struct curl_client_guard {
    bool allows_local;    /* also addresses that are not public (ip_address.h) */
    bool allows_metadata; /* also the fixed addresses of a cloud's services of credentials */
    char refused[64];     /* the address refused last; "": none */
};
/* curl_client_guard_set — refuses connections of the handle that the guard does not allow: the
 * request fails with CURLE_COULDNT_CONNECT. The guard lives as long as the handle. */
void curl_client_guard_set(CURL *easy, struct curl_client_guard *guard);

/* The partial file: the bytes that have arrived in CACHE_DIR. The next start resumes at its end. */
struct curl_client_partial {
    const char *what;      /* the source in messages: a URL, "node 0's data" */
    const char *cache_dir; /* for messages */
    /* NULL allowed; returns false to stop, which fails with ST_RETRY. */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
    char path[FILE_PATH_MAX];
    int fd;              /* -1: not open */
    int64_t have;        /* bytes in the partial file */
    int64_t done, total; /* bytes of other files; bytes of all files, which may be too small */
};

/* curl_client_partial_open — opens the partial file at partial->path, or creates it. */
enum status curl_client_partial_open(struct curl_client_partial *partial);
/* curl_client_partial_lock — opens the partial file and waits for its lock: of several processes,
 * one writes it. *is_done: another process has completed the file at path, and nothing is open.
 * path NULL: the file is written anew, also if it is complete. */
enum status curl_client_partial_lock(struct curl_client_partial *partial, const char *path,
                                     bool *is_done);
/* curl_client_partial_close — closes the partial file if it is open. */
void curl_client_partial_close(struct curl_client_partial *partial);
/* curl_client_partial_restart — empties the partial file. */
enum status curl_client_partial_restart(struct curl_client_partial *partial);
/* curl_client_partial_append — writes bytes at the end of the partial file, and counts them in
 * `have`. */
enum status curl_client_partial_append(struct curl_client_partial *partial, const void *bytes,
                                       size_t n);
/* curl_client_partial_commit — makes the partial file the file at path, durably. */
enum status curl_client_partial_commit(struct curl_client_partial *partial, const char *path);
/* curl_client_partial_room — fails ST_STORE if CACHE_DIR has no room for n more bytes. */
enum status curl_client_partial_room(const struct curl_client_partial *partial, int64_t n);
/* curl_client_partial_remove — removes a kept file that is damaged. */
enum status curl_client_partial_remove(const char *path);
/* curl_client_partial_report — reports the progress. Fails ST_RETRY if the user stops it. */
enum status curl_client_partial_report(const struct curl_client_partial *partial);
/* curl_client_partial_wait — waits before another attempt, and reports the progress meanwhile. */
enum status curl_client_partial_wait(const struct curl_client_partial *partial, int64_t ms);
/* curl_client_partial_hash — adds the bytes of a mapped file after the first `skip` to a hash, and
 * reports the progress. */
enum status curl_client_partial_hash(const struct curl_client_partial *partial,
                                     const struct file_map *map, size_t skip,
                                     int (*add)(void *hash, const void *bytes, size_t n),
                                     void *hash);

#endif
