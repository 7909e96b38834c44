/* test_ucx_hostile — two ranks over UCX, on TCP through the loopback device. A bit of what one
 * receives is flipped: in content sent eagerly, in content moved by rendezvous, in each field of a
 * header. No wrong sum comes out, and the failure names rank, node, link and call. And a process
 * outside the job sends to a rank's worker: what it sends is dropped and counted, and the ranks'
 * sums are right. */
#include "comm/pair.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucp/api/ucp.h>

#include "comm/message/messenger.h"
#include "comm/ucx/header.h"

#define GENERATION 0x5a
#define ELEMS_MAX 600000
#define CALLS 40
#define FLIP_AT 10    /* the call in which a bit is flipped */
#define MARK 12345.0f /* in rank 1's elements */
#define MARK_EVERY 16
#define UCX_ADDRESS_AT 6 /* offset of UCX's part in an address: its nonce, then UCX's own */

enum target { NOTHING, CONTENT, HEADER };

/* ---- bits flipped in transit: UCX receives from a socket by this function ---- */

static struct {
    _Atomic int target; /* enum target; NOTHING once the bit is flipped */
    size_t at;          /* HEADER: the byte */
    atomic_bool has_flipped;
} flip;

/* What the process outside the job needs: UCX's address of rank 0, and a message of rank 1. */
static struct shared {
    atomic_bool is_ready, is_over;
    size_t address_bytes;
    char address[COMM_ADDRESS_MAX];
    atomic_bool has_message;
    size_t message_bytes;
    char message[256];
} * shared;

/* Where a header of rank 1 begins; NULL: nowhere. */
static unsigned char *find_header(unsigned char *data, size_t n)
{
    static const unsigned char from[8] = {1};
    for (size_t i = 0; i + UCX_HEADER_BYTES <= n; i++)
        if (memcmp(data + i, from, 8) == 0 && memcmp(data + i + 10, from + 1, 6) == 0 &&
            data[i + 23] == GENERATION && memcmp(data + i + 27, from + 1, 5) == 0)
            return data + i;
    return NULL;
}

static unsigned char *find_mark(unsigned char *data, size_t n)
{
    const float mark = MARK;
    return memmem(data, n, &mark, sizeof mark);
}

/* Notes the first short message of rank 1 that lies whole in one read. */
static void note_message(unsigned char *data, size_t n)
{
    int64_t bytes = 0;
    unsigned char *header = shared != NULL && !shared->has_message ? find_header(data, n) : NULL;
    if (header == NULL)
        return;
    memcpy(&bytes, header + 24, sizeof bytes);
    size_t whole = UCX_HEADER_BYTES + (size_t)bytes;
    if (bytes <= 0 || whole > sizeof shared->message || header + whole > data + n)
        return;
    shared->message_bytes = whole;
    /* UCX puts the content before the header, or behind it: any content does for a replay */
    memcpy(shared->message, header, UCX_HEADER_BYTES);
    shared->has_message = true;
}

static void flip_in(unsigned char *data, size_t n)
{
    int target = flip.target;
    unsigned char *found = target == CONTENT  ? find_mark(data, n)
                           : target == HEADER ? find_header(data, n)
                                              : NULL;
    if (found == NULL || !atomic_compare_exchange_strong(&flip.target, &target, NOTHING))
        return;
    found[target == HEADER ? flip.at : 1] ^= 4;
    flip.has_flipped = true;
}

ssize_t recv(int fd, void *data, size_t cap, int flags)
{
    ssize_t n = syscall(SYS_recvfrom, fd, data, cap, flags, NULL, NULL);
    if (n > 0) {
        note_message(data, (size_t)n);
        flip_in(data, (size_t)n);
    }
    return n;
}

/* ---- two ranks ---- */

struct world {
    struct pair pair;
    int64_t elems;
    bool is_broadcast;
    int calls;
    enum target target;
    int right[2];
    bool is_wrong[2];
    int64_t elapsed_ms[2];
};

static bool is_marked(int64_t i) { return i % MARK_EVERY == 5; }

static float expected(const struct world *w, int64_t i, int call)
{
    const float one = w->is_broadcast ? 0 : (float)call;
    return is_marked(i) ? MARK + one : w->is_broadcast ? one : 2 * one;
}

static enum status one_call(struct world *w, struct comm *comm, int rank, int call)
{
    static float data[2][ELEMS_MAX];
    const struct tensor t = {data[rank], DTYPE_F32};
    for (int64_t i = 0; i < w->elems; i++)
        data[rank][i] = rank == 1 && is_marked(i) ? MARK : w->is_broadcast ? 0 : (float)call;
    if (rank == 0 && call == FLIP_AT)
        flip.target = w->target;
    TRY(w->is_broadcast ? comm_broadcast(comm, t, w->elems, 1)
                        : comm_all_reduce(comm, t, t, w->elems));
    for (int64_t i = 0; i < w->elems; i++)
        w->is_wrong[rank] = w->is_wrong[rank] || data[rank][i] != expected(w, i, call);
    w->right[rank]++;
    return ST_OK;
}

static enum status work(struct pair *p, int rank, struct comm *comm)
{
    struct world *w = p->arg;
    int64_t begin_ms = clock_ms();
    enum status st = ST_OK;
    for (int call = 0; call < w->calls && st == ST_OK; call++)
        st = one_call(w, comm, rank, call);
    w->elapsed_ms[rank] = clock_ms() - begin_ms;
    TRY(st);
    return comm_barrier(comm);
}

/* Runs both ranks. during: called while they connect and work; NULL: nothing. */
static void run(struct world *w, void (*during)(struct pair *p))
{
    w->pair = (struct pair){.net = COMM_NET_UCX,
                            .generation = GENERATION,
                            .timeout_ms = harness_patience_ms(20000),
                            .work = work,
                            .during = during,
                            .arg = w};
    pair_run(&w->pair);
}

/* ---- a process outside the job ---- */

static ucp_worker_h outside_worker;
static ucp_ep_h outside_ep;

static void outside_wait(ucs_status_ptr_t request)
{
    for (int64_t end_ms = clock_ms() + harness_patience_ms(2000); clock_ms() < end_ms;) {
        ucp_worker_progress(outside_worker);
        if (!UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS)
            break;
    }
    for (int i = 0; i < 1000; i++)
        ucp_worker_progress(outside_worker);
}

static void outside_send(unsigned id, const void *header, size_t header_bytes, size_t bytes,
                         unsigned flags)
{
    static char content[1 << 20];
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    outside_wait(ucp_am_send_nbx(outside_ep, id, header, header_bytes, content, bytes, &param));
}

#define OUTSIDE_AMS 8 /* messages with the id that the ranks use */

static void outside_attack(void)
{
    uint8_t noise[200], forged[UCX_HEADER_BYTES];
    memset(noise, 0xa5, sizeof noise);
    outside_send(1, noise, UCX_HEADER_BYTES, 100, 0);
    outside_send(1, noise, 10, 100, UCP_AM_SEND_FLAG_REPLY);
    outside_send(1, NULL, 0, 0, 0);
    outside_send(1, noise, sizeof noise, 0, 0);
    outside_send(1, noise, UCX_HEADER_BYTES, 1 << 20, UCP_AM_SEND_FLAG_RNDV);
    /* Of rank 1 of two ranks, with keys of another secret. */
    int64_t bytes = 64;
    static const uint8_t secret[COMM_SECRET_BYTES] = {9}, nonce[UCX_HEADER_NONCE_BYTES] = {8};
    struct message_seal direction = {0};
    const struct ucx_direction_ids ids = {GENERATION, 1, 0, 2, nonce, nonce};
    const struct ucx_header header = {
        .from = 1, .tag = (uint64_t)GENERATION << 56 | (uint64_t)1 << 32, .bytes = bytes};
    static const char content[256];
    if (!ucx_header_open(&direction, secret, &ids, true) ||
        !ucx_header_write(&direction, &header, content, forged))
        _exit(3);
    message_seal_close(&direction);
    outside_send(1, forged, sizeof forged, 64, UCP_AM_SEND_FLAG_REPLY);
    outside_send(1, forged, sizeof forged, 1 << 20, UCP_AM_SEND_FLAG_RNDV);
    outside_send(1, shared->message, UCX_HEADER_BYTES, shared->message_bytes - UCX_HEADER_BYTES,
                 UCP_AM_SEND_FLAG_REPLY);
}

static void outside_main(void)
{
    while (!shared->is_ready)
        clock_sleep_ms(1);
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_TAG};
    const ucp_worker_params_t wanted = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                              UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                .address = (const void *)shared->address,
                                .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucp_context_h context;
    if (ucp_init(&params, NULL, &context) != UCS_OK ||
        ucp_worker_create(context, &wanted, &outside_worker) != UCS_OK ||
        ucp_ep_create(outside_worker, &to, &outside_ep) != UCS_OK)
        _exit(2);
    outside_attack();
    /* what the ranks do not listen to: another id, tags */
    const ucp_request_param_t param = {.op_attr_mask = 0};
    outside_send(7, shared->message, UCX_HEADER_BYTES, 10, 0);
    outside_wait(ucp_tag_send_nbx(outside_ep, "noise", 5, (uint64_t)GENERATION << 56, &param));
    shared->is_over = true;
    _exit(0); /* without closing, as if killed */
}

static void start_attack(struct pair *p)
{
    size_t at = UCX_ADDRESS_AT + UCX_HEADER_NONCE_BYTES;
    for (int64_t end_ms = clock_ms() + harness_patience_ms(10000); !shared->has_message;) {
        assert_true(clock_ms() < end_ms);
        clock_sleep_ms(1);
    }
    shared->address_bytes = (size_t)p->bytes[0] - at;
    memcpy(shared->address, p->addresses[0][0] + at, shared->address_bytes);
    shared->is_ready = true;
}

TEST(what_an_outsider_sends_is_dropped)
{
    struct world w = {.elems = 20000, .calls = 20000};
    int code = -1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        outside_main();
    int64_t before = messenger_refused();
    run(&w, start_attack);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    print_message("# %lld dropped; %d and %d right sums\n",
                  (long long)(messenger_refused() - before), w.right[0], w.right[1]);
    for (int r = 0; r < 2; r++)
        if (w.is_wrong[r] || w.pair.st[r] != ST_OK || w.right[r] != w.calls)
            fail_msg("rank %d: %s%d right, %s: %s", r, w.is_wrong[r] ? "a WRONG sum; " : "",
                     w.right[r], status_name(w.pair.st[r]), w.pair.message[r]);
    assert_int_equal(code, 0);
    assert_true(shared->is_over);
    assert_int_equal(messenger_refused() - before, OUTSIDE_AMS);
    munmap(shared, sizeof *shared);
    shared = NULL;
}

/* ---- flipped bits ---- */

static bool names_damage(const struct world *w, int rank, const char *call)
{
    char name[64];
    snprintf(name, sizeof name, "rank %d (node %d) was lost in %s", 1 - rank, 1 - rank, call);
    return strstr(w->pair.message[rank], name) != NULL &&
           strstr(w->pair.message[rank], "damaged") != NULL &&
           strstr(w->pair.message[rank], "ucx (tcp/lo)") != NULL;
}

static void run_flip(const char *what, enum target target, size_t at, int64_t elems,
                     bool is_broadcast)
{
    struct world w = {
        .elems = elems, .is_broadcast = is_broadcast, .calls = CALLS, .target = target};
    const char *call = is_broadcast ? "broadcast" : "all_reduce";
    flip.at = at;
    flip.has_flipped = false;
    int64_t before = messenger_refused();
    run(&w, NULL);
    bool fails = target != NOTHING;
    for (int r = 0; r < 2; r++)
        if (w.is_wrong[r] || w.pair.st[r] != (fails ? ST_PEER : ST_OK) ||
            (!fails && w.right[r] != CALLS) || w.elapsed_ms[r] > harness_patience_ms(10000))
            fail_msg("%s: rank %d: %s%d right, %lld ms, %s: %s", what, r,
                     w.is_wrong[r] ? "a WRONG sum; " : "", w.right[r], (long long)w.elapsed_ms[r],
                     status_name(w.pair.st[r]), w.pair.message[r]);
    if (fails && (!flip.has_flipped || (!names_damage(&w, 0, call) && !names_damage(&w, 1, call))))
        fail_msg("%s: %s: %s; %s", what, flip.has_flipped ? "flipped" : "NOT flipped",
                 w.pair.message[0], w.pair.message[1]);
    if (messenger_refused() - before != fails)
        fail_msg("%s: %lld counted", what, (long long)(messenger_refused() - before));
}

TEST(a_flipped_bit_is_named)
{
    char what[64];
    run_flip("nothing", NOTHING, 0, 100, false);
    run_flip("nothing, long", NOTHING, 0, ELEMS_MAX, true);
    run_flip("eager content", CONTENT, 0, 100, false);
    run_flip("content of chunks", CONTENT, 0, 200000, false);
    run_flip("content by rendezvous", CONTENT, 0, ELEMS_MAX, true);
    for (size_t at = 0; at < UCX_HEADER_BYTES; at += 4) {
        snprintf(what, sizeof what, "byte %zu of a header", at);
        run_flip(what, HEADER, at, 100, false);
    }
    run_flip("header of a rendezvous", HEADER, 16, ELEMS_MAX, true);
}

int main(void)
{
    /* The outsider comes first: it is forked before this process has used UCX. */
    harness_loopback();
    harness_quiet();
    return harness_run_all(__FILE__, NULL, NULL);
}
