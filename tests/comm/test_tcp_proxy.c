/* test_tcp_proxy — two real ranks with a proxy between them. It drops, repeats, reorders, alters,
 * cuts short, inserts and replays frames, and cuts the connection. Every sum that a rank gets is
 * right, and both ranks end with a lost peer. PROXY_TRIALS=N: N faults of each kind, default 3;
 * PROXY_KINDS=bits: of altered bits alone. */
#include "comm/fake_peer.h"
#include "comm/pair.h"

#include <stdatomic.h>

#define GENERATION 3
#define ELEMS 200000 /* parts of more than one frame */
#define CALLS 60
#define HEAD TCP_FRAME_HEADER_BYTES

enum what { NOTHING, DROP, TWICE, SWAP, HEAD_BIT, CONTENT_BIT, SHORT, INSERT, REPLAY, CUT, WHAT_N };
static const char *const names[WHAT_N] = {"nothing",     "drop",  "twice",  "swap",   "head bit",
                                          "content bit", "short", "insert", "replay", "cut"};

struct proxy {
    struct pair pair;
    int64_t right[2]; /* calls with right sums */
    bool is_wrong[2];
    pthread_t thread;
    int listen_fd;
    enum what what;
    int at; /* the number of the frame it hits */
    unsigned seed;
    atomic_bool has_faulted;
};

static enum status work(struct pair *p, int rank, struct comm *comm)
{
    static float data[2][ELEMS];
    struct proxy *w = p->arg;
    struct tensor t = {data[rank], DTYPE_F32};
    for (int call = 0; call < CALLS; call++) {
        int64_t n = call % 3 == 0 ? 100 : call % 3 == 1 ? 20000 : ELEMS;
        for (int64_t i = 0; i < n; i++)
            data[rank][i] = (float)(i % 1013 + call + rank * 5);
        TRY(comm_all_reduce(comm, t, t, n));
        for (int64_t i = 0; i < n; i++)
            w->is_wrong[rank] =
                w->is_wrong[rank] || data[rank][i] != (float)(2 * (i % 1013 + call) + 5);
        w->right[rank]++;
    }
    return comm_barrier(comm);
}

/* ---- the proxy ---- */

static bool forward(int from, int to, size_t n)
{
    char bytes[256];
    return fake_peer_read(from, bytes, n) && fake_peer_write(to, bytes, n);
}

static void *forward_back(void *arg)
{
    int *fds = arg;
    static _Thread_local char bytes[1 << 16];
    for (ssize_t n; (n = recv(fds[0], bytes, sizeof bytes, 0)) > 0;)
        if (!fake_peer_write(fds[1], bytes, (size_t)n))
            break;
    shutdown(fds[1], SHUT_WR);
    return NULL;
}

/* Reads a frame: its header has its length. */
static size_t get_frame(int fd, char *out)
{
    uint32_t bytes;
    if (!fake_peer_read(fd, out, HEAD))
        return 0;
    memcpy(&bytes, out + 24, sizeof bytes);
    assert_true(bytes <= TCP_FRAME_CONTENT_MAX);
    return fake_peer_read(fd, out + HEAD, bytes) ? HEAD + bytes : 0;
}

/* Applies the fault. false: ends the connection. */
static bool apply_fault(struct proxy *w, int from, int to, char *frame, size_t n, const char *first,
                        size_t first_n)
{
    static char other[HEAD + TCP_FRAME_CONTENT_MAX];
    size_t bit = (size_t)rand_r(&w->seed), other_n;
    w->has_faulted = true;
    switch (w->what) {
    case NOTHING:
        return fake_peer_write(to, frame, n);
    case DROP:
        return true;
    case TWICE:
        return fake_peer_write(to, frame, n) && fake_peer_write(to, frame, n);
    case SWAP:
        other_n = get_frame(from, other);
        return other_n > 0 && fake_peer_write(to, other, other_n) && fake_peer_write(to, frame, n);
    case HEAD_BIT:
        frame[bit / 8 % HEAD] ^= (char)(1 << bit % 8);
        return fake_peer_write(to, frame, n);
    case CONTENT_BIT:
        if (n > HEAD)
            frame[HEAD + bit / 8 % (n - HEAD)] ^= (char)(1 << bit % 8);
        else
            frame[HEAD - 1] ^= 1;
        return fake_peer_write(to, frame, n);
    case SHORT:
        return fake_peer_write(to, frame, n - 1 - bit % (n - 1));
    case INSERT:
        memset(other, (int)bit, HEAD + 64);
        return fake_peer_write(to, other, HEAD + 64) && fake_peer_write(to, frame, n);
    case REPLAY:
        return fake_peer_write(to, first, first_n) && fake_peer_write(to, frame, n);
    default:
        return false;
    }
}

static void forward_frames(struct proxy *w, int from, int to)
{
    static char frame[HEAD + TCP_FRAME_CONTENT_MAX], first[HEAD + TCP_FRAME_CONTENT_MAX];
    size_t first_n = 0, n;
    for (int i = 0; (n = get_frame(from, frame)) > 0; i++) {
        if (i == 0)
            memcpy(first, frame, first_n = n);
        if (i == w->at ? !apply_fault(w, from, to, frame, n, first, first_n)
                       : !fake_peer_write(to, frame, n))
            break;
    }
}

static void *proxy_main(void *arg)
{
    struct proxy *w = arg;
    int in = accept(w->listen_fd, NULL, NULL), out = fake_peer_connect(w->pair.addresses[0][0]);
    pthread_t back;
    int fds[2] = {out, in};
    if (in >= 0 && out >= 0 && forward(in, out, TCP_AUTH_HELLO_BYTES) &&
        forward(out, in, TCP_AUTH_ANSWER_BYTES) && forward(in, out, TCP_AUTH_PROOF_BYTES) &&
        forward(out, in, TCP_AUTH_WELCOME_BYTES)) {
        pthread_create(&back, NULL, forward_back, fds);
        forward_frames(w, in, out);
        shutdown(in, SHUT_RDWR);
        shutdown(out, SHUT_RDWR);
        pthread_join(back, NULL);
    }
    close(in);
    close(out);
    return NULL;
}

/* Rank 1 gets the proxy's address for rank 0. */
static void open_proxy(struct pair *p)
{
    struct proxy *w = p->arg;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    struct tcp_addr_packed packed;
    w->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(bind(w->listen_fd, (struct sockaddr *)&at, bytes) == 0 &&
                listen(w->listen_fd, 1) == 0 &&
                getsockname(w->listen_fd, (struct sockaddr *)&at, &bytes) == 0);
    memcpy(&packed, p->addresses[1][0] + FAKE_PEER_TCP_AT, sizeof packed);
    packed.port = ntohs(at.sin_port);
    memcpy(p->addresses[1][0] + FAKE_PEER_TCP_AT, &packed, sizeof packed);
    pthread_create(&w->thread, NULL, proxy_main, w);
}

static void run(enum what what, int at, unsigned seed)
{
    static struct proxy w;
    w = (struct proxy){.what = what,
                       .at = at,
                       .seed = seed,
                       .pair = {.net = COMM_NET_TCP,
                                .generation = GENERATION,
                                .timeout_ms = harness_patience_ms(4000),
                                .work = work,
                                .before = open_proxy,
                                .arg = &w}};
    pair_run(&w.pair);
    pthread_join(w.thread, NULL);
    close(w.listen_fd);
    enum status want = what == NOTHING ? ST_OK : ST_PEER;
    for (int r = 0; r < 2; r++)
        if (w.is_wrong[r] || !w.has_faulted || w.pair.st[r] != want ||
            (want == ST_OK && w.right[r] != CALLS))
            fail_msg("%s at frame %d, seed %u: rank %d: %s%lld right, %s: %s", names[what], at,
                     seed, r, w.is_wrong[r] ? "a WRONG sum; " : "", (long long)w.right[r],
                     status_name(w.pair.st[r]), w.pair.message[r]);
    if (what != NOTHING && what != CUT && strstr(w.pair.message[0], "forged") == NULL &&
        strstr(w.pair.message[0], "rank 1") == NULL)
        fail_msg("%s at frame %d: rank 0 does not name it: %s", names[what], at, w.pair.message[0]);
}

/* is_asked — PROXY_KINDS. */
static bool is_asked(enum what what)
{
    const char *kinds = getenv("PROXY_KINDS");
    return kinds == NULL || strcmp(kinds, "bits") != 0 || what == HEAD_BIT || what == CONTENT_BIT;
}

TEST(every_fault_is_noticed)
{
    int trials = harness_number("PROXY_TRIALS", 3), faults = 0;
    for (int i = 0; i < trials; i++)
        for (int what = NOTHING; what < WHAT_N; what++) {
            unsigned seed = (unsigned)(i * 100 + what);
            if (!is_asked((enum what)what))
                continue;
            run((enum what)what, 1 + rand_r(&seed) % 60, seed);
            faults += what != NOTHING;
        }
    print_message("# %d faults noticed\n", faults);
}

HARNESS_RUN_ALL()
