/* pipe — the schedule of a pipeline, for all p <= 8, m <= 32, v <= 4: every op once, inputs
 * before they are read, as much in flight as stated, the stated time; no stage waits without end,
 * whether messages are buffered or not. */
#include "harness.h"

#include "mesh/pipe/pipe.h"

enum { STAGES_MAX = 8, MICROS_MAX = 32, CHUNKS_MAX = 4, OPS_MAX = 2 * MICROS_MAX * CHUNKS_MAX };

static void each_pipe(void (*check)(const struct pipe *pipe))
{
    for (int p = 1; p <= STAGES_MAX; p++)
        for (int m = 1; m <= MICROS_MAX; m++)
            for (int v = 1; v <= CHUNKS_MAX; v++) {
                struct pipe pipe = {p, m, v};
                bool is_allowed = v == 1 || (p > 1 && m % p == 0);
                assert_int_equal(pipe_check(&pipe), is_allowed ? ST_OK : ST_BAD_SETTING);
                if (is_allowed)
                    check(&pipe);
            }
}

static int op_number(const struct pipe *pipe, struct pipe_op op)
{
    return (op.is_backward * pipe->chunks + op.chunk) * pipe->micros + op.micro;
}

/* ---- the ops of each stage alone ---- */

/* Every op is run once; micro-batches ascend in each chunk and direction; backward follows forward;
 * the most in flight is what pipe_in_flight tells. */
static void check_stage(const struct pipe *pipe, int stage)
{
    int seen[OPS_MAX] = {0}, next[2][CHUNKS_MAX] = {{0}}, flying = 0, most = 0;
    for (int i = 0; i < pipe_ops_n(pipe); i++) {
        struct pipe_op op = pipe_op_at(pipe, stage, i);
        assert_true(op.chunk >= 0 && op.chunk < pipe->chunks && op.micro >= 0 &&
                    op.micro < pipe->micros);
        assert_int_equal(op.micro, next[op.is_backward][op.chunk]++);
        assert_int_equal(seen[op_number(pipe, op)]++, 0);
        struct pipe_op forward = {false, op.chunk, op.micro};
        assert_int_equal(seen[op_number(pipe, forward)], 1);
        flying += op.is_backward ? -1 : 1;
        most = flying > most ? flying : most;
    }
    assert_int_equal(flying, 0);
    assert_int_equal(most, pipe_in_flight(pipe, stage));
    int p = pipe->stages, m = pipe->micros, v = pipe->chunks,
        bound = v == 1 ? p - stage : 2 * (p - 1 - stage) + (v - 1) * p + 1;
    assert_int_equal(most, m * v < bound ? m * v : bound);
}

static void check_stages(const struct pipe *pipe)
{
    for (int stage = 0; stage < pipe->stages; stage++)
        check_stage(pipe, stage);
}

TEST(test_ops) { each_pipe(check_stages); }

/* ---- all stages together ---- */

/* What is known of a run: times at which ops end and messages arrive; -1: not yet. A stage's main
 * thread runs the list; its queue moves messages in the order in which they were begun. */
struct trial {
    const struct pipe *pipe;
    bool is_buffered; /* a send is done at once; else with the receive */
    int forward, backward;
    struct pipe_plan plan[STAGES_MAX];
    int at[STAGES_MAX];
    int64_t now[STAGES_MAX];
    /* queue of messages begun; done: how many are over */
    struct pipe_plan_action queue[STAGES_MAX][6 * OPS_MAX];
    int64_t begun[STAGES_MAX][6 * OPS_MAX];
    int queued[STAGES_MAX], done[STAGES_MAX];
    int64_t end[STAGES_MAX][OPS_MAX], sent[STAGES_MAX][OPS_MAX], arrived[STAGES_MAX][OPS_MAX];
    int recvs_open[STAGES_MAX][2];
    /* of the embedding's gradient: times by micro-batch; how many are received and not added, and
     * added */
    int64_t embed_sent[MICROS_MAX], embed_arrived[MICROS_MAX];
    int embeds_open, embeds_added;
    bool has_input[STAGES_MAX]; /* of the op that runs next; adding would write over it */
};
static struct trial trial;

static const struct pipe_plan_action *head_of(int stage)
{
    return trial.done[stage] < trial.queued[stage] ? &trial.queue[stage][trial.done[stage]] : NULL;
}

/* One receive of the embedding's gradient, if it can come. */
static bool receive_embed(int stage, const struct pipe_plan_action *recv)
{
    int64_t begun = trial.begun[stage][trial.done[stage]], ready = trial.embed_sent[recv->op.micro];
    assert_int_equal(recv->peer, 0);
    if (!trial.is_buffered) {
        const struct pipe_plan_action *send = head_of(0);
        if (!send || send->kind != PIPE_PLAN_SEND_EMBED || send->op.micro != recv->op.micro)
            return false;
        assert_int_equal(send->peer, stage);
        ready = trial.begun[0][trial.done[0]++];
    }
    if (ready < 0)
        return false;
    trial.embed_arrived[recv->op.micro] = ready > begun ? ready : begun;
    trial.done[stage]++;
    return true;
}

/* One receive, if its message can come. */
static bool receive(int stage)
{
    const struct pipe_plan_action *recv = head_of(stage);
    int source;
    if (recv && recv->kind == PIPE_PLAN_RECV_EMBED)
        return receive_embed(stage, recv);
    if (!recv || recv->kind != PIPE_PLAN_RECV)
        return false;
    /* The op whose result is the input of an op. */
    struct pipe_op op = recv->op;
    struct pipe_op from;
    assert_true(pipe_source(trial.pipe, stage, op, &source, &from));
    int number = op_number(trial.pipe, from);
    assert_int_equal(source, recv->peer);
    int64_t begun = trial.begun[stage][trial.done[stage]], ready = trial.sent[source][number];
    if (!trial.is_buffered) {
        const struct pipe_plan_action *send = head_of(source);
        if (!send || send->kind != PIPE_PLAN_SEND || op_number(trial.pipe, send->op) != number)
            return false;
        assert_int_equal(send->peer, stage);
        ready = trial.begun[source][trial.done[source]++];
    }
    if (ready < 0)
        return false;
    trial.arrived[stage][op_number(trial.pipe, recv->op)] = ready > begun ? ready : begun;
    trial.done[stage]++;
    return true;
}

static bool buffer_send(int stage)
{
    const struct pipe_plan_action *send = head_of(stage);
    if (!trial.is_buffered || !send ||
        (send->kind != PIPE_PLAN_SEND && send->kind != PIPE_PLAN_SEND_EMBED))
        return false;
    int64_t *sent = send->kind == PIPE_PLAN_SEND_EMBED
                        ? &trial.embed_sent[send->op.micro]
                        : &trial.sent[stage][op_number(trial.pipe, send->op)];
    *sent = trial.begun[stage][trial.done[stage]++];
    return true;
}

static void run_op(int stage, struct pipe_op op)
{
    struct pipe_op from;
    int source;
    if (pipe_source(trial.pipe, stage, op, &source, &from)) {
        int64_t made = trial.end[source][op_number(trial.pipe, from)];
        assert_true(made >= 0 && made <= trial.now[stage]);
        if (source != stage) /* received and taken */
            assert_true(trial.arrived[stage][op_number(trial.pipe, op)] <= trial.now[stage] &&
                        trial.recvs_open[stage][op.is_backward] >= 0);
    }
    trial.now[stage] += op.is_backward ? trial.backward : trial.forward;
    trial.end[stage][op_number(trial.pipe, op)] = trial.now[stage];
}

/* add_embed — in the order of micro-batches, after the head's term. false: it waits. */
static bool add_embed(int stage, int micro)
{
    const struct pipe_op head = {true, trial.pipe->chunks - 1, micro};
    const int64_t arrived = trial.embed_arrived[micro];
    if (arrived < 0)
        return false;
    assert_true(trial.end[stage][op_number(trial.pipe, head)] >= 0 && !trial.has_input[stage]);
    assert_int_equal(micro, trial.embeds_added++);
    trial.now[stage] = arrived > trial.now[stage] ? arrived : trial.now[stage];
    trial.embeds_open--;
    return true;
}

/* One action of a stage; false: it waits. */
static bool act(int stage)
{
    if (trial.at[stage] == trial.plan[stage].actions_n)
        return false;
    const struct pipe_plan_action *a = &trial.plan[stage].action[trial.at[stage]];
    if (a->kind == PIPE_PLAN_COPY) {
        int64_t arrived = trial.arrived[stage][op_number(trial.pipe, a->op)];
        if (arrived < 0)
            return false;
        trial.now[stage] = arrived > trial.now[stage] ? arrived : trial.now[stage];
        trial.recvs_open[stage][a->op.is_backward]--;
        trial.has_input[stage] = true;
    } else if (a->kind == PIPE_PLAN_RUN) {
        run_op(stage, a->op);
        trial.has_input[stage] = false;
    } else if (a->kind == PIPE_PLAN_ADD_EMBED) {
        if (!add_embed(stage, a->op.micro))
            return false;
    } else {
        int number = op_number(trial.pipe, a->op);
        if (a->kind == PIPE_PLAN_SEND || a->kind == PIPE_PLAN_SEND_EMBED)
            assert_true(trial.end[stage][number] >= 0);
        if (a->kind == PIPE_PLAN_SEND_EMBED) { /* room for one: the next is not made yet */
            const struct pipe_op next = {true, 0, a->op.micro + 1};
            assert_true(next.micro == trial.pipe->micros ||
                        trial.end[stage][op_number(trial.pipe, next)] < 0);
        } else if (a->kind == PIPE_PLAN_RECV_EMBED)
            assert_int_equal(++trial.embeds_open, 1); /* room for one */
        else if (a->kind == PIPE_PLAN_RECV)
            assert_int_equal(++trial.recvs_open[stage][a->op.is_backward], 1); /* room for one */
        trial.queue[stage][trial.queued[stage]] = *a;
        trial.begun[stage][trial.queued[stage]++] = trial.now[stage];
    }
    trial.at[stage]++;
    return true;
}

static void run_all(void)
{
    bool is_moving = true;
    while (is_moving) {
        is_moving = false;
        for (int stage = 0; stage < trial.pipe->stages; stage++)
            while (act(stage) || buffer_send(stage) || receive(stage))
                is_moving = true;
    }
    for (int stage = 0; stage < trial.pipe->stages; stage++) {
        if (trial.at[stage] != trial.plan[stage].actions_n)
            fail_msg("p %d m %d v %d: stage %d waits at action %d", trial.pipe->stages,
                     trial.pipe->micros, trial.pipe->chunks, stage, trial.at[stage]);
        assert_int_equal(trial.done[stage], trial.queued[stage]);
    }
}

static void check_run(const struct pipe *pipe, bool is_buffered, bool is_early, bool has_embed,
                      int forward, int backward)
{
    int64_t end = 0;
    int ops_n[STAGES_MAX] = {0};
    memset(&trial, 0, sizeof trial);
    memset(trial.end, -1, sizeof trial.end);
    memset(trial.sent, -1, sizeof trial.sent);
    memset(trial.arrived, -1, sizeof trial.arrived);
    memset(trial.embed_sent, -1, sizeof trial.embed_sent);
    memset(trial.embed_arrived, -1, sizeof trial.embed_arrived);
    trial.pipe = pipe;
    trial.is_buffered = is_buffered;
    trial.forward = forward;
    trial.backward = backward;
    for (int stage = 0; stage < pipe->stages; stage++) {
        pipe_plan_make(pipe, stage, is_early, has_embed, &trial.plan[stage]);
        /* The last stage keeps no more gradients of the head than there are stages. */
        const struct pipe_plan *plan = &trial.plan[stage];
        const bool is_last = has_embed && stage == pipe->stages - 1;
        assert_int_equal(plan->heads_ahead > 0, is_last);
        assert_in_range(plan->heads_ahead, is_last, is_last ? pipe->stages : 0);
        assert_true(trial.plan[stage].grads_out <= (is_early ? 2 : 8));
        for (int i = 0; i < trial.plan[stage].actions_n; i++)
            ops_n[stage] += trial.plan[stage].action[i].kind == PIPE_PLAN_RUN;
        assert_int_equal(ops_n[stage], pipe_ops_n(pipe));
    }
    run_all();
    assert_int_equal(trial.embeds_added, has_embed ? pipe->micros : 0);
    for (int stage = 0; stage < pipe->stages; stage++) {
        end = trial.now[stage] > end ? trial.now[stage] : end;
        pipe_plan_free(&trial.plan[stage]);
    }
    /* else stages also wait to send; and the plan's times are those of 1 and 2 */
    if ((is_early || is_buffered) && (!has_embed || backward == 2))
        assert_int_equal(end, pipe_slots(pipe) * (forward + backward));
}

static void check_runs(const struct pipe *pipe)
{
    for (int has_embed = 0; has_embed <= (pipe->stages > 1); has_embed++)
        for (int is_buffered = 0; is_buffered <= 1; is_buffered++) {
            check_run(pipe, is_buffered, true, has_embed, 1, 1);
            check_run(pipe, is_buffered, true, has_embed, 1, 2);
            check_run(pipe, is_buffered, true, has_embed, 1, 3);
            check_run(pipe, is_buffered, false, has_embed, 1, 2);
        }
}

TEST(test_runs) { each_pipe(check_runs); }

/* Gradients that wait to be sent, for more stages (step/pipe.h: STEP_PIPE_GRADS_MAX). */
TEST(test_grads_out)
{
    int most = 0;
    for (int stages = 9; stages <= 32; stages++)
        for (int chunks = 2; chunks <= 4; chunks++)
            for (int stage = 0; stage < stages; stage++)
                for (int is_early = 0; is_early <= 1; is_early++) {
                    struct pipe pipe = {stages, 2 * stages, chunks};
                    struct pipe_plan plan;
                    pipe_plan_make(&pipe, stage, is_early, true, &plan);
                    most = plan.grads_out > most ? plan.grads_out : most;
                    pipe_plan_free(&plan);
                }
    print_message("# 9 to 32 stages: %d gradients wait at most\n", most);
    assert_in_range(most, 2, 16);
}

TEST(test_bubble)
{
    struct pipe pipe = {4, 8, 1}, chunked = {4, 8, 2};
    assert_int_equal(pipe_slots(&pipe), 11);
    assert_true(pipe_bubble(&pipe) == 3.0 / 11);
    assert_true(pipe_bubble(&chunked) == 3.0 / 19);
}

HARNESS_RUN_ALL()
