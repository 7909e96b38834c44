/* bring — see bring.h. Read bring_data first, at the foot. Must not know what is in the files.
 *
 *   CACHE_DIR/from-node-0/<name of the bill>/0/00000.bin …   a folder for each part: what is whole
 *                                           /part-00000      what has come of file 0 so far
 *                                           /lock */
#include "meet/bring.h"

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
#include "meet/dial.h"

#define ASK_MS 20000 /* of one request */
#define LOOK_MS 50
#define PAUSE_MS 200 /* before the next try; doubled up to PAUSE_MS_MAX */
#define PAUSE_MS_MAX 2000
#define SAY_MS 10000
#define TRIES 2 /* of a file whose checksum is wrong */

struct bring {
    struct bring_config config;
    char url[384];
    CURL *easy;
    struct curl_slist *headers;
    struct dial dial;
    struct text answer;
    struct bill bill;
    char name[BILL_NAME_MAX], dir[FILE_PATH_MAX];
    int lock_fd;
    int64_t done, total, carried; /* bytes: here and whole or in parts; of all; that came now */
    int64_t pause_ms, said_ms;
    bool is_stopped, is_changed; /* is_changed: node 0 has another bill by now */
};

/* ---- one request ---- */

static bool look(struct bring *b)
{
    b->is_stopped = b->is_stopped || !b->config.progress(b->config.progress_arg, b->done, b->total);
    return !b->is_stopped;
}

static int on_progress(void *arg, curl_off_t x, curl_off_t y, curl_off_t z, curl_off_t w)
{
    (void)x, (void)y, (void)z, (void)w;
    return look(arg) ? 0 : 1;
}

static enum status stopped(const struct bring *b)
{
    return FAIL(
        ST_RETRY,
        "stopped while taking data from node 0, after %lld bytes; next time it goes on from there",
        (long long)b->done);
}

/* Not now: said now and then, and tried again after a pause. */
static enum status again(struct bring *b, const char *why)
{
    int64_t now_ms = clock_ms();
    if (now_ms - b->said_ms >= SAY_MS) {
        b->said_ms = now_ms;
        LOG_INFO("waiting for node 0's data: %s", why);
    }
    for (int64_t until_ms = now_ms + b->pause_ms; clock_ms() < until_ms; clock_sleep_ms(LOOK_MS))
        if (!look(b))
            return stopped(b);
    b->pause_ms = 2 * b->pause_ms < PAUSE_MS_MAX ? 2 * b->pause_ms : PAUSE_MS_MAX;
    return ST_OK;
}

static CURLcode post(struct bring *b, const struct bill_ask *ask, size_t answer_max)
{
    struct text body = {0};
    bill_write_ask(&body, ask);
    b->answer.len = 0;
    b->answer.overflow = false;
    b->answer.limit = answer_max;
    b->dial.alert = 0;
    b->dial.error[0] = 0;
    curl_easy_setopt(b->easy, CURLOPT_POSTFIELDSIZE, (long)body.len);
    curl_easy_setopt(b->easy, CURLOPT_COPYPOSTFIELDS, body.data);
    CURLcode result = body.overflow ? CURLE_OUT_OF_MEMORY : curl_easy_perform(b->easy);
    text_free(&body);
    return result;
}

/* request — until there is an answer: 200 with b->answer, or 410. */
static enum status request(struct bring *b, const struct bill_ask *ask, size_t answer_max,
                           long *code_out)
{
    for (;;) {
        char why[320];
        long code = 0;
        CURLcode result = post(b, ask, answer_max);
        if (b->is_stopped)
            return stopped(b);
        if ((result == CURLE_SSL_CONNECT_ERROR || result == CURLE_PEER_FAILED_VERIFICATION ||
             (result == CURLE_RECV_ERROR && b->dial.alert != 0)) &&
            dial_is_refused(&b->dial, why, sizeof(why)))
            return FAIL(ST_NOT_ADMITTED,
                        "not admitted by node 0 at %s: %s; give all nodes the same JOB_TOKEN",
                        b->url, why);
        if (b->answer.overflow)
            return FAIL(ST_BAD_DATA, "node 0 sent more than the %zu bytes that were asked for",
                        answer_max);
        curl_easy_getinfo(b->easy, CURLINFO_RESPONSE_CODE, &code);
        if (result == CURLE_OK && code == 500)
            return FAIL(ST_NO_INPUT, "node 0 cannot read its own data any more (its log says why); "
                                     "start the job again there");
        *code_out = code;
        if (result == CURLE_OK && (code == 200 || code == 410))
            return ST_OK;
        text_format(why, sizeof(why), "%s",
                    b->dial.error[0] != 0 ? b->dial.error : curl_easy_strerror(result));
        if (result == CURLE_OK)
            text_format(why, sizeof(why),
                        code == 503
                            ? "it is busy, or short of memory or open files (its log says which)"
                            : "it answered HTTP %ld",
                        code);
        TRY(again(b, why));
    }
}

/* ask_bill — until node 0 knows what it has. */
static enum status ask_bill(struct bring *b)
{
    const struct bill_ask ask = {
        .kind = b->config.kind, .node_id = b->config.node_id, .is_for_bill = true};
    b->pause_ms = PAUSE_MS;
    for (;;) {
        long code;
        bill_free(&b->bill);
        TRY(request(b, &ask, BILL_JSON_MAX, &code));
        if (code == 200)
            TRY(bill_read(b->answer.data != NULL ? b->answer.data : "", b->answer.len, &b->bill));
        if (code == 200 && b->bill.state != BILL_STATE_WAIT)
            return ST_OK;
        TRY(again(b, "it is still reading them itself"));
    }
}

/* ---- one file ---- */

static enum status name_file(const struct bring *b, int i, char out[FILE_PATH_MAX])
{
    const struct bill_file *file = &b->bill.files[i];
    return text_format(out, FILE_PATH_MAX, "%s/%d/%05d%s", b->dir, file->part, i, file->suffix)
               ? ST_OK
               : FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                      b->dir);
}

static enum status check_sum(struct bring *b, const char *path, const struct bill_file *file,
                             bool *is_right)
{
    enum { PIECE = 16 << 20 };
    struct file_map map;
    *is_right = false;
    TRY(file_map_open(path, &map));
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL && (int64_t)map.bytes == file->bytes) {
        XXH3_64bits_reset(state);
        for (size_t at = (size_t)file->skip, n; at < map.bytes && look(b); at += n) {
            n = map.bytes - at < PIECE ? map.bytes - at : PIECE;
            XXH3_64bits_update(state, map.data + at, n);
        }
        *is_right = XXH3_64bits_digest(state) == file->sum;
    }
    file_map_close(&map);
    XXH3_freeState(state);
    if (b->is_stopped)
        return stopped(b);
    return state != NULL ? ST_OK : FAIL(ST_RETRY, "out of memory: a checksum");
}

/* What came before and is whole. */
static enum status is_kept(struct bring *b, int i, bool *is_kept_out)
{
    char path[FILE_PATH_MAX];
    TRY(name_file(b, i, path));
    *is_kept_out = file_exists(path);
    if (!*is_kept_out)
        return ST_OK;
    TRY(check_sum(b, path, &b->bill.files[i], is_kept_out));
    if (*is_kept_out)
        return ST_OK;
    LOG_WARN("%s is damaged; it is taken from node 0 again", path);
    return unlink(path) == 0
               ? ST_OK
               : FAIL(ST_STORE, "cannot remove %s: %s; check CACHE_DIR", path, strerror(errno));
}

static enum status store_failed(const struct bring *b, enum status st)
{
    return st != ST_STORE
               ? st
               : FAIL(
                     ST_STORE,
                     "%s (node 0's data are kept in CACHE_DIR=%s; it may be set to another folder)",
                     status_message(), b->config.cache_dir);
}

/* The pieces that are missing, behind those that are there. */
static enum status carry(struct bring *b, int i, int fd, const char *part, int64_t have)
{
    const struct bill_file *file = &b->bill.files[i];
    struct bill_ask ask = {.kind = b->config.kind, .node_id = b->config.node_id, .file_i = i};
    text_copy(ask.name, sizeof(ask.name), b->name);
    while (have < file->bytes) {
        long code;
        ask.first = have;
        TRY(request(b, &ask, BILL_CHUNK_BYTES, &code));
        b->is_changed = code == 410;
        if (b->is_changed)
            return ST_OK;
        int64_t n = (int64_t)b->answer.len;
        if (n == 0 || n > file->bytes - have)
            return FAIL(ST_BAD_DATA,
                        "node 0 sent %lld bytes of file %d from %lld on, which has %lld",
                        (long long)n, i, (long long)have, (long long)file->bytes);
        TRY(store_failed(b, file_write_at(fd, part, b->answer.data, (size_t)n, have)));
        have += n;
        b->done += n;
        b->carried += n;
        b->pause_ms = PAUSE_MS;
    }
    return ST_OK;
}

static enum status finish(struct bring *b, int i, int fd, const char *part, bool *is_right)
{
    char path[FILE_PATH_MAX], dir[FILE_PATH_MAX];
    TRY(check_sum(b, part, &b->bill.files[i], is_right));
    if (!*is_right) {
        b->done -= b->bill.files[i].bytes;
        return ftruncate(fd, 0) == 0
                   ? ST_OK
                   : FAIL(ST_STORE, "cannot empty %s: %s; check CACHE_DIR", part, strerror(errno));
    }
    TRY(name_file(b, i, path));
    text_format(dir, sizeof(dir), "%s/%d", b->dir, b->bill.files[i].part);
    TRY(file_make_dirs(dir));
    if (fsync(fd) != 0 || rename(part, path) != 0)
        return store_failed(b, FAIL(ST_STORE, "cannot finish %s: %s", path, strerror(errno)));
    return file_sync_dir(dir);
}

static enum status bring_file(struct bring *b, int i)
{
    char part[FILE_PATH_MAX];
    bool is_right = false;
    const struct bill_file *file = &b->bill.files[i];
    if (!text_format(part, sizeof(part), "%s/part-%05d", b->dir, i))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR", b->dir);
    int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return FAIL(ST_STORE, "cannot create %s: %s; check CACHE_DIR", part, strerror(errno));
    enum status st = ST_OK;
    for (int tries = 0; st == ST_OK && !is_right && !b->is_changed; tries++) {
        int64_t have = lseek(fd, 0, SEEK_END);
        if (have < 0 || have > file->bytes)
            have = 0;
        b->done += have;
        if (tries == TRIES)
            st = FAIL(ST_BAD_DATA,
                      "file %d of node 0's data came %d times with another checksum than it should "
                      "have; has it been changed on node 0 since the job began, or is the disk of "
                      "CACHE_DIR=%s failing?",
                      i, TRIES, b->config.cache_dir);
        if (st == ST_OK)
            st = carry(b, i, fd, part, have);
        if (st == ST_OK && !b->is_changed)
            st = finish(b, i, fd, part, &is_right);
    }
    close(fd);
    return st;
}

/* ---- all of them ---- */

static enum status lock(struct bring *b)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof(path), b->dir, "lock"));
    b->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (b->lock_fd < 0)
        return FAIL(ST_STORE, "cannot create %s: %s; check CACHE_DIR", path, strerror(errno));
    while (flock(b->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return FAIL(ST_STORE,
                        "cannot lock %s: %s; set CACHE_DIR to a folder on a disk of this node",
                        path, strerror(errno));
        TRY(again(b, "another process of this machine is taking them"));
    }
    return ST_OK;
}

static enum status name_dir(struct bring *b)
{
    if (b->config.cache_dir == NULL || b->config.cache_dir[0] == 0)
        return FAIL(ST_BAD_SETTING, "no folder to keep node 0's data in; set CACHE_DIR");
    if (b->bill.parts_n > 1 && strpbrk(b->config.cache_dir, ",:") != NULL)
        return FAIL(
            ST_BAD_SETTING,
            "CACHE_DIR=%s has a comma or colon, which divide the parts of a mixture; set another",
            b->config.cache_dir);
    bill_name(&b->bill, b->name);
    if (!text_format(b->dir, sizeof(b->dir), "%s/from-node-0/%s", b->config.cache_dir, b->name))
        return FAIL(ST_BAD_SETTING, "the path CACHE_DIR=%.80s… is too long; set a shorter one",
                    b->config.cache_dir);
    return file_make_dirs(b->dir);
}

static enum status check_space(const struct bring *b)
{
    int64_t space = file_space_bytes(b->dir), need = b->total - b->done;
    if (space < 0 || need <= space)
        return ST_OK;
    return FAIL(ST_STORE,
                "node 0's data take %lld bytes more, but CACHE_DIR=%s has room for %lld; make room "
                "or set another CACHE_DIR",
                (long long)need, b->config.cache_dir, (long long)space);
}

static void say(const struct bring *b, int64_t took_ms)
{
    char size[32], rate[32];
    if (b->carried == 0) {
        LOG_INFO("data of node 0 were taken before, kept in %s", b->dir);
        return;
    }
    text_human(size, sizeof(size), (double)b->carried);
    text_human(rate, sizeof(rate), (double)b->carried * 1e3 / (double)(took_ms > 0 ? took_ms : 1));
    LOG_INFO("took %s from node 0 in %.1f s (%s/s), kept in %s", size, (double)took_ms / 1e3, rate,
             b->dir);
}

static enum status bring_missing(struct bring *b, const bool kept[BILL_FILES_MAX])
{
    char size[32];
    int64_t begin_ms = clock_ms();
    TRY(check_space(b));
    if (b->done < b->total)
        LOG_INFO("taking data from node 0: %s in %d file%s",
                 text_human(size, sizeof(size), (double)(b->total - b->done)), b->bill.files_n,
                 b->bill.files_n > 1 ? "s" : "");
    for (int i = 0; i < b->bill.files_n && !b->is_changed; i++)
        if (!kept[i])
            TRY(bring_file(b, i));
    if (!b->is_changed)
        say(b, clock_ms() - begin_ms);
    return ST_OK;
}

static enum status bring_all(struct bring *b)
{
    static bool kept[BILL_FILES_MAX];
    b->total = bill_bytes(&b->bill);
    b->done = b->carried = 0;
    TRY(name_dir(b));
    TRY(lock(b));
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->bill.files_n; i++) {
        st = is_kept(b, i, &kept[i]);
        b->done += kept[i] ? b->bill.files[i].bytes : 0;
    }
    if (st == ST_OK)
        st = bring_missing(b, kept);
    return st;
}

static void write_data(const struct bring *b, struct text *out)
{
    char weight[32];
    for (int part = 0; part < b->bill.parts_n; part++) {
        text_add(out, "%s%s/%d", part > 0 ? "," : "", b->dir, part);
        if (b->bill.weights[part] > 0)
            text_add(out, ":%s", bill_weight(b->bill.weights[part], weight));
    }
}

static enum status open_bring(struct bring *b)
{
    char base[320];
    TRY(dial_check());
    b->easy = curl_easy_init();
    b->headers = curl_slist_append(NULL, "Expect:");
    if (b->easy == NULL || b->headers == NULL)
        return FAIL(ST_RETRY, "out of memory: a request to node 0");
    dial_prepare(b->easy, &b->dial, b->config.secret, b->headers);
    dial_base(b->config.secret, b->config.host, b->config.port, base, sizeof(base));
    text_format(b->url, sizeof(b->url), "%s/v1/data", base);
    curl_easy_setopt(b->easy, CURLOPT_URL, b->url);
    curl_easy_setopt(b->easy, CURLOPT_TIMEOUT_MS, (long)ASK_MS);
    curl_easy_setopt(b->easy, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(b->easy, CURLOPT_WRITEDATA, &b->answer);
    curl_easy_setopt(b->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(b->easy, CURLOPT_XFERINFODATA, b);
    curl_easy_setopt(b->easy, CURLOPT_NOPROGRESS, 0L);
    return ST_OK;
}

static enum status run(struct bring *b)
{
    TRY(open_bring(b));
    do {
        b->is_changed = false;
        TRY(ask_bill(b));
        if (b->bill.state == BILL_STATE_UNFIT)
            return FAIL(ST_NO_INPUT, "node 0 cannot hand out its own: %s", b->bill.why);
        if (b->bill.state == BILL_STATE_READY)
            TRY(bring_all(b));
        if (b->is_changed && b->lock_fd >= 0) {
            close(b->lock_fd);
            b->lock_fd = -1;
        }
    } while (b->is_changed);
    return ST_OK;
}

enum status bring_data(const struct bring_config *config, struct text *data_out,
                       enum bill_state *state_out)
{
    struct bring b = {
        .config = *config, .lock_fd = -1, .said_ms = clock_ms(), .pause_ms = PAUSE_MS};
    enum status st = run(&b);
    if (st == ST_OK && b.bill.state == BILL_STATE_READY)
        write_data(&b, data_out);
    *state_out = b.bill.state;
    if (b.lock_fd >= 0)
        close(b.lock_fd);
    curl_easy_cleanup(b.easy);
    curl_slist_free_all(b.headers);
    text_free(&b.answer);
    bill_free(&b.bill);
    return st;
}
