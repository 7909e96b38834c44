/* mesh — ranks along axes: every rank has one place, and groups cut the ranks into equal
 * parts. */
#include "mesh/mesh.h"

#include "harness.h"
#include "mesh/mesh_comm.h"

#define RANKS_MOST 64

/* Every way to cut this many ranks. */
static void each_mesh(void (*check)(const struct mesh *mesh))
{
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int tensor = 1; tensor <= ranks; tensor++)
            for (int context = 1; tensor * context <= ranks; context++)
                for (int pipeline = 1; tensor * context * pipeline <= ranks; pipeline++) {
                    struct mesh mesh;
                    if (ranks % (tensor * context * pipeline) != 0)
                        continue;
                    assert_int_equal(mesh_make(ranks, tensor, context, pipeline, &mesh), ST_OK);
                    assert_int_equal(mesh_ranks(&mesh), ranks);
                    check(&mesh);
                }
}

/* rank = ((pipeline · D + data) · C + context) · T + tensor, written out. */
static void coords_of(const struct mesh *mesh)
{
    int rank = 0;
    const int *size = mesh->size;
    for (int p = 0; p < size[MESH_AXIS_PIPELINE]; p++)
        for (int d = 0; d < size[MESH_AXIS_DATA]; d++)
            for (int c = 0; c < size[MESH_AXIS_CONTEXT]; c++)
                for (int t = 0; t < size[MESH_AXIS_TENSOR]; t++, rank++) {
                    struct mesh_coord at = mesh_coord_of(mesh, rank);
                    assert_int_equal(at.at[MESH_AXIS_PIPELINE], p);
                    assert_int_equal(at.at[MESH_AXIS_DATA], d);
                    assert_int_equal(at.at[MESH_AXIS_CONTEXT], c);
                    assert_int_equal(at.at[MESH_AXIS_TENSOR], t);
                    assert_int_equal(mesh_rank_of(mesh, &at), rank);
                }
}
TEST(test_coords) { each_mesh(coords_of); }

/* A group ascends, holds the rank, and is the same for each of its members. */
static void groups_of(const struct mesh *mesh)
{
    int group[RANKS_MOST], other[RANKS_MOST], ranks = mesh_ranks(mesh);
    for (unsigned axes = 0; axes < MESH_BIT(MESH_AXES); axes++) {
        int seen[RANKS_MOST] = {0};
        for (int rank = 0; rank < ranks; rank++) {
            int n = mesh_group(mesh, rank, axes, group), own = 0;
            assert_int_equal(n, mesh_group_n(mesh, axes));
            for (int i = 0; i < n; i++) {
                assert_true(i == 0 || group[i] > group[i - 1]);
                own += group[i] == rank;
                seen[group[i]]++;
            }
            assert_int_equal(own, 1);
            assert_int_equal(mesh_group(mesh, group[n - 1], axes, other), n);
            assert_memory_equal(group, other, (size_t)n * sizeof *group);
        }
        for (int rank = 0; rank < ranks; rank++)
            assert_int_equal(seen[rank], mesh_group_n(mesh, axes));
    }
}
TEST(test_groups)
{
    for (int tensor = 1; tensor <= 3; tensor++)
        for (int context = 1; context <= 2; context++)
            for (int data = 1; data <= 3; data++)
                for (int pipeline = 1; pipeline <= 2; pipeline++) {
                    struct mesh mesh;
                    assert_int_equal(mesh_make(tensor * context * data * pipeline, tensor, context,
                                               pipeline, &mesh),
                                     ST_OK);
                    groups_of(&mesh);
                }
}

/* Two nodes of four workers: tensor groups are neighbours, data groups reach the other node. */
TEST(test_groups_by_hand)
{
    struct mesh mesh;
    int group[8];
    assert_int_equal(mesh_make(8, 2, 1, 2, &mesh), ST_OK);
    assert_int_equal(mesh_group(&mesh, 5, MESH_BIT(MESH_AXIS_TENSOR), group), 2);
    assert_memory_equal(group, ((int[]){4, 5}), sizeof(int[2]));
    assert_int_equal(mesh_group(&mesh, 5, MESH_BIT(MESH_AXIS_DATA), group), 2);
    assert_memory_equal(group, ((int[]){5, 7}), sizeof(int[2]));
    assert_int_equal(mesh_group(&mesh, 5, MESH_BIT(MESH_AXIS_PIPELINE), group), 2);
    assert_memory_equal(group, ((int[]){1, 5}), sizeof(int[2]));
    assert_int_equal(
        mesh_group(&mesh, 6, MESH_BIT(MESH_AXIS_DATA) | MESH_BIT(MESH_AXIS_PIPELINE), group), 4);
    assert_memory_equal(group, ((int[]){0, 2, 4, 6}), sizeof(int[4]));
}

TEST(test_refused)
{
    struct mesh mesh;
    assert_int_equal(mesh_make(6, 2, 1, 2, &mesh), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "TP=2 x CP=1 x PP=2 are 4 ranks"));
    assert_non_null(strstr(status_message(), "do not divide the job's 6"));
    assert_int_equal(mesh_make(2, 4, 1, 1, &mesh), ST_BAD_SETTING);
    assert_int_equal(mesh_make(2, 0, 1, 1, &mesh), ST_BAD_SETTING);
    assert_int_equal(mesh_make(2, 1, -1, 1, &mesh), ST_BAD_SETTING);
    assert_int_equal(mesh_make(4096, 1 << 20, 1 << 20, 1 << 20, &mesh), ST_BAD_SETTING);
}

static bool is_within(int ranks, int tensor, unsigned axes, int locals)
{
    struct mesh mesh;
    assert_int_equal(mesh_make(ranks, tensor, 1, 1, &mesh), ST_OK);
    return mesh_comm_is_within_node(&mesh, axes, locals);
}

TEST(test_nodes)
{
    const unsigned tensor = MESH_BIT(MESH_AXIS_TENSOR), data = MESH_BIT(MESH_AXIS_DATA);
    assert_true(is_within(8, 2, tensor, 4));
    assert_true(is_within(8, 4, tensor, 4));
    assert_false(is_within(8, 8, tensor, 4));
    assert_false(is_within(6, 2, tensor, 3)); /* ranks 2 and 3 are on two nodes */
    assert_false(is_within(8, 2, data, 4));
    assert_true(is_within(4, 2, data, 4));
    assert_true(is_within(4, 4, data, 1)); /* one rank each */
}

static void check_link(int ranks, int tensor, unsigned axes, int locals, const char *backend,
                       const char *want)
{
    struct mesh mesh;
    char link[24];
    assert_int_equal(mesh_make(ranks, tensor, 1, 1, &mesh), ST_OK);
    mesh_comm_link(&mesh, axes, locals, backend, link, sizeof link);
    assert_string_equal(link, want);
}

TEST(test_links)
{
    const unsigned tensor = MESH_BIT(MESH_AXIS_TENSOR), data = MESH_BIT(MESH_AXIS_DATA);
    check_link(4, 2, tensor, 2, "shm + tcp", "shm");
    check_link(4, 2, data, 2, "shm + tcp", "tcp");
    check_link(8, 2, data, 4, "shm + tcp", "shm + tcp"); /* two of a node, two of the other */
    check_link(8, 8, tensor, 4, "shm + ucx", "shm + ucx");
    check_link(8, 8, data, 4, "shm + ucx", "");
    check_link(4, 2, data, 4, "shm", "shm");
    check_link(4, 2, tensor, 1, "tcp", "tcp");
    check_link(4, 2, data, 2, "nccl", "nccl");
}

TEST(test_names)
{
    static const char *const names[MESH_AXES] = {"tensor", "context", "data", "pipeline"};
    for (int i = 0; i < MESH_AXES; i++)
        assert_string_equal(mesh_axis_name((enum mesh_axis)i), names[i]);
}

/* What people read: outermost first, and nothing where ranks differ by their data alone. */
TEST(test_place)
{
    static const struct {
        int ranks, tensor, context, pipeline, rank, n;
        const char *text;
    } rows[] = {{1, 1, 1, 1, 0, 1, ""},
                {4, 1, 1, 1, 3, 1, ""},
                {2, 2, 1, 1, 1, 1, "tensor 1"},
                {4, 2, 1, 2, 2, 1, "stage 1, tensor 0"},
                {4, 2, 1, 2, 2, 2, "stage 1"},
                {4, 2, 1, 2, 0, 4, ""},
                {8, 2, 1, 2, 5, 1, "stage 1, data 0, tensor 1"},
                {8, 2, 1, 2, 4, 4, "stage 1"},
                {4, 2, 1, 1, 2, 2, "data 1"},
                {16, 2, 2, 2, 15, 1, "stage 1, data 1, context 1, tensor 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mesh mesh;
        char text[64];
        assert_int_equal(
            mesh_make(rows[i].ranks, rows[i].tensor, rows[i].context, rows[i].pipeline, &mesh),
            ST_OK);
        assert_string_equal(mesh_place(&mesh, rows[i].rank, rows[i].n, text, sizeof text),
                            rows[i].text);
    }
}

HARNESS_RUN_ALL()
