/* command — the functions behind `convoy COMMAND`, called from the table in main.c. Each returns
 * how it ended; main prints the failure once and exits. */
#ifndef CONVOY_NODE_COMMAND_H
#define CONVOY_NODE_COMMAND_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "conf/conf.h"

enum status supervisor_main(const struct conf *conf, int argc,
                            /* train: connects to the other nodes and starts the workers, which get
                             * argv too */
                            char **argv);
/* as supervisor_main, but the workers only check the nodes and what is between them */
enum status supervisor_check_main(const struct conf *conf, int argc, char **argv);
/* the hidden command `worker I`: board on BOARD_FD */
enum status worker_main(const struct conf *conf, int worker_i);
enum status tokenize_main(const struct conf *conf); /* DATA → OUT */
/* the text of DATA → OUT, a folder with a tokenizer of VOCAB tokens */
enum status train_tokenizer_main(const struct conf *conf);
/* FROM a model made elsewhere → a checkpoint in TO */
enum status import_main(const struct conf *conf);
/* FROM a checkpoint → TO, a Hugging Face folder */
enum status export_main(const struct conf *conf);
enum status generate_main(const struct conf *conf); /* PROMPT → text on stdout */
/* collectives between workers → table or JSON on stdout */
enum status bench_main(const struct conf *conf);
/* a job on CLUSTER → memory, time and cost on stdout; sets N_GPU_EACH_NODE where it is not set */
enum status plan_main(struct conf *conf, char **environment);
/* a job on nodes of this machine, without and with faults → what it came to, on stdout; argv: the
 * settings as the user gave them */
enum status rehearse_main(const struct conf *conf, int argc, char **argv, char **environment);
/* runs from their folders → the page on STATUS_PORT, until a signal; ST_OK then */
enum status view_runs_main(const struct conf *conf, char *const *dirs, int n);
/* a trained model on VAL_DATA → loss or scores on stdout */
enum status eval_main(const struct conf *conf);
/* `convoy status DIR` — prints a report or JSON on stdout. dir: CHECKPOINT_DIR, or one checkpoint
 * in it. ST_UNHEALTHY: there is no valid checkpoint, one is damaged, or the history of the run
 * ends with a failure. */
enum status checkpoint_status_main(const char *dir, bool as_json);
/* `convoy verify DIR` — dir: a CHECKPOINT_DIR. Shows what its ledger of samples says
 * (format/ledger.h), as lines for people or as JSON, and lists the checkpoints that are damaged;
 * every byte of them is compared with its checksum. ST_UNHEALTHY: a sample is in no step or in two,
 * a checkpoint has steps that the ledger lacks, is damaged or was changed; the message has the
 * first. ST_NO_INPUT: no such folder or ledger. ST_BAD_DATA: the ledger is damaged; what else was
 * found is shown. */
enum status verify_main(const char *dir, bool as_json);
/* `convoy version` — writes release, commit, compiler and libraries of this program; is_gpu: also
 * which of NVIDIA's libraries are found, which starts the driver */
void library_list_write(bool is_gpu, struct text *out);

/* ---- texts of `convoy help`, made from the table of commands and from conf.def, so that they
 * cannot differ from the program ---- */

struct help_command {
    const char *name, *words, *help; /* words: how it is called; help NULL: not for people */
};

/* Appends the settings and examples of a command; nothing if it has none. */
void help_examples(const char *command, struct text *out);
/* Appends the manual page convoy(1) in the man macros. */
void help_man_page(const struct help_command *commands, int n, struct text *out);
/* Appends the completion for bash, zsh or fish: commands, settings, the values of those that have a
 * list, presets for MODEL, files for settings with a path, folders and addresses for commands that
 * take them. false: another shell. */
bool help_completion(const char *shell, const struct help_command *commands, int n,
                     struct text *out);

#endif
