/* tcp_link — one proved connection: parts of messages in and out.
 *
 * A message goes in parts, each behind its head (tcp_seal.h), straight from the sender's memory
 * into that of the receive that waits for it. One that no receive waits for is kept here while it
 * is short and these are few; else it stays where it is, and nothing more is read until it is
 * wanted: then the peer's own sends come to a stop. What is wrong closes the connection. Must not
 * know handshakes. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/tcp_inside.h"

#define READ_BYTES (512 << 10) /* in a turn, before others have one */
/* fewer: while this rank writes, the peer waits for what it could read */
#define WRITE_BYTES (128 << 10)
#define SPARE_BYTES (1 << 20) /* of memory for early messages that is kept */
#define EARLY_LEAST 4096

static const char closed[] = "closed by the peer", no_memory[] = "out of memory";
static const char forged[] = "a message was forged, damaged or out of order";

bool tcp_link_up(struct tcp_link *link, int fd, const struct tcp_auth *auth, bool is_client)
{
    struct tcp_auth_keys mine, theirs;
    bool is_done =
        tcp_auth_keys(auth, is_client, &mine) && tcp_auth_keys(auth, !is_client, &theirs) &&
        tcp_seal_open(&link->out, &mine, true) && tcp_seal_open(&link->in, &theirs, false);
    tcp_auth_forget(&mine, sizeof(mine));
    tcp_auth_forget(&theirs, sizeof(theirs));
    link->stage = is_done ? malloc(TCP_STAGE_BYTES) : NULL;
    link->fd = fd;
    link->is_up = link->stage != NULL;
    link->dial = TCP_DIAL_NONE;
    link->tcp->missing -= link->is_up;
    return link->is_up;
}

static void free_all(struct tcp_early *at)
{
    for (struct tcp_early *next; at != NULL; at = next) {
        next = at->next;
        free(at);
    }
}

void tcp_link_down(struct tcp_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->is_up = false;
    tcp_seal_close(&link->out);
    tcp_seal_close(&link->in);
    tcp_auth_forget(&link->auth, sizeof(link->auth));
    free_all(link->early_first);
    free_all(link->spare);
    free(link->stage);
    link->early_first = link->early_last = link->spare = link->early = NULL;
    link->stage = NULL;
}

void tcp_link_lose(struct tcp_link *link, const char *why)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->is_deaf = true;
    ucx_on_lost(link->peer, why);
}

/* ---- early messages ---- */

static struct tcp_early *take_spare(struct tcp_link *link, size_t bytes)
{
    for (struct tcp_early **at = &link->spare; *at != NULL; at = &(*at)->next) {
        struct tcp_early *found = *at;
        if (found->cap < bytes || found->cap / 4 > bytes + EARLY_LEAST)
            continue;
        *at = found->next;
        link->spare_bytes -= (int64_t)found->cap;
        return found;
    }
    size_t cap = EARLY_LEAST;
    while (cap < bytes)
        cap *= 2;
    struct tcp_early *fresh = malloc(sizeof(*fresh) + cap);
    if (fresh != NULL)
        fresh->cap = cap;
    return fresh;
}

static void give_spare(struct tcp_link *link, struct tcp_early *early)
{
    if (link->spare_bytes + (int64_t)early->cap > SPARE_BYTES) {
        free(early);
        return;
    }
    link->spare_bytes += (int64_t)early->cap;
    early->next = link->spare;
    link->spare = early;
}

/* NULL: there is no room, or no memory: it waits in the kernel. */
static struct tcp_early *keep_early(struct tcp_link *link, const struct tcp_seal_head *head)
{
    const struct tcp *tcp = link->tcp;
    if (head->total > tcp->early_max || link->early_n >= TCP_EARLY_MANY ||
        link->early_bytes + head->total > tcp->early_max * TCP_EARLY_DEEP)
        return NULL;
    struct tcp_early *early = take_spare(link, (size_t)head->total);
    if (early == NULL)
        return NULL;
    early->next = NULL;
    early->tag = head->tag;
    early->total = head->total;
    early->is_whole = false;
    early->op = NULL;
    if (link->early_last != NULL)
        link->early_last->next = early;
    else
        link->early_first = early;
    link->early_last = early;
    link->early_n++;
    link->early_bytes += head->total;
    return early;
}

static void drop_early(struct tcp_link *link, struct tcp_early *early)
{
    struct tcp_early *before = NULL;
    for (struct tcp_early *at = link->early_first; at != early; at = at->next)
        before = at;
    if (before != NULL)
        before->next = early->next;
    else
        link->early_first = early->next;
    if (link->early_last == early)
        link->early_last = before;
    link->early_n--;
    link->early_bytes -= early->total;
    give_spare(link, early);
}

/* A whole early message goes to the receive that has come for it. */
static void hand_over(struct tcp_link *link, struct tcp_early *early, struct ucx_op *op)
{
    bool fits = early->total <= op->bytes;
    if (fits && early->total > 0)
        memcpy(op->data, early->data, (size_t)early->total);
    if (fits)
        op->bytes = early->total;
    drop_early(link, early);
    ucx_op_end(op, fits ? NULL : ucx_too_long);
}

void tcp_link_want(struct tcp_link *link, struct ucx_op *op)
{
    for (struct tcp_early *at = link->early_first; at != NULL; at = at->next) {
        if (at->tag != op->bits || at->op != NULL)
            continue;
        if (at->is_whole)
            hand_over(link, at, op);
        else
            at->op = op;
        return;
    }
    if (link->want_last != NULL)
        link->want_last->after = op;
    else
        link->want_first = op;
    link->want_last = op;
    link->is_held = false;
}

/* ---- in ---- */

static struct ucx_op *take_wanted(struct tcp_link *link, uint64_t tag)
{
    struct ucx_op *before = NULL;
    for (struct ucx_op *op = link->want_first; op != NULL; before = op, op = op->after) {
        if (op->bits != tag)
            continue;
        if (before != NULL)
            before->after = op->after;
        else
            link->want_first = op->after;
        if (link->want_last == op)
            link->want_last = before;
        op->after = NULL;
        return op;
    }
    return NULL;
}

/* Where the part under way goes. false: nowhere yet. */
static bool find_place(struct tcp_link *link)
{
    const struct tcp_seal_head *head = &link->head;
    if (link->has_message)
        return true;
    link->op = take_wanted(link, head->tag);
    if (link->op != NULL && link->op->bytes < head->total) {
        ucx_op_end(link->op, ucx_too_long);
        link->op = NULL;
        link->is_held = true;
        return false;
    }
    link->early = link->op == NULL ? keep_early(link, head) : NULL;
    link->is_held = link->op == NULL && link->early == NULL;
    link->has_message = !link->is_held;
    link->tag = head->tag;
    link->total = head->total;
    link->at = 0;
    return link->has_message;
}

static char *place(const struct tcp_link *link)
{
    return (link->op != NULL ? link->op->data : link->early->data) + link->head.at + link->got;
}

/* Is this head's part what must come now? */
static bool is_next(const struct tcp_link *link)
{
    const struct tcp_seal_head *head = &link->head;
    if ((head->tag >> 32 & 0xfff) != (uint64_t)link->peer->rank)
        return false;
    return link->has_message
               ? head->tag == link->tag && head->total == link->total && head->at == link->at
               : head->at == 0;
}

static void end_message(struct tcp_link *link)
{
    struct tcp_early *early = link->early;
    struct ucx_op *op = link->op;
    link->has_message = false;
    link->op = NULL;
    link->early = NULL;
    if (op != NULL) {
        op->bytes = link->total;
        ucx_op_end(op, NULL);
        return;
    }
    early->is_whole = true;
    if (early->op != NULL)
        hand_over(link, early, early->op);
}

/* The part is there: is it what its head says? */
static bool end_part(struct tcp_link *link)
{
    const struct tcp_seal_head *head = &link->head;
    link->got = 0;
    if (!tcp_seal_check(&link->in, head, head->bytes > 0 ? place(link) : NULL))
        return false;
    link->has_head = false;
    link->at += head->bytes;
    if (link->at == link->total)
        end_message(link);
    return true;
}

static void end_by(struct tcp_link *link, ssize_t n)
{
    if (n == 0)
        tcp_link_lose(link, closed);
    else if (errno != EAGAIN && errno != EINTR)
        tcp_link_lose(link, strerrordesc_np(errno));
}

/* Reads what is missing of the part to its place, and what follows it to the stage. Bytes; ≤ 0:
 * nothing now. */
static ssize_t pull(struct tcp_link *link, char *to, size_t missing)
{
    struct iovec into[2] = {{to, missing},
                            {link->stage + link->stage_end, TCP_STAGE_BYTES - link->stage_end}};
    struct msghdr message = {.msg_iov = missing > 0 ? into : into + 1,
                             .msg_iovlen = missing > 0 ? 2 : 1};
    ssize_t n = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (n <= 0) {
        end_by(link, n);
        return n;
    }
    size_t placed = (size_t)n < missing ? (size_t)n : missing;
    link->got += (int64_t)placed;
    link->stage_end += (size_t)n - placed;
    return n;
}

/* A head from the stage. false: more must come, or it was wrong. */
static bool next_head(struct tcp_link *link)
{
    size_t have = link->stage_end - link->stage_first;
    if (have < TCP_SEAL_BYTES) {
        memmove(link->stage, link->stage + link->stage_first, have);
        link->stage_first = 0;
        link->stage_end = have;
        return false;
    }
    if (!tcp_seal_read(&link->in, link->stage + link->stage_first, &link->head) || !is_next(link)) {
        tcp_accept_refuse(link->tcp, -1, forged);
        tcp_link_lose(link, forged);
        return false;
    }
    link->stage_first += TCP_SEAL_BYTES;
    link->has_head = true;
    link->got = 0;
    return true;
}

/* Of the part under way, what lies in the stage. */
static void unstage(struct tcp_link *link)
{
    size_t have = link->stage_end - link->stage_first,
           left = (size_t)(link->head.bytes - link->got);
    size_t n = have < left ? have : left;
    if (n > 0)
        memcpy(place(link), link->stage + link->stage_first, n);
    link->got += (int64_t)n;
    link->stage_first += n;
    if (link->stage_first == link->stage_end)
        link->stage_first = link->stage_end = 0;
}

/* As far as what has been read goes. false: more must be read, or nothing more can be. */
static bool digest(struct tcp_link *link)
{
    if (!link->has_head && !next_head(link))
        return false;
    if (!find_place(link))
        return false;
    unstage(link);
    if (link->got < link->head.bytes)
        return false;
    if (end_part(link))
        return true;
    tcp_accept_refuse(link->tcp, -1, forged);
    tcp_link_lose(link, forged);
    return false;
}

unsigned tcp_link_read(struct tcp_link *link)
{
    unsigned moved = 0;
    while (link->fd >= 0 && !link->is_held && moved < READ_BYTES) {
        while (digest(link))
            continue;
        if (link->fd < 0 || link->is_held)
            break;
        size_t missing = link->has_head ? (size_t)(link->head.bytes - link->got) : 0;
        size_t room = missing + TCP_STAGE_BYTES - link->stage_end;
        ssize_t n = pull(link, missing > 0 ? place(link) : NULL, missing);
        if (n <= 0)
            break;
        moved += (unsigned)n;
        if ((size_t)n == room)
            continue;
        while (digest(link)) /* no more lies in the kernel, most likely */
            continue;
        break;
    }
    return moved;
}

/* ---- out ---- */

static bool begin_part(struct tcp_link *link, struct ucx_op *op)
{
    int64_t left = op->bytes - op->moved;
    struct tcp_seal_head head = {.tag = op->bits,
                                 .total = op->bytes,
                                 .at = op->moved,
                                 .bytes = left < TCP_SEAL_PART_MAX ? left : TCP_SEAL_PART_MAX};
    op->part = (int32_t)(TCP_SEAL_BYTES + head.bytes);
    op->part_moved = 0;
    return tcp_seal_write(&link->out, &head, op->data + op->moved, op->head);
}

/* What is left of the part: of its head, and of its content. */
static ssize_t push(const struct tcp_link *link, const struct ucx_op *op)
{
    size_t done = (size_t)op->part_moved, head = done < TCP_SEAL_BYTES ? TCP_SEAL_BYTES - done : 0;
    size_t content = (size_t)op->part - done - head;
    char *from = op->data + op->moved + (head > 0 ? 0 : done - TCP_SEAL_BYTES);
    struct iovec pieces[2] = {{(void *)(uintptr_t)(op->head + done), head}, {from, content}};
    struct msghdr message = {.msg_iov = head > 0 ? pieces : pieces + 1,
                             .msg_iovlen = head > 0 && content > 0 ? 2 : 1};
    return sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Its end is found where it is read, behind what it still has sent. */
static void stop_writing(struct tcp_link *link)
{
    const char *why = strerrordesc_np(errno);
    link->is_deaf = true;
    if (link->is_held)
        tcp_link_lose(link, why);
}

static void end_send(struct tcp_link *link, struct ucx_op *op)
{
    link->out_first = op->after;
    if (link->out_last == op)
        link->out_last = NULL;
    op->after = NULL;
    ucx_op_end(op, NULL);
}

unsigned tcp_link_write(struct tcp_link *link)
{
    unsigned moved = 0;
    while (link->out_first != NULL && !link->is_deaf && link->fd >= 0 && moved < WRITE_BYTES) {
        struct ucx_op *op = link->out_first;
        if (op->part == 0 && !begin_part(link, op)) {
            tcp_link_lose(link, no_memory);
            break;
        }
        ssize_t n = push(link, op);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            stop_writing(link);
        if (n < 0)
            break;
        moved += (unsigned)n;
        op->part_moved += (int32_t)n;
        if (op->part_moved < op->part)
            break;
        op->moved += op->part - TCP_SEAL_BYTES;
        op->part = 0;
        if (op->moved == op->bytes)
            end_send(link, op);
    }
    return moved;
}

#ifdef FUZZ
#include <sys/socket.h>

#include "base/must.h"

static int64_t fuzz_ended, fuzz_lost;
void ucx_op_end(struct ucx_op *op, const char *why)
{
    op->is_busy = false;
    fuzz_ended += why == NULL;
}
void ucx_on_lost(struct ucx_peer *peer, const char *why)
{
    peer->why = why;
    fuzz_lost++;
}
void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why) { (void)tcp, (void)fd, (void)why; }

static void fuzz_pair(struct tcp_link *link, struct tcp_seal *peer, int fds[2])
{
    struct tcp_auth auth = {.secret = {7}, .said_n = 1};
    struct tcp_auth_keys keys;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 &&
           tcp_link_up(link, fds[0], &auth, false));
    ASSERT(tcp_auth_keys(&auth, true, &keys) && tcp_seal_open(peer, &keys, true));
}

/* Bytes as they come: noise, or behind a right head what the fuzzer thinks of, or a right seal over
 * any numbers. Each byte that steers takes one of the input. What arrives whole is what was sent;
 * all else ends the link. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t into[256], content[256];
    struct tcp tcp = {.early_max = 128};
    struct ucx_peer peer = {.rank = 1};
    struct tcp_link link = {.tcp = &tcp, .peer = &peer};
    struct ucx_op op = {
        .is_busy = true, .data = (char *)into, .bytes = sizeof(into), .bits = (uint64_t)1 << 32};
    struct tcp_seal other;
    int fds[2];
    fuzz_pair(&link, &other, fds);
    tcp_link_want(&link, &op);
    for (size_t at = 0; at + 24 < size && link.fd >= 0; at += 24) {
        struct tcp_seal_head head = {.tag = (uint64_t)(data[at + 1] % 3) << 32 | data[at + 2] % 2};
        uint8_t sealed[TCP_SEAL_BYTES];
        head.total = data[at] % 4 == 0 ? (int8_t)data[at + 3] : data[at + 3];
        head.at = data[at] % 8 < 4 ? 0 : (int8_t)data[at + 4];
        head.bytes = data[at] % 8 < 6 ? (head.total > 0 ? head.total : 0) : data[at + 5];
        memset(content, data[at + 6], sizeof(content));
        ASSERT(tcp_seal_write(&other, &head, content, sealed));
        if (data[at + 7] == 255)
            sealed[data[at + 8] % TCP_SEAL_BYTES] ^= data[at + 9];
        if (send(fds[1], sealed, sizeof(sealed), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ||
            send(fds[1], content, (size_t)head.bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        tcp_link_read(&link);
        ASSERT(link.early_n <= TCP_EARLY_MANY &&
               link.early_bytes <= tcp.early_max * TCP_EARLY_DEEP);
    }
    if (size % 2 == 1 && send(fds[1], data, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        tcp_link_read(&link);
    close(fds[1]);
    tcp_link_read(&link);
    ASSERT(link.fd < 0 || link.is_held);
    tcp_link_down(&link);
    tcp_seal_close(&other);
    return 0;
}
#endif
