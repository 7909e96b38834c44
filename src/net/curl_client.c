/* curl_client — see curl_client.h. */
#include "net/curl_client.h"

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
    return error[0] != 0 ? error : curl_easy_strerror(code);
}

long curl_client_http_code(CURL *easy)
{
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return code;
}
