/* caller — see caller.h. Must not know what is said. */
#include "meet/caller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <event2/event.h>

#include "base/clock.h"
#include "meet/dial.h"

#define SILENCES_MAX 3

struct line {
    struct caller *caller;
    enum caller_lane lane;
    CURL *easy;
    bool is_busy;
    struct text body, answer;
    int64_t sent_ms;
    struct dial dial;
};

struct caller {
    struct caller_config config;
    char base[320]; /* "https://host:port" */
    CURLM *multi;
    struct curl_slist *headers;
    struct event *timer;
    struct line lines[CALLER_LANES_N];
    int silences_n; /* in a row */
};

/* ---- what came of it ---- */

static enum caller_result judge_tls(const struct line *line, struct caller_answer *answer)
{
    return dial_is_refused(&line->dial, answer->why, sizeof(answer->why)) ? CALLER_NOT_ADMITTED
                                                                          : CALLER_CLOSED;
}

static enum caller_result judge(struct line *line, CURLcode code, struct caller_answer *answer)
{
    long error = 0;
    const char *words = line->dial.error[0] != 0 ? line->dial.error : curl_easy_strerror(code);
    curl_easy_getinfo(line->easy, CURLINFO_OS_ERRNO, &error);
    switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
        return judge_tls(line, answer);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        text_format(answer->why, sizeof(answer->why),
                    "what answers there speaks another language; is JOB_TOKEN=none here and a "
                    "secret on node 0?");
        return CALLER_NOT_ADMITTED;
    case CURLE_COULDNT_CONNECT:
        text_format(answer->why, sizeof(answer->why), "%s",
                    error != 0 ? strerror((int)error) : words);
        return error == ECONNREFUSED || error == ECONNRESET ? CALLER_CLOSED : CALLER_UNREACHED;
    case CURLE_COULDNT_RESOLVE_HOST:
        text_format(answer->why, sizeof(answer->why), "the name does not resolve");
        return CALLER_UNREACHED;
    case CURLE_OPERATION_TIMEDOUT:
        text_format(answer->why, sizeof(answer->why), "no answer");
        return CALLER_UNREACHED;
    case CURLE_GOT_NOTHING: /* a TLS server hangs up on plain words; but so does one that ends */
        text_format(answer->why, sizeof(answer->why), "it hangs up without a word");
        if (!line->caller->config.secret->is_none || ++line->caller->silences_n < SILENCES_MAX)
            return CALLER_CLOSED;
        text_format(answer->why, sizeof(answer->why),
                    "it hangs up without a word; is JOB_TOKEN=none here and a secret on node 0?");
        return CALLER_NOT_ADMITTED;
    case CURLE_RECV_ERROR:
        if (line->dial.alert != 0) /* TLS 1.3 may refuse after the client believes that it is in */
            return judge_tls(line, answer);
        /* fall through */
    default:
        text_format(answer->why, sizeof(answer->why), "%.200s", words);
        return CALLER_CLOSED;
    }
}

static void finish(struct line *line, CURLcode code)
{
    struct caller_answer answer = {.lane = line->lane, .sent_ms = line->sent_ms};
    curl_multi_remove_handle(line->caller->multi, line->easy);
    line->is_busy = false;
    if (line->answer.overflow)
        text_format(answer.why, sizeof(answer.why), "an answer longer than allowed");
    if (code != CURLE_GOT_NOTHING)
        line->caller->silences_n = 0;
    if (code == CURLE_OK)
        curl_easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &answer.code);
    else
        answer.result = line->answer.overflow ? CALLER_UNREACHED : judge(line, code, &answer);
    struct text taken = line->answer;
    line->answer = (struct text){0};
    text_free(&line->body);
    answer.bytes = taken.len > 0 ? taken.data : "";
    answer.n = taken.len;
    line->caller->config.on_answer(line->caller->config.arg, &answer);
    text_free(&taken);
}

static void collect(struct caller *caller)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(caller->multi, &left)) != NULL) {
        struct line *line = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&line);
        finish(line, code);
    }
}

/* ---- libcurl on libevent ---- */

static void on_socket_event(evutil_socket_t fd, short what, void *arg)
{
    struct caller *caller = arg;
    int running,
        mask = (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
    curl_multi_socket_action(caller->multi, fd, mask, &running);
    collect(caller);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct caller *caller = arg;
    struct event *event = socket_arg;
    (void)easy;
    if (event != NULL)
        event_free(event);
    curl_multi_assign(caller->multi, fd, NULL);
    if (what == CURL_POLL_REMOVE)
        return 0;
    short kind = EV_PERSIST;
    kind |= what & CURL_POLL_IN ? EV_READ : 0;
    kind |= what & CURL_POLL_OUT ? EV_WRITE : 0;
    event = event_new(caller->config.loop, fd, kind, on_socket_event, caller);
    if (event == NULL || event_add(event, NULL) != 0)
        return -1;
    curl_multi_assign(caller->multi, fd, event);
    return 0;
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct caller *caller = arg;
    int running;
    curl_multi_socket_action(caller->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(caller);
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct caller *caller = arg;
    (void)multi;
    if (timeout_ms < 0) {
        event_del(caller->timer);
        return 0;
    }
    struct timeval in = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    return event_add(caller->timer, &in) == 0 ? 0 : -1;
}

/* ---- one request ---- */

static void set_line(struct line *line)
{
    CURL *easy = line->easy;
    dial_prepare(easy, &line->dial, line->caller->config.secret, line->caller->headers);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, line);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &line->answer);
}

void caller_post(struct caller *caller, enum caller_lane lane, const char *path,
                 struct text *take_body, size_t answer_max, int64_t timeout_ms)
{
    struct line *line = &caller->lines[lane];
    char url[384];
    text_free(&line->body);
    text_free(&line->answer);
    line->body = *take_body;
    *take_body = (struct text){0};
    line->answer.limit = answer_max;
    line->dial.error[0] = 0;
    line->dial.alert = 0;
    line->sent_ms = clock_ms();
    text_format(url, sizeof(url), "%s%s", caller->base, path);
    curl_easy_setopt(line->easy, CURLOPT_URL, url);
    curl_easy_setopt(line->easy, CURLOPT_POSTFIELDSIZE, (long)line->body.len);
    curl_easy_setopt(line->easy, CURLOPT_POSTFIELDS, line->body.data);
    curl_easy_setopt(line->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    line->is_busy = true;
    if (curl_multi_add_handle(caller->multi, line->easy) != CURLM_OK)
        line->is_busy = false; /* asked again with the next tick */
}

bool caller_is_busy(const struct caller *caller, enum caller_lane lane)
{
    return caller->lines[lane].is_busy;
}

/* ---- life ---- */

static enum status open_lines(struct caller *caller)
{
    for (int i = 0; i < CALLER_LANES_N; i++) {
        struct line *line = &caller->lines[i];
        *line =
            (struct line){.caller = caller, .lane = (enum caller_lane)i, .easy = curl_easy_init()};
        if (line->easy == NULL)
            return FAIL(ST_RETRY, "out of memory: a request to node 0");
        set_line(line);
    }
    return ST_OK;
}

static enum status open_multi(struct caller *caller)
{
    caller->multi = curl_multi_init();
    caller->headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *headers =
        caller->headers != NULL ? curl_slist_append(caller->headers, "Expect:") : NULL;
    caller->timer = event_new(caller->config.loop, -1, 0, on_time, caller);
    if (caller->multi == NULL || headers == NULL || caller->timer == NULL)
        return FAIL(ST_RETRY, "out of memory: requests to node 0");
    curl_multi_setopt(caller->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(caller->multi, CURLMOPT_SOCKETDATA, caller);
    curl_multi_setopt(caller->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(caller->multi, CURLMOPT_TIMERDATA, caller);
    return open_lines(caller);
}

enum status caller_open(const struct caller_config *config, struct caller **out)
{
    TRY(dial_check());
    struct caller *caller = calloc(1, sizeof(*caller));
    if (caller == NULL)
        return FAIL(ST_RETRY, "out of memory: requests to node 0");
    caller->config = *config;
    dial_base(config->secret, config->host, config->port, caller->base, sizeof(caller->base));
    enum status st = open_multi(caller);
    if (st != ST_OK) {
        caller_close(caller);
        return st;
    }
    *out = caller;
    return ST_OK;
}

void caller_close(struct caller *caller)
{
    if (caller == NULL)
        return;
    for (int i = 0; i < CALLER_LANES_N; i++) {
        struct line *line = &caller->lines[i];
        if (line->is_busy)
            curl_multi_remove_handle(caller->multi, line->easy);
        curl_easy_cleanup(line->easy);
        text_free(&line->body);
        text_free(&line->answer);
    }
    if (caller->multi != NULL)
        curl_multi_cleanup(caller->multi);
    curl_slist_free_all(caller->headers);
    if (caller->timer != NULL)
        event_free(caller->timer);
    free(caller);
}
