/* stored_runs — runs are read from their folders as they were kept, or refused with a reason;
 * nothing outside a folder is read. */
#include "harness.h"

#include "base/board.h"
#include "base/json.h"
#include "serve/archive.h"
#include "serve/history.h"
#include "serve/route.h"
#include "serve/stored_runs.h"

static struct view view;
static struct history history;
static struct stored_runs *runs;
static char dir[600], other[600], file[700];

/* What a run of two steps that failed would keep. */
static void write_kept(struct text *out)
{
    static struct board_worker worker;
    struct board *board;
    struct board_node node = {.n_nodes = 1,
                              .workers_n = 1,
                              .phase = BOARD_PHASE_TRAINING,
                              .run = "a <b>",
                              .started_ms = 1000,
                              .checkpoint = {.step = -1},
                              .peer_copy = {.step = -1}};
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    worker = (struct board_worker){.phase = BOARD_PHASE_TRAINING,
                                   .steps = 9,
                                   .loss = 2.5,
                                   .val_loss = NAN,
                                   .checkpoint = {.step = -1}};
    memset(&history, 0, sizeof(history));
    for (int i = 0; i < 2; i++) {
        worker.step = worker.step_ms_n = i + 1;
        board_node_publish(board, &node);
        board_worker_publish(board, 0, &worker);
        view_copy(&view, board, 1000 + 1000 * i, 1060000, 60000);
        history_observe(&history, &view);
    }
    history_sample(&history, &view, 2, "once");
    node.phase = BOARD_PHASE_FAILED;
    node.error = (struct board_error){.code = 79, .message = "step 3: loss nan"};
    board_node_publish(board, &node);
    view_copy(&view, board, 3000, 1060000, 60000);
    history_observe(&history, &view);
    view.history = &history;
    view.settings = "{\"settings\":[{\"name\":\"LR\",\"value\":\"1\",\"source\":\"argument\"}]}\n";
    stored_runs_write(&view, out);
    board_close(board);
}

static void put(const void *bytes, size_t n)
{
    assert_int_equal(file_replace(file, bytes, n), ST_OK);
}

static int fresh(void **state)
{
    struct text kept = {0};
    text_format(dir, sizeof(dir), "%s/run", harness_tmpdir());
    text_format(other, sizeof(other), "%s/other", harness_tmpdir());
    text_format(file, sizeof(file), "%s/history.json", dir);
    if (file_remove_tree(dir) != ST_OK || file_make_dirs(dir) != ST_OK ||
        file_remove_tree(other) != ST_OK || file_make_dirs(other) != ST_OK)
        return -1;
    write_kept(&kept);
    put(kept.data, kept.len);
    text_free(&kept);
    return 0;
}

static enum status open_dirs(int n, char *const *dirs)
{
    runs = NULL;
    return stored_runs_open(dirs, n, &runs);
}
static enum status open_one(void) { return open_dirs(1, (char *[]){dir}); }

/* The answer to a path, parsed; NULL: not JSON. */
static cJSON *ask(const char *path, int code)
{
    struct route_answer answer;
    cJSON *root = NULL;
    const char *rest = stored_runs_view(runs, path, &view);
    route_answer(rest, true, false, &view, &answer);
    if (answer.code != code)
        print_message("# %s: %d\n", path, answer.code);
    assert_int_equal(answer.code, code);
    if (strstr(answer.content_type, "json") != NULL)
        assert_int_equal(json_parse(answer.body.data, answer.body.len, path, &root), ST_OK);
    route_free(&answer);
    return root;
}

TEST_WITH(a_run_is_shown_as_it_was_kept, fresh, NULL)
{
    assert_int_equal(open_one(), ST_OK);
    cJSON *root = ask("/status", 200);
    assert_string_equal(json_text(root, "phase"), "failed");
    assert_string_equal(json_text(root, "run"), "a <b>");
    assert_true(json_number(root, "recorded") == 1060 && json_number(root, "step") == 2);
    const cJSON *error = cJSON_GetObjectItem(root, "error");
    assert_true(json_number(error, "code") == 79);
    assert_string_equal(json_text(error, "message"), "step 3: loss nan");
    cJSON_Delete(root);
    root = ask("/history", 200);
    assert_int_equal(
        cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "points"), "loss")), 3);
    assert_null(cJSON_GetObjectItem(root, "record")); /* only in the file */
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "samples")), 1);
    cJSON_Delete(root);
    root = ask("/settings", 200);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "settings")), 1);
    cJSON_Delete(root);
    cJSON_Delete(ask("/livez", 200));
    cJSON_Delete(ask("/readyz", 503));
    cJSON_Delete(ask("/log", 200));
    cJSON_Delete(ask("/", 200));
    cJSON_Delete(ask("/metrics", 200));
    stored_runs_close(runs);
}

TEST_WITH(each_run_has_its_paths, fresh, NULL)
{
    char path[700];
    struct text kept = {0};
    write_kept(&kept);
    text_format(path, sizeof(path), "%s/history.json", other);
    memcpy(strstr(kept.data, "\"run\":\"a <b>\""), "\"run\":\"other\"", 13);
    assert_int_equal(file_replace(path, kept.data, kept.len), ST_OK);
    text_free(&kept);
    assert_int_equal(open_dirs(2, (char *[]){dir, other}), ST_OK);
    cJSON *root = ask("/runs", 200);
    const cJSON *list = cJSON_GetObjectItem(root, "runs");
    assert_int_equal(cJSON_GetArraySize(list), 2);
    assert_string_equal(json_text(cJSON_GetArrayItem(list, 1), "folder"), other);
    assert_string_equal(json_text(cJSON_GetArrayItem(list, 1), "path"), "/runs/1");
    cJSON_Delete(root);
    root = ask("/runs/0/status", 200);
    assert_string_equal(json_text(root, "run"), "a <b>");
    cJSON_Delete(root);
    root = ask("/runs/1/status", 200);
    assert_string_equal(json_text(root, "run"), "other");
    cJSON_Delete(root);
    cJSON_Delete(ask("/runs/1/history", 200));
    static const char *const wrong[] = {"/runs/2/status",
                                        "/runs/-1/status",
                                        "/runs/01x/status",
                                        "/runs/1",
                                        "/runs//status",
                                        "/runs/1/nope",
                                        "/runs/99999999999999999999/status",
                                        "/runs/0/../status"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cJSON_Delete(ask(wrong[i], 404));
    stored_runs_close(runs);
}

static void refused(enum status st, const char *why)
{
    const enum status got = open_one();
    if (got != st || strstr(status_message(), why) == NULL)
        print_message("# %s: %s\n", status_name(got), status_message());
    assert_int_equal(got, st);
    assert_non_null(strstr(status_message(), why));
}

TEST_WITH(what_is_no_run_is_refused, fresh, NULL)
{
    static char big[ARCHIVE_BYTES_MAX + 1];
    struct text kept = {0};
    write_kept(&kept);
    for (size_t n = 0; n + 2 < kept.len; n += 1 + n % 97) { /* every truncation */
        put(kept.data, n);
        assert_int_equal(open_one(), ST_BAD_DATA);
    }
    text_free(&kept);
    memset(big, ' ', sizeof(big));
    put(big, sizeof(big));
    refused(ST_BAD_DATA, "bytes, and a run's has");
    put("[1]", 3);
    refused(ST_BAD_DATA, "damaged or not a run's");
    assert_int_equal(remove(file), 0);
    refused(ST_NO_INPUT, "is not the folder of a run");
    assert_int_equal(mkdir(file, 0700), 0);
    refused(ST_NO_INPUT, "not a regular file");
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    refused(ST_NO_INPUT, "not a regular file");
    assert_int_equal(remove(file), 0);
    assert_int_equal(symlink("/etc/passwd", file), 0);
    refused(ST_NO_INPUT, "it is a symbolic link");
    assert_int_equal(file_remove_tree(dir), ST_OK);
    refused(ST_NO_INPUT, "cannot open the folder");
    char *many[STORED_RUNS_MAX + 1];
    for (int i = 0; i <= STORED_RUNS_MAX; i++)
        many[i] = dir;
    assert_int_equal(open_dirs(STORED_RUNS_MAX + 1, many), ST_USAGE);
}

TEST_WITH(without_permission, fresh, NULL)
{
    const uid_t user = geteuid();
    assert_int_equal(chmod(harness_tmpdir(), 0755), 0);
    assert_int_equal(chmod(file, 0), 0);
    if (user == 0) /* who reads every file */
        assert_int_equal(seteuid(65534), 0);
    refused(ST_NO_INPUT, "Permission denied");
    assert_int_equal(seteuid(user), 0);
}

/* A record that no run has written costs the record, not the curves. */
TEST_WITH(a_damaged_record_leaves_the_curves, fresh, NULL)
{
    static const struct {
        const char *from, *to;
    } changes[] = {{"\"written\":1060.000", "\"written\":\"soon\""},
                   {"\"ranks\":[", "\"ranks\":7,\"x\":["},
                   {"\"nodes\":[{", "\"nodes\":[3,{"},
                   {"\"checkpoint\":{", "\"checkpoint\":null,\"x\":{"},
                   {"\"phase\":\"failed\",\"node_id\"", "\"phase\":{},\"node_id\""},
                   {"\"settings\":{\"settings\":[", "\"settings\":{\"settings\":[{},"},
                   {"\"record\":{", "\"record\":[],\"y\":{"}};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct text kept = {0}, changed = {0};
        write_kept(&kept);
        char *at = strstr(kept.data, changes[i].from);
        if (at == NULL)
            fail_msg("%s is not in %s", changes[i].from, kept.data);
        text_add_bytes(&changed, kept.data, (size_t)(at - kept.data));
        text_add(&changed, "%s%s", changes[i].to, at + strlen(changes[i].from));
        put(changed.data, changed.len);
        text_free(&kept);
        text_free(&changed);
        assert_int_equal(open_one(), ST_OK);
        cJSON *root = ask("/status", 200);
        assert_string_equal(json_text(root, "phase"), "failed"); /* from the events */
        assert_true(json_number(root, "loss") == 2.5 && json_number(root, "step") == 2);
        cJSON_Delete(root);
        cJSON_Delete(ask("/log", 200));
        stored_runs_close(runs);
    }
}

TEST_WITH(a_file_that_changes_is_read_again, fresh, NULL)
{
    struct text kept = {0};
    assert_int_equal(open_one(), ST_OK);
    put("{", 1); /* damaged: what was read before stays */
    cJSON *root = ask("/status", 200);
    assert_string_equal(json_text(root, "phase"), "failed");
    cJSON_Delete(root);
    assert_int_equal(remove(file), 0);
    cJSON_Delete(ask("/status", 200));
    write_kept(&kept);
    memcpy(strstr(kept.data, "\"phase\":\"failed\",\"node_id\""), "\"phase\":\"joined\"", 16);
    put(kept.data, kept.len);
    text_free(&kept);
    root = ask("/status", 200);
    assert_string_equal(json_text(root, "phase"), "joined");
    cJSON_Delete(root);
    stored_runs_close(runs);
}

HARNESS_RUN_ALL()
