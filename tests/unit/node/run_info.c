/* run_info: settings that differ from their defaults, without secrets; log lines; the file of the
 * curves. */
#include "harness.h"

#include "base/log.h"
#include "node/supervisor/inside.h"

static char *nothing[] = {NULL};

static void no_secret_is_shown(void **state)
{
    struct conf *conf;
    struct supervisor_info *info;
    struct log_tail_line line;
    uint64_t seen = 0;
    char *words[] = {"DATA=https://me:pass,word@host/a.bin?sig=abc,b.bin", "CHECKPOINT_DIR=ck",
                     "N_NODES=2", "STEPS=7", "LR=3e-4"};
    char *environment[] = {"JOB_TOKEN=a-very-secret-token-of-tests", NULL};
    assert_int_equal(conf_open(5, words, environment, &conf), ST_OK);
    info = supervisor_open_info(conf);
    assert_string_equal(
        info->settings.data,
        "{\"settings\":[{\"name\":\"DATA\",\"value\":\"https://***@host/"
        "a.bin?***\",\"source\":\"argument\"},{\"name\":\"STEPS\",\"value\":\"7\",\"source\":"
        "\"argument\"},{\"name\":\"CHECKPOINT_DIR\",\"value\":\"ck\",\"source\":\"argument\"},{"
        "\"name\":\"N_NODES\",\"value\":\"2\",\"source\":\"argument\"}]}\n");
    assert_string_equal(info->archive, "ck/history.json");
    LOG_ERROR("cannot fetch https://me:secret@host/a?key=b; try again\nlater");
    assert_true(log_tail_next(&info->tail, &seen, &line));
    assert_string_equal(line.text,
                        "error run_info  cannot fetch https://***@host/a?*** try again later");
    supervisor_close_info(info);
    LOG_ERROR("this goes nowhere");
    conf_close(conf);
}

static void other_nodes_keep_no_curves(void **state)
{
    struct conf *conf;
    struct supervisor_info *info;
    char *words[] = {"CHECKPOINT_DIR=ck", "N_NODES=2", "NODE_ID=1", "MASTER_ADDR=10.0.0.1"};
    assert_int_equal(conf_open(4, words, nothing, &conf), ST_OK);
    info = supervisor_open_info(conf);
    assert_string_equal(info->archive, "");
    supervisor_close_info(info);
    supervisor_close_info(NULL);
    conf_close(conf);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_secret_is_shown),
    cmocka_unit_test(other_nodes_keep_no_curves),
};
HARNESS_MAIN(tests)
