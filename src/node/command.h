/* command — the entry functions of `convoy COMMAND`, called from the table in main.c. Each returns
 * the status with which the command ended; main prints the failure once and exits. */
#ifndef CONVOY_NODE_COMMAND_H
#define CONVOY_NODE_COMMAND_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "conf/conf.h"

/* Runs `convoy train`: connects to the other nodes and starts the workers, which also get argv. */
enum status supervisor_main(const struct conf *conf, int argc, char **argv);
/* Does the same, but the workers only check the nodes and the links between them. */
enum status supervisor_check_main(const struct conf *conf, int argc, char **argv);
/* Runs the hidden command `worker I`. The board is on file descriptor BOARD_FD. */
enum status worker_main(struct conf *conf, int worker_i);
/* Writes the tokens of DATA to OUT. */
enum status tokenize_main(const struct conf *conf);
/* Trains a tokenizer of VOCAB tokens on the text of DATA and writes it to the folder OUT. */
enum status train_tokenizer_main(const struct conf *conf);
/* Converts the model FROM, in another program's format, to a checkpoint in TO. */
enum status import_main(const struct conf *conf);
/* Converts the checkpoint FROM to a Hugging Face folder TO. */
enum status export_main(const struct conf *conf);
/* Continues PROMPT and prints the text on stdout. */
enum status generate_main(const struct conf *conf);
/* Answers PROMPT, or each line of stdin, in the format of the model's chat template. */
enum status generate_chat_main(const struct conf *conf);
/* Measures collectives between workers and prints a table or JSON on stdout. */
enum status bench_main(const struct conf *conf);
/* Prints the memory, time and cost of a job on CLUSTER on stdout. Sets N_GPU_EACH_NODE if it is not
 * set. */
enum status plan_main(struct conf *conf, char **environment);
/* Runs a job on nodes of this machine, without and with faults, and prints a report on stdout.
 * argv: the settings as the user wrote them. */
enum status rehearse_main(const struct conf *conf, int argc, char **argv, char **environment);
/* Serves the page of the runs in these folders on STATUS_PORT until a signal arrives; then returns
 * ST_OK. */
enum status view_runs_main(const struct conf *conf, char *const *dirs, int n);
/* Evaluates a trained model on VAL_DATA and prints the loss or the scores on stdout. */
enum status eval_main(const struct conf *conf);
/* Runs `convoy status DIR`: prints a report or JSON on stdout. dir: CHECKPOINT_DIR, or one
 * checkpoint in it. ST_UNHEALTHY: there is no valid checkpoint, one is damaged, or the history of
 * the run ends with a failure. */
enum status checkpoint_status_main(const char *dir, bool as_json);
/* Does the same for `convoy status s3://bucket/prefix`, without downloading tensors: damage of
 * their files is not noticed. */
enum status checkpoint_status_bucket(const struct conf *conf, const char *name);
/* Runs `convoy verify DIR`: checks a run's ledger of samples (format/ledger.h) and compares every
 * byte of its checkpoints with the checksums. Prints the result as lines for people or as JSON,
 * with a list of the damaged checkpoints. dir: a CHECKPOINT_DIR.
 *   ST_UNHEALTHY  a sample is in no step or in two; or a checkpoint has steps that the ledger
 *                 lacks, is damaged or was changed. The message names the first problem.
 *   ST_NO_INPUT   there is no such folder or ledger
 *   ST_BAD_DATA   the ledger is damaged; the other findings are printed */
enum status verify_main(const char *dir, bool as_json);
/* Runs `convoy version`: writes release, commit, compiler and libraries of this program. is_gpu:
 * also lists which of NVIDIA's libraries are found, which starts the driver. */
void library_list_write(bool is_gpu, struct text *out);

/* ---- texts of `convoy help`, generated from the table of commands and from conf.def, so that they
 * cannot differ from the program ---- */

struct help_command {
    const char *name, *words, *help; /* words: the command line; help NULL: hidden from help */
};

/* Appends the settings and examples of a command; nothing if it has none. */
void help_examples(const char *command, struct text *out);
/* Appends the manual page convoy(1) in the man macros. */
void help_man_page(const struct help_command *commands, int n, struct text *out);
/* Appends the completion script for bash, zsh or fish. It completes commands, settings, the values
 * of settings that have a list, presets for MODEL, files for settings with a path, and the folders
 * and addresses that some commands expect. Returns false if the shell is another one. */
bool help_completion(const char *shell, const struct help_command *commands, int n,
                     struct text *out);

#endif
