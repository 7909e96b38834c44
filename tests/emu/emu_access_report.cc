/* emu_access_report — mistakes in words (see emu_access.h). */
#include <stdio.h>
#include <unistd.h>

#include "tests/emu/emu_access_inside.h"
#include "tests/emu/emu_limits.h"

#define REPORTS_MAX 64

struct report {
    char text[1024];
    uint32_t pc, other_pc;
    const char *what;
};
static struct report reports[REPORTS_MAX];
static int reports_n;
static const void *kernel_now;

void report_reset(void) { reports_n = 0; }
void report_kernel(const void *kernel) { kernel_now = kernel; }

const char *report_line(uint32_t pc)
{
    static char out[512];
    char program[256], command[512], line[256];
    size_t n = 0;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    snprintf(command, sizeof command, "addr2line -s -i -e '%s' 0x%x 2>/dev/null", program, pc - 1);
    FILE *f = popen(command, "r");
    out[0] = 0;
    while (f && fgets(line, sizeof line, f) && n + sizeof line < sizeof out)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", n ? " < " : "",
                              (int)strcspn(line, " \n"), line);
    if (f)
        pclose(f);
    return out;
}

static bool is_known(const char *what, uint32_t pc, uint32_t other_pc)
{
    for (int i = 0; i < reports_n; i++)
        if (reports[i].what == what && reports[i].pc == pc && reports[i].other_pc == other_pc)
            return true;
    return false;
}

static const char *kind_name(enum access_kind kind)
{
    static const char *const names[] = {"read", "write", "atomic", "copy", "copy"};
    return names[kind];
}

void report_add(const struct access *a, const char *what, const char *with, const char *other,
                int other_number, uint32_t other_pc)
{
    size_t offset;
    if (reports_n == REPORTS_MAX || is_known(what, a->pc, other_pc))
        return;
    struct report *r = &reports[reports_n++];
    r->what = what, r->pc = a->pc, r->other_pc = other_pc;
    int n = snprintf(r->text, sizeof r->text,
                     "%s: %s, block %u %u %u: %s by thread %d (%s) of %s, byte %zu", what,
                     emu_symbol(kernel_now, &offset), emu_where.block.x, emu_where.block.y,
                     emu_where.block.z, kind_name(a->kind), a->thread, report_line(a->pc),
                     a->space ? a->space->name : "memory outside of all tensors",
                     a->space ? (size_t)(a->at - a->space->at) : (size_t)a->at);
    if (with && n < (int)sizeof r->text)
        snprintf(r->text + n, sizeof r->text - (size_t)n, "; %s by %s %d (%s)", with, other,
                 other_number, report_line(other_pc));
}

const char *emu_access_report(int i) { return i < reports_n ? reports[i].text : NULL; }
