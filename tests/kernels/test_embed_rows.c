/* Rows that are added to a table: fast against plain with the same bits, in whole tables and parts
 * of them; ids that repeat in other lists, that are absent, and that no table has. */
#include "kernel_test.h"

struct input {
    int64_t lists, n, c, v;
    int32_t *ids;
    float *rows, *out;
    int64_t first, elems;
};

/* How ids are chosen: apart in all lists, the same in all lists, none, mixed with absent ones. */
enum ids { IDS_APART, IDS_SAME, IDS_NONE, IDS_MIXED, IDS_N };

static int32_t id_of(enum ids ids, const struct input *in, int64_t list, int64_t i)
{
    int64_t step = in->v % 7 ? 7 : 11; /* has no divisor in common with v: ids of a list differ */
    int64_t from = ids == IDS_SAME ? i : list * in->n + i;
    if (ids == IDS_NONE || (ids == IDS_MIXED && (list + i) % 3 == 0))
        return -1;
    return (int32_t)(from * step % in->v);
}

static struct input input_new(enum ids ids, int64_t lists, int64_t n, int64_t c, int64_t v)
{
    struct input in = {.lists = lists, .n = n, .c = c, .v = v, .elems = v * c};
    in.ids = malloc((size_t)(lists * n + 1) * sizeof *in.ids);
    assert_non_null(in.ids);
    for (int64_t row = 0; row < lists * n; row++)
        in.ids[row] = id_of(ids, &in, row / n, row % n);
    in.rows = kt_floats(lists * n * c, KT_RANDOM, 1);
    in.out = kt_floats(v * c, KT_RANDOM, 2);
    return in;
}

static void input_free(struct input *in)
{
    free(in->ids);
    kt_free(in->rows);
    kt_free(in->out);
}

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct embed_rows_add a = {.out = kt_f32(out[0]),
                               .rows = kt_f32(in->rows),
                               .ids = kt_i32(in->ids),
                               .lists = in->lists,
                               .n = in->n,
                               .c = in->c,
                               .first = in->first,
                               .elems = in->elems};
    return op->embed_rows_add(s, &a);
}

static void check(struct input *in, int64_t first, int64_t elems)
{
    in->first = first;
    in->elems = elems;
    kt_check(&(struct kt_case){"embed_rows_add", run, in, {in->out + first}, {elems}, 0});
}

/* Parts begin and end within a row, at its ends, and hold nothing. */
static void fast_matches_plain(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {2, 5, 3, 17}, {3, 16, 130, 50}, {4, 16, 768, 20}, {8, 3, 257, 24}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int ids = 0; ids < IDS_N; ids++) {
            struct input in =
                input_new((enum ids)ids, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
            int64_t all = in.v * in.c;
            check(&in, 0, all);
            check(&in, all / 3, all / 2);
            check(&in, all / 4 / 16 * 16, all / 2 / 16 * 16);
            check(&in, all - 1, 1);
            check(&in, all / 2, 0);
            input_free(&in);
        }
}

/* What plain does, in another way: the sum of an element, in the order of lists. */
static void each_element_is_its_sum(void **state)
{
    (void)state;
    struct input in = input_new(IDS_MIXED, 3, 6, 5, 13);
    float *out = kt_floats(13 * 5, KT_RANDOM, 2);
    int touched = 0;
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){out}));
    for (int64_t id = 0; id < 13; id++)
        for (int64_t c = 0; c < 5; c++) {
            float want = in.out[id * 5 + c];
            for (int64_t row = 0; row < 18; row++)
                if (in.ids[row] == id) {
                    want += in.rows[row * 5 + c];
                    touched++;
                }
            assert_true(out[id * 5 + c] == want);
        }
    assert_int_equal(touched, 12 * 5);
    kt_free(out);
    input_free(&in);
}

/* Another rank's list may hold anything after that rank was lost: nothing outside of the part is
 * read or written (kt_check looks at the guards). */
static void ids_beyond_the_table_do_no_harm(void **state)
{
    (void)state;
    struct input in = input_new(IDS_APART, 2, 4, 6, 9);
    in.ids[0] = INT32_MAX, in.ids[3] = INT32_MIN, in.ids[5] = 9, in.ids[6] = -2;
    check(&in, 0, 54);
    check(&in, 20, 7);
    input_free(&in);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(fast_matches_plain),
                                          cmocka_unit_test(each_element_is_its_sum),
                                          cmocka_unit_test(ids_beyond_the_table_do_no_harm)};
HARNESS_MAIN(tests)
