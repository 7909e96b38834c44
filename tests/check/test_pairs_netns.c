/* test_pairs_netns — nodes as real hosts over a network of our own (packet_switch.h): a link with
 * 5 ms more delay, one at half its rate, one that loses 2 % of its packets, and a node whose links
 * are all slow are named, and nothing else is. A clean network has no bad link.
 *
 * The switch shares the cores with the nodes: a process that stands still for a moment makes links
 * slow in truth. The switch counts the packets that left late, and each node how long it waited for
 * a core: a planting that is missed where they did is tried again, and where they always do, shown
 * and not judged. One that is missed in an undisturbed network is missed.
 *
 * NODES=8 TRIALS=50 repeats each planting at random places; KIND=delay plants that kind only. */
#include "check/packet_switch.h"

#include <sys/mman.h>

#include "check/check.h"
#include "check/check_judge.h"
#include "harness.h"

#define ROWS_MAX 600
#define TRIES 6
#define LATE_SHARE 200      /* one packet of so many may leave late */
#define WAITED_NS 200000000 /* a node may wait so long for a core while it measures */
#define RATE 0.015          /* GB/s of a link: each packet costs a busy machine much */

enum answer { WRONG, DISTURBED, RIGHT, UNABLE };
enum plant { CLEAN, DELAY, HALF, LOSS, NODE, PLANT_N };
static const char *const plant_names[] = {"clean", "delay", "half", "loss", "node"};

struct shared {
    _Atomic int arrived;
    atomic_bool has_failed; /* a node: the others do not wait for it */
    char addresses[PACKET_SWITCH_NODES][COMM_ADDRESS_MAX];
    int64_t bytes[PACKET_SWITCH_NODES];
    int rows_n[PACKET_SWITCH_NODES];
    int64_t waited_ns[PACKET_SWITCH_NODES]; /* for a core, while it measured */
    struct check_row rows[PACKET_SWITCH_NODES][ROWS_MAX];
};
static struct shared *all;
static int nodes = 4;

static enum status line_up(void)
{
    const int mine = atomic_fetch_add(&all->arrived, 1) / nodes;
    const int64_t end_ms = clock_ms() + harness_patience_ms(60000);
    while (atomic_load(&all->arrived) / nodes <= mine) {
        if (atomic_load(&all->has_failed) || clock_ms() > end_ms)
            return FAIL(ST_RETRY, "another node did not come");
        clock_sleep_ms(1);
    }
    return ST_OK;
}

/* What this thread has waited for a core; 0: the kernel does not say. */
static int64_t waited_ns(void)
{
    long long waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %lld", &waited) != 1)
        waited = 0;
    fclose(file);
    return waited;
}

static enum status run_node(int node)
{
    char address[32];
    snprintf(address, sizeof address, "10.78.0.%d", node + 1);
    const struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .net = COMM_NET_TCP,
        .secret = HARNESS_SECRET,
        .data_addr = address,
        .place = {.rank = node, .ranks = nodes, .node = node, .nodes = nodes, .locals = 1},
        .timeout_ms = harness_patience_ms(60000),
        .is_oversubscribed = true,
        .shm_fd = -1};
    struct comm *comm = NULL;
    struct check_rows rows = {0};
    TRY(comm_begin_open(&config, &comm, all->addresses[node], &all->bytes[node]));
    TRY(line_up());
    TRY(comm_end_open(comm, 1, all->addresses, all->bytes));
    const struct check_config check = {
        .comm = comm, .place = config.place, .root = "", .dir = "", .gpus_expected = -1};
    const int64_t before_ns = waited_ns();
    TRY(check_pairs_run(&check, 20000, &rows));
    all->waited_ns[node] = waited_ns() - before_ns;
    all->rows_n[node] = rows.n < ROWS_MAX ? rows.n : ROWS_MAX;
    memcpy(all->rows[node], rows.row, sizeof *rows.row * (size_t)all->rows_n[node]);
    TRY(line_up());
    comm_close(comm);
    check_row_free(&rows);
    return ST_OK;
}

static void node_main(int node, int socket)
{
    const int fd = packet_switch_join(node);
    char go;
    if (!packet_switch_send_fd(socket, fd) || fd < 0)
        _exit(3);
    if (read(socket, &go, 1) != 1) /* the switch carries packets */
        _exit(3);
    enum status st = run_node(node);
    if (st != ST_OK)
        atomic_store(&all->has_failed, true);
    if (st != ST_OK)
        fprintf(stderr, "# node %d: %s\n", node, status_message());
    _exit(st == ST_OK ? 0 : 5);
}

/* One node, with its device; false: no such network can be made here. The other end of the socket
 * is the node's alone: when it ends, reads of this end return 0. */
static bool begin_node(struct packet_switch *s, int node, pid_t *pid, int *socket)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        close(ends[0]);
        node_main(node, ends[1]);
    }
    close(ends[1]);
    *socket = ends[0];
    s->fds[node] = packet_switch_recv_fd(ends[0]);
    return s->fds[node] >= 0;
}

/* Waits until the node has ended; its wait status, -1: it had to be killed. */
static int end_node(pid_t pid, int64_t end_ms)
{
    int code = -1;
    while (waitpid(pid, &code, WNOHANG) == 0) {
        if (clock_ms() < end_ms) {
            clock_sleep_ms(5);
            continue;
        }
        kill(pid, SIGKILL);
        waitpid(pid, &code, 0);
        return -1;
    }
    return code;
}

/* All nodes once; false: no such network can be made here. */
static bool run_nodes(struct packet_switch *s)
{
    pid_t pids[PACKET_SWITCH_NODES];
    int sockets[PACKET_SWITCH_NODES], bad = 0;
    bool is_able = true;
    memset(all, 0, sizeof *all);
    s->nodes = nodes;
    fflush(NULL);
    for (int i = 0; i < nodes; i++)
        is_able = begin_node(s, i, &pids[i], &sockets[i]) && is_able;
    if (is_able)
        assert_true(packet_switch_start(s));
    for (int i = 0; i < nodes; i++)
        if (!is_able || send(sockets[i], "x", 1, MSG_NOSIGNAL) != 1)
            shutdown(sockets[i], SHUT_RDWR);
    /* Each of a node's own waits has an end before this one. */
    const int64_t end_ms = clock_ms() + harness_patience_ms(180000);
    for (int i = 0; i < nodes; i++) {
        bad += end_node(pids[i], end_ms) != 0;
        close(sockets[i]);
    }
    if (is_able)
        packet_switch_stop(s);
    assert_true(!is_able || bad == 0);
    return is_able;
}

static void set_link(struct packet_switch *s, int a, int b, enum plant plant)
{
    struct packet_switch_way *ways[] = {&s->way[a][b], &s->way[b][a]};
    for (int i = 0; i < 2; i++) {
        ways[i]->delay_us += plant == DELAY || plant == NODE ? 2500 : 0; /* 5 ms of a round trip */
        ways[i]->rate *= plant == HALF ? 0.5 : 1;
        ways[i]->loss += plant == LOSS ? 0.02 : 0;
    }
}

/* The rows of all nodes, judged. */
static void collect(struct check_rows *rows)
{
    for (int node = 0; node < nodes; node++)
        for (int i = 0; i < all->rows_n[node]; i++)
            check_row_add(rows, &all->rows[node][i]);
    check_judge(rows);
}

/* Does a bad row name the link a-b, or for a node its end? */
static bool names(const struct check_row *row, enum plant plant, int a, int b)
{
    if (plant == NODE)
        return row->suspect == a;
    return row->suspect < 0 &&
           ((row->node == a && row->peer == b) || (row->node == b && row->peer == a));
}

static bool is_of(const struct check_row *row, enum plant plant)
{
    const char *name = plant == HALF   ? "link bandwidth"
                       : plant == LOSS ? "link retransmissions"
                                       : "link latency";
    return strcmp(row->name, name) == 0;
}

/* Did packets leave late, or nodes wait for a core, more often than now and then? */
static bool is_disturbed(const struct packet_switch *s)
{
    int64_t waited_ns = 0;
    for (int node = 0; node < nodes; node++)
        waited_ns = all->waited_ns[node] > waited_ns ? all->waited_ns[node] : waited_ns;
    print_message("# %lld of %lld packets left %d ms late; a node waited %lld ms for a core\n",
                  (long long)s->late, (long long)s->carried, PACKET_SWITCH_LATE_NS / 1000000,
                  (long long)(waited_ns / 1000000));
    return s->late * LATE_SHARE > s->carried || waited_ns > WAITED_NS;
}

/* Was the planted fault named, and no other one? */
static enum answer trial(enum plant plant, uint64_t seed)
{
    static struct packet_switch s;
    struct check_rows rows = {0};
    int found = 0, wrong = 0;
    const int a = (int)rand_below(seed, 0, 1, (uint64_t)nodes);
    const int b = (a + 1 + (int)rand_below(seed, 0, 2, (uint64_t)nodes - 1)) % nodes;
    memset(&s, 0, sizeof s);
    s.seed = seed;
    for (int i = 0; i < nodes * nodes; i++)
        s.way[i / nodes][i % nodes].rate = RATE;
    if (plant == NODE)
        for (int i = 0; i < nodes; i++)
            if (i != a)
                set_link(&s, a, i, plant);
    if (plant != NODE && plant != CLEAN)
        set_link(&s, a, b, plant);
    const int64_t begin_ms = clock_ms();
    if (!run_nodes(&s))
        return UNABLE;
    collect(&rows);
    for (int i = 0; i < rows.n; i++) {
        const struct check_row *row = &rows.row[i];
        const bool is_bad =
            row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
        const bool is_right = plant != CLEAN && names(row, plant, a, b);
        found += is_bad && is_right && is_of(row, plant);
        wrong += is_bad && !is_right;
        if (is_bad || getenv("ALL_ROWS") != NULL)
            print_message("# %s: %s | %s | %g %s | suspect %d | %s\n",
                          check_row_verdict(row->verdict), row->name, row->subject, row->value,
                          row->unit, row->suspect, row->why);
    }
    print_message("# %s of %d - %d: named %d times, others %d times, %lld ms, %lld packets, %lld "
                  "dropped\n",
                  plant_names[plant], a, b, found, wrong, (long long)(clock_ms() - begin_ms),
                  (long long)s.carried, (long long)s.dropped);
    check_row_free(&rows);
    const bool is_right = wrong == 0 && (plant == CLEAN || found > 0);
    return is_disturbed(&s) && !is_right ? DISTURBED : is_right ? RIGHT : WRONG;
}

static enum answer plant_until_right(enum plant plant, uint64_t seed)
{
    enum answer answer = DISTURBED;
    for (int k = 0; k < TRIES && answer == DISTURBED; k++)
        answer = trial(plant, seed + 1000 * (uint64_t)k);
    if (answer == WRONG)
        fail_msg("%s, seed %llu: not named, or others", plant_names[plant],
                 (unsigned long long)seed);
    if (answer == DISTURBED)
        print_message("# %s: not judged, for the network was disturbed %d times\n",
                      plant_names[plant], TRIES);
    return answer;
}

TEST(test_plantings)
{
    const char *asked = getenv("TRIALS"), *kind = getenv("KIND");
    int of[UNABLE + 1] = {0};
    const int trials = asked != NULL ? atoi(asked) : 1;
    for (int i = 0; i < trials && of[UNABLE] == 0; i++)
        for (int plant = CLEAN; plant < PLANT_N && of[UNABLE] == 0; plant++)
            if (kind != NULL ? strcmp(kind, plant_names[plant]) == 0
                             : asked != NULL || (plant > CLEAN && plant < NODE))
                of[plant_until_right((enum plant)plant, (uint64_t)(i * 100 + plant))]++;
    if (of[DISTURBED] > 0)
        HARNESS_SKIP("this machine was too busy to judge %d of the links", of[DISTURBED]);
    if (of[UNABLE] > 0)
        HARNESS_SKIP("no network namespace with a TUN device can be made here (not root?)");
}

int main(void)
{
    harness_quiet();
    if (getenv("NODES") != NULL)
        nodes = atoi(getenv("NODES"));
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return all == MAP_FAILED ? 99 : harness_run_all(__FILE__, NULL, NULL);
}
