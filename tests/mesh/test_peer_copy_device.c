/* test_peer_copy_device — copies in peers' memory of a state that lies in the memory of devices
 * (fake_device.h): a rank ends in the middle of a step, and a node loses its memory. The job goes
 * on from the copies to the bits of a run that was never disturbed. A device reads as late as it
 * may, so a copy that an update overtakes has the wrong bits. */
#include "mesh/device_copies.h"
#include "mesh/ways.h"

static struct job job_of(enum layout_shard shard, int every)
{
    struct job job = copies_job_of(shard);
    job.every = every;
    return job;
}

/* before the copy begins; in it; at its end; when it is under way or done */
static const int units[] = {COPIES_LAST_UNIT, 2, 0, COPIES_AFTER_UNIT_0};

static void heal_shard(enum layout_shard shard, int every)
{
    static const int shapes[][2] = {{2, 1}, {2, 2}, {3, 1}};
    const struct job like = job_of(shard, every);
    for (int path = 0; path < PATH_N; path++) {
        const int i = ((int)shard + path) % 3, u = (int)shard + every;
        device_copies_heal(&like, (enum path)path, shapes[i][0], shapes[i][1],
                           units[(u + path) % 4], u % 3 > 0);
    }
}

TEST(test_heal)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        heal_shard((enum layout_shard)shard, 1);
}

/* Several steps from one copy to the next: at most these are repeated. */
TEST(test_every_third)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        heal_shard((enum layout_shard)shard, 3);
}

/* The device reads a slice only when the step's stream waits for it, or long after the job has
 * begun to wait: updates must not overtake it. */
TEST(test_late_reads)
{
    atomic_store(&fake_device.late_n, 200);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        heal_shard((enum layout_shard)shard, 1);
    atomic_store(&fake_device.late_n, 2);
}

static void hold_stream(struct step *step, int64_t steps)
{
    (void)steps;
    fake_device_hold(step_stream(step), 20);
}

/* The device reads a slice as soon as it may, but is late with the step: the update that is
 * deferred to this step must come first. */
TEST(test_early_reads)
{
    struct job like = job_of(LAYOUT_SHARD_NONE, 1);
    like.begin_step = hold_stream;
    atomic_store(&fake_device.late_n, 0);
    device_copies_heal(&like, PATH_NCCL, 2, 1, COPIES_AFTER_UNIT_0, true);
    device_copies_heal(&like, PATH_STAGED, 2, 1, 0, false);
    atomic_store(&fake_device.late_n, 2);
}

/* A bit of a rank's parameters changes by itself: copies that contain it are not used. */
static void flip(enum layout_shard shard, enum path path, int rank)
{
    char what[96];
    struct job like = job_of(shard, 1), job;
    text_format(what, sizeof what, "%s, shard %d: a bit of rank %d", path_name[path], (int)shard,
                rank);
    like.trial.config.sentinel_every = 1;
    copies_begin(2);
    device_copies_run(&like, path, 2, 1);
    copies_ended_well(2, what);
    copies_end(2);
    struct trial calm = copies_job[0].trial;
    job = like;
    job.flip_step = 3;
    job.flip_rank = rank;
    copies_begin(2);
    device_copies_run(&job, path, 2, 1);
    if (!copies_job[rank].is_changed)
        fail_msg("%s: %s: %s", what, status_name(copies_one[rank].st), copies_one[rank].message);
    device_copies_run(&like, path, 2, 1);
    copies_ended_well(2, what);
    trial_same_state(&copies_job[0].trial, &calm, what);
    print_message("# %s: found step %lld\n", what, (long long)copies_job[0].found_step);
    assert_in_range(copies_job[0].found_step, 1, 3);
    trial_free(&calm);
    trial_free(&copies_job[0].trial);
    copies_end(2);
}

TEST(test_a_changed_bit)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int path = 0; path < PATH_N; path++)
            flip((enum layout_shard)shard, (enum path)path, (shard + path) % 2);
}

/* A rank ends, and another number of nodes has the state that the first ones had. */
static void resize(enum layout_shard shard, enum path path, int before, int then, int locals)
{
    char what[96];
    const int most = (before > then ? before : then) * locals;
    struct job like = job_of(shard, 1), job;
    text_format(what, sizeof what, "%s, shard %d, %d nodes, then %d, x %d", path_name[path],
                (int)shard, before, then, locals);
    like.ranks_min = (before < then ? before : then) * locals;
    job = like;
    job.leave_step = 3;
    job.leave_unit = 0;
    job.leave_rank = before * locals - 1;
    copies_begin(most);
    device_copies_run(&job, path, before, locals);
    assert_int_equal(copies_one[job.leave_rank].st, ST_RETRY);
    if (then < before)
        copies_lose_node(before - 1, locals);
    job = like;
    job.last_step = 0;
    device_copies_run(&job, path, then, locals);
    copies_ended_well(then * locals, what);
    copies_end(most);
    struct trial got = copies_job[0].trial;
    like.last_step = (int)copies_job[0].found_step;
    assert_in_range(like.last_step, 2, 3);
    copies_begin(most);
    device_copies_run(&like, path, before, locals);
    copies_ended_well(before * locals, what);
    copies_end(most);
    trial_same_state(&got, &copies_job[0].trial, what);
    print_message("# %s: found step %d\n", what, like.last_step);
    trial_free(&got);
    trial_free(&copies_job[0].trial);
}

TEST(test_resize)
{
    for (int path = 0; path < PATH_N; path++) {
        resize(LAYOUT_SHARD_NONE, (enum path)path, 3, 2, 1);
        resize(LAYOUT_SHARD_FULL, (enum path)path, 3, 2, 1);
        resize(LAYOUT_SHARD_FULL, (enum path)path, 2, 3, 1);
        resize(LAYOUT_SHARD_OPTIMIZER, (enum path)path, 2, 1, 2);
    }
}

/* The interval is measured: all ranks choose the same, and go on from a copy. */
TEST(test_measured_interval)
{
    struct job like = job_of(LAYOUT_SHARD_FULL, 0);
    like.last_step = 16;
    like.trial.reads_state = false;
    for (int path = 0; path < PATH_N; path++) {
        copies_begin(2);
        device_copies_run(&like, (enum path)path, 2, 1);
        copies_ended_well(2, "measured");
        for (int rank = 0; rank < 2; rank++) {
            assert_true(copies_chosen[rank].every > 0);
            assert_int_equal(copies_chosen[rank].every, copies_chosen[0].every);
            assert_true(copies_chosen[rank].ms >= 0);
        }
        print_message("# %s: every %d steps\n", path_name[path], copies_chosen[0].every);
        like.last_step = 17;
        device_copies_run(&like, (enum path)path, 2, 1);
        copies_ended_well(2, "after that");
        assert_in_range(copies_job[0].found_step, 5, 15);
        assert_int_equal(copies_job[1].found_step, copies_job[0].found_step);
        copies_end(2);
        like.last_step = 16;
    }
}

/* Ranks that hold different shards of the model, or different positions of samples. */
TEST(test_meshes)
{
    static const struct {
        int tensor, context, stages, nodes, locals;
    } meshes[] = {{2, 1, 1, 2, 2}, {2, 1, 1, 2, 1}, {1, 1, 2, 4, 1}, {1, 1, 2, 2, 1},
                  {1, 2, 1, 2, 2}, {2, 1, 2, 2, 2}, {1, 2, 2, 4, 1}};
    for (int i = 0; i < (int)(sizeof meshes / sizeof *meshes); i++)
        for (int path = 0; path < PATH_N; path++) {
            struct job job = job_of(i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE, 1);
            struct step_config *c = &job.trial.config;
            c->dims.layers = 4;
            c->dims.heads = 4;
            c->seq_tokens = 16;
            c->dims.context = 19;
            c->axis_ranks[MESH_AXIS_TENSOR] = meshes[i].tensor;
            c->axis_ranks[MESH_AXIS_CONTEXT] = meshes[i].context;
            c->axis_ranks[MESH_AXIS_PIPELINE] = meshes[i].stages;
            device_copies_heal(&job, (enum path)path, meshes[i].nodes, meshes[i].locals,
                               units[(i + path) % 4], i % 3 > 0);
        }
}

int main(void)
{
    harness_quiet();
    ways_begin();
    device_copies_dev = ways_dev;
    int failed = harness_run_all(__FILE__, NULL, NULL);
    ways_end();
    return failed;
}
