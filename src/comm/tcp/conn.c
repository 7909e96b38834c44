/* tcp_conn — one authenticated connection: frames of messages in and out.
 *
 * A message is sent in frames, each after its header (frame.h). Content goes from the sender's
 * buffer directly into the buffer of the receive with its tag. A message without a receive is kept
 * here if it is short and few are kept (unexpected messages). Otherwise it stays in the socket, and
 * nothing more is read until its receive is posted; that stops the peer's sends. Any invalid byte
 * closes the connection. Must not know handshakes. */
#include <errno.h>
#include <linux/tcp.h> /* has newer fields than <netinet/tcp.h> */
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "comm/tcp/inside.h"

#define READ_BYTES (512 << 10) /* bytes read in one call, before other connections are read */
/* Bytes written in one call. Fewer than READ_BYTES: while this rank writes, the peer waits for
 * bytes that it could read. */
#define WRITE_BYTES (128 << 10)
#define SPARE_BYTES (1 << 20) /* memory kept for later unexpected messages */
#define UNEXPECTED_MIN 4096

static const char closed[] = "closed by the peer", no_memory[] = "out of memory";

bool tcp_conn_up(struct tcp_conn *conn, int fd, const struct tcp_auth *auth, bool is_client)
{
    struct message_seal_keys mine, theirs;
    ASSERT(!conn->is_up && conn->peer != NULL && fd >= 0);
    bool is_done =
        tcp_auth_keys(auth, is_client, &mine) && tcp_auth_keys(auth, !is_client, &theirs) &&
        message_seal_open(&conn->out, &mine, true) && message_seal_open(&conn->in, &theirs, false);
    message_seal_wipe(&mine, sizeof(mine));
    message_seal_wipe(&theirs, sizeof(theirs));
    conn->buffer = is_done ? malloc(TCP_BUFFER_BYTES) : NULL;
    conn->fd = fd;
    conn->is_up = conn->buffer != NULL;
    conn->connect_state = TCP_CONNECT_NONE;
    conn->tcp->missing -= conn->is_up;
    return conn->is_up;
}

static void free_all(struct tcp_unexpected *at)
{
    for (struct tcp_unexpected *next; at != NULL; at = next) {
        next = at->next;
        free(at);
    }
}

void tcp_conn_down(struct tcp_conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    conn->is_up = false;
    message_seal_close(&conn->out);
    message_seal_close(&conn->in);
    message_seal_wipe(&conn->auth, sizeof(conn->auth));
    free_all(conn->unexpected_first);
    free_all(conn->spare);
    free(conn->buffer);
    conn->unexpected_first = conn->unexpected_last = conn->spare = conn->unexpected = NULL;
    conn->buffer = NULL;
}

void tcp_conn_lose(struct tcp_conn *conn, const char *why)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    conn->is_write_closed = true;
    messenger_on_lost(conn->peer, why);
}

/* ---- unexpected messages ---- */

static struct tcp_unexpected *take_spare(struct tcp_conn *conn, size_t bytes)
{
    for (struct tcp_unexpected **at = &conn->spare; *at != NULL; at = &(*at)->next) {
        struct tcp_unexpected *found = *at;
        if (found->cap < bytes || found->cap / 4 > bytes + UNEXPECTED_MIN)
            continue;
        *at = found->next;
        conn->spare_bytes -= (int64_t)found->cap;
        return found;
    }
    size_t cap = UNEXPECTED_MIN;
    while (cap < bytes)
        cap *= 2;
    struct tcp_unexpected *fresh = malloc(sizeof(*fresh) + cap);
    if (fresh != NULL)
        fresh->cap = cap;
    return fresh;
}

static void give_spare(struct tcp_conn *conn, struct tcp_unexpected *unexpected)
{
    if (conn->spare_bytes + (int64_t)unexpected->cap > SPARE_BYTES) {
        free(unexpected);
        return;
    }
    conn->spare_bytes += (int64_t)unexpected->cap;
    unexpected->next = conn->spare;
    conn->spare = unexpected;
}

/* Keeps an unexpected message. NULL: no room or no memory; the message stays in the socket. */
static struct tcp_unexpected *keep_unexpected(struct tcp_conn *conn,
                                              const struct tcp_frame_header *head)
{
    const struct tcp *tcp = conn->tcp;
    if (head->total > tcp->unexpected_max || conn->unexpected_n >= TCP_UNEXPECTED_MAX ||
        conn->unexpected_bytes + head->total > tcp->unexpected_max * TCP_UNEXPECTED_DEPTH)
        return NULL;
    struct tcp_unexpected *unexpected = take_spare(conn, (size_t)head->total);
    if (unexpected == NULL)
        return NULL;
    unexpected->next = NULL;
    unexpected->tag = head->tag;
    unexpected->total = head->total;
    unexpected->is_whole = false;
    unexpected->op = NULL;
    if (conn->unexpected_last != NULL)
        conn->unexpected_last->next = unexpected;
    else
        conn->unexpected_first = unexpected;
    conn->unexpected_last = unexpected;
    conn->unexpected_n++;
    conn->unexpected_bytes += head->total;
    return unexpected;
}

/* Copies a complete unexpected message to the receive that has been posted for it. */
static void deliver_unexpected(struct tcp_conn *conn, struct tcp_unexpected *unexpected,
                               struct message_op *op)
{
    ASSERT(unexpected->is_whole && conn->unexpected_n > 0);
    bool fits = unexpected->total <= op->bytes;
    if (fits && unexpected->total > 0)
        memcpy(op->data, unexpected->data, (size_t)unexpected->total);
    if (fits)
        op->bytes = unexpected->total;
    struct tcp_unexpected *before = NULL;
    for (struct tcp_unexpected *at = conn->unexpected_first; at != unexpected; at = at->next)
        before = at;
    if (before != NULL)
        before->next = unexpected->next;
    else
        conn->unexpected_first = unexpected->next;
    if (conn->unexpected_last == unexpected)
        conn->unexpected_last = before;
    conn->unexpected_n--;
    conn->unexpected_bytes -= unexpected->total;
    give_spare(conn, unexpected);
    messenger_op_end(op, fits ? NULL : messenger_truncated);
}

void tcp_conn_post_recv(struct tcp_conn *conn, struct message_op *op)
{
    for (struct tcp_unexpected *at = conn->unexpected_first; at != NULL; at = at->next) {
        if (at->tag != op->bits || at->op != NULL)
            continue;
        if (at->is_whole)
            deliver_unexpected(conn, at, op);
        else
            at->op = op;
        return;
    }
    messenger_queue_add(&conn->posted, op);
    conn->is_held = false;
}

bool tcp_conn_is_awaited(const struct tcp_conn *conn)
{
    if (conn->op != NULL || (conn->unexpected != NULL && conn->unexpected->op != NULL))
        return true;
    const struct message_op *op = conn->posted.first;
    while (op != NULL && op->is_goaway)
        op = op->after;
    return op != NULL;
}

/* ---- in ---- */

/* Finds memory for the message in progress: a posted receive, or memory for an unexpected message.
 * false: there is none yet. */
static bool find_destination(struct tcp_conn *conn)
{
    const struct tcp_frame_header *head = &conn->head;
    if (conn->has_message)
        return true;
    conn->op = messenger_queue_take(&conn->posted, head->tag);
    if (conn->op != NULL && conn->op->bytes < head->total) {
        messenger_op_end(conn->op, messenger_truncated);
        conn->op = NULL;
        conn->is_held = true;
        return false;
    }
    conn->unexpected = conn->op == NULL ? keep_unexpected(conn, head) : NULL;
    conn->is_held = conn->op == NULL && conn->unexpected == NULL;
    conn->has_message = !conn->is_held;
    conn->tag = head->tag;
    conn->total = head->total;
    conn->at = 0;
    return conn->has_message;
}

static char *locate_payload(const struct tcp_conn *conn)
{
    return (conn->op != NULL ? conn->op->data : conn->unexpected->data) + conn->head.at + conn->got;
}

/* Returns true if the frame of this header is the expected one. */
static bool is_next(const struct tcp_conn *conn)
{
    const struct tcp_frame_header *head = &conn->head;
    if ((head->tag >> 32 & 0xfff) != (uint64_t)conn->peer->rank)
        return false;
    return conn->has_message
               ? head->tag == conn->tag && head->total == conn->total && head->at == conn->at
               : head->at == 0;
}

/* Ends a complete frame. false: its content does not have the header's checksum. */
static bool end_frame(struct tcp_conn *conn)
{
    const struct tcp_frame_header *head = &conn->head;
    ASSERTF(conn->has_head && conn->has_message && conn->got == head->bytes, "%lld of %lld bytes",
            (long long)conn->got, (long long)head->bytes);
    conn->got = 0;
    if (!message_seal_check(&conn->in, head->bytes > 0 ? locate_payload(conn) : NULL,
                            (size_t)head->bytes, head->checksum))
        return false;
    conn->has_head = false;
    conn->at += head->bytes;
    if (conn->at < conn->total)
        return true;
    /* The message is complete. */
    struct tcp_unexpected *unexpected = conn->unexpected;
    struct message_op *op = conn->op;
    conn->has_message = false;
    conn->op = NULL;
    conn->unexpected = NULL;
    if (op != NULL) {
        op->bytes = conn->total;
        messenger_op_end(op, NULL);
        return true;
    }
    unexpected->is_whole = true;
    if (unexpected->op != NULL)
        deliver_unexpected(conn, unexpected, unexpected->op);
    return true;
}

/* Reads the rest of the frame to its destination, and the bytes after it into the buffer. Returns
 * bytes; ≤ 0: nothing now. */
static ssize_t receive_bytes(struct tcp_conn *conn, char *to, size_t missing)
{
    struct iovec into[2] = {{to, missing},
                            {conn->buffer + conn->buffer_end, TCP_BUFFER_BYTES - conn->buffer_end}};
    struct msghdr message = {.msg_iov = into, .msg_iovlen = 2};
    ssize_t n = missing > 0 ? recvmsg(conn->fd, &message, MSG_DONTWAIT)
                            : recv(conn->fd, into[1].iov_base, into[1].iov_len, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        conn->peer->was_closed = n == 0 || errno == ECONNRESET;
        tcp_conn_lose(conn, n == 0 ? closed : strerrordesc_np(errno));
    }
    if (n <= 0)
        return n;
    size_t stored = (size_t)n < missing ? (size_t)n : missing;
    conn->got += (int64_t)stored;
    conn->buffer_end += (size_t)n - stored;
    return n;
}

/* Reads a header from the buffer. false: more must be read, or it is invalid. */
static bool next_head(struct tcp_conn *conn)
{
    size_t have = conn->buffer_end - conn->buffer_first;
    if (have < TCP_FRAME_HEADER_BYTES) {
        memmove(conn->buffer, conn->buffer + conn->buffer_first, have);
        conn->buffer_first = 0;
        conn->buffer_end = have;
        return false;
    }
    if (!tcp_frame_read(&conn->in, conn->buffer + conn->buffer_first, &conn->head) ||
        !is_next(conn)) {
        tcp_accept_refuse(conn->tcp, -1, messenger_damaged);
        tcp_conn_lose(conn, messenger_damaged);
        return false;
    }
    conn->buffer_first += TCP_FRAME_HEADER_BYTES;
    conn->has_head = true;
    conn->got = 0;
    return true;
}

/* Handles the bytes read so far. false: more must be read, or nothing more can be. */
static bool consume_frame(struct tcp_conn *conn)
{
    if (!conn->has_head && !next_head(conn))
        return false;
    if (!find_destination(conn))
        return false;
    /* Copies the bytes of the frame in progress from the buffer. */
    size_t have = conn->buffer_end - conn->buffer_first,
           left = (size_t)(conn->head.bytes - conn->got);
    size_t n = have < left ? have : left;
    if (n > 0)
        memcpy(locate_payload(conn), conn->buffer + conn->buffer_first, n);
    conn->got += (int64_t)n;
    conn->buffer_first += n;
    if (conn->buffer_first == conn->buffer_end)
        conn->buffer_first = conn->buffer_end = 0;
    if (conn->got < conn->head.bytes)
        return false;
    if (end_frame(conn))
        return true;
    tcp_accept_refuse(conn->tcp, -1, messenger_damaged);
    tcp_conn_lose(conn, messenger_damaged);
    return false;
}

unsigned tcp_conn_read(struct tcp_conn *conn)
{
    unsigned moved = 0;
    while (conn->fd >= 0 && !conn->is_held && moved < READ_BYTES) {
        while (consume_frame(conn))
            continue;
        if (conn->fd < 0 || conn->is_held)
            break;
        size_t missing = conn->has_head ? (size_t)(conn->head.bytes - conn->got) : 0;
        size_t room = missing + TCP_BUFFER_BYTES - conn->buffer_end;
        ssize_t n = receive_bytes(conn, missing > 0 ? locate_payload(conn) : NULL, missing);
        if (n <= 0)
            break;
        moved += (unsigned)n;
        if ((size_t)n == room)
            continue;
        while (consume_frame(conn)) /* most likely the socket holds no more */
            continue;
        break;
    }
    return moved;
}

/* ---- out ---- */

static bool begin_frame(struct tcp_conn *conn, struct message_op *op)
{
    int64_t left = op->bytes - op->moved;
    ASSERTF(op->is_busy && op->is_send && left >= 0, "%lld bytes left", (long long)left);
    struct tcp_frame_header head = {.tag = op->bits,
                                    .total = op->bytes,
                                    .at = op->moved,
                                    .bytes = left < TCP_FRAME_CONTENT_MAX ? left
                                                                          : TCP_FRAME_CONTENT_MAX};
    op->frame_bytes = (int32_t)(TCP_FRAME_HEADER_BYTES + head.bytes);
    op->frame_moved = 0;
    return tcp_frame_write(&conn->out, &head, op->data + op->moved, op->head);
}

/* Stops writing. The end of the connection is found by reading, after the peer's remaining
 * bytes. */
static void stop_writing(struct tcp_conn *conn)
{
    const int error = errno;
    conn->is_write_closed = true;
    if (!conn->is_held)
        return;
    conn->peer->was_closed = error == ECONNRESET || error == EPIPE;
    tcp_conn_lose(conn, strerrordesc_np(error));
}

unsigned tcp_conn_write(struct tcp_conn *conn)
{
    unsigned moved = 0;
    while (conn->out_first != NULL && !conn->is_write_closed && conn->fd >= 0 &&
           moved < WRITE_BYTES) {
        struct message_op *op = conn->out_first;
        if (op->frame_bytes == 0 && !begin_frame(conn, op)) {
            tcp_conn_lose(conn, no_memory);
            break;
        }
        /* Sends the rest of the frame: its header, and its content. */
        size_t done = (size_t)op->frame_moved,
               head = done < TCP_FRAME_HEADER_BYTES ? TCP_FRAME_HEADER_BYTES - done : 0;
        size_t content = (size_t)op->frame_bytes - done - head;
        char *from = op->data + op->moved + (head > 0 ? 0 : done - TCP_FRAME_HEADER_BYTES);
        struct iovec iov[2] = {{(void *)(uintptr_t)(op->head + done), head}, {from, content}};
        struct msghdr message = {.msg_iov = head > 0 ? iov : iov + 1,
                                 .msg_iovlen = head > 0 && content > 0 ? 2 : 1};
        ssize_t n = sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            stop_writing(conn);
        if (n < 0)
            break;
        moved += (unsigned)n;
        op->frame_moved += (int32_t)n;
        if (op->frame_moved < op->frame_bytes)
            break;
        op->moved += op->frame_bytes - TCP_FRAME_HEADER_BYTES;
        op->frame_bytes = 0;
        if (op->moved == op->bytes) {
            conn->out_first = op->after;
            if (conn->out_last == op)
                conn->out_last = NULL;
            op->after = NULL;
            messenger_op_end(op, NULL);
        }
    }
    return moved;
}

/* ---- the kernel's numbers of the connection (TCP_INFO) ---- */

bool tcp_conn_link(const struct message_peer *peer, struct comm_link *out)
{
    const struct tcp_conn *conn = peer->conn;
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (conn == NULL || conn->fd < 0 || !conn->is_up ||
        getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out)
        return false; /* a kernel before 4.6 does not count segments */
    *out = (struct comm_link){.segments_sent = info.tcpi_data_segs_out,
                              .segments_resent = info.tcpi_total_retrans,
                              .rtt_us = info.tcpi_rtt,
                              .rtt_us_min = info.tcpi_min_rtt};
    return true;
}

#ifdef FUZZ
#include <sys/socket.h>

const char messenger_truncated[] = "too long", messenger_damaged[] = "damaged";
static int64_t fuzz_ended, fuzz_lost;
void messenger_op_end(struct message_op *op, const char *why)
{
    op->is_busy = false;
    fuzz_ended += why == NULL;
}
void messenger_on_lost(struct message_peer *peer, const char *why)
{
    peer->why = why;
    fuzz_lost++;
}
void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why) { (void)tcp, (void)fd, (void)why; }

static void fuzz_pair(struct tcp_conn *conn, struct message_seal *peer, int fds[2])
{
    struct tcp_auth auth = {.secret = {7}, .transcript_n = 1};
    struct message_seal_keys keys;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 &&
           tcp_conn_up(conn, fds[0], &auth, false));
    ASSERT(tcp_auth_keys(&auth, true, &keys) && message_seal_open(peer, &keys, true));
}

/* Fuzzed input: noise, valid headers with any numbers, altered headers. Each control byte is one
 * byte of the input. A complete message equals the sent one; anything else ends the connection. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t into[256], content[256];
    struct tcp tcp = {.unexpected_max = 128};
    struct message_peer peer = {.rank = 1};
    struct tcp_conn conn = {.tcp = &tcp, .peer = &peer};
    struct message_op op = {
        .is_busy = true, .data = (char *)into, .bytes = sizeof(into), .bits = (uint64_t)1 << 32};
    struct message_seal other;
    int fds[2];
    fuzz_pair(&conn, &other, fds);
    tcp_conn_post_recv(&conn, &op);
    for (size_t at = 0; at + 24 < size && conn.fd >= 0; at += 24) {
        struct tcp_frame_header head = {.tag =
                                            (uint64_t)(data[at + 1] % 3) << 32 | data[at + 2] % 2};
        uint8_t header[TCP_FRAME_HEADER_BYTES];
        head.total = data[at] % 4 == 0 ? (int8_t)data[at + 3] : data[at + 3];
        head.at = data[at] % 8 < 4 ? 0 : (int8_t)data[at + 4];
        head.bytes = data[at] % 8 < 6 ? (head.total > 0 ? head.total : 0) : data[at + 5];
        memset(content, data[at + 6], sizeof(content));
        ASSERT(tcp_frame_write(&other, &head, content, header));
        if (data[at + 7] == 255)
            header[data[at + 8] % TCP_FRAME_HEADER_BYTES] ^= data[at + 9];
        if (send(fds[1], header, sizeof(header), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ||
            send(fds[1], content, (size_t)head.bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        tcp_conn_read(&conn);
        ASSERT(conn.unexpected_n <= TCP_UNEXPECTED_MAX &&
               conn.unexpected_bytes <= tcp.unexpected_max * TCP_UNEXPECTED_DEPTH);
    }
    if (size % 2 == 1 && send(fds[1], data, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        tcp_conn_read(&conn);
    close(fds[1]);
    tcp_conn_read(&conn);
    ASSERT(conn.fd < 0 || conn.is_held);
    tcp_conn_down(&conn);
    message_seal_close(&other);
    return 0;
}
#endif
