/* test_pairs — every link by itself: a clean world has the rows of all links and no bad one; the
 * judgement of made-up links names the link or the node; clocks. Real bad links are in
 * test_pairs_netns. */
#include "base/file.h"
#include "base/rand.h"
#include "base/text.h"
#include "check/links/links.h"
#include "check/world.h"

#define ANY (CHECK_VERDICT_MEASURED + 1)

static void clean(int nodes, int locals, bool is_tcp)
{
    struct world *w = world_new(nodes, locals, is_tcp);
    world_run(w, harness_patience_ms(60000), check_pairs_run);
    world_print(w, getenv("ALL_ROWS") != NULL);
    const int links = nodes * (nodes - 1) / 2, local = nodes * locals * (locals - 1) / 2;
    /* of links over the loopback device only the made-up ones below have certain values */
    assert_true(is_tcp || world_count(w, NULL, CHECK_VERDICT_FAIL) == 0);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_WARN), 0);
    assert_int_equal(world_count(w, "link latency", ANY), links);
    assert_int_equal(world_count(w, "link latency", CHECK_VERDICT_SKIPPED), 0);
    assert_int_equal(world_count(w, "link bandwidth", ANY), 2 * links);
    assert_int_equal(world_count(w, "local latency", ANY), local);
    assert_int_equal(world_count(w, "transport", CHECK_VERDICT_PASS), nodes);
    assert_int_equal(world_count(w, "clock skew", CHECK_VERDICT_PASS), nodes > 2 ? nodes : 1);
    assert_int_equal(world_count(w, "link retransmissions", ANY), is_tcp ? 2 * links : 1);
    world_free(w);
}

static void test_clean_threads(void **state)
{
    clean(2, 1, false);
    clean(3, 2, false);
}

static void test_clean_tcp(void **state) { clean(5, 1, true); }

/* ---- the first look at made-up links ---- */

static struct measure_link_found link_of(int a, int b, double us, double rate, uint64_t seed)
{
    const double noise = 1 + 0.1 * rand_uniform(seed, 1, (uint64_t)(a * 4096 + b));
    const struct measure_link_way way = {.rate = rate / noise,
                                         .rate_max = 1.05 * rate / noise,
                                         .spread = 0.05,
                                         .bulk_bytes = 1,
                                         .segments = 200,
                                         .bulk_segments = 100};
    return (struct measure_link_found){.a = a,
                                       .b = b,
                                       .pings = 200,
                                       .knows_segments = 1,
                                       .best_us = us * noise,
                                       .early_us = us * noise,
                                       .net_us = us * noise,
                                       .p50_us = us * noise + 5,
                                       .way = {way, way}};
}

/* All links of n nodes; those of `slow` (-1: none) have 2 ms more. Returns their number. */
static int make_links(struct measure_link_found *links, int n, int slow, uint64_t seed)
{
    int used = 0;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            links[used++] = link_of(a, b, a == slow || b == slow ? 2030 : 30, 1.0, seed);
    return used;
}

static struct check_links_norm norm_of(const struct measure_link_found *links, int n, int nodes)
{
    struct check_links_norm norm;
    check_links_norm(links, n, nodes < 8 ? 0.25 : 0.5, 50, &norm);
    return norm;
}

static void test_first_look(void **state)
{
    struct measure_link_found links[28 * 40];
    for (int nodes = 3; nodes <= 40; nodes++)
        for (int slow = -1; slow < nodes; slow += 1 + nodes / 5) {
            const int n = make_links(links, nodes, slow, (uint64_t)nodes);
            const struct check_links_norm norm = norm_of(links, n, nodes);
            for (int i = 0; i < n; i++) {
                const bool is_bad = links[i].a == slow || links[i].b == slow;
                assert_int_equal(check_links_suspect(&links[i], &norm),
                                 is_bad ? CHECK_LINKS_LATENCY : 0);
            }
        }
}

static void test_one_link(void **state)
{
    struct measure_link_found links[28];
    const int n = make_links(links, 8, -1, 3);
    links[5].way[1].rate = 0.5;
    links[9].way[0].resent = 1;
    links[11].way[1].bulk_resent = 4;
    links[12].pings = 0; /* not measured */
    links[12].best_us = 1e9;
    links[13].way[0].bulk_resent = 9;
    links[13].knows_segments = 0;
    const struct check_links_norm norm = norm_of(links, n, 8);
    for (int i = 0; i < n; i++)
        assert_int_equal(check_links_suspect(&links[i], &norm), i == 5    ? CHECK_LINKS_RATE_BACK
                                                                : i == 9  ? CHECK_LINKS_LOSS
                                                                : i == 11 ? CHECK_LINKS_LOSS_BACK
                                                                          : 0);
    assert_true(check_links_severity(&links[5], &norm) > 1.8);
    /* one link, or two, have no others to compare with; a lossy one needs none */
    const struct check_links_norm few = norm_of(links + 5, 2, 2);
    assert_int_equal(check_links_suspect(&links[5], &few), 0);
    assert_int_equal(check_links_suspect(&links[9], &few), CHECK_LINKS_LOSS);
    const struct check_links_norm none = norm_of(links + 12, 1, 2);
    assert_int_equal(none.n, 0);
}

/* On a busy machine the rates scatter so much that half of a rate is no outlier. */
static void test_slower(void **state)
{
    struct measure_link_found links[28];
    double share;
    const int n = make_links(links, 8, -1, 3);
    for (int i = 0; i < n; i++)
        links[i].way[0].rate = links[i].way[1].rate = 0.6 + 0.05 * (i % 16);
    links[9].way[1].rate = 0.45;
    const struct check_links_norm norm = norm_of(links, n, 8);
    assert_int_equal(check_links_suspect(&links[9], &norm), 0);
    assert_int_equal(check_links_slower(&links[9], &norm, &share), CHECK_LINKS_RATE_BACK);
    assert_true(share < 0.6);
    assert_int_equal(check_links_slower(&links[15], &norm, &share), 0);
    assert_true(share == 1);
}

/* ---- the second look ---- */

static void test_second_look(void **state)
{
    struct measure_link_found normal[3], link = {0};
    for (int i = 0; i < 3; i++)
        normal[i] = link_of(i, i + 1, 30, 1.0, 7);
    const struct check_links_norm alone = norm_of(normal, 3, 8);
    const unsigned all = 31;
    struct measure_link_found more = link_of(4, 5, 31, 0.99, 8);
    check_links_merge(&link, &more);
    assert_int_equal(check_links_confirm(&link, all, &alone, true), 0);
    /* slow, and steadily so: the link; slow while it waited for a core: not the link */
    link = link_of(4, 5, 31, 0.5, 8);
    assert_int_equal(check_links_confirm(&link, all, &alone, true),
                     CHECK_LINKS_RATE | CHECK_LINKS_RATE_BACK);
    link.way[0].rate_max = 2;
    link.way[0].spread = 0.4;
    assert_int_equal(check_links_confirm(&link, all, &alone, true), CHECK_LINKS_RATE_BACK);
    link.way[0].spread = 0.02;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, true), CHECK_LINKS_RATE);
    /* equally slow in each slice, but not each time: busy cores */
    struct measure_link_found other = link;
    other.way[0].rate *= 0.8;
    check_links_merge(&link, &other);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, true), 0);
    /* which a third measuring decides: the second one may have been disturbed */
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, false), CHECK_LINKS_RATE);
    other.way[0].rate = 0.97 * link.way[0].rate;
    check_links_merge(&link, &other);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, true), CHECK_LINKS_RATE);
    /* as normal links were at times, with both ends on one core */
    struct check_links_norm shared = alone;
    shared.rate_least = link.way[0].rate;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &shared, true), 0);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &shared, false),
                     CHECK_LINKS_RATE);
    link.way[0].rate_max = 0.7; /* not even without the waits for a core */
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &shared, true), 0);
    shared.rate_least = 1.3 * link.way[0].rate;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &shared, true), CHECK_LINKS_RATE);
    link.pings = 200;
    /* late, but not without the waits for a core */
    link.best_us = link.net_us = 3000;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &alone, true),
                     CHECK_LINKS_LATENCY);
    /* as late as normal links were in single measurings */
    shared = alone;
    shared.best_most_us = link.best_us;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &shared, true), 0);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &shared, false),
                     CHECK_LINKS_LATENCY);
    link.net_us = 70;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &alone, true), 0);
    /* of fewer pings than the normal links had, the first ones are compared */
    link = link_of(4, 5, 900, 1.0, 8);
    link.pings = 20;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &alone, true),
                     CHECK_LINKS_LATENCY);
    struct check_links_norm busy = alone;
    busy.early_us = 800;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &busy, true), 0);
    link.early_us = 5000;
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_LATENCY, &busy, true),
                     CHECK_LINKS_LATENCY);
    /* the best of several measurings counts */
    link = link_of(4, 5, 31, 0.5, 8);
    check_links_merge(&link, &more);
    assert_int_equal(check_links_confirm(&link, all, &alone, true), 0);
    assert_true(link.pings == 400 && link.best_us < 35 && link.way[0].rate > 0.85);
    /* retransmissions add up; a few of many are no fault */
    link.way[0].resent = 2;
    assert_int_equal(check_links_confirm(&link, all, &alone, true), 0);
    link.way[0].resent = 5;
    assert_int_equal(check_links_confirm(&link, all, &alone, true), CHECK_LINKS_LOSS);
    link.way[0].segments = 5000;
    assert_int_equal(check_links_confirm(&link, all, &alone, true), 0);
}

/* Rates of cores and memory alone: the normal ones scatter so much that no distance from the norm
 * means anything, but half of the least does. */
static void test_scattered_rates(void **state)
{
    static const double rates[] = {0.5, 1.4, 4.0};
    struct measure_link_found normal[3], link;
    for (int i = 0; i < 3; i++)
        normal[i] = link_of(i, i + 1, 30, rates[i], 7);
    const struct check_links_norm alone = norm_of(normal, 3, 8);
    assert_true(alone.rate - alone.rate_slack < 0);
    link = link_of(4, 5, 31, 0.012, 8);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, true), CHECK_LINKS_RATE);
    link = link_of(4, 5, 31, 0.35, 8);
    assert_int_equal(check_links_confirm(&link, CHECK_LINKS_RATE, &alone, true), 0);
}

/* A link of 12.5 MB/s has two frames on the way for 240 us: 100 us more than normal links have is
 * its rate, 5 ms is not. */
static void test_late_as_its_rate(void **state)
{
    const unsigned all = 31, slow = CHECK_LINKS_RATE | CHECK_LINKS_RATE_BACK;
    struct measure_link_found normal[3];
    for (int i = 0; i < 3; i++)
        normal[i] = link_of(i, i + 1, 5, 0.025, 7);
    const struct check_links_norm alone = norm_of(normal, 3, 8);
    struct measure_link_found link = link_of(4, 5, 105, 0.0125, 8);
    assert_int_equal(check_links_confirm(&link, all, &alone, true), slow);
    link.way[0] = link.way[1] = normal[0].way[0];
    assert_int_equal(check_links_confirm(&link, all, &alone, true), CHECK_LINKS_LATENCY);
    link = link_of(4, 5, 5005, 0.0125, 8);
    assert_int_equal(check_links_confirm(&link, all, &alone, true), slow | CHECK_LINKS_LATENCY);
}

/* All measurings of the normal links but one in ten: 6 ways; 12. */
static void test_least_rate(void **state)
{
    struct measure_link_found links[6];
    for (int i = 0; i < 6; i++)
        links[i] = link_of(i, i + 1, 30, 1.0, 7);
    links[2].way[1].rate = 0.3;
    assert_true(norm_of(links, 3, 8).rate_least == 0.3);
    assert_true(norm_of(links, 6, 8).rate_least > 0.85);
    links[5].way[0].rate = 0.4;
    assert_true(norm_of(links, 6, 8).rate_least == 0.4);
}

/* Of four nodes on a busy machine all links may look bad; those of node 3 are. */
static void test_all_are_suspects(void **state)
{
    struct measure_link_found found[6];
    struct check_link links[6] = {0};
    struct check_links_kind kind = {.locals = 1};
    struct check_links_again again;
    const int n = make_links(found, 4, -1, 3);
    for (int i = 0; i < n; i++) {
        if (found[i].b == 3)
            found[i].way[1].rate = 0.012;
        links[i] = (struct check_link){.found = found[i], .flags = CHECK_LINKS_RATE_BACK};
    }
    kind.norm = norm_of(found, n, 4);
    check_links_list(links, n, &kind, 12, &again);
    assert_int_equal(again.suspects, 3);
    assert_int_equal(again.n, 6);
    for (int job = 0; job < again.n; job++) {
        const struct check_link *link = &links[again.link[job]];
        assert_int_equal(link->found.b == 3, job < again.suspects);
        assert_int_equal(link->flags, job < again.suspects ? CHECK_LINKS_RATE_BACK : 0);
    }
    /* one link of two nodes: there is nothing to compare with, but it may lose segments */
    links[0].flags = CHECK_LINKS_LOSS;
    kind.norm = norm_of(found, 1, 2);
    check_links_list(links, 1, &kind, 12, &again);
    assert_true(again.suspects == 1 && again.n == 1 && again.open[0] == CHECK_LINKS_LOSS);
}

/* ---- links and nodes ---- */

static struct check_link *links_of(int nodes, int *n_out)
{
    struct check_link *links = calloc((size_t)(nodes * nodes), sizeof *links);
    *n_out = 0;
    for (int a = 0; a < nodes; a++)
        for (int b = a + 1; b < nodes; b++)
            links[(*n_out)++] = (struct check_link){.found = {.a = a, .b = b}};
    return links;
}

static void test_blame(void **state)
{
    for (int nodes = 2; nodes <= 12; nodes++)
        for (int bad = 0; bad < nodes; bad++) {
            int n;
            struct check_link *links = links_of(nodes, &n);
            for (int i = 0; i < n; i++)
                links[i].bad = links[i].found.a == bad || links[i].found.b == bad;
            check_links_blame(links, n);
            for (int i = 0; i < n; i++)
                assert_int_equal(links[i].suspect, links[i].bad && nodes > 2 ? bad : -1);
            free(links);
        }
    int n;
    struct check_link *links = links_of(6, &n);
    links[3].bad = 1; /* one link alone: no end is to blame */
    check_links_blame(links, n);
    assert_int_equal(links[3].suspect, -1);
    free(links);
}

/* ---- clocks ---- */

/* Offsets along a chain of links: node `wrong` is ahead by so much, all others agree. */
static void check_clocks(int nodes, int wrong, int64_t ms)
{
    struct measure_link_found links[16];
    struct check_skew skew[16];
    for (int i = 0; i + 1 < nodes; i++) {
        links[i] = link_of(2 * i, 2 * (i + 1), 40, 1, 5);
        links[i].offset_ms = i == wrong ? -ms : i + 1 == wrong ? ms : 0;
    }
    check_skew_find(links, nodes - 1, nodes, 2, skew);
    for (int node = 0; node < nodes; node++) {
        assert_true(skew[node].is_known);
        const struct check_row row = check_skew_row(&skew[node], "", node, nodes);
        const int64_t off = node == wrong ? (ms < 0 ? -ms : ms) : 0;
        assert_int_equal((int64_t)row.value, off);
        assert_int_equal(row.verdict, off > 1000  ? CHECK_VERDICT_FAIL
                                      : off > 100 ? CHECK_VERDICT_WARN
                                                  : CHECK_VERDICT_PASS);
    }
}

static void test_clocks(void **state)
{
    check_clocks(8, 0, 5000);
    check_clocks(8, 5, -300);
    check_clocks(3, 2, 90);
    check_clocks(2, 1, 86400000);
    struct check_skew skew[3];
    const struct measure_link_found link = link_of(0, 1, 40, 1, 5);
    check_skew_find(&link, 1, 3, 1, skew);
    assert_true(skew[1].is_known && !skew[2].is_known);
    assert_int_equal(check_skew_row(&skew[2], "", 2, 3).verdict, CHECK_VERDICT_SKIPPED);
}

/* The printed command is of a program that the machine has. */
static void test_clock_remedy(void **state)
{
    static const char *const has[][2] = {{"/none", "|| dnf"},
                                         {"/usr/sbin/ntpd", "ntpd -gq"},
                                         {"/usr/bin/timedatectl", "ntpd -gq"},
                                         {"/run/systemd/system", "timedatectl set-ntp false &&"},
                                         {"/usr/bin/chronyc", "chronyc makestep && chronyc track"},
                                         {"/.dockerenv", "chronyc makestep && chronyc tracking #"}};
    const struct check_skew skew = {.is_known = true, .ms = 7000};
    char root[FILE_PATH_MAX], path[FILE_PATH_MAX];
    assert_true(text_format(root, sizeof root, "%s/XXXXXX", harness_tmpdir()) && mkdtemp(root));
    for (size_t i = 0; i < sizeof has / sizeof has[0]; i++) {
        text_format(path, sizeof path, "%s%s", root, has[i][0]);
        assert_int_equal(file_make_dirs(path), ST_OK);
        const struct check_row row = check_skew_row(&skew, root, 1, 8);
        if (!strstr(row.remedy, has[i][1]))
            fail_msg("with %s: %s", has[i][0], row.remedy);
    }
    assert_int_equal(file_remove_tree(root), ST_OK);
}

static void test_wrong_clock(void **state)
{
    struct world *w = world_new(4, 1, false);
    w->rank[2].config.clock_offset_ms = -7000;
    world_run(w, harness_patience_ms(60000), check_pairs_run);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_FAIL), 1);
    assert_int_equal(world_count(w, "clock skew", CHECK_VERDICT_PASS), 3);
    for (int i = 0; i < w->rank[2].rows.n; i++)
        if (w->rank[2].rows.row[i].verdict == CHECK_VERDICT_FAIL)
            assert_true(w->rank[2].rows.row[i].node == 2 &&
                        fabs(w->rank[2].rows.row[i].value - 7000) < 1000);
    world_free(w);
}

static void test_alone(void **state)
{
    struct world *w = world_new(1, 1, false);
    world_run(w, 1000, check_pairs_run);
    assert_int_equal(world_count(w, NULL, ANY), 1);
    assert_int_equal(world_count(w, "link latency", CHECK_VERDICT_SKIPPED), 1);
    world_free(w);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_clean_threads),
                                          cmocka_unit_test(test_clean_tcp),
                                          cmocka_unit_test(test_first_look),
                                          cmocka_unit_test(test_slower),
                                          cmocka_unit_test(test_one_link),
                                          cmocka_unit_test(test_second_look),
                                          cmocka_unit_test(test_all_are_suspects),
                                          cmocka_unit_test(test_scattered_rates),
                                          cmocka_unit_test(test_late_as_its_rate),
                                          cmocka_unit_test(test_least_rate),
                                          cmocka_unit_test(test_blame),
                                          cmocka_unit_test(test_clocks),
                                          cmocka_unit_test(test_clock_remedy),
                                          cmocka_unit_test(test_wrong_clock),
                                          cmocka_unit_test(test_alone)};
HARNESS_MAIN(tests)
