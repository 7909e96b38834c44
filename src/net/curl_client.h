/* curl_client — what all HTTP requests of this program have in common, as options of one libcurl
 * handle. Its users are downloads (data/fetch), the members' requests to node 0 (tls_client) and
 * `convoy status` (serve/status_client).
 *
 * Each user adds its own policy to the handle: redirects, TLS, retries. It must not know what is
 * requested, nor from which server. */
#ifndef CONVOY_NET_CURL_CLIENT_H
#define CONVOY_NET_CURL_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/status.h"
#include "base/text.h"

struct curl_client_config {
    const char *server; /* in messages: a URL, "node 0" */
    const char *url;    /* NULL: CURLOPT_URL is set before each request */
    bool uses_proxy;    /* that of the environment (http_proxy …); false: none */
    int64_t connect_ms; /* to connect; 0: libcurl's 5 minutes */
    int64_t total_ms;   /* for a whole request; 0: no limit */
    struct text *body;  /* the response's; NULL: CURLOPT_WRITEDATA is set before each request */
    char *error; /* CURL_ERROR_SIZE bytes, for curl_client_error; lives as long as the handle */
};

/* curl_client_open — a handle for http and https, without redirects, that raises no signals. The
 * response is appended to a struct text; beyond the text's limit the request fails and
 * text->overflow is set. Free it with curl_easy_cleanup. Fails ST_RETRY: memory. */
enum status curl_client_open(const struct curl_client_config *config, CURL **out);
/* curl_client_error — why the last request failed, in words for users; of TLS and rare errors those
 * of the libraries. */
const char *curl_client_error(const char error[CURL_ERROR_SIZE], CURLcode code);
/* curl_client_http_code — of the last response; 0: none arrived. */
long curl_client_http_code(CURL *easy);

#endif
