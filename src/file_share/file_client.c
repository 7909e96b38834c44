/* file_client — see file_client.h. Read file_client_fetch first, at the end of the file.
 * Must not interpret the files.
 *
 *   CACHE_DIR/from-node-0/<name of the list>/0/00000.bin … a folder for each item: complete files
 *                                         /0/config.json   a file that keeps its name
 *                                         /part-00000      the bytes of file 0 that have arrived
 *                                         /lock */
#include "file_share/file_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "net/curl_client.h"
#include "net/tls_client.h"

#define REQUEST_MS 20000 /* limit of one request */
#define PAUSE_MS 200     /* ms before the next attempt; doubles up to PAUSE_MS_MAX */
#define PAUSE_MS_MAX 2000
#define LOG_MS 10000
/* Largest kept file that is read at every start; the reader of a larger file verifies it
 * (data/cache.h). */
#define CHECKED_BYTES ((size_t)64 << 20)
#define TRIES 2 /* attempts for one file, while its checksum is wrong */

struct file_client {
    struct file_client_config config;
    char url[384];
    CURL *easy;
    struct curl_slist *headers;
    struct tls_client tls;
    struct text answer;
    struct file_list list;
    char name[FILE_LIST_NAME_MAX], dir[FILE_PATH_MAX];
    int lock_fd;
    struct curl_client_partial partial; /* partial.done: the bytes of complete files */
    int64_t fetched_bytes;              /* bytes fetched by this call */
    int64_t pause_ms, logged_ms;
    enum status stopped; /* set if the progress of a request stopped it */
    bool is_changed;     /* node 0 has another list now */
};

static const char *setting_of(const struct file_client *c)
{
    return file_list_setting(c->config.kind);
}

/* ---- one request ---- */

static int on_progress(void *arg, curl_off_t x, curl_off_t y, curl_off_t z, curl_off_t w)
{
    struct file_client *c = arg;
    (void)x, (void)y, (void)z, (void)w;
    c->stopped = curl_client_partial_report(&c->partial);
    return c->stopped != ST_OK;
}

/* Waits before another attempt, and logs the reason now and then. */
static enum status retry_later(struct file_client *c, const char *why)
{
    int64_t now_ms = clock_ms();
    if (now_ms - c->logged_ms >= LOG_MS) {
        c->logged_ms = now_ms;
        LOG_INFO("waiting for node 0's %s: %s", setting_of(c), why);
    }
    TRY(curl_client_partial_wait(&c->partial, c->pause_ms));
    c->pause_ms = 2 * c->pause_ms < PAUSE_MS_MAX ? 2 * c->pause_ms : PAUSE_MS_MAX;
    return ST_OK;
}

static CURLcode post_request(struct file_client *c, const struct file_list_request *request,
                             size_t answer_max)
{
    struct text body = {0};
    file_list_write_request(&body, request);
    c->answer.len = 0;
    c->answer.overflow = false;
    c->answer.limit = answer_max;
    c->tls.alert = 0;
    c->tls.error[0] = 0;
    curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, (long)body.len);
    curl_easy_setopt(c->easy, CURLOPT_COPYPOSTFIELDS, body.data);
    CURLcode result = body.overflow ? CURLE_OUT_OF_MEMORY : curl_easy_perform(c->easy);
    text_free(&body);
    return result;
}

/* Repeats the request until it is answered: 200 with the body in c->answer, or 410. */
static enum status post_until_answered(struct file_client *c,
                                       const struct file_list_request *request, size_t answer_max,
                                       long *code_out)
{
    for (;;) {
        char why[512];
        long code = 0;
        CURLcode result = post_request(c, request, answer_max);
        TRY(c->stopped);
        if ((result == CURLE_SSL_CONNECT_ERROR || result == CURLE_PEER_FAILED_VERIFICATION ||
             (result == CURLE_RECV_ERROR && c->tls.alert != 0)) &&
            tls_client_is_refused(&c->tls, why, sizeof why))
            return FAIL(ST_NOT_ADMITTED, "not admitted by node 0 at %s: %s", c->url, why);
        if (c->answer.overflow)
            return FAIL(ST_BAD_DATA, "node 0 sent more than the %zu bytes that were requested",
                        answer_max);
        code = curl_client_http_code(c->easy);
        if (result == CURLE_OK && code == 500)
            return FAIL(ST_NO_INPUT,
                        "node 0 can no longer read its own %s (its log has the reason); start the "
                        "job again there",
                        setting_of(c));
        *code_out = code;
        if (result == CURLE_OK && (code == 200 || code == 410))
            return ST_OK;
        text_format(why, sizeof why, "%s", curl_client_error(c->tls.error, result));
        if (result == CURLE_OK)
            text_format(why, sizeof why,
                        code == 503
                            ? "it is busy, or short of memory or of open files (see its log)"
                            : "it answered HTTP %ld",
                        code);
        TRY(retry_later(c, why));
    }
}

/* Fetches the list. Waits until node 0 has read its own files. */
static enum status request_list(struct file_client *c)
{
    const struct file_list_request request = {
        .kind = c->config.kind, .node_id = c->config.node_id, .is_for_list = true};
    c->pause_ms = PAUSE_MS;
    for (;;) {
        long code;
        file_list_free(&c->list);
        TRY(post_until_answered(c, &request, FILE_LIST_JSON_MAX, &code));
        if (code == 200)
            TRY(file_list_read(c->answer.data ? c->answer.data : "", c->answer.len, &c->list));
        if (code == 200 && c->list.state != FILE_LIST_STATE_WAIT)
            return ST_OK;
        TRY(retry_later(c, "its worker has not started, or still reads its files"));
    }
}

/* ---- one file ---- */

static enum status name_file(const struct file_client *c, int i, char out[FILE_PATH_MAX])
{
    const struct file_list_entry *file = &c->list.files[i];
    char number[FILE_LIST_SUFFIX_MAX + 16];
    text_format(number, sizeof number, "%05d%s", file->is_pair ? i - 1 : i, file->suffix);
    return text_format(out, FILE_PATH_MAX, "%s/%d/%s", c->dir, file->item,
                       file->name[0] != 0 ? file->name : number)
               ? ST_OK
               : FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                      c->dir);
}

static int add_bytes(void *hash, const void *bytes, size_t n)
{
    return XXH3_64bits_update(hash, bytes, n);
}

static enum status check_map(struct file_client *c, const struct file_map *map,
                             const struct file_list_entry *file, bool is_known, bool *is_right)
{
    const size_t skip = (size_t)file->skip;
    uint64_t sum = file->sum;
    *is_right = false;
    if ((int64_t)map->bytes != file->bytes)
        return ST_OK;
    if (file->sums_ends)
        sum = file_sum_ends(map->data + skip, map->bytes - skip);
    else if (!is_known || map->bytes <= CHECKED_BYTES) {
        XXH3_state_t *hash = file_hash_new();
        const enum status st = curl_client_partial_hash(&c->partial, map, skip, add_bytes, hash);
        sum = XXH3_64bits_digest(hash);
        XXH3_freeState(hash);
        TRY(st);
    }
    *is_right = sum == file->sum;
    return ST_OK;
}

/* Checks the checksum of a file. is_known: the whole file was right when it arrived. */
static enum status check_sum(struct file_client *c, const char *path,
                             const struct file_list_entry *file, bool is_known, bool *is_right)
{
    struct file_map map;
    *is_right = false;
    TRY(file_map_open(path, &map));
    const enum status st = check_map(c, &map, file, is_known, is_right);
    file_map_close(&map);
    return st;
}

/* Sets *is_kept_out if file i is complete from an earlier fetch. Removes a damaged file. */
static enum status is_kept(struct file_client *c, int i, bool *is_kept_out)
{
    char path[FILE_PATH_MAX];
    TRY(name_file(c, i, path));
    *is_kept_out = file_exists(path);
    if (!*is_kept_out)
        return ST_OK;
    TRY(check_sum(c, path, &c->list.files[i], true, is_kept_out));
    if (*is_kept_out)
        return ST_OK;
    LOG_WARN("%s is damaged; fetching it from node 0 again", path);
    return curl_client_partial_remove(path);
}

/* Fetches the missing chunks of file i. */
static enum status fetch_chunks(struct file_client *c, int i)
{
    const struct file_list_entry *file = &c->list.files[i];
    struct file_list_request request = {
        .kind = c->config.kind, .node_id = c->config.node_id, .file_i = i};
    text_copy(request.name, sizeof request.name, c->name);
    while (c->partial.have < file->bytes) {
        long code;
        request.first = c->partial.have;
        TRY(post_until_answered(c, &request, FILE_LIST_CHUNK_BYTES, &code));
        c->is_changed = code == 410;
        if (c->is_changed)
            return ST_OK;
        int64_t n = (int64_t)c->answer.len;
        if (n == 0 || n > file->bytes - c->partial.have)
            return FAIL(
                ST_BAD_DATA,
                "node 0 sent %lld bytes of file %d from byte %lld on, but the file has %lld bytes",
                (long long)n, i, (long long)c->partial.have, (long long)file->bytes);
        TRY(curl_client_partial_append(&c->partial, c->answer.data, (size_t)n));
        c->fetched_bytes += n;
        c->pause_ms = PAUSE_MS;
    }
    return ST_OK;
}

static enum status finish_file(struct file_client *c, int i, bool *is_right)
{
    char path[FILE_PATH_MAX], dir[FILE_PATH_MAX];
    TRY(check_sum(c, c->partial.path, &c->list.files[i], false, is_right));
    if (!*is_right)
        return curl_client_partial_restart(&c->partial);
    TRY(name_file(c, i, path));
    text_format(dir, sizeof dir, "%s/%d", c->dir, c->list.files[i].item);
    TRY(file_make_dirs(dir));
    return curl_client_partial_commit(&c->partial, path);
}

static enum status fetch_file(struct file_client *c, int i)
{
    bool is_right = false;
    const struct file_list_entry *file = &c->list.files[i];
    if (!text_format(c->partial.path, sizeof c->partial.path, "%s/part-%05d", c->dir, i))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR", c->dir);
    TRY(curl_client_partial_open(&c->partial));
    enum status st =
        c->partial.have > file->bytes ? curl_client_partial_restart(&c->partial) : ST_OK;
    for (int tries = 0; st == ST_OK && !is_right && !c->is_changed; tries++) {
        if (tries == TRIES)
            st =
                FAIL(ST_BAD_DATA,
                     "file %d of node 0's %s arrived %d times with a wrong checksum; check whether "
                     "it was changed on node 0 since the job began, and whether the disk of "
                     "CACHE_DIR=%s is failing",
                     i, setting_of(c), TRIES, c->config.cache_dir);
        if (st == ST_OK)
            st = fetch_chunks(c, i);
        if (st == ST_OK && !c->is_changed)
            st = finish_file(c, i, &is_right);
    }
    curl_client_partial_close(&c->partial);
    c->partial.done += is_right ? file->bytes : 0;
    return st;
}

/* ---- all files ---- */

static enum status fetch_missing(struct file_client *c, const bool kept[FILE_LIST_FILES_MAX])
{
    char size[32], rate[32];
    int64_t begin_ms = clock_ms(), need = c->partial.total - c->partial.done;
    TRY(curl_client_partial_room(&c->partial, need));
    if (need > 0)
        LOG_INFO("fetching %s from node 0: %s in %d file%s", setting_of(c),
                 text_format_bytes(size, sizeof size, (double)need), c->list.files_n,
                 c->list.files_n > 1 ? "s" : "");
    for (int i = 0; i < c->list.files_n && !c->is_changed; i++)
        if (!kept[i])
            TRY(fetch_file(c, i));
    if (c->is_changed)
        return ST_OK;
    if (c->fetched_bytes == 0) {
        LOG_INFO("node 0's %s is complete from an earlier fetch, in %s", setting_of(c), c->dir);
        return ST_OK;
    }
    int64_t elapsed_ms = clock_ms() - begin_ms;
    text_format_bytes(size, sizeof size, (double)c->fetched_bytes);
    text_format_bytes(rate, sizeof rate,
                      (double)c->fetched_bytes * 1e3 / (double)(elapsed_ms > 0 ? elapsed_ms : 1));
    LOG_INFO("fetched %s of %s from node 0 in %.1f s (%s/s), kept in %s", size, setting_of(c),
             (double)elapsed_ms / 1e3, rate, c->dir);
    return ST_OK;
}

static enum status fetch_all(struct file_client *c)
{
    static bool kept[FILE_LIST_FILES_MAX];
    c->partial.total = file_list_bytes(&c->list);
    c->partial.done = c->fetched_bytes = 0;
    if (!c->config.cache_dir || c->config.cache_dir[0] == 0)
        return FAIL(ST_BAD_SETTING, "no folder to keep node 0's %s in; set CACHE_DIR",
                    setting_of(c));
    if (c->list.items_n > 1 && strpbrk(c->config.cache_dir, ",:"))
        return FAIL(
            ST_BAD_SETTING,
            "CACHE_DIR=%s has a comma or colon, which divide the parts of a mixture; set another",
            c->config.cache_dir);
    file_list_name(&c->list, c->name);
    if (!text_format(c->dir, sizeof c->dir, "%s/from-node-0/%s", c->config.cache_dir, c->name))
        return FAIL(ST_BAD_SETTING, "the path CACHE_DIR=%.80s… is too long; set a shorter one",
                    c->config.cache_dir);
    TRY(file_make_dirs(c->dir));
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, c->dir, "lock"));
    c->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (c->lock_fd < 0)
        return FAIL(ST_STORE, "cannot create %s: %s; check CACHE_DIR", path, strerror(errno));
    while (flock(c->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return FAIL(ST_STORE,
                        "cannot lock %s: %s; set CACHE_DIR to a folder on a disk of this node",
                        path, strerror(errno));
        TRY(retry_later(c, "another process of this machine is fetching them"));
    }
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < c->list.files_n; i++) {
        st = is_kept(c, i, &kept[i]);
        c->partial.done += kept[i] ? c->list.files[i].bytes : 0;
    }
    if (st == ST_OK)
        st = fetch_missing(c, kept);
    return st;
}

static enum status fetch_listed(struct file_client *c)
{
    char base[320];
    TRY(tls_client_check());
    c->headers = curl_slist_append(NULL, "Expect:");
    if (!c->headers)
        return FAIL(ST_RETRY, "out of memory: a request to node 0");
    TRY(tls_client_open(&c->tls, c->config.psk, c->headers, &c->easy));
    tls_client_url(c->config.psk, c->config.host, c->config.port, base, sizeof base);
    text_format(c->url, sizeof c->url, "%s/v1/data", base);
    curl_easy_setopt(c->easy, CURLOPT_URL, c->url);
    curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)REQUEST_MS);
    curl_easy_setopt(c->easy, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, &c->answer);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c->easy, CURLOPT_XFERINFODATA, c);
    curl_easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    do {
        c->is_changed = false;
        TRY(request_list(c));
        if (c->list.state == FILE_LIST_STATE_UNFIT)
            return FAIL(ST_NO_INPUT, "node 0 cannot share its %s: %s", setting_of(c), c->list.why);
        if (c->list.state == FILE_LIST_STATE_READY)
            TRY(fetch_all(c));
        if (c->is_changed && c->lock_fd >= 0) {
            close(c->lock_fd);
            c->lock_fd = -1;
        }
    } while (c->is_changed);
    return ST_OK;
}

enum status file_client_fetch(const struct file_client_config *config, struct text *data_out,
                              enum file_list_state *state_out)
{
    struct file_client c = {.config = *config,
                            .partial = {.what = "node 0's files",
                                        .cache_dir = config->cache_dir,
                                        .progress = config->progress,
                                        .progress_arg = config->progress_arg,
                                        .fd = -1},
                            .lock_fd = -1,
                            .logged_ms = clock_ms(),
                            .pause_ms = PAUSE_MS};
    enum status st = fetch_listed(&c);
    if (st == ST_OK && c.list.state == FILE_LIST_STATE_READY) {
        for (int item = 0; item < c.list.items_n; item++) {
            text_add(data_out, "%s%s/%d", item > 0 ? "," : "", c.dir, item);
            if (c.list.weights[item] > 0)
                text_add(data_out, ":%s", text_f64(c.list.weights[item]).text);
        }
    }
    *state_out = c.list.state;
    if (c.lock_fd >= 0)
        close(c.lock_fd);
    curl_easy_cleanup(c.easy);
    curl_slist_free_all(c.headers);
    text_free(&c.answer);
    file_list_free(&c.list);
    return st;
}
