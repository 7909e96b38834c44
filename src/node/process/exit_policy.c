/* exit_policy — see exit_policy.h. */
#include "node/process/exit_policy.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/text.h"

const char *exit_policy_signal_name(char *out, size_t cap, int signal_n)
{
    const char *name = sigabbrev_np(signal_n);
    if (name)
        text_format(out, cap, "SIG%s", name);
    else
        text_format(out, cap, "signal %d", signal_n);
    return out;
}

static bool is_crash(int signal_n)
{
    return signal_n == SIGSEGV || signal_n == SIGABRT || signal_n == SIGBUS || signal_n == SIGILL ||
           signal_n == SIGFPE || signal_n == SIGSYS;
}

static bool may_restart(enum status st)
{
    enum status_group group = status_group(st);
    if (group == STATUS_GROUP_NONE || group == STATUS_GROUP_REQUEST ||
        group == STATUS_GROUP_STORE || group == STATUS_GROUP_STOP)
        return false;
    return st != ST_NO_DEVICE;
}

static void of_exit(const struct exit_policy_facts *facts, const char *worker, const char *moment,
                    struct exit_policy_decision *out)
{
    int code = WEXITSTATUS(facts->wait_status);
    out->st = status_from_exit(code);
    /* without a message from the worker, a sanitizer or the loader failed */
    if (out->st == ST_UNHEALTHY && !facts->message[0])
        out->st = ST_BUG;
    if (out->st == ST_OK)
        text_format(out->text, sizeof out->text, "%s finished", worker);
    else if (facts->message[0] && !may_restart(out->st))
        /* this message already names the setting that the user must change */
        text_copy(out->text, sizeof out->text, facts->message);
    else if (facts->message[0])
        text_format(out->text, sizeof out->text, "%s ended with exit code %d %s: %s", worker, code,
                    moment, facts->message);
    else
        text_format(out->text, sizeof out->text, "%s ended with exit code %d %s (%s)", worker, code,
                    moment, status_text(out->st));
}

void exit_policy_classify(const struct exit_policy_facts *facts, struct exit_policy_decision *out)
{
    char worker[128], moment[96];
    /* "worker rank 2 (stage 1, tensor 0; pid 71)" and "at step 12, phase training". */
    const bool has_place = facts->place && facts->place[0];
    text_format(worker, sizeof worker, "worker rank %d (%s%spid %d)", facts->rank,
                has_place ? facts->place : "", has_place ? "; " : "", facts->pid);
    if (facts->step >= 0)
        text_format(moment, sizeof moment, "after step %lld, phase %s", (long long)facts->step,
                    board_phase_text(facts->phase));
    else
        text_format(moment, sizeof moment, "before it published anything");
    memset(out, 0, sizeof *out);
    if (facts->was_hung) {
        const char *state = "if its steps are really that slow, set STEP_TIMEOUT higher";
        if (facts->process_state == 'T' || facts->process_state == 't')
            state = "the process was stopped (SIGSTOP or a debugger)";
        else if (facts->process_state == 'D')
            state =
                "the process was waiting for a disk or network file system (see `dmesg`); if that "
                "is really so slow, set STEP_TIMEOUT higher";
        out->st = ST_HANG;
        text_format(out->text, sizeof out->text, "%s hung: no sign of progress for %.1f s %s; %s",
                    worker, (double)facts->silent_ms / 1000, moment, state);
    } else if (WIFSIGNALED(facts->wait_status)) {
        int signal_n = WTERMSIG(facts->wait_status);
        char name[32];
        exit_policy_signal_name(name, sizeof name, signal_n);
        out->st = is_crash(signal_n) ? ST_BUG : ST_RETRY;
        const char *hint = "";
        if (is_crash(signal_n))
            hint = "; this is a bug: please report it with the crash report above";
        else if (signal_n == SIGKILL)
            hint =
                "; a guess: the kernel's out-of-memory killer (see `dmesg`); a smaller BATCH_SIZE "
                "or SEQ_LEN, or RECOMPUTE=block, needs less";
        text_format(out->text, sizeof out->text, "%s was killed by %s %s%s", worker, name, moment,
                    hint);
    } else
        of_exit(facts, worker, moment, out);
    out->may_restart = may_restart(out->st);
}

const char *exit_policy_resume_hint(bool has_dir, const struct board_worker *last, char *out,
                                    size_t cap)
{
    if (!has_dir)
        text_copy(out, cap, "nothing was saved, because CHECKPOINT_DIR is not set");
    else if (last && last->checkpoint.path[0] && last->checkpoint.step >= 0)
        text_format(out, cap, "the same command goes on from the checkpoint of step %lld",
                    (long long)last->checkpoint.step);
    else
        text_copy(out, cap, "an earlier checkpoint, if there is one, is intact");
    return out;
}
