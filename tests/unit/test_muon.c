/* test_muon — the iteration against the formula in double, on wide, tall and square matrices. */
#include "train/muon.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "harness.h"
#include "kernels/cpu.h"
#include "newton_schulz.h"

struct bed {
    struct dev *dev;
    struct param param;
    struct param_table table;
    struct muon_room room;
    struct muon muon;
    _Alignas(256) char memory[1 << 16];
};

static void bed_open(struct bed *b, int64_t rows, int64_t columns)
{
    struct arena arena;
    memset(b, 0, sizeof *b);
    b->param = (struct param){.dims_n = 2, .dim = {rows, columns}, .elems = rows * columns};
    b->param.is_hidden = true;
    b->table =
        (struct param_table){.param = &b->param, .params_n = 1, .total_elems = rows * columns};
    arena_init(&arena, "muon", b->memory, sizeof b->memory);
    b->room = muon_take(&arena, &b->table);
    *(double *)b->room.unit.data = 1;
    assert_int_equal(dev_cpu_open(2, CPU_ISA_N, &b->dev), ST_OK);
    b->muon = (struct muon){.op = dev_op(b->dev), .table = &b->table, .room = &b->room};
    assert_int_equal(dev_stream_open(b->dev, &b->muon.stream), ST_OK);
}

static void bed_close(struct bed *b)
{
    dev_stream_close(b->muon.stream);
    dev_close(b->dev);
}

static double value(int64_t i) { return sin((double)(i * i % 1009) * 0.37 + 0.1) * 0.01; }

static void check(int r, int c)
{
    static struct bed b;
    static matrix want;
    struct tensor out;
    double norm = 0, wrong = 0, all = 0;
    bed_open(&b, r, c);
    for (int i = 0; i < r * c; i++) {
        ((float *)b.room.x.data)[i] = (float)value(i);
        norm += value(i) * value(i);
    }
    for (int i = 0; i < r * c; i++)
        want[i / c][i % c] = value(i) / (sqrt(norm) + 1e-6);
    newton_schulz(want, r, c);
    assert_int_equal(muon_orthogonalise(&b.muon, r, c, 0.5, &out), ST_OK);
    assert_int_equal(dev_sync(b.muon.stream), ST_OK);
    for (int i = 0; i < r * c; i++) {
        double here = ((float *)out.data)[i], there = 0.5 * want[i / c][i % c];
        wrong += (here - there) * (here - there);
        all += there * there;
    }
    print_message("# %d x %d: nmse %.1e\n", r, c, wrong / all);
    assert_true(all > 0.05 * (r < c ? r : c)); /* singular values of 0.5 to 1.5, halved */
    assert_true(wrong < 1e-9 * all);
    bed_close(&b);
}

static void test_formula(void **state)
{
    (void)state;
    check(7, 33);
    check(33, 7);
    check(24, 24);
    check(1, 5);
}

static void test_not_finite(void **state)
{
    (void)state;
    static struct bed b;
    struct tensor out;
    bed_open(&b, 5, 9);
    for (int i = 0; i < 45; i++)
        ((float *)b.room.x.data)[i] = 1;
    *(double *)b.room.unit.data = NAN;
    assert_int_equal(muon_orthogonalise(&b.muon, 5, 9, 1, &out), ST_OK);
    assert_int_equal(dev_sync(b.muon.stream), ST_OK);
    for (int i = 0; i < 45; i++)
        assert_true(((float *)out.data)[i] == 0);
    bed_close(&b);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula),
                                          cmocka_unit_test(test_not_finite)};
HARNESS_MAIN(tests)
