/* report — every member of GET /status, by name and type, known and unknown. */
#include "harness.h"

#include "base/board.h"
#include "base/json.h"
#include "check/check_result.h"
#include "serve/report.h"

static struct view view;
static struct board_worker worker;
static const struct board_gpu *gpu; /* of worker 0; NULL: nothing is told of one */

static void fill_worker(void)
{
    worker = (struct board_worker){.pid = 77,
                                   .rank = 0,
                                   .phase = BOARD_PHASE_TRAINING,
                                   .device = "cpu",
                                   .device_note = "DEVICE=auto uses the CPU: \"why\"",
                                   .step = 120,
                                   .steps = 5000,
                                   .epoch = 1,
                                   .tokens = 9007199254740993,
                                   .loss = 3.25,
                                   .val_loss = 3.5,
                                   .lr = 3e-4,
                                   .grad_norm = 1.02,
                                   .tokens_per_second = 1.41e6,
                                   .mfu = 0.412,
                                   .eta_seconds = 840,
                                   .compute_ms = 180.5,
                                   .comm_ms = 1.25,
                                   .wait_ms = 0.25,
                                   .micro_batches = 12,
                                   .memory_bytes = 2469606195,
                                   .model = {"gpt2",
                                             "lm",
                                             "gpt2",
                                             12,
                                             12,
                                             12,
                                             64,
                                             768,
                                             3072,
                                             1024,
                                             50257,
                                             124439808,
                                             {16, 32, "attention", 2359296, 122080512}},
                                   .checkpoint = {.step = 100,
                                                  .wall_ms = 1000000,
                                                  .failures = 2,
                                                  .skipped = 3,
                                                  .stall_ms = 72,
                                                  .save_ms = 1500,
                                                  .path = "/c/step-00000100",
                                                  .error = "disk full"},
                                   .peer_copy = {.step = 119,
                                                 .bytes = 3000000,
                                                 .ms = 2.5,
                                                 .bytes_per_second = 1.2e9,
                                                 .every = 3,
                                                 .memory_bytes = 6000000}};
    for (int i = 0; i < 100; i++)
        worker.step_ms[i] = (float)(i + 1);
    worker.step_ms_n = 100;
}

static cJSON *report(bool has_node, bool has_worker)
{
    struct board *board;
    struct text t = {0};
    cJSON *root = NULL;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    struct board_node node = {.node_id = 0,
                              .n_nodes = 1,
                              .workers_n = 1,
                              .phase = BOARD_PHASE_STARTING,
                              .run = "first try",
                              .version = "0.1.0",
                              .backend = "self",
                              .device = "cpu",
                              .mesh_data = 1,
                              .mesh_shard = 1,
                              .mesh_tensor = 1,
                              .mesh_context = 1,
                              .mesh_pipeline = 1,
                              .started_ms = 5000,
                              .restarts = 2};
    if (has_node)
        board_node_publish(board, &node);
    if (has_worker) {
        board_worker_publish(board, 0, &worker);
        board_heartbeat(board, 0);
    }
    if (gpu)
        board_gpu_publish(board, 0, gpu);
    view_copy(&view, board, 17500, 1060000, 60000);
    report_write(&view, &t);
    board_close(board);
    assert_false(t.overflow);
    assert_int_equal(t.data[t.len - 1], '\n');
    assert_int_equal(json_parse(t.data, t.len, "report", &root), ST_OK);
    text_free(&t);
    return root;
}

/* 'n' number, 's' string, 'o' object, 'a' array, '0' null; a dot enters an object, a digit an
 * array. */
static const cJSON *at(const cJSON *root, const char *path)
{
    char copy[128], *rest = copy;
    text_copy(copy, sizeof(copy), path);
    for (char *key; root != NULL && (key = strsep(&rest, ".")) != NULL;)
        root = cJSON_IsArray(root) ? cJSON_GetArrayItem(root, key[0] - '0')
                                   : cJSON_GetObjectItemCaseSensitive(root, key);
    return root;
}

static char kind(const cJSON *item)
{
    return item == NULL           ? '?'
           : cJSON_IsNumber(item) ? 'n'
           : cJSON_IsString(item) ? 's'
           : cJSON_IsObject(item) ? 'o'
           : cJSON_IsArray(item)  ? 'a'
           : cJSON_IsNull(item)   ? '0'
                                  : 'b';
}

/* The rows of docs/status.md, and what answers had for them. */
static struct row {
    char path[64], type[24];
    bool may_be_null, was_null, was_set;
} rows[256];
static int rows_n;

/* "| `path` | type | meaning | null |" */
static void read_rows(void)
{
    struct text t = {0};
    report_write_markdown(&t);
    rows_n = 0;
    for (char *rest = t.data, *line; (line = strsep(&rest, "\n")) != NULL;) {
        struct row *row = &rows[rows_n];
        *row = (struct row){.may_be_null = !text_ends(line, " |  |")};
        rows_n += sscanf(line, "| `%63[^`]` | %23[^|]", row->path, row->type) == 2;
        assert_true(rows_n < 256);
    }
    text_free(&t);
}

/* Compares the members of an answer with their rows. */
static void check_members(const cJSON *object, const char *prefix)
{
    const cJSON *item, *element;
    char path[64], below[70];
    cJSON_ArrayForEach(item, object)
    {
        int i = 0;
        const char is = kind(item);
        text_format(path, sizeof path, "%s%s", prefix, item->string);
        text_format(below, sizeof below, "%s%s.", path, is == 'a' ? "[]" : "");
        if (is == 'o')
            check_members(item, below);
        if (is == 'a')
            cJSON_ArrayForEach(element, item) check_members(element, below);
        /* Objects and arrays have no rows; these two are null without members. */
        if (strchr("oa", is) != NULL || strcmp(path, "check") == 0 || strcmp(path, "error") == 0)
            continue;
        while (i < rows_n && strcmp(rows[i].path, path) != 0)
            i++;
        if (i == rows_n)
            fail_msg("docs/status.md has no row of %s", path);
        const char *type = rows[i].type;
        const char expected = text_starts(type, "text")   ? 's'
                              : text_starts(type, "bool") ? 'b'
                                                          : 'n';
        if (is == '0' ? !rows[i].may_be_null : is != expected)
            fail_msg("%s is %c, its row has %s", path, is, type);
        rows[i].was_null = rows[i].was_null || is == '0';
        rows[i].was_set = rows[i].was_set || is != '0';
    }
}

static void check_answer(void)
{
    struct text t = {0};
    cJSON *root = NULL;
    report_write(&view, &t);
    assert_int_equal(json_parse(t.data, t.len, "report", &root), ST_OK);
    check_members(root, "");
    cJSON_Delete(root);
    text_free(&t);
}

/* Sets the results of a check with one failing row about `node`. */
static void set_check(int node, double value, struct text *json)
{
    struct check_result result = {.is_whole = true};
    struct check_row row = check_row_found(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, node, "link",
                                           CHECK_VERDICT_FAIL, "slow");
    row.peer = node;
    row.value = value;
    check_row_add(&result.rows, &row);
    text_free(json);
    check_result_json(&result, json);
    check_result_free(&result);
    view.check_json = json->data;
}

/* Each member has a row with its type, and is null only if the row says so; each row has a
 * member. */
TEST(every_member_has_a_row)
{
    static const struct board_gpu unread = {
#define GPU_STAT(field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
    };
    static struct view_peer peer = {
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
        .state = "unknown", .heard_age_ms = 5};
    static const struct view_node joined = {.address = "10.0.0.1", .state = "joined"};
    const struct view_node awaited = {
        .state = "awaited", .heartbeat_age_seconds = NAN, .machine = machine_stats_unknown()};
    struct text check = {0};
    read_rows();
    /* all is known */
    fill_worker();
    text_copy(worker.links.data, sizeof worker.links.data, "shm");
    text_copy(worker.links.tensor, sizeof worker.links.tensor, "shm");
    text_copy(worker.links.context, sizeof worker.links.context, "tcp");
    text_copy(worker.links.pipeline, sizeof worker.links.pipeline, "tcp");
    worker.error.code = 75;
    text_copy(worker.error.message, sizeof worker.error.message, "lost");
    cJSON_Delete(report(true, true));
    view.node.upload = (struct board_upload){
        .bucket = "s3://bucket/run1", .step = 100, .bytes_waiting = 7, .failures = 2, .dropped = 1};
    text_copy(view.node.upload.error, sizeof view.node.upload.error, "503 SlowDown");
    view.node.recovery_ms = 2600;
    view.phase = BOARD_PHASE_RECOVERING;
    view.node.n_nodes = 2;
    view.nodes = &joined;
    view.peers = &peer;
    view.nodes_n = view.peers_n = 1;
    view.door.is_there = true;
    view.workers[0].has_gpu = view.workers[0].has_call = true;
    text_copy(view.workers[0].call.call, sizeof view.workers[0].call.call, "barrier");
    set_check(0, 1, &check);
    check_answer();
    view.workers[0].post.model.adapter.trained = view.workers[0].post.model.adapter.frozen = -1;
    check_answer();
    /* nothing is known */
    view.first_worker = NULL;
    view.node.run[0] = view.node.backend[0] = 0;
    view.node.mesh_shard = view.node.resume_step = -1;
    view.node.recovery_ms = view.node.checkpoint_every = -1;
    view.node.upload = (struct board_upload){.step = -1};
    view.nodes = &awaited;
    view.workers[0] = (struct view_worker){.beat_age_ms = -1, .has_gpu = true, .gpu = unread};
    set_check(-1, NAN, &check);
    check_answer();
    view.check_json = NULL;
    check_answer();
    text_free(&check);
    for (int i = 0; i < rows_n; i++)
        if (!rows[i].was_set || rows[i].was_null != rows[i].may_be_null)
            fail_msg("%s: set %d, null %d", rows[i].path, rows[i].was_set, rows[i].was_null);
    assert_true(rows_n > 100);
}

TEST(values_are_right)
{
    fill_worker();
    cJSON *root = report(true, true);
    static const struct {
        const char *path;
        double value;
    } numbers[] = {{"schema", 1},
                   {"step", 120},
                   {"steps", 5000},
                   {"epoch", 1},
                   {"loss", 3.25},
                   {"val_loss", 3.5},
                   {"lr", 3e-4},
                   {"step_ms.last", 100},
                   {"step_ms.p50", 50},
                   {"step_ms.p95", 95},
                   {"mfu", 0.412},
                   {"eta_seconds", 840},
                   {"uptime_seconds", 12.5},
                   {"restarts", 2},
                   {"checkpoint.step", 100},
                   {"checkpoint.age_seconds", 60},
                   {"checkpoint.stall_seconds", 0.072},
                   {"checkpoint.save_seconds", 1.5},
                   {"checkpoint.failures", 2},
                   {"checkpoint.skipped", 3},
                   {"model.parameters", 124439808},
                   {"model.adapter.rank", 16},
                   {"model.adapter.alpha", 32},
                   {"model.adapter.trained", 2359296},
                   {"model.adapter.frozen", 122080512},
                   {"ranks.0.memory_bytes", 2469606195},
                   {"ranks.0.compute_ms", 180.5},
                   {"ranks.0.micro_batches", 12}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        assert_true(at(root, numbers[i].path)->valuedouble == numbers[i].value);
    assert_string_equal(at(root, "phase")->valuestring, "training");
    assert_string_equal(at(root, "model.task")->valuestring, "lm");
    assert_string_equal(at(root, "model.adapter.targets")->valuestring, "attention");
    assert_string_equal(at(root, "ranks.0.state")->valuestring, "training");
    assert_string_equal(at(root, "checkpoint.path")->valuestring, "/c/step-00000100");
    assert_string_equal(at(root, "device_note")->valuestring, "DEVICE=auto uses the CPU: \"why\"");
    assert_string_equal(at(root, "checkpoint.error")->valuestring, "disk full");
    cJSON_Delete(root);
    struct text t = {0};
    report_write(&view, &t);
    /* beyond 2^53, to the last digit */
    assert_non_null(strstr(t.data, "\"tokens\":9007199254740993,"));
    text_free(&t);
}

TEST(not_a_number_is_null)
{
    worker = (struct board_worker){
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
        .checkpoint = {.step = -1}};
    worker.val_loss = INFINITY;
    worker.lr = -INFINITY;
    cJSON *root = report(true, true);
    static const char *const nulls[] = {"step",
                                        "loss",
                                        "val_loss",
                                        "lr",
                                        "mfu",
                                        "eta_seconds",
                                        "step_ms.last",
                                        "checkpoint.step",
                                        "model.name",
                                        "model.layers",
                                        "ranks.0.compute_ms",
                                        "ranks.0.sent_bytes",
                                        "ranks.0.micro_batches"};
    for (size_t i = 0; i < sizeof(nulls) / sizeof(nulls[0]); i++)
        assert_int_equal(kind(at(root, nulls[i])), '0');
    cJSON_Delete(root);
}

/* A GPU's numbers are there when something tells them, else there is not even their name. */
TEST(gpu_when_told)
{
    static const struct board_gpu told = {.busy = 0.97,
                                          .memory_busy = NAN,
                                          .memory_used = 51ll << 30,
                                          .memory_total = 151ll << 30,
                                          .temperature = 63,
                                          .power = 612.5,
                                          .power_limit = NAN,
                                          .clock = 1.98e9,
                                          .memory_clock = NAN,
                                          .ecc_corrected = -1,
                                          .ecc_uncorrected = 0,
                                          .xids = 1,
                                          .xid_last = 79,
                                          .published_ms = 16500};
    fill_worker();
    text_copy(worker.device, sizeof worker.device, "cuda 0 NVIDIA H200 sm_90 driver 13.0");
    text_copy(worker.backend, sizeof worker.backend, "nccl");
    for (int has = 0; has < 2; has++) {
        gpu = has ? &told : NULL;
        cJSON *root = report(true, true),
              *rank = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "ranks"), 0);
        const cJSON *object = cJSON_GetObjectItem(rank, "gpu");
        assert_string_equal(cJSON_GetObjectItem(root, "device")->valuestring, "cuda");
        assert_string_equal(cJSON_GetObjectItem(root, "backend")->valuestring, "nccl");
        assert_int_equal(object != NULL, has);
        if (has) {
            assert_true(cJSON_GetObjectItem(object, "utilisation")->valuedouble == 0.97);
            assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "memory_utilisation")));
            assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "ecc_corrected")));
            assert_true(cJSON_GetObjectItem(object, "xid_last")->valuedouble == 79);
            assert_true(cJSON_GetObjectItem(object, "age_seconds")->valuedouble == 1);
            assert_true(cJSON_GetObjectItem(rank, "memory_bytes")->valuedouble ==
                        (double)(51ll << 30));
        }
        cJSON_Delete(root);
    }
    gpu = NULL;
}

TEST(hostile_text_stays_json)
{
    fill_worker();
    /* the longest when quoted, and no end */
    memset(worker.error.message, '\x01', sizeof(worker.error.message));
    worker.error.code = 74;
    worker.error.node = 0;
    text_copy(worker.checkpoint.path, sizeof(worker.checkpoint.path), "/a\"b\\c\xff\n</script>");
    cJSON *root = report(true, true);
    assert_int_equal(strlen(at(root, "error.message")->valuestring),
                     sizeof(worker.error.message) - 1);
    assert_int_equal(at(root, "error.code")->valueint, 74);
    assert_int_equal(kind(at(root, "error.node")), 'n');
    assert_string_equal(at(root, "checkpoint.path")->valuestring,
                        "/a\"b\\c\xEF\xBF\xBD\n</script>");
    cJSON_Delete(root);
}

/* Other nodes and their ranks, as those who meet know them; this node's ranks come first. */
TEST(peers_and_nodes)
{
    static const struct view_node nodes[] = {
        {0, "10.0.0.1", "joined", 0.5, {0.75, 4096, 8192, 1, 2, 3, 4}},
        {1, "", "awaited", NAN, {NAN, -1, -1, NAN, NAN, NAN, NAN}}};
    static const struct view_peer peers[] = {{.rank = 1,
                                              .node = 1,
                                              .device = "cpu",
                                              .state = "training",
                                              .step = 119,
                                              .compute_ms = 7,
                                              .comm_ms = NAN,
                                              .wait_ms = 2,
                                              .memory_bytes = 5,
                                              .call = "all_reduce",
                                              .call_age_ms = 4100}};
    struct text t = {0};
    cJSON *root = NULL;
    fill_worker();
    /* leaves its view, whose board is closed but not needed any more */
    cJSON_Delete(report(true, true));
    view.node.n_nodes = 2;
    view.nodes = nodes;
    view.nodes_n = 2;
    view.peers = peers;
    view.peers_n = 1;
    view.door = (struct view_door){
        .is_there = true, .is_full = true, .strangers_n = 128, .turned_away = 4711};
    view.check_json = "{\"verdict\":\"fail\",\"rows\":[{\"node\":2}]}";
    report_write(&view, &t);
    assert_int_equal(json_parse(t.data, t.len, "report", &root), ST_OK);
    view.check_json = NULL;
    assert_string_equal(at(root, "check.verdict")->valuestring, "fail");
    assert_true(at(root, "check.rows.0.node")->valuedouble == 2);
    assert_true(cJSON_IsTrue(at(root, "door.full")) &&
                at(root, "door.strangers")->valuedouble == 128 &&
                at(root, "door.turned_away")->valuedouble == 4711);
    assert_int_equal(cJSON_GetArraySize(at(root, "ranks")), 2);
    assert_true(at(root, "ranks.0.rank")->valuedouble == 0 &&
                at(root, "ranks.0.step")->valuedouble == 120);
    assert_true(at(root, "ranks.1.rank")->valuedouble == 1 &&
                at(root, "ranks.1.node")->valuedouble == 1);
    assert_true(cJSON_IsNull(at(root, "ranks.1.comm_ms")) &&
                at(root, "ranks.1.wait_ms")->valuedouble == 2);
    assert_string_equal(at(root, "ranks.1.call")->valuestring, "all_reduce");
    assert_true(at(root, "ranks.1.call_age_seconds")->valuedouble == 4.1);
    assert_true(cJSON_IsNull(at(root, "ranks.0.call")) &&
                cJSON_IsNull(at(root, "ranks.0.call_age_seconds")));
    assert_int_equal(cJSON_GetArraySize(at(root, "nodes")), 2);
    assert_string_equal(at(root, "nodes.1.state")->valuestring, "awaited");
    assert_true(cJSON_IsNull(at(root, "nodes.1.address")) &&
                cJSON_IsNull(at(root, "nodes.1.heartbeat_age_seconds")));
    assert_true(at(root, "nodes.0.heartbeat_age_seconds")->valuedouble == 0.5);
    assert_true(at(root, "nodes.0.machine.cpu_utilisation")->valuedouble == 0.75 &&
                at(root, "nodes.0.machine.memory_used_bytes")->valuedouble == 4096 &&
                cJSON_IsNull(at(root, "nodes.1.machine.cpu_utilisation")) &&
                cJSON_IsNull(at(root, "nodes.1.machine.memory_total_bytes")));
    cJSON_Delete(root);
    text_free(&t);
}

HARNESS_RUN_ALL()
