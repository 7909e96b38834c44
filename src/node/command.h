/* command — the functions behind `convoy COMMAND`, called from the table in main.c. Each returns
 * how it ended; main prints the failure once and exits. */
#ifndef CONVOY_NODE_COMMAND_H
#define CONVOY_NODE_COMMAND_H

#include "base/status.h"
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

#endif
