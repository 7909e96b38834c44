/* launcher — what each launcher sets, alone, together, contradicting, hostile; Slurm's host
 * lists. */
#include "harness.h"

#include "conf/launcher.h"

#define ENV_MAX 12

struct trial {
    const char *environment[ENV_MAX];
    const char *node_id, *n_nodes; /* what is said, "" nothing */
    const char *refusal;           /* or words of the sentence */
};

static void run_trials(const struct trial *trials, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct trial *t = &trials[i];
        struct launcher_value said[LAUNCHER_N];
        const bool all[LAUNCHER_N] = {true, true, true, true, true};
        status_clear();
        enum status st = launcher_read((char **)t->environment, all, said);
        bool is_right;
        if (t->refusal != NULL)
            is_right = st == ST_BAD_SETTING && strstr(status_message(), t->refusal) != NULL;
        else
            is_right = st == ST_OK && strcmp(said[LAUNCHER_NODE_ID].text, t->node_id) == 0 &&
                       strcmp(said[LAUNCHER_N_NODES].text, t->n_nodes) == 0;
        if (!is_right)
            fail_msg("trial %zu (%s): %s \"%s\" node \"%s\" of \"%s\"", i, t->environment[0],
                     status_name(st), status_message(), said[LAUNCHER_NODE_ID].text,
                     said[LAUNCHER_N_NODES].text);
    }
}
#define RUN(trials) run_trials(trials, sizeof(trials) / sizeof(trials)[0])
#define SAYS(node, nodes, ...)           \
    {                                    \
        {__VA_ARGS__}, node, nodes, NULL \
    }
#define REFUSED(words, ...)          \
    {                                \
        {__VA_ARGS__}, "", "", words \
    }

TEST(one_launcher)
{
    const struct trial trials[] = {
        SAYS("", "", "PATH=/bin"), SAYS("3", "", "PET_NODE_RANK=3"), SAYS("3", "", "NODE_RANK=3"),
        SAYS("3", "", "GROUP_RANK=3"), SAYS("3", "", "JOB_COMPLETION_INDEX=3"),
        SAYS("3", "", "SLURM_NODEID=3"), SAYS("3", "", "OMPI_COMM_WORLD_RANK=3"),
        SAYS("", "4", "PET_NNODES=4"), SAYS("", "4", "NNODES=4"),
        SAYS("", "4", "GROUP_WORLD_SIZE=4"), SAYS("", "4", "SLURM_STEP_NUM_NODES=4"),
        SAYS("", "4", "OMPI_COMM_WORLD_SIZE=4"), SAYS("", "4", "PET_NNODES=4:4"),
        /* Kubeflow, Slurm, torchrun and Open MPI with all their variables */
        SAYS("1", "2", "PET_NNODES=2", "PET_NPROC_PER_NODE=1", "PET_NODE_RANK=1",
             "JOB_COMPLETION_INDEX=1", "PET_MASTER_PORT=29500"),
        SAYS("1", "2", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=2", "SLURM_PROCID=1",
             "SLURM_LOCALID=0", "SLURM_NNODES=2", "SLURM_NTASKS=2"),
        SAYS("1", "2", "RANK=1", "LOCAL_RANK=0", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
             "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1"),
        SAYS("1", "2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
             "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_LOCAL_RANK=0"),
        SAYS("1", "2", "OMPI_COMM_WORLD_RANK=8", "OMPI_COMM_WORLD_SIZE=16",
             "OMPI_COMM_WORLD_LOCAL_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=0"),
        /* LeaderWorkerSet and SkyPilot with all their variables */
        SAYS("2", "4", "LWS_LEADER_ADDRESS=run-0.run.default", "LWS_GROUP_SIZE=4",
             "LWS_WORKER_INDEX=2"),
        SAYS("1", "2", "SKYPILOT_NODE_RANK=1", "SKYPILOT_NUM_NODES=2",
             "SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_GPUS_PER_NODE=8",
             "SKYPILOT_TASK_ID=sky-1"),
        /* a batch script's variables are not a step's */
        SAYS("0", "", "SLURM_NODEID=0", "SLURM_NNODES=4", "SLURM_JOB_NUM_NODES=4"),
        SAYS("", "", "NODE_RANK=", "NNODES=", "SLURM_NODEID="),
        SAYS("", "", "NODE_RANK", "NODE_RANKS=1", "=3", "", "XNODE_RANK=1"),
        SAYS("2", "", "NODE_RANK=2", "NODE_RANK=3"), /* getenv's choice */
    };
    RUN(trials);
    struct launcher_value said[LAUNCHER_N];
    const bool all[LAUNCHER_N] = {true, true, true, true, true};
    assert_int_equal(launcher_read((char *[]){"NODE_RANK=007", NULL}, all, said), ST_OK);
    assert_string_equal(said[LAUNCHER_NODE_ID].text, "7"); /* a value, not a text */
}

TEST(several_launchers)
{
    const struct trial trials[] = {
        SAYS("1", "2", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=2", "GROUP_RANK=1", "NNODES=2"),
        SAYS("1", "2", "PET_NODE_RANK=1", "NODE_RANK=1", "GROUP_RANK=1", "JOB_COMPLETION_INDEX=1",
             "SLURM_NODEID=1", "OMPI_COMM_WORLD_RANK=1", "PET_NNODES=2", "NNODES=2",
             "SLURM_STEP_NUM_NODES=2", "OMPI_COMM_WORLD_SIZE=2"),
        REFUSED("two launchers contradict each other: PET_NODE_RANK means NODE_ID=0, but "
                "SLURM_NODEID means 1; set NODE_ID to decide",
                "SLURM_NODEID=1", "PET_NODE_RANK=0"),
        REFUSED("NODE_RANK means NODE_ID=1, but GROUP_RANK means 2", "NODE_RANK=1", "GROUP_RANK=2"),
        REFUSED("JOB_COMPLETION_INDEX means NODE_ID=1, but OMPI_COMM_WORLD_RANK means 0",
                "JOB_COMPLETION_INDEX=1", "OMPI_COMM_WORLD_RANK=7", "OMPI_COMM_WORLD_LOCAL_SIZE=8"),
        REFUSED("NNODES means N_NODES=2, but SLURM_STEP_NUM_NODES means 4; set N_NODES", "NNODES=2",
                "SLURM_STEP_NUM_NODES=4"),
        REFUSED("LWS_WORKER_INDEX means NODE_ID=1, but SKYPILOT_NODE_RANK means 0; set NODE_ID",
                "LWS_WORKER_INDEX=1", "SKYPILOT_NODE_RANK=0"),
        REFUSED("JOB_COMPLETION_INDEX means NODE_ID=0, but LWS_WORKER_INDEX means 1",
                "JOB_COMPLETION_INDEX=0", "LWS_WORKER_INDEX=1"),
        REFUSED("LWS_GROUP_SIZE means N_NODES=2, but SLURM_STEP_NUM_NODES means 4; set N_NODES",
                "LWS_GROUP_SIZE=2", "SLURM_STEP_NUM_NODES=4"),
        REFUSED("SKYPILOT_NUM_NODES means N_NODES=3, but OMPI_COMM_WORLD_SIZE means 2",
                "SKYPILOT_NUM_NODES=3", "OMPI_COMM_WORLD_SIZE=2"),
        REFUSED("PET_NNODES means N_NODES=1, but OMPI_COMM_WORLD_SIZE means 2", "PET_NNODES=1",
                "OMPI_COMM_WORLD_SIZE=2"),
    };
    RUN(trials);
    /* What was set explicitly is not read from launchers, so they may contradict each other. */
    const bool none[LAUNCHER_N] = {false, false, false, false, false};
    struct launcher_value said[LAUNCHER_N];
    char *bad[] = {"NODE_RANK=1",     "GROUP_RANK=2",      "NNODES=x", "SLURM_STEP_NODELIST=a[",
                   "SLURM_LOCALID=3", "PET_MASTER_ADDR=x", NULL};
    assert_int_equal(launcher_read(bad, none, said), ST_OK);
    for (int i = 0; i < LAUNCHER_N; i++)
        assert_null(said[i].name);
}

TEST(bad_values)
{
    const struct trial trials[] = {
        REFUSED("NODE_RANK=x (set by the launcher) is not a node's number from 0 to 1048575",
                "NODE_RANK=x"),
        REFUSED("NODE_RANK=-1", "NODE_RANK=-1"),
        REFUSED("SLURM_NODEID=1048576", "SLURM_NODEID=1048576"),
        REFUSED("SLURM_NODEID= 1", "SLURM_NODEID= 1"),
        REFUSED("NODE_RANK=1?", "NODE_RANK=1\n"),
        REFUSED("NNODES=0 (set by the launcher) is not one number of nodes", "NNODES=0"),
        REFUSED("PET_NNODES=1:4", "PET_NNODES=1:4"),
        REFUSED("PET_NNODES=:", "PET_NNODES=:"),
        REFUSED("PET_NNODES=4:", "PET_NNODES=4:"),
        REFUSED("PET_NNODES=4:4:4", "PET_NNODES=4:4:4"),
        REFUSED("NNODES=99999999999999999999", "NNODES=99999999999999999999"),
        REFUSED("OMPI_COMM_WORLD_LOCAL_SIZE=0", "OMPI_COMM_WORLD_RANK=1",
                "OMPI_COMM_WORLD_LOCAL_SIZE=0"),
        REFUSED("OMPI_COMM_WORLD_SIZE=5 is not a multiple of OMPI_COMM_WORLD_LOCAL_SIZE=2",
                "OMPI_COMM_WORLD_SIZE=5", "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
        REFUSED("SLURM_LOCALID=1: the launcher started several copies on this node",
                "SLURM_NODEID=0", "SLURM_LOCALID=1"),
        REFUSED("LOCAL_RANK=3: the launcher started several", "LOCAL_RANK=3"),
        REFUSED("OMPI_COMM_WORLD_LOCAL_RANK=1: the launcher", "OMPI_COMM_WORLD_LOCAL_RANK=1"),
        REFUSED("SKYPILOT_NODE_IPS=x  (set by the launcher) is not a list of addresses",
                "SKYPILOT_NODE_IPS=x "),
        REFUSED("SKYPILOT_NODE_IPS=?10.0.0.1", "SKYPILOT_NODE_IPS=\n10.0.0.1"),
        REFUSED("SKYPILOT_NODE_IPS=10.0.0.1 10.0.0.2", "SKYPILOT_NODE_IPS=10.0.0.1 10.0.0.2"),
        REFUSED("SKYPILOT_NUM_GPUS_PER_NODE=65 (set by the launcher) is not a number of GPUs from "
                "0 to 64; set N_GPU_EACH_NODE",
                "SKYPILOT_NUM_GPUS_PER_NODE=65"),
        REFUSED("SKYPILOT_NUM_GPUS_PER_NODE=x", "SKYPILOT_NUM_GPUS_PER_NODE=x"),
        REFUSED("LWS_WORKER_INDEX=-1", "LWS_WORKER_INDEX=-1"),
        REFUSED("LWS_GROUP_SIZE=0 (set by the launcher) is not one number", "LWS_GROUP_SIZE=0"),
        REFUSED("SLURM_STEP_NODELIST=gpu[1- (set by the launcher) is not a host list",
                "SLURM_STEP_NODELIST=gpu[1-"),
        SAYS("", "", "LOCAL_RANK=x"), /* not ours to judge */
    };
    RUN(trials);
}

TEST(where_node_0_is)
{
    static const struct {
        const char *environment[4], *address, *name;
    } trials[] = {
        {{"PET_MASTER_ADDR=job-node-0-0.job", "SLURM_STEP_NODELIST=a1"},
         "job-node-0-0.job",
         "PET_MASTER_ADDR"},
        {{"LWS_LEADER_ADDRESS=run-0.run.default", "SKYPILOT_NODE_IPS=10.0.0.1"},
         "run-0.run.default",
         "LWS_LEADER_ADDRESS"},
        {{"SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2"}, "10.0.0.1", "SKYPILOT_NODE_IPS"},
        {{"SKYPILOT_NODE_IPS=fd00::1\nfd00::2\n"}, "fd00::1", "SKYPILOT_NODE_IPS"},
        {{"SLURM_STEP_NODELIST=gpu[001-003,7],b4"}, "gpu001", "SLURM_STEP_NODELIST"},
        {{"SLURM_STEP_NODELIST=b4"}, "b4", "SLURM_STEP_NODELIST"},
        {{"SLURM_JOB_NODELIST=b4"}, "", NULL},
        {{"PET_MASTER_ADDR="}, "", NULL},
    };
    const bool all[LAUNCHER_N] = {true, true, true, true, true};
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        struct launcher_value said[LAUNCHER_N];
        assert_int_equal(launcher_read((char **)trials[i].environment, all, said), ST_OK);
        assert_string_equal(said[LAUNCHER_MASTER_ADDR].text, trials[i].address);
        if (trials[i].name == NULL)
            assert_null(said[LAUNCHER_MASTER_ADDR].name);
        else
            assert_string_equal(said[LAUNCHER_MASTER_ADDR].name, trials[i].name);
    }
    struct launcher_value workers[LAUNCHER_N];
    assert_int_equal(launcher_read((char *[]){"SKYPILOT_NUM_GPUS_PER_NODE=8", NULL}, all, workers),
                     ST_OK);
    assert_string_equal(workers[LAUNCHER_WORKERS].text, "8");
    assert_int_equal(launcher_read((char *[]){"SKYPILOT_NUM_GPUS_PER_NODE=0", NULL}, all, workers),
                     ST_OK);
    assert_null(workers[LAUNCHER_WORKERS].name);
    char longest[400];
    struct launcher_value said[LAUNCHER_N];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "PET_MASTER_ADDR=", 16);
    longest[399] = 0;
    assert_int_equal(launcher_read((char *[]){longest, NULL}, all, said), ST_BAD_SETTING);
}

/* join — all hosts of a list, separated by spaces; "!": malformed. */
static void join(const char *list, char *out, size_t cap)
{
    char host[256];
    int64_t n = launcher_hosts(list);
    size_t used = 0;
    text_copy(out, cap, n < 0 ? "!" : "");
    for (int64_t i = 0; i < n && i < 64; i++) {
        assert_true(launcher_host(list, i, host, sizeof host));
        text_format(out + used, cap - used, "%s%s", i > 0 ? " " : "", host);
        used += strlen(out + used);
    }
    if (n >= 0) {
        assert_false(launcher_host(list, n, host, sizeof host));
        assert_false(launcher_host(list, -1, host, sizeof host));
    }
}

TEST(host_lists)
{
    static const struct {
        const char *list, *hosts;
    } trials[] = {
        {"a", "a"},
        {"a,b", "a b"},
        {"gpu[001-003,7],b4", "gpu001 gpu002 gpu003 gpu7 b4"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[098-101]", "n098 n099 n100 n101"},
        {"n[1]", "n1"},
        {"n[1,3,5]", "n1 n3 n5"},
        {"n[1-1]", "n1"},
        {"n[1-2]-ib", "n1-ib n2-ib"},
        {"n[1-2].example.org,m", "n1.example.org n2.example.org m"},
        {"r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"},
        {"r[1-2]n[1,3]x[5-6]", "r1n1x5 r1n1x6 r1n3x5 r1n3x6 r2n1x5 r2n1x6 r2n3x5 r2n3x6"},
        {"n[000000001]", "n000000001"},
        {"a-b.c_d", "a-b.c_d"},
        {"", "!"},
        {",", "!"},
        {"a,", "!"},
        {",a", "!"},
        {"a,,b", "!"},
        {"n[", "!"},
        {"n[]", "!"},
        {"n]", "!"},
        {"n[1", "!"},
        {"n[1-", "!"},
        {"n[1-]", "!"},
        {"n[-1]", "!"},
        {"n[2-1]", "!"},
        {"n[1,]", "!"},
        {"n[,1]", "!"},
        {"n[1;2]", "!"},
        {"n[a-b]", "!"},
        {"n[1-2-3]", "!"},
        {"n[[1]]", "!"},
        {"[1-2]", "!"},
        {"n[1000000000]", "!"},
        {"n[0-999999999]", "!"},
        {"n[0-1023]m[0-1023]k[0-1]", "!"},
        {"a b", "!"},
        {"a\n", "!"},
        {"a/b", "!"},
        {"\xc3\xa4", "!"},
        {"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]", "a1b1c1d1e1f1g1h1"},
        {"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", "!"},
    };
    char got[2048];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        join(trials[i].list, got, sizeof got);
        if (strcmp(got, trials[i].hosts) != 0)
            fail_msg("%s: \"%s\", want \"%s\"", trials[i].list, got, trials[i].hosts);
    }
    assert_int_equal(launcher_hosts("n[0-1048575]"), 1048576);
    assert_int_equal(launcher_hosts("n[0-1048575],m"), -1);
    assert_int_equal(launcher_hosts("n[0-1023]m[0-1023]"), 1048576);
    assert_true(launcher_host("n[0-1023]m[0-1023]", 1048575, got, sizeof got));
    assert_string_equal(got, "n1023m1023");
    /* no room for the name and its 0 */
    assert_false(launcher_host("abc", 0, got, 3));
    assert_true(launcher_host("abc", 0, got, 4));
    assert_false(launcher_host("n[001]", 0, got, 4));
}

/* Cut at every byte, with every byte changed: returns within the bounds of the buffers (sanitizers
 * check). */
TEST(host_lists_cut_and_changed)
{
    static const char whole[] = "gpu[001-003,7],b4,r[1-2]n[01-02]";
    char list[sizeof whole], host[8];
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        memcpy(list, whole, sizeof whole);
        list[cut] = 0;
        (void)launcher_host(list, 0, host, sizeof host);
        for (int c = 1; c < 256 && cut < sizeof whole - 1; c++) {
            memcpy(list, whole, sizeof whole);
            list[cut] = (char)c;
            int64_t n = launcher_hosts(list);
            assert_true(n >= -1 && n <= 1048576);
            (void)launcher_host(list, n - 1, host, sizeof host);
        }
    }
}

HARNESS_RUN_ALL()
