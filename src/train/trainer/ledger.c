/* trainer_ledger — the entries of a trainer in the ledger of its run (format/ledger.h): samples,
 * the settings that decide the results, checkpoints. */
#include "train/trainer/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/weights/load.h"
#include "train/step/lr_schedule.h"

#define DEVICE_BYTES 64 /* a multiple of 16 (comm_all_gather) */
#define DEVICES_MAX 16  /* largest number of listed devices */

/* add_devices — Adds the names of the ranks' devices, each once. */
static void add_devices(const char *names, int ranks, struct text *out)
{
    const char *listed[DEVICES_MAX];
    int n = 0;
    for (int rank = 0; rank < ranks && n < DEVICES_MAX; rank++) {
        const char *name = names + (size_t)rank * DEVICE_BYTES;
        bool is_new = true;
        for (int i = 0; i < n; i++)
            is_new = is_new && strcmp(listed[i], name) != 0;
        char quoted[6 * DEVICE_BYTES + 3];
        if (!is_new)
            continue;
        json_quote(quoted, sizeof quoted, name);
        text_add(out, "%s%s", n > 0 ? "," : "", quoted);
        listed[n++] = name;
    }
}

/* write_provenance — Writes a JSON object. names: of all ranks' devices. */
static enum status write_provenance(const struct trainer *t, const char *names, struct text *out)
{
    const struct trainer_config *c = t->config;
    char model[1024], version[6 * 64 + 3];
    TRY(load_dims_json(&c->step.dims, model, sizeof model));
    json_quote(version, sizeof version, c->version);
    text_add(out, "{\"version\":%s,\"model\":%s,\"settings\":%s,\"nodes\":%d,\"ranks\":%d", version,
             model, c->settings_json, c->step.comm ? comm_place(c->step.comm)->nodes : 1,
             t->consensus.ranks);
    if (c->commits_json != NULL && c->commits_json[0] != '\0' &&
        strlen(c->commits_json) < CKPT_COMMITS_MAX)
        text_add(out, ",\"commits\":%s", c->commits_json);
    if (c->layout_json != NULL)
        text_add(out, ",\"layout\":%s", c->layout_json);
    /* NCCL adds in an order of its own, and BALANCE=auto in the order of measured times, but not
     * with virtual shards. */
    const bool is_ordered = c->step.comm == NULL || c->step.shards > 0 ||
                            (!comm_stays_on_device(c->step.comm) && !c->step.balances);
    text_add(out, ",\"exact\":%s,\"devices\":[",
             !grad_compress_quantises(c->step.store.compress) && is_ordered ? "true" : "false");
    add_devices(names, t->consensus.ranks, out);
    text_add(out, "]");
    /* The planned steps, if the learning rate depends on them: generations that differ only there
     * are not the same run. If the number of samples of a step changed, the object also has the
     * samples by which the run is ahead of one with these settings, and EPOCHS if the learning rate
     * follows samples. */
    const int64_t ahead =
        t->progress.samples - step_samples_before(&t->config->step, t->progress.step);
    if (t->config->lr_schedule.kind != LR_SCHEDULE_KIND_CONSTANT)
        text_add(out, ",\"planned_steps\":%lld", (long long)t->steps);
    if (ahead != 0)
        text_add(out, ",\"samples_ahead\":%lld", (long long)ahead);
    if (t->schedule.samples > 0)
        text_add(out, ",\"EPOCHS\":%lld", (long long)t->config->epochs);
    text_add(out, "}");
    return out->overflow
               ? FAIL(ST_RETRY, "out of memory: the settings that decide the results of a run")
               : ST_OK;
}

enum status trainer_ledger_open(struct trainer *t)
{
    struct dev_info info;
    if (!t->has_checkpoint_dir)
        return ST_OK;
    char *names = memory_new((size_t)t->consensus.ranks, DEVICE_BYTES);
    dev_info(t->config->step.dev, &info);
    text_copy(names + (size_t)t->consensus.rank * DEVICE_BYTES, DEVICE_BYTES, info.name);
    enum status st = consensus_gather(&t->consensus, names, DEVICE_BYTES);
    if (st == ST_OK && t->checkpoint) {
        const struct ledger_start start = {.after = t->progress.step,
                                           .sample = t->progress.samples,
                                           .data = feed_fingerprint(t->config->feed),
                                           .epoch = feed_pass_samples(t->config->feed),
                                           .order = feed_order(t->config->feed)};
        struct text provenance = {0};
        st = write_provenance(t, names, &provenance);
        if (st == ST_OK)
            st = ledger_file_open(t->config->checkpoint_dir, &start, provenance.data,
                                  &t->progress.run, &t->ledger);
        text_free(&provenance);
        t->step_recorded = t->last_checkpoint.step;
    }
    free(names);
    return st;
}

void trainer_ledger_add(struct trainer *t, const struct step_result *r, int64_t samples)
{
    static const enum ledger_outcome outcome[] = {
        [SPIKE_CAUSE_NONE] = LEDGER_OUTCOME_APPLIED,
        [SPIKE_CAUSE_NOT_FINITE] = LEDGER_OUTCOME_NOT_FINITE,
        [SPIKE_CAUSE_LOSS] = LEDGER_OUTCOME_SPIKE,
        [SPIKE_CAUSE_NORM] = LEDGER_OUTCOME_SPIKE,
    };
    const struct ledger_run one = {.step = t->progress.step,
                                   .steps = 1,
                                   .sample = t->progress.samples - samples,
                                   .samples = samples,
                                   .trained = t->config->chat ? r->targets : 0,
                                   .outcome = outcome[r->spike.cause]};
    if (!ledger_append(&t->progress.run, &one))
        t->progress.run = one;
    ledger_file_add(t->ledger, &one);
}

void trainer_ledger_checkpoint(struct trainer *t)
{
    if (!t->ledger || t->last_checkpoint.step == t->step_recorded)
        return;
    t->step_recorded = t->last_checkpoint.step;
    ledger_file_checkpoint(t->ledger, t->last_checkpoint.path);
}
