/* https_client — see https_client.h. */
#include "net/https_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/curl_client.h"
#include "net/tls_client.h"

#define EMPTY_REPLIES_MAX 3

struct transfer {
    struct https_client *client;
    enum https_client_slot slot;
    CURL *easy;
    bool is_busy;
    struct text body, response;
    int64_t sent_ms;
    struct tls_client tls;
};

struct https_client {
    struct https_client_config config;
    char base[320]; /* "https://host:port" */
    CURLM *multi;
    struct curl_slist *headers;
    struct event *timer;
    struct transfer transfers[HTTPS_CLIENT_SLOTS_N];
    int empty_replies_n; /* empty replies in a row */
};

/* ---- results ---- */

static enum https_client_result classify_tls_error(const struct transfer *transfer,
                                                   struct https_client_response *response)
{
    return tls_client_is_refused(&transfer->tls, response->why, sizeof(response->why))
               ? HTTPS_CLIENT_NOT_ADMITTED
               : HTTPS_CLIENT_CLOSED;
}

static enum https_client_result classify_error(struct transfer *transfer, CURLcode code,
                                               struct https_client_response *response)
{
    long error = 0;
    const char *words = curl_client_error(transfer->tls.error, code);
    curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &error);
    switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
        return classify_tls_error(transfer, response);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        text_format(response->why, sizeof(response->why),
                    "it does not answer in HTTP; is JOB_TOKEN=none here and a secret on node 0? "
                    "Set the same JOB_TOKEN on all nodes");
        return HTTPS_CLIENT_NOT_ADMITTED;
    case CURLE_COULDNT_CONNECT:
        text_format(response->why, sizeof(response->why), "%s",
                    error != 0 ? strerror((int)error) : words);
        response->is_refused = error == ECONNREFUSED;
        return error == ECONNREFUSED || error == ECONNRESET ? HTTPS_CLIENT_CLOSED
                                                            : HTTPS_CLIENT_UNREACHABLE;
    case CURLE_COULDNT_RESOLVE_HOST:
        text_format(response->why, sizeof(response->why), "the name does not resolve");
        return HTTPS_CLIENT_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
        text_format(response->why, sizeof(response->why), "no answer");
        return HTTPS_CLIENT_UNREACHABLE;
    case CURLE_GOT_NOTHING:
        /* A TLS server closes a plain connection this way, but so does a server that exits. */
        text_format(response->why, sizeof(response->why),
                    "it closed the connection without an answer");
        if (!transfer->client->config.psk->is_none ||
            ++transfer->client->empty_replies_n < EMPTY_REPLIES_MAX)
            return HTTPS_CLIENT_CLOSED;
        text_format(response->why, sizeof(response->why),
                    "it closed the connection without an answer; is JOB_TOKEN=none here and a "
                    "secret on node 0? Set the same JOB_TOKEN on all nodes");
        return HTTPS_CLIENT_NOT_ADMITTED;
    case CURLE_RECV_ERROR:
        /* TLS 1.3 may refuse the key after the client has finished the handshake */
        if (transfer->tls.alert != 0)
            return classify_tls_error(transfer, response);
        /* fall through */
    default:
        text_copy(response->why, sizeof(response->why), words);
        return HTTPS_CLIENT_CLOSED;
    }
}

static void finish_done(struct https_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        struct transfer *transfer = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        struct https_client_response response = {.slot = transfer->slot,
                                                 .sent_ms = transfer->sent_ms};
        curl_multi_remove_handle(transfer->client->multi, transfer->easy);
        transfer->is_busy = false;
        if (transfer->response.overflow)
            text_format(response.why, sizeof(response.why), "its answer is longer than allowed");
        if (code != CURLE_GOT_NOTHING)
            transfer->client->empty_replies_n = 0;
        if (code == CURLE_OK)
            response.code = curl_client_http_code(transfer->easy);
        else
            response.result = transfer->response.overflow
                                  ? HTTPS_CLIENT_UNREACHABLE
                                  : classify_error(transfer, code, &response);
        struct text taken = transfer->response;
        transfer->response = (struct text){0};
        text_free(&transfer->body);
        response.bytes = taken.len > 0 ? taken.data : "";
        response.n = taken.len;
        transfer->client->config.on_response(transfer->client->config.arg, &response);
        text_free(&taken);
    }
}

/* ---- libcurl on libevent ---- */

static void on_socket_event(evutil_socket_t fd, short what, void *arg)
{
    struct https_client *client = arg;
    int running,
        mask = (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
    curl_multi_socket_action(client->multi, fd, mask, &running);
    finish_done(client);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct https_client *client = arg;
    struct event *event = socket_arg;
    (void)easy;
    if (event != NULL)
        event_free(event);
    curl_multi_assign(client->multi, fd, NULL);
    if (what == CURL_POLL_REMOVE)
        return 0;
    short kind = EV_PERSIST;
    kind |= what & CURL_POLL_IN ? EV_READ : 0;
    kind |= what & CURL_POLL_OUT ? EV_WRITE : 0;
    event = event_new(client->config.loop, fd, kind, on_socket_event, client);
    if (event == NULL || event_add(event, NULL) != 0)
        return -1;
    curl_multi_assign(client->multi, fd, event);
    return 0;
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct https_client *client = arg;
    int running;
    curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_done(client);
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct https_client *client = arg;
    (void)multi;
    if (timeout_ms < 0) {
        event_del(client->timer);
        return 0;
    }
    struct timeval in = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    return event_add(client->timer, &in) == 0 ? 0 : -1;
}

/* ---- one request ---- */

void https_client_post(struct https_client *client, enum https_client_slot slot, const char *path,
                       struct text *take_body, size_t response_max, int64_t timeout_ms)
{
    struct transfer *transfer = &client->transfers[slot];
    char url[384];
    text_free(&transfer->body);
    text_free(&transfer->response);
    transfer->body = *take_body;
    *take_body = (struct text){0};
    transfer->response.limit = response_max;
    transfer->tls.error[0] = 0;
    transfer->tls.alert = 0;
    transfer->sent_ms = clock_ms();
    text_format(url, sizeof(url), "%s%s", client->base, path);
    curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDSIZE, (long)transfer->body.len);
    curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, transfer->body.data);
    curl_easy_setopt(transfer->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    transfer->is_busy = true;
    if (curl_multi_add_handle(client->multi, transfer->easy) != CURLM_OK)
        transfer->is_busy = false; /* its user tries again with the next tick */
}

bool https_client_is_busy(const struct https_client *client, enum https_client_slot slot)
{
    return client->transfers[slot].is_busy;
}

/* ---- life ---- */

static enum status open_multi(struct https_client *client)
{
    client->multi = curl_multi_init();
    client->headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *headers =
        client->headers != NULL ? curl_slist_append(client->headers, "Expect:") : NULL;
    client->timer = event_new(client->config.loop, -1, 0, on_time, client);
    if (client->multi == NULL || headers == NULL || client->timer == NULL)
        return FAIL(ST_RETRY, "out of memory: requests to node 0");
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    for (int i = 0; i < HTTPS_CLIENT_SLOTS_N; i++) {
        struct transfer *transfer = &client->transfers[i];
        *transfer = (struct transfer){.client = client, .slot = (enum https_client_slot)i};
        TRY(tls_client_open(&transfer->tls, client->config.psk, client->headers, &transfer->easy));
        curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer);
        curl_easy_setopt(transfer->easy, CURLOPT_WRITEDATA, &transfer->response);
    }
    return ST_OK;
}

enum status https_client_open(const struct https_client_config *config, struct https_client **out)
{
    TRY(tls_client_check());
    struct https_client *client = memory_new(1, sizeof(*client));
    client->config = *config;
    tls_client_url(config->psk, config->host, config->port, client->base, sizeof(client->base));
    enum status st = open_multi(client);
    if (st != ST_OK) {
        https_client_close(client);
        return st;
    }
    *out = client;
    return ST_OK;
}

void https_client_close(struct https_client *client)
{
    if (client == NULL)
        return;
    for (int i = 0; i < HTTPS_CLIENT_SLOTS_N; i++) {
        struct transfer *transfer = &client->transfers[i];
        if (transfer->is_busy)
            curl_multi_remove_handle(client->multi, transfer->easy);
        curl_easy_cleanup(transfer->easy);
        text_free(&transfer->body);
        text_free(&transfer->response);
    }
    if (client->multi != NULL)
        curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    if (client->timer != NULL)
        event_free(client->timer);
    free(client);
}
