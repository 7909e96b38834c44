/* suite_groups — groups of a mesh: splits that overlap and live at the same time. Part of
 * suite.h. */
#ifndef CONVOY_TESTS_COMM_SUITE_GROUPS_H
#define CONVOY_TESTS_COMM_SUITE_GROUPS_H

/* Memory of comm_alloc that is taken after calls have moved data, as a check of a job does, and
 * beside a split that is older. */
static void suite_late_alloc_rank(struct suite_rank *me)
{
    enum { ELEMS = 70001 };
    const int ranks = me->place.ranks;
    struct comm *split = NULL;
    int all[SUITE_RANKS_MAX];
    void *data[2];
    float few[2] = {1, 2};
    const struct tensor small = {few, DTYPE_F32};
    CHECK_OK(comm_all_reduce(me->comm, small, small, 2));
    for (int r = 0; r < ranks; r++)
        all[r] = r;
    CHECK_OK(comm_split(me->comm, all, ranks, &split));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(comm_alloc(me->comm, ELEMS * sizeof(float), &data[k]));
        for (int which = 0; which < 2; which++) {
            const struct tensor t = {data[k], DTYPE_F32};
            for (int i = 0; i < ELEMS; i++)
                ((float *)data[k])[i] = (float)(me->place.rank + i % 7);
            CHECK_OK(comm_all_reduce(which == 0 ? me->comm : split, t, t, ELEMS));
            for (int i = 0; i < ELEMS; i++)
                CHECK(((float *)data[k])[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7)),
                      "element %d: %g", i, (double)((float *)data[k])[i]);
        }
    }
    comm_close(split);
}
static void suite_late_alloc(void **state)
{
    if (!suite_this->is_discrete)
        suite_each(20000, 1, suite_late_alloc_rank);
}

/* The rows of a mesh are pairs of neighbours, its columns the ranks of one number in their rows. */
struct suite_mesh {
    struct comm *row, *column;
    int first_of_row, rows;
    float *x[3]; /* of the row, the column, all */
};
enum { SUITE_MESH_ELEMS = 20011 };

static void suite_mesh_open(struct suite_rank *me, struct suite_mesh *m)
{
    int own = me->place.rank, ranks[SUITE_RANKS_MAX];
    *m = (struct suite_mesh){.first_of_row = own - own % 2, .rows = me->place.ranks / 2};
    CHECK_OK(comm_split(me->comm, (int[]){m->first_of_row, m->first_of_row + 1}, 2, &m->row));
    for (int i = 0; i < m->rows; i++)
        ranks[i] = 2 * i + own % 2;
    CHECK_OK(comm_split(me->comm, ranks, m->rows, &m->column));
    for (int i = 0; i < 3; i++)
        m->x[i] = malloc(SUITE_MESH_ELEMS * sizeof(float));
}

static void suite_mesh_close(struct suite_mesh *m)
{
    comm_close(m->column);
    comm_close(m->row);
    for (int i = 0; i < 3; i++)
        free(m->x[i]);
}

static struct tensor suite_mesh_fill(struct suite_mesh *m, int group, int value)
{
    for (int i = 0; i < SUITE_MESH_ELEMS; i++)
        m->x[group][i] = (float)(value + i % 5);
    return (struct tensor){m->x[group], DTYPE_F32};
}

/* n ranks added up numbers that are `sum` together, and i % 5 each. */
static void suite_mesh_check(const struct suite_mesh *m, int group, int n, int sum)
{
    for (int i = 0; i < SUITE_MESH_ELEMS; i += 1 + i % 7)
        CHECK(m->x[group][i] == (float)(sum + n * (i % 5)), "group %d, %d: %g", group, i,
              (double)m->x[group][i]);
}

/* Calls of the column are under way while the row's block, as a step does: gradients travel beside
 * the tensor axis. */
static void suite_mesh_round(struct suite_rank *me, struct suite_mesh *m, int round)
{
    struct comm_ticket column, all;
    int own = me->place.rank, n = me->place.ranks, rows = m->rows;
    struct tensor in_column = suite_mesh_fill(m, 1, own), in_all = suite_mesh_fill(m, 2, own);
    CHECK_OK(comm_all_reduce_begin(m->column, in_column, in_column, SUITE_MESH_ELEMS, &column));
    struct tensor in_row = suite_mesh_fill(m, 0, own);
    CHECK_OK(comm_all_reduce(m->row, in_row, in_row, SUITE_MESH_ELEMS));
    suite_mesh_check(m, 0, 2, 2 * m->first_of_row + 1);
    CHECK_OK(comm_all_reduce_begin(me->comm, in_all, in_all, SUITE_MESH_ELEMS, &all));
    in_row = suite_mesh_fill(m, 0, round);
    CHECK_OK(comm_all_reduce(m->row, in_row, in_row, 7));
    CHECK_OK(comm_wait(me->comm, all)); /* a ticket is good for every group */
    CHECK_OK(comm_wait(m->row, column));
    suite_mesh_check(m, 1, rows, rows * (rows - 1) + rows * (own % 2));
    suite_mesh_check(m, 2, n, n * (n - 1) / 2);
}

static void suite_groups_rank(struct suite_rank *me)
{
    struct suite_mesh m;
    struct comm_activity activity;
    if (me->place.ranks < 4 || me->place.ranks % 2 != 0)
        return;
    suite_mesh_open(me, &m);
    for (int round = 0; round < 10; round++)
        suite_mesh_round(me, &m, round);
    comm_activity(me->comm, &activity); /* one count for all groups: the same on all ranks */
    CHECK(activity.sequence == 40, "%lld", (long long)activity.sequence);
    CHECK_OK(comm_barrier(me->comm));
    suite_mesh_close(&m);
}
static void suite_groups(void **state) { suite_each(20000, 4, suite_groups_rank); }

/* The first layout that is a mesh of rows and columns. */
static void suite_groups_late(int64_t late_ms, void (*fn)(struct suite_rank *me))
{
    for (int i = 0; i < suite_this->layouts_n; i++) {
        int nodes = suite_this->layouts[i][0], locals = suite_this->layouts[i][1];
        if (nodes * locals < 4 || nodes * locals % 2 != 0)
            continue;
        suite_run_late(suite_this, nodes, locals, late_ms, fn);
        return;
    }
}

/* The last rank stays away from its row. Its neighbour names it by its number in the job, and the
 * failure is that of all its groups. */
static void suite_groups_missing_rank(struct suite_rank *me)
{
    struct suite_mesh m;
    char want[64];
    int last = me->place.ranks - 1;
    suite_mesh_open(me, &m);
    struct tensor t = suite_mesh_fill(&m, 0, 0);
    CHECK_OK(comm_all_reduce(m.column, t, t, SUITE_MESH_ELEMS));
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank == last - 1) {
        snprintf(want, sizeof want, "rank %d has not entered all_reduce", last);
        CHECK(comm_all_reduce(m.row, t, t, SUITE_MESH_ELEMS) == ST_PEER &&
                  strstr(status_message(), want) != NULL,
              "want '%s' in: %s", want, status_message());
        CHECK(comm_all_reduce(m.column, t, t, 7) == ST_PEER, "%s", status_message());
        CHECK(comm_barrier(me->comm) == ST_PEER, "%s", status_message());
    }
    pthread_barrier_wait(&me->job->line_up);
    suite_mesh_close(&m);
}
static void suite_groups_missing(void **state)
{
    suite_groups_late(suite_this->late_ms > 0 ? suite_this->late_ms : 500,
                      suite_groups_missing_rank);
}

/* An abort ends a call of a group that waits for a rank. */
static void suite_groups_aborted_rank(struct suite_rank *me)
{
    struct suite_mesh m;
    suite_mesh_open(me, &m);
    struct tensor t = suite_mesh_fill(&m, 0, 0);
    CHECK_OK(comm_barrier(me->comm));
    pthread_barrier_wait(&me->job->line_up);
    if (me->place.rank == 1)
        atomic_store(&me->job->aborted, true);
    else if (me->place.rank == 0)
        CHECK(comm_all_reduce(m.row, t, t, SUITE_MESH_ELEMS) == ST_PEER, "%s", status_message());
    pthread_barrier_wait(&me->job->line_up);
    suite_mesh_close(&m);
}
static void suite_groups_aborted(void **state)
{
    suite_groups_late(60000, suite_groups_aborted_rank);
}

#endif
