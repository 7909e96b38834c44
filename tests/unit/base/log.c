/* log: the form of a line, text and JSON; filters; hostile messages; one write a line. */
#define HARNESS_LOUD /* what is logged is the matter here */
#include "harness.h"

#include <cjson/cJSON.h>

/* What fn writes to stdout and stderr together, from a child (log_init is for a process's
 * start). */
static void catch (void (*fn)(void *arg), char *out, size_t cap)
{
    assert_int_equal(harness_output_of(fn, NULL, true, out, cap), 0);
}

static void assert_after_time(const char *line, const char *rest)
{
    /* 2026-01-31T12:00:00.123Z */
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; form[i] != 0; i++)
        assert_true(form[i] == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i]);
    assert_string_equal(line + strlen(form), rest);
}

static void plain_line(void *arg)
{
    (void)arg;
    log_at(LOG_LEVEL_INFO, "src/train/trainer/trainer.c", "resumed step %d path %s", 100, "/x");
}
static void line_with_rank(void *arg)
{
    (void)arg;
    log_init(&(struct log_config){.level = LOG_LEVEL_WARN, .node_id = 0, .rank = 3});
    LOG_INFO("too talkative");
    LOG_DEBUG("much %d", 1);
    log_at(LOG_LEVEL_ERROR, "corpus.c", "end");
}

TEST(text_lines)
{
    char out[4096];
    catch (plain_line, out, sizeof(out));
    assert_after_time(out, "info  trainer  resumed step 100 path /x\n");
    catch (line_with_rank, out, sizeof(out));
    assert_after_time(out, "error node 0 rank 3 corpus  end\n");
}

static void hostile_line(void *arg)
{
    (void)arg;
    LOG_WARN("%s", "a\nfake info line\r\x1b[31mred\x7f\tend");
}

TEST(a_message_is_one_line)
{
    char out[4096];
    catch (hostile_line, out, sizeof(out));
    assert_after_time(out, "warn  base/log  a fake info line  [31mred  end\n");
}

static void long_line(void *arg)
{
    (void)arg;
    char big[5000];
    memset(big, 'q', sizeof(big));
    big[sizeof(big) - 1] = 0;
    LOG_INFO("%s", big);
}

TEST(long_messages_are_cut)
{
    char out[8192];
    catch (long_line, out, sizeof(out));
    assert_in_range(strlen(out), 2000, 2200);
    assert_string_equal(out + strlen(out) - 6, "qq…\n");
}

static void json_lines(void *arg)
{
    (void)arg;
    log_init(
        &(struct log_config){.level = LOG_LEVEL_TRACE, .json = true, .node_id = 2, .rank = -1});
    LOG_TRACE("quote \" back \\ line\n bad \xff\xc3 é %c", 1);
    log_console("step %d", 5);
    log_console("\rprogress");
    char big[5000];
    memset(big, 1, sizeof(big)); /* each byte becomes six */
    big[sizeof(big) - 1] = 0;
    LOG_INFO("%s", big);
}

TEST(json_is_json)
{
    static char out[32768];
    static const char *const messages[] = {
        "quote \" back \\ line\n bad \xEF\xBF\xBD\xEF\xBF\xBD é \x01", "step 5", NULL};
    static const char *const levels[] = {"trace", "info", "info"}, *const rooms[] = {"base/log",
                                                                                     "console",
                                                                                     "base/log"};
    catch (json_lines, out, sizeof(out));
    char *rest = out, *line;
    for (int i = 0; i < 3; i++) {
        line = strsep(&rest, "\n");
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        assert_int_equal(cJSON_GetArraySize(object), 5); /* time level node room message; no rank */
        assert_string_equal(cJSON_GetObjectItem(object, "level")->valuestring, levels[i]);
        assert_string_equal(cJSON_GetObjectItem(object, "module")->valuestring, rooms[i]);
        assert_int_equal(cJSON_GetObjectItem(object, "node")->valueint, 2);
        assert_int_equal(strlen(cJSON_GetObjectItem(object, "time")->valuestring), 24);
        if (messages[i] != NULL)
            assert_string_equal(cJSON_GetObjectItem(object, "message")->valuestring, messages[i]);
        cJSON_Delete(object);
    }
    assert_string_equal(rest, "");
}

static void number_lines(void *arg)
{
    (void)arg;
    const struct log_number numbers[] = {{"loss", 0.5}, {"mfu", NAN}};
    log_init(&(struct log_config){
        .level = LOG_LEVEL_INFO, .json = true, .node_id = -1, .rank = -1, .run = "a \"b\""});
    log_numbers("step 1/2", numbers, 2, "step 1/2  loss 0.5");
    log_init(&(struct log_config){.level = LOG_LEVEL_INFO, .node_id = -1, .rank = -1});
    log_numbers("step 1/2", numbers, 2, "step 1/2  loss %.1f", 0.5);
}

TEST(numbers_are_members)
{
    char out[4096], *rest = out;
    catch (number_lines, out, sizeof(out));
    cJSON *object = cJSON_Parse(strsep(&rest, "\n"));
    assert_non_null(object);
    assert_string_equal(cJSON_GetObjectItem(object, "message")->valuestring, "step 1/2");
    assert_string_equal(cJSON_GetObjectItem(object, "run")->valuestring, "a \"b\"");
    assert_true(cJSON_GetObjectItem(object, "loss")->valuedouble == 0.5);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "mfu")));
    cJSON_Delete(object);
    assert_string_equal(rest, "step 1/2  loss 0.5\n");
}

static void console_lines(void *arg)
{
    (void)arg;
    log_console("step %d/%d", 1, 2);
    log_console("with end\n");
    log_console("\r[###  ]");
    log_console("%s", "");
    log_set_quiet(true);
    log_console("of a thread that is quiet");
    log_set_quiet(false);
}

TEST(the_console_is_plain)
{
    char out[4096];
    catch (console_lines, out, sizeof(out));
    assert_string_equal(out, "step 1/2\nwith end\n\r[###  ]\n");
}

TEST(errno_is_kept)
{
    assert_false(log_is_on(LOG_LEVEL_DEBUG));
    int out = dup(STDERR_FILENO);
    close(STDERR_FILENO); /* writing fails with EBADF, which is nobody's business */
    errno = ENOSPC;
    LOG_INFO("unheard");
    int kept = errno;
    dup2(out, STDERR_FILENO);
    close(out);
    assert_int_equal(kept, ENOSPC);
}

/* Many processes write to one pipe; whole lines come out. */
static void many_writers(void *arg)
{
    (void)arg;
    for (int w = 0; w < 4; w++) {
        if (fork() == 0) {
            for (int i = 0; i < 200; i++)
                LOG_INFO("writer %d says the very same words again and again in line %d end", w, i);
            _exit(0);
        }
    }
    for (int w = 0; w < 4; w++)
        wait(NULL);
}

TEST(lines_do_not_mix)
{
    static char out[1 << 18];
    catch (many_writers, out, sizeof(out));
    int lines_n = 0;
    char *rest = out;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != 0; lines_n++) {
        int w, i, end = 0;
        assert_int_equal(
            sscanf(
                line + 25,
                "info base/log writer %d says the very same words again and again in line %d end%n",
                &w, &i, &end),
            2);
        assert_int_equal(line[25 + end], 0);
    }
    assert_int_equal(lines_n, 800);
}

HARNESS_RUN_ALL()
