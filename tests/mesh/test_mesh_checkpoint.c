/* test_mesh_checkpoint — a checkpoint's files do not depend on the number of ranks that saved it,
 * though each number pads the table in its own way (layout_pad); any other number reads them
 * back. */
#include "mesh/trial.h"

#include <dirent.h>

#include "train/checkpoint/async.h"
#include "train/feature/step_local.h"

#define COUNTS 4 /* 1 … 4 ranks */
#define CHUNK 1000
#define LOCAL_EVERY 5 /* steps from one outer step to the next */

struct job {
    struct trial trial;
    char dir[64], path[FILE_PATH_MAX];
    bool is_load;
    bool is_muon;       /* hidden matrices have no second moment */
    int save;           /* enum save */
    int step;           /* after which it is saved */
    int replicas_saved; /* with LOCAL_STEPS, of the checkpoint; else 0 */
    const char *settings;
    int64_t total_elems; /* of the table, with padding */
};

static float value_of(int array, int row, int64_t i)
{
    return (float)(((int64_t)row * 7919 + i * 31 + array * 1013) % 10007) / 64 + 1;
}

/* Each tensor of each array is written with the values of array `as`, or must have them. */
static enum status tensor(struct step *step, int array, int as, int row, bool is_put)
{
    const struct param *p = &step_whole_table(step)->param[row];
    float values[CHUNK];
    for (int64_t first = 0; first < p->elems; first += CHUNK) {
        int64_t n = p->elems - first < CHUNK ? p->elems - first : CHUNK;
        for (int64_t i = 0; i < n; i++)
            values[i] = is_put ? value_of(as, row, first + i) : 0;
        TRY(is_put ? state_write(step_state(step), array, p->offset + first, n, values)
                   : state_read(step_state(step), array, p->offset + first, n, values));
        for (int64_t i = 0; i < n; i++)
            if (values[i] != value_of(as, row, first + i))
                return FAIL(ST_BUG, "array %d, %s[%lld] is %g, want %g", array, p->name,
                            (long long)(first + i), (double)values[i],
                            (double)value_of(as, row, first + i));
    }
    return ST_OK;
}

/* array_saved — of the checkpoint, in the order of step_local_state.c: what an array is read from.
 * Replica k reads the state of replica k modulo the number that saved; its own parameters are the
 * outer ones where the checkpoint came after an outer step. */
static int array_saved(const struct job *job, const struct step *step, int array)
{
    const struct state_array what = state_describe(step_state(step), array, 0);
    const int arrays = step_arrays(step), n = job->replicas_saved;
    if (n == 0)
        return array;
    const int replica = what.replica % n, inner = arrays + 1 + (n - 1) * (arrays - 1);
    if (what.kind != STATE_REPLICA)
        return what.kind == STATE_OUTER ? 0 : arrays;
    if (what.moment == 0)
        return job->step % LOCAL_EVERY == 0 ? 0 : inner + replica;
    return replica == 0 ? what.moment : arrays + (replica - 1) * (arrays - 1) + what.moment;
}

static enum status tensors(const struct job *job, struct step *step, bool is_put)
{
    const int n = is_put ? state_count(step_state(step), job->step % LOCAL_EVERY != 0)
                         : state_count(step_state(step), true);
    for (int array = 0; array < n; array++)
        for (int row = 0; row < step_whole_table(step)->params_n; row++)
            if (!state_describe(step_state(step), array, 0).skips_hidden ||
                !step_whole_table(step)->param[row].is_hidden)
                TRY(tensor(step, array, array_saved(job, step, array), row, is_put));
    return ST_OK;
}

/* How rank 0 saves. COPY: of all arrays with their padding, made by the test. RANGES: as the file
 * is written. ASYNC: from a copy, beside training. WAIT: there is no memory for it. */
enum save { SAVE_COPY, SAVE_RANGES, SAVE_ASYNC, SAVE_WAIT, SAVE_N };

static enum status save_async(struct job *job, struct checkpoint *checkpoint, struct step *step,
                              const struct checkpoint_progress *progress, bool is_waiting)
{
    struct checkpoint_async_last last = {.step = -1};
    struct checkpoint_async *writer = NULL;
    const struct checkpoint_async_config config = {.checkpoint = checkpoint,
                                                   .step = step,
                                                   .dev = job->trial.config.dev,
                                                   .mode = is_waiting ? CHECKPOINT_ASYNC_MODE_AUTO
                                                                      : CHECKPOINT_ASYNC_MODE_ON,
                                                   .is_periodic = true,
                                                   .memory_bytes = is_waiting ? 0 : -1,
                                                   .last = &last};
    TRY(checkpoint_async_open(&config, &writer));
    (void)checkpoint_async_save(writer, progress, true);
    bool has_waited = last.step == progress->step;
    checkpoint_async_close(writer);
    text_copy(job->path, sizeof job->path, last.path);
    if (last.step != progress->step || has_waited != is_waiting)
        return FAIL(ST_BUG, "saved step %lld, waited %d", (long long)last.step, has_waited);
    return ST_OK;
}

static enum status save(struct job *job, struct checkpoint *checkpoint, struct step *step,
                        const struct checkpoint_progress *progress)
{
    if (job->save == SAVE_COPY) {
        int64_t each = step_whole_table(step)->total_elems;
        const int arrays = state_count(step_state(step), true);
        float *copy = calloc((size_t)(each * arrays), sizeof *copy);
        enum status st = copy != NULL ? ST_OK : FAIL(ST_RETRY, "out of memory");
        for (int array = 0; st == ST_OK && array < arrays; array++)
            st = state_read(step_state(step), array, 0, each, copy + array * each);
        if (st == ST_OK)
            st = checkpoint_save(checkpoint, progress, copy, NULL, job->path, sizeof job->path);
        free(copy);
        return st;
    }
    if (job->save == SAVE_RANGES)
        return checkpoint_save(checkpoint, progress, NULL, NULL, job->path, sizeof job->path);
    return save_async(job, checkpoint, step, progress, job->save == SAVE_WAIT);
}

static enum status first_rank(struct job *job, struct step *step, int ranks)
{
    struct checkpoint_config config = {.dims = &job->trial.config.dims,
                                       .dir = job->dir,
                                       .keep = 1,
                                       .settings_json = job->settings ? job->settings : "{}",
                                       .version = "test",
                                       .seed = 1,
                                       .data_fingerprint = 2,
                                       .needs_transfer =
                                           ranks > 1 || job->is_muon || job->replicas_saved > 0};
    struct checkpoint_progress progress = {
        .step = job->step, .samples = 84, .tokens = 924, .is_apart = job->step % LOCAL_EVERY != 0};
    struct checkpoint *checkpoint = NULL;
    bool is_found = false;
    enum status st = checkpoint_open(&config, &checkpoint);
    if (st == ST_OK && !job->is_load)
        st = tensors(job, step, true);
    if (st == ST_OK && job->is_load)
        st = checkpoint_find(checkpoint, &progress, &is_found, job->path, sizeof job->path);
    if (st == ST_OK)
        st = checkpoint_attach(checkpoint, step, &progress, job->path, sizeof job->path);
    if (st == ST_OK)
        st = job->is_load ? tensors(job, step, false) : save(job, checkpoint, step, &progress);
    if (st == ST_OK && job->is_load != is_found)
        st = FAIL(ST_BUG, "a checkpoint in %s: %d", job->dir, is_found);
    checkpoint_close(checkpoint);
    return state_end(step_state(step), st);
}

static enum status rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct step *step = NULL;
    job->trial.config.dev = one->dev;
    job->trial.config.comm = one->comm;
    job->trial.config.is_loaded = true;
    TRY(step_open(&job->trial.config, &step));
    job->total_elems = step_whole_table(step)->total_elems;
    enum status st =
        one->rank == 0 ? first_rank(job, step, one->ranks) : state_serve(step_state(step));
    step_close(step);
    return st;
}

/* On so many ranks; the job of rank 0. */
static struct job run(const char *dir, int ranks, enum layout_shard shard, enum optim_kind kind,
                      bool is_load)
{
    static struct job all[RANKS_MAX];
    for (int i = 0; i < ranks; i++) {
        all[i] = (struct job){
            .trial = trial_of(MODEL_TASK_LM, 12, 11), .is_load = is_load, .save = ranks % SAVE_N};
        all[i].step = 7;
        all[i].is_muon = kind == OPTIM_KIND_MUON;
        all[i].trial.config.optim.kind = kind;
        all[i].trial.config.store.shard = shard;
        text_copy(all[i].dir, sizeof all[i].dir, dir);
    }
    ranks_run(1, ranks, rank, all, sizeof *all);
    return all[0];
}

/* ---- files ---- */

static int64_t same_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int64_t n = 0;
    assert_true(x != NULL && y != NULL);
    for (int c = 0; c != EOF; n++)
        if ((c = fgetc(x)) != fgetc(y))
            fail_msg("%s and %s differ at byte %lld", a, b, (long long)n);
    fclose(x);
    fclose(y);
    return n - 1;
}

/* Calls same_file (b NULL: unlink) for each file of folder a; returns all their bytes. */
static int64_t each_file(const char *a, const char *b)
{
    DIR *dir = opendir(a);
    int64_t bytes = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char x[2 * FILE_PATH_MAX], y[2 * FILE_PATH_MAX];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        text_format(x, sizeof x, "%s/%s", a, e->d_name);
        text_format(y, sizeof y, "%s/%s", b != NULL ? b : "", e->d_name);
        if (b == NULL)
            (void)(unlink(x) != 0 && rmdir(x) != 0);
        else
            bytes += same_file(x, y);
    }
    closedir(dir);
    return bytes;
}

static void any_ranks(enum optim_kind kind)
{
    static struct job saved[COUNTS + 1];
    static const enum layout_shard shards[] = {0, LAYOUT_SHARD_NONE, LAYOUT_SHARD_OPTIMIZER,
                                               LAYOUT_SHARD_FULL, LAYOUT_SHARD_GRADIENTS};
    bool is_padded = false;
    for (int n = 1; n <= COUNTS; n++) {
        char dir[] = "/tmp/convoy_mesh_XXXXXX";
        assert_non_null(mkdtemp(dir));
        saved[n] = run(dir, n, shards[n], kind, false);
        is_padded |= saved[n].total_elems != saved[1].total_elems;
        int64_t bytes = each_file(saved[1].path, saved[n].path);
        assert_true(bytes > 3 * 4 * saved[1].trial.config.dims.vocab * 24);
        print_message("# saved by %d ranks: %lld elements with padding, %lld bytes\n", n,
                      (long long)saved[n].total_elems, (long long)bytes);
    }
    assert_true(is_padded);
    for (int from = 1; from <= COUNTS; from++)
        for (int to = 1; to <= COUNTS; to++)
            (void)run(saved[from].dir, to, shards[1 + (from + to) % COUNTS], kind, true);
    for (int n = 1; n <= COUNTS; n++) {
        (void)each_file(saved[n].path, NULL);
        (void)each_file(saved[n].dir, NULL);
        assert_int_equal(rmdir(saved[n].dir), 0);
    }
}

/* ---- LOCAL_STEPS ---- */

/* On so many replicas of `locals` ranks each; the job of rank 0. */
static struct job run_local(const char *dir, const struct job *like, int replicas, int locals)
{
    static struct job all[RANKS_MAX];
    for (int i = 0; i < replicas * locals; i++) {
        all[i] = *like;
        all[i].trial = trial_of(MODEL_TASK_LM, 12, 11);
        all[i].trial.config.local = (struct step_local_config){
            .steps = LOCAL_EVERY, .replica_ranks = locals, .lr = 0.7, .momentum = 0.9};
        text_copy(all[i].dir, sizeof all[i].dir, dir);
    }
    ranks_run(replicas, locals, rank, all, sizeof *all);
    return all[0];
}

/* other_replicas — the state of `from` replicas, saved after a step, on 1, 2 and 3 of them. */
static void other_replicas(int from, int step)
{
    char dir[] = "/tmp/convoy_mesh_XXXXXX", inner[FILE_PATH_MAX];
    struct job like = {.step = step, .replicas_saved = from, .save = (from + step) % SAVE_N};
    assert_non_null(mkdtemp(dir));
    const struct job saved = run_local(dir, &like, from, 1 + from % 2);
    assert_int_equal(file_join(inner, sizeof inner, saved.path, "inner_0.safetensors"), ST_OK);
    assert_int_equal(access(inner, F_OK) == 0, step % LOCAL_EVERY != 0);
    like.is_load = true;
    for (int to = 1; to <= 3; to++)
        (void)run_local(dir, &like, to, 1 + to % 2);
    (void)each_file(saved.path, NULL);
    (void)each_file(dir, NULL);
    assert_int_equal(rmdir(dir), 0);
}

/* Moments, outer momentum and, between two outer steps, each replica's parameters are read by any
 * number of replicas, of one or two ranks. */
TEST(any_number_of_replicas)
{
    for (int from = 1; from <= 3; from++) {
        other_replicas(from, 2 * LOCAL_EVERY + 2);
        other_replicas(from, 2 * LOCAL_EVERY);
    }
}

/* A checkpoint that may hold a fragment in flight, which no version has had since 0.2.0. */
TEST(fragments_are_refused)
{
    char dir[] = "/tmp/convoy_mesh_XXXXXX";
    assert_non_null(mkdtemp(dir));
    const struct job like = {.step = 7,
                             .replicas_saved = 1,
                             .save = SAVE_RANGES,
                             .settings = "{\"LOCAL_STEPS\":4,\"LOCAL_FRAGMENTS\":2}"};
    const struct job saved = run_local(dir, &like, 1, 1);
    const struct checkpoint_config config = {.dims = &saved.trial.config.dims,
                                             .dir = dir,
                                             .keep = 1,
                                             .settings_json = "{\"LOCAL_STEPS\":4}",
                                             .version = "test"};
    struct checkpoint_progress progress = {0};
    struct checkpoint *checkpoint = NULL;
    char path[FILE_PATH_MAX];
    bool is_found = false;
    assert_int_equal(checkpoint_open(&config, &checkpoint), ST_OK);
    assert_int_equal(checkpoint_find(checkpoint, &progress, &is_found, path, sizeof path),
                     ST_BAD_SETTING);
    assert_non_null(
        strstr(status_message(), "LOCAL_FRAGMENTS was 2, is not set; export its model"));
    status_clear();
    checkpoint_close(checkpoint);
    (void)each_file(saved.path, NULL);
    (void)each_file(dir, NULL);
    assert_int_equal(rmdir(dir), 0);
}

TEST(any_number_of_ranks) { (void)state, any_ranks(OPTIM_KIND_ADAMW); }
TEST(any_number_of_ranks_muon) { (void)state, any_ranks(OPTIM_KIND_MUON); }

HARNESS_RUN_ALL()
