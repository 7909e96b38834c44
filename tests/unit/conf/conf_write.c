/* conf_write — every row in every form; the JSON is valid whatever a value holds. */
#include "harness.h"

#include "base/json.h"
#include "conf/conf.h"
#include "conf/conf_row.h"

/* Settings are in every form; hooks are in their own table, and where the values of a run are shown
 * if they are set. */
TEST(forms_name_every_row)
{
    struct conf *conf = NULL;
    char *words[] = {"PROMPT=say \"hi\"\n", "LR=1e-3", "STEP_TIMEOUT=90s", "DATA=a\xff",
                     "SEED=9007199254740991"};
    char *environment[] = {"NODE_RANK=0", "STEPS=12", "FAULT=nan@step=3", NULL};
    assert_int_equal(conf_open(5, words, environment, &conf), ST_OK);
    struct text table = {0}, json = {0}, help = {0}, markdown = {0}, hooks = {0};
    conf_write_table(conf, &table);
    conf_write_json(conf, &json);
    conf_write_help(&help, false);
    conf_write_markdown(&markdown);
    conf_write_hooks_markdown(&hooks);
    cJSON *root = NULL;
    assert_int_equal(json_parse(json.data, json.len, "config", &root), ST_OK);
    for (int key = 0; key < CONF_N; key++) {
        char cell[64];
        struct text one = {0};
        assert_true(conf_write_setting(conf_rows[key].name, &one));
        assert_non_null(strstr(one.data, conf_rows[key].help));
        text_free(&one);
        text_format(cell, sizeof cell, "| `%s` |", conf_rows[key].name);
        const bool is_setting = key < CONF_SETTINGS_N;
        assert_int_equal(strstr(markdown.data, cell) != NULL, is_setting);
        assert_int_equal(strstr(hooks.data, cell) != NULL, !is_setting);
        text_format(cell, sizeof cell, "\n  %s ", conf_rows[key].name);
        assert_int_equal(strstr(help.data, cell) != NULL, is_setting);
        text_format(cell, sizeof cell, "\n%s ", conf_rows[key].name);
        const bool is_there = is_setting || key == CONF_FAULT; /* the hook that is set */
        assert_int_equal(strstr(table.data, cell) != NULL, is_there);
        assert_int_equal(cJSON_HasObjectItem(root, conf_rows[key].name), is_there);
    }
    const cJSON *lr = cJSON_GetObjectItem(root, "LR"), *node = cJSON_GetObjectItem(root, "NODE_ID");
    assert_true(cJSON_GetObjectItem(lr, "value")->valuedouble == 1e-3);
    assert_string_equal(cJSON_GetObjectItem(lr, "origin")->valuestring, "argument");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(lr, "agree")));
    assert_string_equal(cJSON_GetObjectItem(node, "origin")->valuestring, "scheduler");
    assert_string_equal(cJSON_GetObjectItem(node, "source")->valuestring, "NODE_RANK");
    assert_true(
        cJSON_GetObjectItem(cJSON_GetObjectItem(root, "STEP_TIMEOUT"), "value")->valuedouble == 90);
    assert_true(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "SEED"), "value")->valuedouble ==
                9007199254740991.0);
    assert_string_equal(
        cJSON_GetObjectItem(cJSON_GetObjectItem(root, "PROMPT"), "value")->valuestring,
        "say \"hi\"\n");
    for (const char *line = help.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        assert_true(end - line <= 100);
    assert_null(strchr(help.data, '\033'));
    assert_null(strstr(help.data, "…\n")); /* no text is cut */
    struct text bold = {0};
    conf_write_help(&bold, true);
    assert_non_null(strstr(bold.data, "\033[1m"));
    assert_false(conf_write_setting("NO_SUCH", &bold));
    assert_true(conf_write_setting("batch_size", &bold));
    cJSON_Delete(root);
    text_free(&bold);
    text_free(&table);
    text_free(&json);
    text_free(&help);
    text_free(&markdown);
    text_free(&hooks);
    conf_close(conf);
}

TEST(json_is_utf8)
{
    struct conf *conf = NULL;
    struct text json = {0};
    assert_int_equal(conf_open(1, (char *[]){"DATA=a\xff\xfe"}, (char *[]){NULL}, &conf), ST_OK);
    conf_write_json(conf, &json);
    assert_null(strchr(json.data, '\xff'));
    assert_non_null(strstr(json.data, "\"a\xef\xbf\xbd"));
    text_free(&json);
    conf_close(conf);
}

HARNESS_RUN_ALL()
