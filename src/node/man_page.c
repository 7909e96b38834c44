/* man_page — convoy(1) in the man macros. See man_page.h. */
#include <string.h>

#include "base/status.h"
#include "base/version.h"
#include "conf/conf.h"
#include "node/command_help.h"
#include "node/man_page.h"

/* add_roff — text as it is: no escapes, no requests, and a minus that can be pasted. */
static void add_roff(struct text *out, const char *words)
{
    if (words[0] == '.' || words[0] == '\'')
        text_add(out, "\\&");
    for (const char *p = words; *p != 0; p++) {
        if (*p == '\\')
            text_add(out, "\\e");
        else if (*p == '-')
            text_add(out, "\\-");
        else
            text_add_bytes(out, p, 1);
    }
}

/* add_lines — as add_roff, line by line, for text that is shown as it stands. */
static void add_lines(struct text *out, const char *lines)
{
    char line[512];
    for (size_t n; *lines != 0; lines += n + (lines[n] == '\n')) {
        n = strcspn(lines, "\n");
        text_format(line, sizeof line, "%.*s", (int)n, lines);
        add_roff(out, line);
        text_add(out, "\n");
    }
}

static void add_item(struct text *out, const char *bold, const char *help)
{
    text_add(out, ".TP\n\\fB");
    add_roff(out, bold);
    text_add(out, "\\fR\n");
    add_roff(out, help);
    text_add(out, "\n");
}

static void add_settings(struct text *out)
{
    const char *heading = "";
    text_add(out, ".SH SETTINGS\nAn environment variable or a NAME=VALUE argument, which wins.\n");
    for (int key = 0; key < CONF_N; key++) {
        const char *next = conf_row_heading((enum conf_key)key);
        if (next == NULL)
            continue;
        if (strcmp(heading, next) != 0)
            text_add(out, ".SS %s\n", next);
        heading = next;
        char allowed[256];
        const char *initial = conf_row_default((enum conf_key)key);
        add_item(out, conf_row_name((enum conf_key)key), conf_row_help((enum conf_key)key));
        text_add(out, ".br\nDefault: ");
        add_roff(out, initial[0] != 0 ? initial : "empty");
        text_add(out, "; allowed: ");
        add_roff(out, conf_row_allowed((enum conf_key)key, allowed, sizeof allowed));
        text_add(out, ".\n");
    }
}

static void add_examples(struct text *out, const struct man_page_command *commands, int n)
{
    text_add(out, ".SH EXAMPLES\n.nf\n");
    for (int i = 0; i < n; i++) {
        struct text one = {0};
        command_help_write(commands[i].name, &one);
        const char *at = one.data != NULL ? strstr(one.data, "\n  convoy ") : NULL;
        if (at != NULL && commands[i].help != NULL)
            add_lines(out, at + 1);
        text_free(&one);
    }
    text_add(out, ".fi\n");
}

void man_page_write(const struct man_page_command *commands, int n, struct text *out)
{
    char code[16];
    text_add(out, ".TH CONVOY 1 \"%s\" \"convoy %s\" \"User Commands\"\n", version_date(),
             version_text());
    text_add(out,
             ".SH NAME\nconvoy \\- train language models (GPT\\-2, Llama, Qwen, GPT\\-NeoX) on one "
             "machine or many\n"
             ".SH SYNOPSIS\n.B convoy\n[\\fICOMMAND\\fR] [\\fINAME\\fR=\\fIVALUE\\fR ...]\n"
             ".SH DESCRIPTION\nOne executable, without Python, ssh or MPI: one copy runs on each "
             "machine,\n"
             "trains, writes checkpoints and shows its state over HTTP. After a failure it resumes "
             "from the last\n"
             "checkpoint.\n");
    char line[256];
    text_add(out, ".SH COMMANDS\n");
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL &&
            text_format(line, sizeof line, "convoy %s", commands[i].words))
            add_item(out, line, commands[i].help);
    add_settings(out);
    text_add(out, ".SH EXIT STATUS\n");
    for (int st = 0; st < STATUS_N; st++) {
        text_format(code, sizeof code, "%d", status_exit_code((enum status)st));
        add_item(out, code, status_text((enum status)st));
    }
    text_add(out, ".SH ENVIRONMENT\nEvery setting; \\fBOMP_NUM_THREADS\\fR limits the threads;\n"
                  "\\fBNO_COLOR\\fR leaves colours out.\n"
                  ".SH FILES\n.TP\n\\fICHECKPOINT_DIR\\fR/step\\-00000100/\n"
                  "a checkpoint: safetensors, and manifest.json with checksums\n"
                  ".TP\n\\fICACHE_DIR\\fR\ntokens made from text, and downloads\n");
    add_examples(out, commands, n);
}
