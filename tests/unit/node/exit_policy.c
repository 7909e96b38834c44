/* exit_policy — every end of a worker: status, restart or not, and what the sentence names. */
#include "harness.h"

#include "node/process/exit_policy.h"

#define EXITED(code) ((code) << 8) /* as waitpid packs it */
#define KILLED(signal_n) (signal_n)

static struct exit_policy_decision judge(int wait_status, const char *message)
{
    struct exit_policy_facts facts = {.wait_status = wait_status,
                                      .pid = 7,
                                      .rank = 0,
                                      .phase = BOARD_PHASE_TRAINING,
                                      .step = 12,
                                      .message = message};
    struct exit_policy_decision out;
    exit_policy_classify(&facts, &out);
    return out;
}

TEST(test_exit_codes)
{
    static const struct {
        int code;
        enum status st;
        bool may_restart;
    } rows[] = {
        {0, ST_OK, false},           {64, ST_USAGE, false},     {65, ST_BAD_DATA, false},
        {66, ST_NO_INPUT, false},    {69, ST_NO_DEVICE, false}, {70, ST_BUG, true},
        {74, ST_STORE, false},       {75, ST_RETRY, true},      {78, ST_BAD_SETTING, false},
        {79, ST_NOT_FINITE, true},   {81, ST_HANG, true},       {130, ST_INTERRUPTED, false},
        {143, ST_TERMINATED, false}, {127, ST_BUG, true},       {1, ST_BUG, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exit_policy_decision v = judge(EXITED(rows[i].code), "");
        assert_int_equal(v.st, rows[i].st);
        assert_int_equal(v.may_restart, rows[i].may_restart);
    }
    /* 1 is the worker's own only with a sentence: a check that failed */
    struct exit_policy_decision checked = judge(EXITED(1), "the check failed: node 1: memlock");
    assert_int_equal(checked.st, ST_UNHEALTHY);
    assert_false(checked.may_restart);
    assert_string_equal(checked.text, "the check failed: node 1: memlock");
}

TEST(test_signals)
{
    static const int bugs[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++)
        assert_int_equal(judge(KILLED(bugs[i]), "").st, ST_BUG);
    struct exit_policy_decision v = judge(KILLED(SIGKILL), "");
    assert_int_equal(v.st, ST_RETRY);
    assert_true(v.may_restart);
    assert_non_null(strstr(
        v.text, "worker rank 0 (pid 7) was killed by SIGKILL after step 12, phase training"));
    assert_non_null(strstr(v.text, "a guess"));
    struct exit_policy_facts facts = {.wait_status = KILLED(SIGKILL),
                                      .pid = 7,
                                      .rank = 2,
                                      .place = "stage 1, tensor 0",
                                      .step = 12,
                                      .message = ""};
    exit_policy_classify(&facts, &v);
    assert_non_null(
        strstr(v.text, "worker rank 2 (stage 1, tensor 0; pid 7) was killed by SIGKILL"));
    assert_int_equal(judge(KILLED(SIGHUP), "").st, ST_RETRY);
    assert_null(strstr(judge(KILLED(SIGHUP), "").text, "guess"));
}

TEST(test_words)
{
    /* A mistake of the user is reported in the worker's own words; a failure that may heal gets
     * rank, exit code and step. */
    assert_string_equal(judge(EXITED(78), "HEADS=3 does not divide").text,
                        "HEADS=3 does not divide");
    assert_non_null(strstr(judge(EXITED(79), "loss nan").text,
                           "exit code 79 after step 12, phase training: loss nan"));
    assert_non_null(strstr(judge(EXITED(70), "").text, "a bug"));
    char long_message[1024];
    memset(long_message, 'x', sizeof long_message - 1);
    long_message[sizeof long_message - 1] = 0;
    assert_true(strlen(judge(EXITED(79), long_message).text) > 1023);
}

TEST(test_hang)
{
    struct exit_policy_facts facts = {.wait_status = KILLED(SIGKILL),
                                      .was_hung = true,
                                      .silent_ms = 61500,
                                      .process_state = 'T',
                                      .pid = 7,
                                      .step = -1,
                                      .message = ""};
    struct exit_policy_decision v;
    exit_policy_classify(&facts, &v);
    assert_int_equal(v.st, ST_HANG);
    assert_true(v.may_restart);
    assert_non_null(strstr(v.text, "61.5 s before it published anything"));
    assert_non_null(strstr(v.text, "stopped (SIGSTOP"));
    assert_null(strstr(v.text, "STEP_TIMEOUT")); /* no setting helps */
    facts.process_state = 'D';
    exit_policy_classify(&facts, &v);
    assert_non_null(strstr(v.text, "waiting for a disk or network file system (see `dmesg`); if "
                                   "that is really so slow, set STEP_TIMEOUT"));
    facts.process_state = 'R';
    exit_policy_classify(&facts, &v);
    assert_non_null(
        strstr(v.text, "anything; if its steps are really that slow, set STEP_TIMEOUT higher"));
}

TEST(test_signal_names)
{
    char out[32];
    assert_string_equal(exit_policy_signal_name(out, sizeof out, SIGKILL), "SIGKILL");
    assert_string_equal(exit_policy_signal_name(out, sizeof out, 250), "signal 250");
}

TEST(test_kept)
{
    char out[96];
    struct board_worker last = {.checkpoint = {.step = -1}};
    assert_string_equal(exit_policy_resume_hint(false, NULL, out, sizeof out),
                        "nothing was saved, because CHECKPOINT_DIR is not set");
    assert_string_equal(exit_policy_resume_hint(false, &last, out, sizeof out),
                        "nothing was saved, because CHECKPOINT_DIR is not set");
    assert_string_equal(exit_policy_resume_hint(true, NULL, out, sizeof out),
                        "an earlier checkpoint, if there is one, is intact");
    assert_string_equal(exit_policy_resume_hint(true, &last, out, sizeof out),
                        "an earlier checkpoint, if there is one, is intact");
    snprintf(last.checkpoint.path, sizeof last.checkpoint.path, "ck/step-40");
    assert_string_equal(exit_policy_resume_hint(true, &last, out, sizeof out),
                        "an earlier checkpoint, if there is one, is intact");
    last.checkpoint.step = 40;
    assert_string_equal(exit_policy_resume_hint(true, &last, out, sizeof out),
                        "the same command goes on from the checkpoint of step 40");
}

HARNESS_RUN_ALL()
