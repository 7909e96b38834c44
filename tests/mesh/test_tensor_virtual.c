/* test_tensor_virtual — calls of virtual ranks of an axis: gathered parts, sums and their parts are
 * those of as many ranks, on one rank and on several; a failure ends all; which numbers go. */
#include "mesh/tensor_virtual.h"

#include "mesh/ranks.h"

#include "mesh/shard_tree.h"
#include "mesh/tensor_axis.h"

#define PARTS 8
#define EACH 16 /* elements of a part */
#define ELEMS (PARTS * EACH)

/* Of all virtual ranks: what they put in, and what they get. */
static float in[PARTS][ELEMS], gathered[PARTS][ELEMS], scattered[PARTS][EACH], whole[PARTS][ELEMS];

/* No two sums in another order are equal. */
static float value_at(int part, int i) { return 1.0F / (float)(3 + 7 * part + 11 * i); }

static void fill(void)
{
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < ELEMS; i++)
            in[part][i] = value_at(part, i);
}

/* by_halves — the sum over parts [first, first + n) of element i. */
static float by_halves(int first, int n, int i)
{
    const int left = (n + 1) / 2;
    return n == 1 ? value_at(first, i)
                  : by_halves(first, left, i) + by_halves(first + left, n - left, i);
}

struct work {
    struct tensor_virtual *v;
    struct stream *stream;
    int copies, fails; /* fails: the virtual rank that does, after its first call; -1: none */
};

static struct tensor of(float *data) { return (struct tensor){data, DTYPE_F32}; }

static enum status all_calls(void *arg, int i)
{
    const struct work *w = arg;
    const struct model_axis *axis = tensor_virtual_axis(w->v, i);
    const int part = axis->part;
    float own[EACH], sum[ELEMS];
    memcpy(own, in[part], sizeof own);
    TRY(axis->gather(axis->arg, w->stream, of(gathered[part]), of(own), ELEMS));
    if (part == w->fails)
        return FAIL(ST_BAD_DATA, "part %d fails", part);
    memcpy(sum, in[part], sizeof sum);
    TRY(axis->scatter_sum(axis->arg, w->stream, of(scattered[part]), of(sum), ELEMS));
    memcpy(whole[part], in[part], sizeof whole[part]);
    return axis->sum(axis->arg, w->stream, of(whole[part]), ELEMS, w->copies);
}

static void check(int parts, int copies)
{
    const int each = ELEMS / parts;
    for (int part = 0; part < parts; part++)
        for (int i = 0; i < ELEMS; i++) {
            const int first = part / copies * copies;
            if (gathered[part][i] != value_at(i / each, i % each) ||
                whole[part][i] != by_halves(first, copies, i))
                fail_msg("part %d of %d, element %d", part, parts, i);
            if (i < each && scattered[part][i] != by_halves(0, parts, part * each + i))
                fail_msg("part %d of %d, element %d of its sum", part, parts, i);
        }
}

/* One group of all parts: their gathered parts are as large as `own` above. */
static enum status run_rank(struct ranks_one *one)
{
    const struct work *like = one->arg;
    struct model_dims dims = {.part = {.tensor_rank = one->rank,
                                       .tensor_ranks = one->ranks,
                                       .kv_heads = PARTS / like->copies}};
    struct tensor_axis axis = {.blocked_ms = 0};
    struct work work = *like;
    enum status st = dev_stream_open(one->dev, &work.stream);
    if (st == ST_OK && one->ranks > 1)
        st = tensor_axis_open(one->comm, &dims, true, &axis);
    if (st == ST_OK)
        st = tensor_virtual_open(one->ranks > 1 ? &axis.model : NULL, dev_op(one->dev),
                                 PARTS / one->ranks, &work.v);
    for (int again = 0; st == ST_OK && again < 2; again++)
        st = tensor_virtual_run(work.v, all_calls, &work);
    tensor_virtual_close(work.v);
    tensor_axis_close(&axis);
    dev_stream_close(work.stream);
    return st;
}

static void calls_are_those_of_ranks(void **state)
{
    (void)state;
    fill();
    for (int ranks = 1; ranks < PARTS; ranks *= 2)
        for (int copies = 2; copies <= PARTS; copies *= 2) {
            struct work like[PARTS];
            for (int rank = 0; rank < ranks; rank++)
                like[rank] = (struct work){.copies = copies, .fails = -1};
            memset(gathered, 0, sizeof gathered);
            memset(scattered, 0, sizeof scattered);
            memset(whole, 0, sizeof whole);
            ranks_run(1, ranks, run_rank, like, sizeof *like);
            check(PARTS, copies);
        }
}

/* Some have called when one fails, some have not yet: all end, with its sentence. */
static void a_failure_ends_all(void **state)
{
    struct dev *dev;
    struct work work = {.copies = PARTS};
    (void)state;
    fill();
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &dev), ST_OK);
    assert_int_equal(dev_stream_open(dev, &work.stream), ST_OK);
    assert_int_equal(tensor_virtual_open(NULL, dev_op(dev), PARTS, &work.v), ST_OK);
    for (work.fails = 0; work.fails < PARTS; work.fails++) {
        char want[32];
        snprintf(want, sizeof want, "part %d fails", work.fails);
        assert_int_equal(tensor_virtual_run(work.v, all_calls, &work), ST_BAD_DATA);
        assert_string_equal(status_message(), want);
    }
    work.fails = -1;
    assert_int_equal(tensor_virtual_run(work.v, all_calls, &work), ST_OK);
    check(PARTS, PARTS);
    tensor_virtual_close(work.v);
    dev_stream_close(work.stream);
    dev_close(dev);
}

/* What goes is a rank's run of parts that the tree adds up before others': shard_tree.h says so. */
static void numbers_that_go(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks++)
        for (int parts = ranks; parts <= 64; parts++) {
            int begin[17];
            const bool goes = tensor_virtual_check(parts, ranks) == ST_OK;
            shard_tree_deal(parts, ranks, begin);
            if (goes && (parts % ranks != 0 || shard_tree_pieces(begin, ranks, NULL) != ranks))
                fail_msg("%d parts on %d ranks", parts, ranks);
            const bool is_one = parts == ranks || ranks == 1;
            if (!goes && (is_one || (parts == 2 * ranks && ranks == 4)))
                fail_msg("%d parts on %d ranks are refused", parts, ranks);
        }
    assert_int_equal(tensor_virtual_check(2, 4), ST_BAD_SETTING);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_those_of_ranks),
                                          cmocka_unit_test(a_failure_ends_all),
                                          cmocka_unit_test(numbers_that_go)};

HARNESS_MAIN(tests)
