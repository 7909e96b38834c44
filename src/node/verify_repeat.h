/* verify_repeat — `convoy verify DIR STEPS=a..b DATA=…`: repeats steps of a run from its checkpoint
 * of step a, and compares the bits.
 *
 * The steps are a `train` of their own in a temporary folder, with the run's settings: nothing is
 * implemented twice. It ends at each checkpoint of the run, is compared with it, and goes on.
 * Nothing is written to the run's folder. It must not know how a step is done. */
#ifndef CONVOY_NODE_VERIFY_REPEAT_H
#define CONVOY_NODE_VERIFY_REPEAT_H

#include <stdint.h>

#include "base/status.h"
#include "conf/conf.h"

struct verify_repeat_wish {
    const struct conf *conf; /* DATA, and how this machine computes */
    const char *dir;         /* the run's CHECKPOINT_DIR */
    const char *steps;       /* "a..b" */
    const char *tmp;         /* for temporary files; NULL: /tmp */
    char **environment;
};

/* verify_repeat_take — takes the word STEPS=… out of a command's arguments; NULL: there is none.
 * ST_BAD_SETTING: with it, another argument that decides results. */
enum status verify_repeat_take(int *argc, char **argv, const char **steps_out);
/* verify_repeat_parse — for tests: "100..200". ST_BAD_SETTING: it is none. */
enum status verify_repeat_parse(const char *steps, int64_t *from_out, int64_t *to_out);
/* verify_repeat_main — ST_UNHEALTHY: the first checkpoint and tensor that differ. ST_BAD_SETTING:
 * the steps cannot be repeated here, and why. ST_NO_INPUT: no checkpoint of step a, or none behind
 * it. ST_BAD_DATA: a file is damaged. */
enum status verify_repeat_main(const struct verify_repeat_wish *wish);

#endif
