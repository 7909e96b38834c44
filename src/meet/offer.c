/* offer — see offer.h. Must not know who asks.
 *
 * A piece is read when it is asked for, on the supervisor's loop: a mebibyte, which takes a
 * millisecond at most from the page cache, where the worker that made the bill has just read it
 * all. What has been read and not yet sent is bounded, so that a thousand nodes that come at once
 * do not take a thousand buffers. */
#include "meet/offer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/buffer.h>

#define PIECES_MAX 64 /* on their way at a time */

/* Outlives the offer while pieces of it are on their way. */
struct flying {
    int pieces_n;
    bool is_closed;
};

struct offer {
    struct bill bills[BILL_KINDS_N];
    char names[BILL_KINDS_N][BILL_NAME_MAX];
    struct flying *flying;
};

enum status offer_open(struct offer **out)
{
    struct offer *offer = calloc(1, sizeof(*offer));
    if (offer != NULL)
        offer->flying = calloc(1, sizeof(*offer->flying));
    if (offer == NULL || offer->flying == NULL) {
        free(offer);
        return FAIL(ST_RETRY, "out of memory: the list of data for other nodes");
    }
    *out = offer;
    return ST_OK;
}

void offer_close(struct offer *offer)
{
    if (offer == NULL)
        return;
    for (int kind = 0; kind < BILL_KINDS_N; kind++)
        bill_free(&offer->bills[kind]);
    offer->flying->is_closed = true;
    if (offer->flying->pieces_n == 0)
        free(offer->flying);
    free(offer);
}

enum status offer_set(struct offer *offer, enum bill_kind kind, const char *bytes, size_t n)
{
    struct bill bill;
    enum status st = bill_read(bytes, n, &bill);
    if (st != ST_OK && offer->bills[kind].state != BILL_STATE_WAIT)
        return st;
    if (st != ST_OK) { /* who waits for the first one would wait for ever */
        bill.state = BILL_STATE_UNFIT;
        text_copy(bill.why, sizeof(bill.why), status_message());
    }
    bill_free(&offer->bills[kind]);
    offer->bills[kind] = bill;
    bill_name(&bill, offer->names[kind]);
    return st;
}

void offer_bill(const struct offer *offer, enum bill_kind kind, struct text *out)
{
    bill_write(out, &offer->bills[kind], false);
}

/* ---- pieces ---- */

static void on_sent(const void *bytes, size_t n, void *arg)
{
    struct flying *flying = arg;
    (void)n;
    free((void *)(uintptr_t)bytes);
    flying->pieces_n--;
    if (flying->is_closed && flying->pieces_n == 0)
        free(flying);
}

/* What is short now may be there again in a moment: then whoever asks is to ask again. */
static enum status cannot_read(const struct bill_file *file, int error)
{
    bool is_short = error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
    return FAIL(
        is_short ? ST_RETRY : ST_NO_INPUT, "cannot read %s: %s%s", file->path, strerror(error),
        error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

static enum status is_as_listed(const struct bill_file *file, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cannot_read(file, errno);
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_NO_INPUT, "%s is no longer a file; start the job again", file->path);
    if (info.st_size != file->bytes)
        return FAIL(ST_NO_INPUT,
                    "%s has changed since the job began: it had %lld bytes and has %lld now; start "
                    "the job again",
                    file->path, (long long)file->bytes, (long long)info.st_size);
    return ST_OK;
}

static enum status read_all(const struct bill_file *file, int fd, int64_t first, char *out,
                            size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t more = pread(fd, out + got, n - got, first + (int64_t)got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return cannot_read(file, errno);
        if (more == 0)
            return FAIL(ST_NO_INPUT,
                        "%s became shorter while it was read: it ends after %lld of %lld bytes; "
                        "start the job again",
                        file->path, (long long)first + (long long)got, (long long)file->bytes);
        got += (size_t)more;
    }
    return ST_OK;
}

/* All of n bytes, or ST_NO_INPUT: node 0's file is another one than its worker saw. ST_RETRY: not
 * now. */
static enum status read_piece(const struct bill_file *file, int64_t first, void *out, size_t n)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return cannot_read(file, errno);
    enum status st = is_as_listed(file, fd);
    if (st == ST_OK)
        st = read_all(file, fd, first, out, n);
    close(fd);
    return st;
}

int offer_piece(struct offer *offer, const struct bill_ask *ask, struct evbuffer *out)
{
    const struct bill *bill = &offer->bills[ask->kind];
    if (ask->is_for_bill || bill->state != BILL_STATE_READY ||
        strcmp(ask->name, offer->names[ask->kind]) != 0 || ask->file_i >= bill->files_n ||
        ask->first >= bill->files[ask->file_i].bytes)
        return 410;
    const struct bill_file *file = &bill->files[ask->file_i];
    int64_t left = file->bytes - ask->first;
    size_t n = left < (int64_t)BILL_CHUNK_BYTES ? (size_t)left : BILL_CHUNK_BYTES;
    if (file->path == NULL)
        return 410;
    void *bytes = offer->flying->pieces_n < PIECES_MAX ? malloc(n) : NULL;
    if (bytes == NULL)
        return 503;
    enum status st = read_piece(file, ask->first, bytes, n);
    if (st != ST_OK) {
        free(bytes);
        return st == ST_RETRY ? 503 : 500;
    }
    offer->flying->pieces_n++;
    if (evbuffer_add_reference(out, bytes, n, on_sent, offer->flying) != 0) {
        on_sent(bytes, n, offer->flying);
        return 503;
    }
    return 200;
}
