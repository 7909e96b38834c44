/* curl_client — see curl_client.h. */
#include "net/curl_client.h"

#include <string.h>

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
        {CURLE_PARTIAL_FILE, "the connection ended before all bytes had come"},
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
