/* console — see console.h. */
#include "train/trainer/console.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define BAR_MAX 30
#define BAR_MIN 8
#define REDRAW_MS 100
#define TERMINAL_LINES 10 /* lines per run that stay on a terminal, to show how the loss falls */
#define PIPE_LINES 100    /* lines per run elsewhere */
#define MINUTE_MS (60 * 1000)
/* a loss this many times the last one, plus JUMP_NATS, always gets a line */
#define JUMP 1.5
#define JUMP_NATS 0.5

static void add_speed(struct text *t, const struct console_step *now, bool has_mfu)
{
    char word[32];
    if (isfinite(now->tokens_per_second))
        text_add(t, "  %s tok/s", text_format_count(word, sizeof word, now->tokens_per_second));
    if (has_mfu && isfinite(now->mfu))
        text_add(t, "  mfu %.1f%%", 100 * now->mfu);
    if (has_mfu && now->comm > 0)
        text_add(t, "  comm %.0f%%", 100 * now->comm);
    if (has_mfu && now->comm > 0 && isfinite(now->hidden))
        text_add(t, " (%.0f%% hidden)", 100 * now->hidden);
    if (isfinite(now->eta_seconds))
        text_add(t, "  eta %s",
                 text_format_span(word, sizeof word, (int64_t)(1000 * now->eta_seconds)));
}

/* move_text — copies the text to out and frees it. */
static const char *move_text(struct text *t, char *out, size_t cap)
{
    text_copy(out, cap, t->data ? t->data : "");
    text_free(t);
    return out;
}

const char *console_line(char *out, size_t cap, const struct console_step *now)
{
    struct text t = {.limit = 512};
    text_add(&t, "step %lld/%lld  loss %.4f  lr %.1e  norm %.2f", (long long)now->step,
             (long long)now->steps, now->loss, now->lr, now->grad_norm);
    double ms = now->step_ms;
    char word[32];
    text_add(&t, "  %s", text_format_ms(word, sizeof word, ms));
    add_speed(&t, now, true);
    return move_text(&t, out, cap);
}

const char *console_bar(char *out, size_t cap, int columns, const struct console_step *now)
{
    struct text t = {.limit = 512};
    char line[512], bar[BAR_MAX + 16] = "";
    text_add(&t, "step %lld/%lld  loss %.4f", (long long)now->step, (long long)now->steps,
             now->loss);
    add_speed(&t, now, false);
    move_text(&t, line, sizeof line);
    double fraction = now->steps > 0 ? (double)now->step / (double)now->steps : 0;
    int width = columns - (int)strlen(line) - 9; /* "[", "] 100%", two spaces */
    if (width > BAR_MAX)
        width = BAR_MAX;
    if (width >= BAR_MIN) {
        char cells[BAR_MAX + 1];
        for (int i = 0; i < width; i++)
            cells[i] = i < (int)(fraction * width) ? '#' : '-';
        cells[width] = 0;
        text_format(bar, sizeof bar, "[%s] %3d%%  ", cells, (int)(100 * fraction));
    }
    text_format(out, columns >= 0 && (size_t)columns < cap ? (size_t)columns + 1 : cap, "%s%s", bar,
                line);
    return out;
}

void console_clear(struct console *console)
{
    if (console->shown)
        log_console("\r%*s\r", (int)console->shown, "");
    console->shown = 0;
}

bool console_is_due(const struct console *console, const struct console_step *now, int64_t at_ms)
{
    int64_t lines = console->is_terminal ? TERMINAL_LINES : PIPE_LINES, every = console->every;
    bool is_jump = console->last.step > 0 && !(now->loss < JUMP * console->last.loss + JUMP_NATS);
    if (console->is_brief)
        return console->line_ms == 0 || now->step == now->steps ||
               at_ms - console->line_ms >= MINUTE_MS;
    if (console->line_ms == 0 || now->step == now->steps || is_jump)
        return true;
    if (every == 0 && !console->is_terminal && at_ms - console->line_ms >= MINUTE_MS)
        return true;
    if (every == 0)
        every = (now->steps + lines - 1) / lines;
    return every <= 1 || now->step % every == 0;
}

static void show_line(struct console *console, const struct console_step *now)
{
    char line[512];
    const struct log_number numbers[] = {
        {"step", (double)now->step},
        {"steps", (double)now->steps},
        {"loss", now->loss},
        {"lr", now->lr},
        {"norm", now->grad_norm},
        {"step_ms", now->step_ms},
        {"tokens_per_second", now->tokens_per_second},
        {"mfu", now->mfu},
        {"eta_seconds", now->eta_seconds},
    };
    char title[64];
    if (console->line_ms == 0 && now->comm > 0)
        LOG_INFO("in the lines of steps: mfu, share of the device's peak; comm, share of the step "
                 "in which this rank waits for others; hidden, share of its communication that "
                 "runs during computation, which costs no time");
    console_clear(console);
    text_format(title, sizeof title, "step %lld/%lld", (long long)now->step, (long long)now->steps);
    log_numbers(title, numbers, (int)(sizeof numbers / sizeof *numbers), "%s",
                console_line(line, sizeof line, now));
}

void console_flush(struct console *console)
{
    console_clear(console);
    if (console->is_pending)
        show_line(console, &console->last);
    console->is_pending = false;
}

static void draw_bar(struct console *console, const struct console_step *now, int64_t at_ms)
{
    char line[512];
    struct winsize size;
    if (console->shown && at_ms - console->shown_ms < REDRAW_MS)
        return;
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    console_bar(line, sizeof line, (is_known ? size.ws_col : 80) - 1, now);
    size_t length = strlen(line), pad = console->shown > length ? console->shown - length : 0;
    log_console("\r%s%*s", line, (int)pad, "");
    console->shown = length;
    console->shown_ms = at_ms;
}

void console_step(struct console *console, const struct console_step *now)
{
    int64_t at_ms = clock_ms();
    bool is_due = console_is_due(console, now, at_ms);
    if (is_due) {
        show_line(console, now);
        console->line_ms = at_ms;
    }
    console->last = *now;
    console->is_pending = !is_due && !console->is_terminal;
    if (console->is_terminal && now->step < now->steps)
        draw_bar(console, now, at_ms);
}

/* ---- speed ---- */

void console_pace_add(struct console_pace *pace, double step_ms)
{
    pace->ms[pace->n % CONSOLE_PACE_KEPT] = step_ms;
    pace->n++;
}

double console_pace_mean_ms(const struct console_pace *pace)
{
    int64_t n = pace->n < CONSOLE_PACE_KEPT ? pace->n : CONSOLE_PACE_KEPT;
    if (n == 0)
        return NAN;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += pace->ms[i];
    return sum / (double)n;
}

double console_pace_per_second(const struct console_pace *pace, double step_amount)
{
    double ms = console_pace_mean_ms(pace);
    return ms > 0 ? step_amount * 1000 / ms : NAN;
}

double console_pace_eta_seconds(const struct console_pace *pace, int64_t steps_left)
{
    return console_pace_mean_ms(pace) / 1000 * (double)steps_left;
}
