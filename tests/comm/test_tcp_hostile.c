/* test_tcp_hostile — input to a worker's port from clients without the secret, and from a peer that
 * has it and sends invalid frames. Nothing is accepted, memory does not grow, no process dies, and
 * the ranks' sums have the bits of a run without attack. */
#include "comm/fake_peer.h"
#include "comm/pair.h"

#include <stdatomic.h>

#define GENERATION 7
#define ELEMS 300000
#define FORGED 1000

static const struct tcp_auth_ids right = {
    .generation = GENERATION, .client = 1, .server = 0, .ranks = 2};

/* ---- one rank, whose peer is the test ---- */

struct victim {
    char address[COMM_ADDRESS_MAX];
    int64_t bytes, end_ms;
    atomic_int phase; /* 1: listens, 2: connected, 3: over */
    enum status st;
    char message[512], data[256];
};

static enum status in_time(void *arg)
{
    const struct victim *v = arg;
    return clock_ms() < v->end_ms
               ? ST_OK
               : status_fail_at(__FILE__, __LINE__, ST_RETRY, "nothing came in time");
}

static enum status run_victim(struct victim *v, struct messenger *m)
{
    char addresses[2][COMM_ADDRESS_MAX];
    const struct message_watch watch = {.check = in_time, .arg = v};
    const bool is_peer[2] = {false, true};
    TRY(message_choose_pack(m, false, v->address, sizeof v->address, &v->bytes));
    memcpy(addresses[0], v->address, sizeof addresses[0]);
    memcpy(addresses[1], v->address, sizeof addresses[1]);
    const struct message_world world = {.generation = GENERATION,
                                        .ranks = 2,
                                        .is_peer = is_peer,
                                        .addresses = addresses,
                                        .stride = COMM_ADDRESS_MAX,
                                        .bytes = (const int64_t[]){v->bytes, v->bytes},
                                        .secret = HARNESS_SECRET};
    v->phase = 1;
    TRY(message_connect(m, &world, watch));
    v->phase = 2;
    struct message_op op = {.bytes = 0};
    struct message_wait wait = {.watch = watch};
    TRY(messenger_recv(m, &op, v->data, 64,
                       (struct message_tag){.group = 1, .from = 1, .tag_class = MESSAGE_TAG_PAIR}));
    while (!messenger_is_done(&op))
        TRY(messenger_progress(m, &wait));
    return ST_OK;
}

static void *victim_main(void *arg)
{
    struct victim *v = arg;
    struct messenger *m = NULL;
    v->st =
        messenger_open(&(struct message_config){.net = COMM_NET_TCP, .eager_bytes = 270336}, &m);
    if (v->st == ST_OK)
        v->st = run_victim(v, m);
    snprintf(v->message, sizeof v->message, "%s", status_message());
    if (m && v->st != ST_OK)
        messenger_abort(m);
    messenger_close(m);
    v->phase = 3;
    return NULL;
}

static void await_phase(const struct victim *v, int phase)
{
    for (int64_t end_ms = clock_ms() + harness_patience_ms(20000); v->phase < phase;) {
        assert_true(clock_ms() < end_ms);
        clock_sleep_ms(1);
    }
}

/* Runs a rank whose peer authenticates and then calls act; checks how the rank's receive ends. */
static void attack_victim(void (*act)(struct fake_peer *s), int64_t limit_ms, enum status want,
                          const char *word)
{
    struct victim v = {.end_ms = clock_ms() + harness_patience_ms(limit_ms)};
    struct fake_peer s;
    pthread_t thread;
    pthread_create(&thread, NULL, victim_main, &v);
    await_phase(&v, 1);
    assert_true(fake_peer_authenticate(&s, v.address, &right, HARNESS_SECRET) &&
                fake_peer_send_hello(&s, &right));
    await_phase(&v, 2);
    act(&s);
    pthread_join(thread, NULL);
    fake_peer_close(&s);
    if (v.st != want || strstr(v.message, word) == NULL)
        fail_msg("%s: %s; wanted %s with \"%s\"", status_name(v.st), v.message, status_name(want),
                 word);
}

static const char content[64] = "sixty-four bytes of content";
static uint64_t expected_tag(void) { return fake_peer_tag(GENERATION, 1, 1, MESSAGE_TAG_PAIR, 0); }

static void send_valid(struct fake_peer *s)
{
    assert_true(fake_peer_send(s, expected_tag(), content, 64, NULL));
}

static void forge_tag_class(struct fake_peer *s, int tag_class)
{
    struct message_seal_keys keys = {.header = {1}, .checksum = {2}};
    message_seal_close(&s->out);
    assert_true(message_seal_open(&s->out, &keys, true));
    s->out.next = 1;
    fake_peer_send(s, fake_peer_tag(GENERATION, 1, 1, (enum message_tag_class)tag_class, 0),
                   content, 64, NULL);
}
static void forge_header(struct fake_peer *s) { forge_tag_class(s, MESSAGE_TAG_HEADER); }
static void forge_part(struct fake_peer *s) { forge_tag_class(s, MESSAGE_TAG_PART); }
static void forge_sum(struct fake_peer *s) { forge_tag_class(s, MESSAGE_TAG_SUM); }
static void forge_pair(struct fake_peer *s) { forge_tag_class(s, MESSAGE_TAG_PAIR); }

static void send_noise(struct fake_peer *s)
{
    char noise[4096];
    memset(noise, 0xa5, sizeof noise);
    fake_peer_write(s->fd, noise, sizeof noise);
}
static void send_damaged(struct fake_peer *s)
{
    struct tcp_frame_header header = {.tag = expected_tag(), .total = 64, .bytes = 64};
    uint8_t bytes[TCP_FRAME_HEADER_BYTES];
    char other[64];
    memcpy(other, content, 64);
    other[40] ^= 4;
    assert_true(tcp_frame_write(&s->out, &header, content, bytes));
    fake_peer_write(s->fd, bytes, sizeof bytes);
    fake_peer_write(s->fd, other, sizeof other);
}
/* The header of a message a second time: it is no longer the next frame. */
static void send_twice(struct fake_peer *s)
{
    struct tcp_frame_header header = {
        .tag = fake_peer_tag(GENERATION, 2, 1, MESSAGE_TAG_PAIR, 0), .total = 64, .bytes = 64};
    uint8_t bytes[TCP_FRAME_HEADER_BYTES];
    assert_true(tcp_frame_write(&s->out, &header, content, bytes));
    for (int i = 0; i < 2; i++) {
        fake_peer_write(s->fd, bytes, sizeof bytes);
        fake_peer_write(s->fd, content, sizeof content);
    }
}
static void claim(struct fake_peer *s, int64_t total, int64_t at, int64_t bytes)
{
    const struct tcp_frame_header header = {
        .tag = expected_tag(), .total = total, .at = at, .bytes = bytes};
    static char room[TCP_FRAME_CONTENT_MAX * 2];
    uint8_t header_bytes[TCP_FRAME_HEADER_BYTES];
    assert_true(tcp_frame_write(&s->out, &header, room, header_bytes));
    fake_peer_write(s->fd, header_bytes, sizeof header_bytes);
    fake_peer_write(s->fd, content, sizeof content);
}
static void claim_too_long(struct fake_peer *s) { claim(s, 4096, 0, 4096); }
static void claim_all_memory(struct fake_peer *s) { claim(s, INT64_MAX, 0, 64); }
static void claim_negative(struct fake_peer *s) { claim(s, -1, 0, 64); }
static void claim_middle(struct fake_peer *s) { claim(s, 64, 32, 32); }
static void claim_beyond(struct fake_peer *s) { claim(s, 64, 0, 65); }
static void claim_large_frame(struct fake_peer *s)
{
    claim(s, 1 << 20, 0, TCP_FRAME_CONTENT_MAX + 1);
}
static void claim_empty_frame(struct fake_peer *s) { claim(s, 64, 0, 0); }
static void claim_other_rank(struct fake_peer *s)
{
    fake_peer_send(s, fake_peer_tag(GENERATION, 1, 0, MESSAGE_TAG_PAIR, 0), content, 64, NULL);
}

TEST(an_invalid_frame_ends_the_connection)
{
    static void (*const acts[])(struct fake_peer * s) = {
        forge_header, forge_part,        forge_sum,         forge_pair,      send_noise,
        send_damaged, send_twice,        claim_all_memory,  claim_negative,  claim_middle,
        claim_beyond, claim_large_frame, claim_empty_frame, claim_other_rank};
    attack_victim(send_valid, 20000, ST_OK, "");
    int64_t before = messenger_refused();
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        attack_victim(acts[i], 20000, ST_PEER, "forged, damaged or out of order");
    assert_int_equal(messenger_refused() - before, sizeof acts / sizeof *acts);
    attack_victim(claim_too_long, 20000, ST_BUG, "in different calls");
}

/* Messages without a receive: a few are kept, then the sender blocks. */
static int unmatched;
static void send_unmatched(struct fake_peer *s)
{
    static char kib[1024];
    const struct timeval limit = {.tv_usec = 500000};
    setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    for (unmatched = 0; unmatched < 30000; unmatched++)
        if (!fake_peer_send(s, fake_peer_tag(GENERATION, 9, 1, MESSAGE_TAG_HEADER, 0), kib,
                            sizeof kib, NULL))
            break;
}
TEST(unmatched_messages_stay_in_the_socket)
{
    long before = harness_resident_kib();
    attack_victim(send_unmatched, 3000, ST_RETRY, "in time");
    print_message(
        "# %d of 30000 unmatched messages of 1 KiB left their sender; resident %ld, then %ld KiB\n",
        unmatched, before, harness_resident_kib());
    assert_true(unmatched < 30000);
#ifndef __SANITIZE_ADDRESS__
    assert_true(harness_resident_kib() < before + 8192);
#endif
}

/* ---- unauthenticated clients ---- */

static enum status sum_often(struct pair *p, int rank, struct comm *comm)
{
    float *data = ((float **)p->arg)[rank];
    struct tensor t = {data, DTYPE_F32};
    for (int i = 0; i < ELEMS; i++)
        data[i] = 1e-7f * (float)(i % 1000 + 1) / (float)(rank + 3);
    for (int i = 0; i < 20; i++)
        TRY(comm_all_reduce(comm, t, t, ELEMS));
    return ST_OK;
}

/* The sums of rank 0 after a run in which an attack, which `before` begins, lasts until both are
 * connected. */
static void run_ranks(void (*before)(struct pair *p), float *out)
{
    static float other[ELEMS];
    struct pair p = {.net = COMM_NET_TCP,
                     .generation = GENERATION,
                     .timeout_ms = harness_patience_ms(30000),
                     .work = sum_often,
                     .before = before,
                     .arg = (float *[]){out, other}};
    pair_run(&p);
    for (int r = 0; r < 2; r++)
        if (p.st[r] != ST_OK)
            fail_msg("rank %d: %s", r, p.message[r]);
    /* the port is closed since all ranks are connected */
    assert_int_equal(fake_peer_connect(p.addresses[0][0]), -1);
}

static int fds[FORGED];
static void close_all(void)
{
    for (int i = 0; i < FORGED; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Random bytes; the magic and noise behind it; a whole HELLO with another secret; a valid HELLO
 * again and again, as if recorded; no byte at all. */
static void forge_connections(struct pair *p)
{
    static const uint8_t wrong[TCP_AUTH_SECRET_BYTES] = "another secret";
    uint8_t bytes[TCP_AUTH_HELLO_BYTES], recorded[TCP_AUTH_HELLO_BYTES];
    struct tcp_auth auth = {.transcript_n = 0};
    memcpy(auth.secret, HARNESS_SECRET, sizeof auth.secret);
    assert_true(tcp_auth_make_hello(&auth, &right, recorded));
    for (int i = 0; i < FORGED; i++) {
        struct tcp_auth other = {.transcript_n = 0};
        memcpy(other.secret, wrong, sizeof wrong);
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)((unsigned)i * 2654435761u >> (k % 24));
        if (i % 5 == 1)
            memcpy(bytes, "convoyD1", 8);
        if (i % 5 == 2)
            assert_true(tcp_auth_make_hello(&other, &right, bytes));
        if (i % 5 == 3)
            memcpy(bytes, recorded, sizeof bytes);
        fds[i] = fake_peer_connect(p->addresses[0][0]);
        if (fds[i] >= 0 && i % 5 != 4)
            fake_peer_write(fds[i], bytes, i % 7 == 0 ? sizeof bytes / 2 : sizeof bytes);
    }
}

TEST(a_thousand_unauthenticated_clients_change_nothing)
{
    static float calm[ELEMS], attacked[ELEMS];
    run_ranks(NULL, calm);
    long before_kib = harness_resident_kib();
    int64_t before = messenger_refused(), begin_ms = clock_ms();
    run_ranks(forge_connections, attacked);
    close_all();
    print_message("# %lld of %d clients refused, %lld ms, resident %ld, then %ld KiB\n",
                  (long long)(messenger_refused() - before), FORGED,
                  (long long)(clock_ms() - begin_ms), before_kib, harness_resident_kib());
    assert_in_range(messenger_refused() - before, FORGED * 9 / 10, FORGED * 2);
    assert_memory_equal(calm, attacked, sizeof calm);
#ifndef __SANITIZE_ADDRESS__
    assert_true(harness_resident_kib() < before_kib + 8192);
#endif
}

/* Silent connections, as many as can be made, while the ranks connect. Some take the slot of a
 * rank's own connection, which is retried. */
static atomic_bool is_flooding;
static const void *flooded;
static void *flood_main(void *arg)
{
    int *made = arg;
    for (int i = 0; is_flooding; i = (i + 1) % FORGED) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = fake_peer_connect(flooded);
        if (fds[i] < 0) {
            clock_sleep_ms(1);
            continue;
        }
        (*made)++;
    }
    return NULL;
}
static pthread_t flooder;
static int flood_n;
static void begin_flood(struct pair *p)
{
    flooded = p->addresses[0][0];
    is_flooding = true;
    flood_n = 0;
    for (int i = 0; i < FORGED; i++)
        fds[i] = -1;
    pthread_create(&flooder, NULL, flood_main, &flood_n);
    clock_sleep_ms(200);
}

TEST(a_flood_does_not_stop_ranks_from_connecting)
{
    static float calm[ELEMS], attacked[ELEMS];
    run_ranks(NULL, calm);
    int64_t begin_ms = clock_ms();
    run_ranks(begin_flood, attacked);
    int64_t elapsed_ms = clock_ms() - begin_ms;
    is_flooding = false;
    pthread_join(flooder, NULL);
    close_all();
    print_message("# %d silent connections; connected and done after %lld ms\n", flood_n,
                  (long long)elapsed_ms);
    assert_true(flood_n > 64);
    assert_true(elapsed_ms < harness_patience_ms(8000));
    assert_memory_equal(calm, attacked, sizeof calm);
}

/* A recorded hello is answered with another nonce, and without the proof there is no way in. */
TEST(a_replayed_handshake_fails)
{
    struct victim v = {.end_ms = clock_ms() + harness_patience_ms(20000)};
    struct tcp_auth auth = {.transcript_n = 0};
    uint8_t hello[TCP_AUTH_HELLO_BYTES], answer[TCP_AUTH_ANSWER_BYTES], proof[TCP_AUTH_PROOF_BYTES],
        more[32];
    struct fake_peer s;
    pthread_t thread;
    pthread_create(&thread, NULL, victim_main, &v);
    await_phase(&v, 1);
    memcpy(auth.secret, HARNESS_SECRET, sizeof auth.secret);
    assert_true(tcp_auth_make_hello(&auth, &right, hello));
    /* the recorded one: its proof is made for another answer */
    for (int round = 0; round < 2; round++) {
        int fd = fake_peer_connect(v.address);
        assert_true(fake_peer_write(fd, hello, sizeof hello) &&
                    fake_peer_read(fd, answer, sizeof answer));
        if (round == 0)
            assert_true(tcp_auth_read_answer(&auth, answer) && tcp_auth_make_proof(&auth, proof));
        else
            assert_true(fake_peer_write(fd, proof, sizeof proof));
        if (round == 1)
            assert_false(fake_peer_read(fd, more, sizeof more));
        close(fd);
    }
    assert_true(fake_peer_authenticate(&s, v.address, &right, HARNESS_SECRET) &&
                fake_peer_send_hello(&s, &right));
    send_valid(&s);
    pthread_join(thread, NULL);
    fake_peer_close(&s);
    assert_int_equal(v.st, ST_OK);
}

/* The right secret with one wrong identity field is refused, for each field. */
TEST(another_world_is_refused)
{
    struct victim v = {.end_ms = clock_ms() + harness_patience_ms(20000)};
    struct tcp_auth_ids wrong[] = {right, right, right, right, right};
    struct fake_peer s;
    pthread_t thread;
    wrong[0].generation++;
    wrong[1].ranks = 3;
    wrong[2].server = 1;
    wrong[3].client = 0;
    wrong[4].client = 2;
    pthread_create(&thread, NULL, victim_main, &v);
    await_phase(&v, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(fake_peer_authenticate(&s, v.address, &wrong[i], HARNESS_SECRET));
        fake_peer_close(&s);
    }
    assert_true(fake_peer_authenticate(&s, v.address, &right, HARNESS_SECRET) &&
                fake_peer_send_hello(&s, &right));
    send_valid(&s);
    pthread_join(thread, NULL);
    fake_peer_close(&s);
    assert_int_equal(v.st, ST_OK);
}

HARNESS_RUN_ALL()
