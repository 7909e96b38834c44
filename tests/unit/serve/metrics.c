/* metrics — every line has the syntax of Prometheus text 0.0.4; names and numbers are
 * right. */
#include "harness.h"

#include <ctype.h>

#include "base/board.h"
#include "serve/metrics.h"

static struct view view;
static struct board_worker worker;
static const char *run = "";
static const struct board_gpu *gpu; /* of the last worker; NULL: nothing is told of one */

static struct text metrics(int workers_n)
{
    struct board *board;
    struct text t = {0};
    assert_int_equal(board_create(64, 64, &board), ST_OK);
    struct board_node node = {.n_nodes = 1,
                              .workers_n = workers_n,
                              .phase = BOARD_PHASE_STARTING,
                              .version = "0.1 \"x\"\\\n\xff",
                              .backend = "self",
                              .device = "cpu",
                              .started_ms = 5000};
    text_copy(node.run, sizeof(node.run), run);
    board_node_publish(board, &node);
    for (int i = 0; i < workers_n; i++) {
        worker.rank = i;
        board_worker_publish(board, i, &worker);
    }
    if (gpu && workers_n > 0)
        board_gpu_publish(board, workers_n - 1, gpu);
    view_copy(&view, board, 17500, 1060000, 60000);
    view.check_metrics =
        "# HELP convoy_check_nodes Nodes.\n# TYPE convoy_check_nodes gauge\nconvoy_check_nodes 2\n";
    view.door = (struct view_door){
        .is_there = true, .is_full = true, .strangers_n = 128, .turned_away = 4711};
    metrics_write(&view, &t);
    board_close(board);
    assert_false(t.overflow);
    return t;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && s[i] != '_')
            return false;
    }
    return n > 7 && strncmp(s, "convoy_", 7) == 0;
}

/* name{label="value",…} number */
static void check_sample(const char *line, const char *family)
{
    size_t n = strcspn(line, "{ ");
    assert_true(is_name(line, n));
    /* below its own HELP and TYPE */
    assert_true(strlen(family) == n && strncmp(line, family, n) == 0);
    const char *at = line + n;
    if (*at == '{') {
        do {
            at++;
            size_t label_n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
            assert_true(label_n > 0 && at[label_n] == '=' && at[label_n + 1] == '"');
            for (at += label_n + 2; *at != '"'; at++) {
                assert_true(*at >= 0x20 && *at < 0x7F);
                if (*at == '\\') {
                    at++;
                    assert_non_null(strchr("\\\"n", *at));
                }
            }
            at++;
        } while (*at == ',');
        assert_int_equal(*at++, '}');
    }
    assert_int_equal(*at++, ' ');
    char *end;
    strtod(at, &end);
    assert_true(end != at && *end == 0);
}

static int check_syntax(char *text)
{
    char family[128] = "", seen[8192] = "";
    int samples_n = 0;
    for (char *line; (line = strsep(&text, "\n")) != NULL && (text != NULL || *line != 0);) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t n = strcspn(line + 7, " ");
            assert_true(is_name(line + 7, n) && strlen(line + 7 + n) > 5);
            text_format(family, sizeof(family), "%.*s", (int)n, line + 7);
            char mark[160];
            text_format(mark, sizeof(mark), " %s ", family);
            assert_null(strstr(seen, mark)); /* each family once */
            text_format(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s", mark);
            line = strsep(&text, "\n");
            char gauge[160], counter[160];
            text_format(gauge, sizeof(gauge), "# TYPE %s gauge", family);
            text_format(counter, sizeof(counter), "# TYPE %s counter", family);
            bool is_counter = strcmp(line, counter) == 0;
            assert_true(is_counter || strcmp(line, gauge) == 0);
            assert_int_equal(is_counter, text_ends(family, "_total"));
        } else {
            check_sample(line, family);
            samples_n++;
        }
    }
    return samples_n;
}

TEST(gpu_when_told)
{
    static const struct board_gpu told = {.busy = 0.75,
                                          .memory_busy = NAN,
                                          .memory_used = 51ll << 30,
                                          .memory_total = -1,
                                          .temperature = 63,
                                          .power = 612.5,
                                          .power_limit = NAN,
                                          .clock = 1.98e9,
                                          .memory_clock = NAN,
                                          .ecc_corrected = -1,
                                          .ecc_uncorrected = 0,
                                          .xids = 1,
                                          .xid_last = 79};
    worker =
        (struct board_worker){.device = "cuda 0 NVIDIA H200", .backend = "nccl", .memory_bytes = 5};
    struct text t = metrics(2);
    assert_null(strstr(t.data, "convoy_gpu_"));
    text_free(&t);
    gpu = &told;
    t = metrics(2);
    static const char *const lines[] = {"\nconvoy_gpu_utilisation_ratio{rank=\"1\"} 0.75",
                                        "\nconvoy_gpu_power_watts{rank=\"1\"} 612.5\n",
                                        "\nconvoy_gpu_ecc_uncorrected_total{rank=\"1\"} 0\n",
                                        "\nconvoy_gpu_xids_total{rank=\"1\"} 1\n",
                                        "\nconvoy_rank_memory_bytes{rank=\"1\"} 54760833024\n",
                                        "\nconvoy_rank_memory_bytes{rank=\"0\"} 5\n",
                                        "backend=\"nccl\",device=\"cuda\""};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(t.data, lines[i]))
            fail_msg("no '%s' in:\n%s", lines[i] + 1, t.data);
    assert_null(strstr(t.data, "convoy_gpu_memory_total_bytes{"));
    assert_null(strstr(t.data, "rank=\"0\"} 0.75"));
    assert_true(check_syntax(t.data) > 20);
    text_free(&t);
    gpu = NULL;
}

TEST(known_numbers)
{
    worker = (struct board_worker){
        .phase = BOARD_PHASE_TRAINING,
        .step = 120,
        .steps = 5000,
        .tokens = 123456789012,
        .loss = 3.25,
        .val_loss = 3.5,
        .lr = 3e-4,
        .tokens_per_second = 1410000,
        .mfu = 0.412,
        .eta_seconds = 840,
        .compute_ms = 180.5,
        .comm_ms = 1.25,
        .wait_ms = 0.25,
        .micro_batches = 12,
        .memory_bytes = 2469606195,
        .model = {"gpt2", "lm", "gpt2", 12, 12, 12, 64, 768, 3072, 1024, 50257, 124439808},
        .step_ms = {250},
        .step_ms_n = 1,
        .checkpoint = {.step = 100,
                       .wall_ms = 1000000,
                       .failures = 1,
                       .skipped = 2,
                       .stall_ms = 62.5,
                       .save_ms = 1500,
                       .path = "/c"}};
    struct text t = metrics(2);
    static const char *const lines[] = {
        "\nconvoy_step 120\n",
        "\nconvoy_steps 5000\n",
        "\nconvoy_tokens_total 123456789012\n",
        "\nconvoy_loss 3.25\n",
        "\nconvoy_step_seconds 0.25\n",
        "\nconvoy_step_p95_seconds 0.25\n",
        "\nconvoy_eta_seconds 840\n",
        "\nconvoy_uptime_seconds 12.5\n",
        "\nconvoy_checkpoint_age_seconds 60\n",
        "\nconvoy_checkpoint_failures_total 1\n",
        "\nconvoy_checkpoint_skipped_total 2\n",
        "\nconvoy_checkpoint_stall_seconds 0.0625\n",
        "\nconvoy_checkpoint_save_seconds 1.5\n",
        "\nconvoy_rank_memory_bytes{rank=\"1\"} 2469606195\n",
        "\nconvoy_rank_compute_seconds{rank=\"0\"} 0.1805\n",
        "\nconvoy_rank_micro_batches{rank=\"0\"} 12\n",
        "\nconvoy_phase{phase=\"training\"} 1\n",
        "\nconvoy_phase{phase=\"failed\"} 0\n",
        "\nconvoy_live 1\n",
        "\nconvoy_ready 1\n",
        "\nconvoy_door_full 1\n",
        "\nconvoy_check_nodes 2\n",
        "\nconvoy_door_strangers 128\n",
        "\nconvoy_door_turned_away_total 4711\n",
        "version=\"0.1 \\\"x\\\"\\\\??\"",
        "model=\"gpt2\"",
        "\nconvoy_model_parameters 124439808\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (strstr(t.data, lines[i]) == NULL)
            print_message("# missing %s", lines[i]);
        assert_non_null(strstr(t.data, lines[i]));
    }
    assert_true(check_syntax(t.data) > 40);
    text_free(&t);
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

/* Each number of the node has its metric, and docs/status.md has a row for each metric and no
 * others. */
TEST(every_metric_has_a_row)
{
    static const struct board_gpu zero;
    static const struct view_node node = {.state = "joined"};
    char mark[160];
    int heads_n = 0;
    worker = (struct board_worker){.step = 1};
    gpu = &zero;
    struct text t = metrics(1), page = {0};
    gpu = NULL;
    text_free(&t);
    view.nodes = &node;
    view.nodes_n = 1;
    view.node.phase = BOARD_PHASE_DONE;
    metrics_write(&view, &t);
    metrics_write_markdown(view.check_metrics, &page);
    for (int i = 0; i < VIEW_STATS_N; i++) {
        text_format(mark, sizeof mark, "\n# TYPE convoy_%s ", view_stat_texts[i].metric);
        if (strstr(t.data, mark) == NULL)
            fail_msg("/metrics has no convoy_%s", view_stat_texts[i].metric);
    }
    for (const char *at = t.data; (at = strstr(at, "\n# TYPE ")) != NULL; heads_n++) {
        at += strlen("\n# TYPE ");
        const int name_n = (int)strcspn(at, " "), type_n = (int)strcspn(at + name_n + 1, "\n");
        text_format(mark, sizeof mark, "\n| `%.*s` | %.*s |", name_n, at, type_n, at + name_n + 1);
        if (strstr(page.data, mark) == NULL)
            fail_msg("no '%s' in docs/status.md", mark + 1);
    }
    assert_int_equal(heads_n, count_of(page.data, "\n| `convoy_"));
    assert_non_null(strstr(page.data, "| `convoy_rank_step` | gauge | `rank` | Steps done"));
    text_free(&t);
    text_free(&page);
}

/* This node's machine, or every node's on node 0. */
TEST(machines)
{
    struct view_node nodes[2] = {{.node_id = 0, .state = "joined", .machine = {.cpu_busy = 0.5}},
                                 {.node_id = 1, .state = "lost"}};
    nodes[1].machine = machine_stats_unknown();
    struct text t = metrics(1);
    assert_non_null(strstr(t.data, "\n# TYPE convoy_machine_cpu_utilisation_ratio gauge\n"));
    assert_null(strstr(t.data, "convoy_machine_cpu_utilisation_ratio{"));
    text_free(&t);
    view.machine = (struct machine_stats){.cpu_busy = 0.25, .memory_used = 4096, .net_sent = NAN};
    metrics_write(&view, &t);
    assert_non_null(strstr(t.data, "\nconvoy_machine_cpu_utilisation_ratio{node=\"0\"} 0.25\n"));
    assert_non_null(strstr(t.data, "\nconvoy_machine_memory_used_bytes{node=\"0\"} 4096\n"));
    assert_null(strstr(t.data, "convoy_machine_net_sent_bytes_per_second{"));
    text_free(&t);
    view.nodes = nodes;
    view.nodes_n = 2;
    metrics_write(&view, &t);
    assert_non_null(strstr(t.data, "\nconvoy_machine_cpu_utilisation_ratio{node=\"0\"} 0.5\n"));
    assert_null(strstr(t.data, "convoy_machine_cpu_utilisation_ratio{node=\"1\"}"));
    text_free(&t);
}

TEST(unknown_numbers_are_left_out)
{
    struct text t = metrics(0);
    assert_null(strstr(t.data, "\nconvoy_loss "));
    assert_non_null(strstr(t.data, "# TYPE convoy_loss gauge\n"));
    assert_null(strstr(t.data, " nan"));
    assert_non_null(strstr(t.data, "\nconvoy_ready 0\n"));
    check_syntax(t.data);
    text_free(&t);
    worker = (struct board_worker){
        .loss = NAN, .grad_norm = INFINITY, .step = -1, .compute_ms = NAN, .memory_bytes = -1};
    t = metrics(1);
    assert_null(strstr(t.data, " nan"));
    assert_non_null(strstr(t.data, "\nconvoy_gradient_norm +Inf\n"));
    assert_null(strstr(t.data, "\nconvoy_rank_memory_bytes{"));
    check_syntax(t.data);
    text_free(&t);
}

TEST(many_ranks_stay_small)
{
    worker = (struct board_worker){.step = 1};
    struct text t = metrics(64);
    assert_true(t.len < 40000);
    assert_true(check_syntax(t.data) > 320);
    text_free(&t);
}

/* Each sample has the label, and what comes behind it is as without. */
TEST(the_run_is_a_label)
{
    worker = (struct board_worker){.step = 7};
    struct text plain = metrics(2);
    run = "a \"b\"";
    struct text t = metrics(2);
    run = "";
    int labels = count_of(t.data, "{run=\"a \\\"b\\\"\"");
    assert_non_null(strstr(t.data, "\nconvoy_step{run=\"a \\\"b\\\"\"} 7\n"));
    assert_non_null(strstr(t.data, "\nconvoy_rank_step{run=\"a \\\"b\\\"\",rank=\"1\"} 7\n"));
    assert_int_equal(labels, check_syntax(plain.data)); /* which cuts it into lines */
    assert_int_equal(labels, check_syntax(t.data));
    text_free(&plain);
    text_free(&t);
}

HARNESS_RUN_ALL()
