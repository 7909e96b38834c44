/* help — the texts that `convoy help` prints: the settings and examples of a command, the manual
 * page and shell completion. Must not depend on the work of a command. */
#include "node/command.h"

#include <string.h>

#include "base/status.h"
#include "base/version.h"
#include "conf/conf.h"
#include "model/model.h"

/* ---- settings and examples of a command ---- */

static const struct page {
    const char *command, *examples; /* examples: lines */
} pages[] = {
    {"train",
     "convoy train MODEL=gpt2-mini DATA=book.txt CHECKPOINT_DIR=run1 CHECKPOINT_EVERY=100 "
     "STEPS=1000\n"
     "convoy train MODEL=gpt2 DATA='a.bin:0.7,b.jsonl:0.3' VAL_DATA=val.txt EVAL_EVERY=100 "
     "CHECKPOINT_DIR=run2\n"
     "convoy train MODEL=gpt2-nano DATA=synthetic STEPS=20\n"},
    {"check",
     "convoy check CHECK=quick\n"
     "convoy check CHECKPOINT_DIR=/checkpoints GPUS_EXPECTED=8 REPORT=check.json\n"
     "convoy check N_NODES=4 NODE_ID=0 MASTER_ADDR=10.0.0.1 JOB_TOKEN_FILE=job.token CHECK=full "
     "SOAK=30m\n"},
    {"tokenize", "convoy tokenize DATA=books/ OUT=books.bin\n"
                 "convoy tokenize DATA=books.jsonl OUT=books.idx\n"},
    {"train-tokenizer",
     "convoy train-tokenizer DATA=books/ VOCAB=4096 OUT=books-tokenizer\n"
     "convoy train MODEL=gpt2-mini TOKENIZER=books-tokenizer VOCAB=4096 DATA=books/\n"},
    {"generate",
     "convoy generate CHECKPOINT_DIR=run1 PROMPT='Once upon a time' TOKENS=100 TEMPERATURE=0.8\n"
     "convoy generate MODEL=path/to/hugging-face-folder PROMPT=Hello TEMPERATURE=0\n"},
    {"chat", "convoy chat MODEL=model.gguf\n"
             "convoy chat CHECKPOINT_DIR=chat1 CHAT_TEMPLATE=zephyr PROMPT='Who are you?'\n"},
    {"import", "convoy import FROM=path/to/hugging-face-folder TO=run1\n"
               "convoy import FROM=gpt2_124M.bin TO=run1\n"},
    {"export", "convoy export FROM=run1 TO=my-model\n"
               "convoy export FROM=run1 TO=my-model-Q8_0.gguf\n"},
    {"eval", "convoy eval CHECKPOINT_DIR=run1 VAL_DATA=val.txt\n"
             "convoy eval CHECKPOINT_DIR=run1 VAL_DATA=hellaswag_val.bin\n"
             "convoy eval CHECKPOINT_DIR=qa1 VAL_DATA=squad-dev.json OUT=answers.json\n"},
    {"bench", "convoy bench N_GPU_EACH_NODE=2 BENCH_SIZES=4-64Mi\n"},
    {"plan",
     "convoy plan CLUSTER=h100-sxm MODEL=llama-2-7b SEQ_LEN=4096 N_NODES=4 GLOBAL_BATCH=512 "
     "MESH=auto TOKENS=300000000000\n"
     "convoy plan CLUSTER=machine.json MODEL=gpt2-mini\n"},
    {"rehearse", "convoy rehearse MODEL=gpt2-mini DATA=book.txt N_NODES=4 CHECKPOINT_DIR=run1 "
                 "CHECKPOINT_EVERY=20\n"
                 "convoy rehearse MODEL=gpt2-nano DATA=synthetic DURATION=30m FAULT_EVERY=20s "
                 "FAULT_MIX=kill:6,hang:2,disk:1 JSON=1\n"},
    {"status", "convoy status\n"
               "convoy status http://10.0.0.1:8080 JSON=1\n"
               "convoy status run1\n"},
    {"view", "convoy view run1\n"
             "convoy view run1 run2 run3\n"},
    {"verify", "convoy verify run1\n"
               "convoy verify run1 JSON=1\n"},
    {"config", "convoy config MODEL=gpt2 LR=1e-3\n"},
    {"version", "convoy version gpu\n"},
    {"help", "convoy help data\nconvoy help BATCH_SIZE\nconvoy help train\n"},
};

void help_examples(const char *command, struct text *out)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].command, command) != 0)
            continue;
        bool is_first = true;
        for (int key = 0; key < CONF_SETTINGS_N; key++) {
            if (!conf_row_is_of((enum conf_key)key, command))
                continue;
            if (is_first)
                text_add(out,
                         "\nMain settings (`convoy help settings` lists all, with defaults)\n");
            is_first = false;
            conf_write_row((enum conf_key)key, out);
        }
        const char *examples = pages[i].examples;
        text_add(out, "\nExample%s\n", strchr(examples, '\n')[1] != 0 ? "s" : "");
        while (examples[0] != 0) {
            int n = (int)strcspn(examples, "\n") + 1;
            text_add(out, "  %.*s", n, examples);
            examples += n;
        }
    }
}

/* ---- the manual page ---- */

/* add_roff — appends text literally: without escapes and requests, and with a minus that can be
 * pasted. */
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

static void add_item(struct text *out, const char *bold, const char *help)
{
    text_add(out, ".TP\n\\fB");
    add_roff(out, bold);
    text_add(out, "\\fR\n");
    add_roff(out, help);
    text_add(out, "\n");
}

static void add_examples(struct text *out, const struct help_command *commands, int n)
{
    text_add(out, ".SH EXAMPLES\n.nf\n");
    for (int i = 0; i < n; i++) {
        struct text one = {0};
        help_examples(commands[i].name, &one);
        const char *at = one.data != NULL ? strstr(one.data, "\n  convoy ") : NULL;
        char line[512];
        at = at != NULL && commands[i].help != NULL ? at + 1 : "";
        for (size_t bytes; *at != 0; at += bytes + (at[bytes] == '\n')) {
            bytes = strcspn(at, "\n");
            text_format(line, sizeof line, "%.*s", (int)bytes, at);
            add_roff(out, line);
            text_add(out, "\n");
        }
        text_free(&one);
    }
    text_add(out, ".fi\n");
}

void help_man_page(const struct help_command *commands, int n, struct text *out)
{
    char code[16];
    text_add(out, ".TH CONVOY 1 \"%s\" \"convoy %s\" \"User Commands\"\n", version_date(),
             version_text());
    text_add(out,
             ".SH NAME\nconvoy \\- train language models (GPT\\-2, Llama, Qwen, GPT\\-NeoX) on one "
             "machine or many\n"
             ".SH SYNOPSIS\n.B convoy\n[\\fICOMMAND\\fR] [\\fINAME\\fR=\\fIVALUE\\fR ...]\n"
             ".SH DESCRIPTION\nOne executable, without Python, ssh or MPI. One copy runs on each "
             "machine.\nIt trains, writes checkpoints and shows its state over HTTP. After a "
             "failure it resumes from the last\ncheckpoint.\n");
    char line[256];
    text_add(out, ".SH COMMANDS\n");
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL &&
            text_format(line, sizeof line, "convoy %s", commands[i].words))
            add_item(out, line, commands[i].help);
    const char *heading = "";
    text_add(out,
             ".SH SETTINGS\nEnvironment variables or NAME=VALUE arguments, which override them.\n");
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
    text_add(out, ".SH EXIT STATUS\n");
    for (int st = 0; st < STATUS_N; st++) {
        text_format(code, sizeof code, "%d", status_exit_code((enum status)st));
        add_item(out, code, status_text((enum status)st));
    }
    text_add(out, ".SH ENVIRONMENT\nEvery setting; \\fBOMP_NUM_THREADS\\fR limits the threads;\n"
                  "\\fBNO_COLOR\\fR switches colours off.\n"
                  ".SH FILES\n.TP\n\\fICHECKPOINT_DIR\\fR/step\\-00000100/\n"
                  "a checkpoint: safetensors, and manifest.json with checksums\n"
                  ".TP\n\\fICACHE_DIR\\fR\ntokens made from text, and downloads\n");
    add_examples(out, commands, n);
}

/* ---- completion ---- */

typedef void write_shell(struct text *out, const struct help_command *commands, int n);

/* add_choices — appends the choices of "a|b[:N]|c", each after `before`, with `between` between
 * them; [:N] is left out. */
static void add_choices(struct text *out, const char *choices, const char *before,
                        const char *between)
{
    for (size_t n; *choices != 0; choices += n + (choices[n] == '|')) {
        n = strcspn(choices, "|");
        text_add(out, "%s%.*s%s", before, (int)strcspn(choices, "|["), choices,
                 choices[n] == '|' ? between : "");
    }
}

/* add_quoted — appends text inside '…' of a shell. A quote cannot be written there and becomes a
 * backquote; `also` gets a backslash. */
static void add_quoted(struct text *out, const char *words, char also)
{
    for (const char *p = words; *p != 0; p++) {
        if (*p == '\'')
            text_add(out, "`");
        else if (*p == also)
            text_add(out, "\\%c", *p);
        else
            text_add_bytes(out, p, 1);
    }
}

static void add_names(struct text *out, const struct help_command *commands, int n)
{
    const char *space = "";
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL) {
            text_add(out, "%s%s", space, commands[i].name);
            space = " ";
        }
}

static void add_presets(struct text *out, const char *before)
{
    for (int i = 0; model_preset_name(i) != NULL; i++)
        text_add(out, "%s%s%s", i > 0 ? " " : "", before, model_preset_name(i));
}

/* add_topics — appends the words that only help accepts. */
static void add_topics(struct text *out)
{
    for (int i = 0; conf_row_topic(i) != NULL; i++)
        text_add(out, " %s", conf_row_topic(i));
    text_add(out, " settings exit-codes man bash zsh fish");
}

/* add_commands_with — appends the commands whose arguments contain a word: DIR or URL. */
static void add_commands_with(struct text *out, const struct help_command *commands, int n,
                              const char *what, const char *between)
{
    const char *next = "";
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL && strstr(commands[i].words, what) != NULL) {
            text_add(out, "%s%s", next, commands[i].name);
            next = between;
        }
}

/* add_cases — appends a line for each setting that has a list of values: NAME) ACTION ;; */
static void add_cases(struct text *out, const char *before, const char *after)
{
    for (int key = 0; key < CONF_N; key++) {
        const char *choices = conf_row_choices((enum conf_key)key);
        if (choices[0] == 0 || conf_row_heading((enum conf_key)key) == NULL)
            continue;
        text_add(out, "    %s) %s", conf_row_name((enum conf_key)key), before);
        add_choices(out, choices, "", " ");
        text_add(out, "%s ;;\n", after);
    }
}

static void write_bash(struct text *out, const struct help_command *commands, int n)
{
    text_add(out, "# bash completion for convoy, made by `convoy help bash`\n"
                  "_convoy() {\n  local cur=${COMP_LINE:0:COMP_POINT} words= before=\n"
                  "  cur=${cur##*[[:space:]]}\n  COMPREPLY=()\n"
                  "  case $cur in [A-Z]*=*)\n    local value=${cur#*=}\n    case ${cur%%%%=*} in\n"
                  "    MODEL) mapfile -t COMPREPLY < <(compgen -W '");
    add_presets(out, "");
    text_add(out, "' -- \"$value\"; compgen -f -- \"$value\") ;;\n");
    add_cases(out, "mapfile -t COMPREPLY < <(compgen -W '", "' -- \"$value\")");
    text_add(out, "    *) mapfile -t COMPREPLY < <(compgen -f -- \"$value\") ;;\n    esac\n    "
                  "return ;;\n  esac\n"
                  "  [ \"$COMP_CWORD\" -gt 1 ] || words='");
    add_names(out, commands, n);
    text_add(out, "'\n  [ \"${COMP_WORDS[1]}\" != help ] || words='");
    add_names(out, commands, n);
    add_topics(out);
    text_add(out, "'\n  case ${COMP_WORDS[1]} in ");
    add_commands_with(out, commands, n, "URL", "|");
    /* ':' and '=' end a word in bash, which replaces only the rest of it */
    text_add(out, ")\n    words='http://127.0.0.1:8080'\n"
                  "    case $cur in *:*) before=${cur%%\"${cur##*:}\"} ;; esac ;;\n  esac\n"
                  "  words+='");
    for (int key = 0; key < CONF_N; key++)
        if (conf_row_heading((enum conf_key)key) != NULL)
            text_add(out, " %s=", conf_row_name((enum conf_key)key));
    text_add(out, "'\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                  "  case ${COMP_WORDS[1]} in ");
    add_commands_with(out, commands, n, "DIR", "|");
    text_add(out,
             ")\n    [ \"$COMP_CWORD\" -lt 2 ] ||\n      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY "
             "< <(compgen -d -- \"$cur\") ;;\n  esac\n"
             "  [ -z \"$before\" ] || COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
             "  case ${COMPREPLY[0]:-} in *=) compopt -o nospace 2>/dev/null ;; esac\n}\n"
             "complete -F _convoy convoy\n");
}

static void write_zsh(struct text *out, const struct help_command *commands, int n)
{
    text_add(out, "#compdef convoy\n# made by `convoy help zsh`\n"
                  "_convoy() {\n  local -a commands settings\n  commands=(\n");
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL) {
            text_add(out, "    '%s:", commands[i].name);
            add_quoted(out, commands[i].help, ':');
            text_add(out, "'\n");
        }
    text_add(out, "  )\n  settings=(\n");
    for (int key = 0; key < CONF_N; key++) {
        if (conf_row_heading((enum conf_key)key) == NULL)
            continue;
        text_add(out, "    '%s:", conf_row_name((enum conf_key)key));
        add_quoted(out, conf_row_help((enum conf_key)key), ':');
        text_add(out, "'\n");
    }
    text_add(out, "  )\n  if [[ $PREFIX == *=* ]]; then\n    local name=${PREFIX%%%%=*}\n"
                  "    compset -P '*='\n    case $name in\n    MODEL) compadd -- ");
    add_presets(out, "");
    text_add(out, "; _files ;;\n");
    add_cases(out, "compadd -- ", "");
    text_add(out, "    *) _files ;;\n    esac\n    return\n  fi\n"
                  "  (( CURRENT == 2 )) && _describe -t commands command commands\n"
                  "  if (( CURRENT == 3 )); then\n    case $words[2] in ");
    add_commands_with(out, commands, n, "URL", "|");
    text_add(out, ") compadd -S '' -- http://127.0.0.1:8080 ;;\n    esac\n    case $words[2] in ");
    add_commands_with(out, commands, n, "DIR", "|");
    text_add(out, ") _files -/ ;;\n    help) compadd -- ");
    add_names(out, commands, n);
    add_topics(out);
    text_add(out, " ;;\n    esac\n  fi\n"
                  "  _describe -t settings setting settings -qS =\n}\n_convoy \"$@\"\n");
}

static void write_fish(struct text *out, const struct help_command *commands, int n)
{
    text_add(out, "# fish completion for convoy, made by `convoy help fish`\n");
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL) {
            text_add(out, "complete -c convoy -n __fish_use_subcommand -a %s -d '",
                     commands[i].name);
            add_quoted(out, commands[i].help, '\\');
            text_add(out, "'\n");
        }
    text_add(out, "complete -c convoy -n '__fish_seen_subcommand_from help' -a '");
    add_names(out, commands, n);
    add_topics(out);
    text_add(out, "'\ncomplete -c convoy -n '__fish_seen_subcommand_from ");
    add_commands_with(out, commands, n, "URL", " ");
    text_add(out, "' -a http://127.0.0.1:8080 -d 'a run on this node'\n"
                  "complete -c convoy -n '__fish_seen_subcommand_from ");
    add_commands_with(out, commands, n, "DIR", " ");
    text_add(out, "' -a '(__fish_complete_directories (commandline -ct) folder)'\n"
                  "complete -c convoy -a '");
    add_presets(out, "MODEL=");
    text_add(out, "' -d 'preset'\n");
    for (int key = 0; key < CONF_N; key++) {
        char before[80];
        const char *choices = conf_row_choices((enum conf_key)key);
        if (conf_row_heading((enum conf_key)key) == NULL)
            continue;
        text_format(before, sizeof before, "%s=", conf_row_name((enum conf_key)key));
        text_add(out, "complete -c convoy -a '");
        add_choices(out, choices[0] != 0 ? choices : "", before, " ");
        text_add(out, "%s' -d '", choices[0] != 0 ? "" : before);
        add_quoted(out, conf_row_help((enum conf_key)key), '\\');
        text_add(out, "'\n");
    }
}

bool help_completion(const char *shell, const struct help_command *commands, int n,
                     struct text *out)
{
    static const struct {
        const char *name;
        write_shell *write;
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(out, commands, n);
            return true;
        }
    return false;
}
