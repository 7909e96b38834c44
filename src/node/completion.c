/* completion — for bash, zsh and fish: commands, settings, the values of those that have a list,
 * presets for MODEL, files for settings with a path, folders and addresses for commands that take
 * them. See completion.h. */
#include <string.h>

#include "conf/conf.h"
#include "model/model.h"
#include "node/completion.h"

typedef void write_shell(struct text *out, const struct man_page_command *commands, int n);

/* add_choices — "a|b[:N]|c" with `before` before each and `between` between; [:N] is left out. */
static void add_choices(struct text *out, const char *choices, const char *before,
                        const char *between)
{
    for (size_t n; *choices != 0; choices += n + (choices[n] == '|')) {
        n = strcspn(choices, "|");
        text_add(out, "%s%.*s%s", before, (int)strcspn(choices, "|["), choices,
                 choices[n] == '|' ? between : "");
    }
}

/* add_quoted — inside '…' of a shell, which has no way to write a quote there; `also` gets a
 * backslash. */
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

static void add_names(struct text *out, const struct man_page_command *commands, int n)
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

/* add_topics — the words that only help takes. */
static void add_topics(struct text *out)
{
    for (int i = 0; conf_row_topic(i) != NULL; i++)
        text_add(out, " %s", conf_row_topic(i));
    text_add(out, " settings exit-codes man bash zsh fish");
}

/* add_takers — the commands whose first word is a `what`: DIR or URL. */
static void add_takers(struct text *out, const struct man_page_command *commands, int n,
                       const char *what, const char *between)
{
    const char *next = "";
    for (int i = 0; i < n; i++)
        if (commands[i].help != NULL && strstr(commands[i].words, what) != NULL) {
            text_add(out, "%s%s", next, commands[i].name);
            next = between;
        }
}

/* add_cases — a line for each setting whose values are known: NAME) ACTION ;; */
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

static void write_bash(struct text *out, const struct man_page_command *commands, int n)
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
    add_takers(out, commands, n, "URL", "|");
    /* ':' and '=' end a word for bash, which replaces only the rest of it */
    text_add(out, ")\n    words='http://127.0.0.1:8080'\n"
                  "    case $cur in *:*) before=${cur%%\"${cur##*:}\"} ;; esac ;;\n  esac\n"
                  "  words+='");
    for (int key = 0; key < CONF_N; key++)
        if (conf_row_heading((enum conf_key)key) != NULL)
            text_add(out, " %s=", conf_row_name((enum conf_key)key));
    text_add(out, "'\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                  "  case ${COMP_WORDS[1]} in ");
    add_takers(out, commands, n, "DIR", "|");
    text_add(out,
             ")\n    [ \"$COMP_CWORD\" -lt 2 ] ||\n      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY "
             "< <(compgen -d -- \"$cur\") ;;\n  esac\n"
             "  [ -z \"$before\" ] || COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
             "  case ${COMPREPLY[0]:-} in *=) compopt -o nospace 2>/dev/null ;; esac\n}\n"
             "complete -F _convoy convoy\n");
}

static void write_zsh(struct text *out, const struct man_page_command *commands, int n)
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
    add_takers(out, commands, n, "URL", "|");
    text_add(out, ") compadd -S '' -- http://127.0.0.1:8080 ;;\n    esac\n    case $words[2] in ");
    add_takers(out, commands, n, "DIR", "|");
    text_add(out, ") _files -/ ;;\n    help) compadd -- ");
    add_names(out, commands, n);
    add_topics(out);
    text_add(out, " ;;\n    esac\n  fi\n"
                  "  _describe -t settings setting settings -qS =\n}\n_convoy \"$@\"\n");
}

static void write_fish(struct text *out, const struct man_page_command *commands, int n)
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
    add_takers(out, commands, n, "URL", " ");
    text_add(out, "' -a http://127.0.0.1:8080 -d 'a run on this node'\n"
                  "complete -c convoy -n '__fish_seen_subcommand_from ");
    add_takers(out, commands, n, "DIR", " ");
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

bool completion_write(const char *shell, const struct man_page_command *commands, int n,
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
