/* bench_ranks — several ranks train one model on this machine, against one rank with the same
 * samples for each: the time of a step, how much communication overlapped computation, what each
 * rank holds. Ranks are threads with a device of one thread each (comm of kind mem), so links are
 * as fast as memory.
 *
 *   bench_ranks [MODEL=gpt2-mini] [RANKS=2] [STEPS=6] [B=4] [T=256] [SHARD=0…3] [COMPRESS=0…2] */

#include "mesh/trial.h"
#include "train/step/memory.h"

#define STEPS_MAX 64

struct setting {
    const char *model;
    int64_t ranks, steps, b, t, shard, compress;
};

struct outcome {
    const struct setting *setting;
    int ranks;
    double ms[STEPS_MAX], compute_ms[STEPS_MAX], comm_ms[STEPS_MAX], wait_ms[STEPS_MAX],
        backward_ms, forward_ms;
    double update_ms, norm_ms;
    struct step_memory memory;
};

static struct step_config config_of(const struct setting *s, struct ranks_one *one)
{
    struct step_config c = {
        .dev = one->dev,
        .comm = one->comm,
        .store.shard = (enum layout_shard)s->shard,
        .store.compress = (enum grad_compress_kind)s->compress,
        .batch_samples = s->b,
        .global_samples = s->b * one->ranks,
        .seq_tokens = s->t,
        .seed = 1,
        .optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip = 1}};
    model_preset(s->model, &c.dims);
    return c;
}

static enum status steps_of(struct ranks_one *one, struct outcome *o, struct step *step,
                            struct feed *feed)
{
    struct step_result r;
    for (int i = 0; i < o->setting->steps; i++) {
        TRY(comm_barrier(one->comm));
        int64_t begin = clock_ns();
        TRY(step_run(step, feed, i, 0, 1e-4, false, &r));
        TRY(comm_barrier(one->comm));
        o->ms[i] = (double)(clock_ns() - begin) / 1e6;
        o->compute_ms[i] = r.compute_ms;
        o->comm_ms[i] = r.comm_ms;
        o->wait_ms[i] = r.wait_ms;
        o->forward_ms = r.forward_ms;
        o->backward_ms = r.backward_ms + r.head_ms;
        o->update_ms = r.update_ms;
        o->norm_ms = r.norm_ms;
    }
    return ST_OK;
}

static enum status one_rank(struct ranks_one *one)
{
    struct outcome *o = one->arg;
    struct step *step = NULL;
    struct feed *feed = NULL;
    struct step_config c = config_of(o->setting, one);
    struct feed_config fc = {.data = FEED_SYNTHETIC,
                             .seq_tokens = c.seq_tokens,
                             .global_samples = c.global_samples,
                             .vocab = c.dims.vocab};
    enum status st;
    TRY_OR(feed_open(&fc, &feed), out_close);
    TRY_OR(step_open(&c, &step), out_close);
    o->memory = step_memory(step);
    st = steps_of(one, o, step, feed);
out_close:
    step_close(step);
    if (feed)
        feed_close(feed);
    return st;
}

/* The fastest step except the first, and its phases. */
static int best(const struct outcome *o)
{
    int at = o->setting->steps > 1;
    for (int i = at; i < o->setting->steps; i++)
        at = o->ms[i] < o->ms[at] ? i : at;
    return at;
}

static double run(const struct setting *s, int ranks)
{
    static struct outcome o[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        o[rank] = (struct outcome){.setting = s, .ranks = ranks};
    struct ranks_one one[RANKS_MAX];
    ranks_try(1, ranks, 120000, one_rank, o, sizeof *o, one);
    for (int rank = 0; rank < ranks; rank++)
        if (one[rank].st != ST_OK) {
            printf("rank %d: %s\n", rank, one[rank].message);
            exit(1);
        }
    int i = best(&o[0]);
    const struct store_memory *m = &o[0].memory.store;
    printf("%d rank%s: %8.1f ms a step; rank 0: compute %.1f (forward %.1f, backward %.1f, reduce "
           "and norm %.1f, update %.1f), communication %.1f, waited %.1f; holds %.1f MiB: "
           "parameters %.1f, "
           "gradients %.1f, moments %.1f, unsharded %.1f\n",
           ranks, ranks == 1 ? " " : "s", o[0].ms[i], o[0].compute_ms[i], o[0].forward_ms,
           o[0].backward_ms, o[0].norm_ms, o[0].update_ms, o[0].comm_ms[i], o[0].wait_ms[i],
           (double)(m->params + m->grads + m->moments + m->unsharded + m->residuals) / 1048576,
           (double)m->params / 1048576, (double)m->grads / 1048576, (double)m->moments / 1048576,
           (double)m->unsharded / 1048576);
    return o[0].ms[i];
}

int main(int argc, char **argv)
{
    struct setting s = {.model = "gpt2-mini", .ranks = 2, .steps = 6, .b = 4, .t = 256};
    struct {
        const char *name;
        int64_t *value, max;
    } row[] = {{"RANKS=", &s.ranks, RANKS_MAX},
               {"STEPS=", &s.steps, STEPS_MAX},
               {"B=", &s.b, 64},
               {"T=", &s.t, 1024},
               {"SHARD=", &s.shard, 3},
               {"COMPRESS=", &s.compress, 2}};
    for (int i = 1; i < argc; i++) {
        bool is_known = text_starts(argv[i], "MODEL=");
        if (is_known)
            s.model = argv[i] + 6;
        for (size_t k = 0; k < sizeof row / sizeof *row; k++)
            is_known |= text_starts(argv[i], row[k].name) &&
                        text_parse_i64(argv[i] + strlen(row[k].name), 0, row[k].max,
                                       row[k].value) == TEXT_OK;
        if (!is_known)
            return printf("%s is not known\n", argv[i]), 64;
    }
    printf("%s, B=%lld T=%lld a rank, SHARD=%lld COMPRESS=%lld\n", s.model, (long long)s.b,
           (long long)s.t, (long long)s.shard, (long long)s.compress);
    double alone = run(&s, 1);
    if (s.ranks > 1)
        printf("scaling %.2f\n", (double)s.ranks * alone / run(&s, (int)s.ranks));
    return 0;
}
