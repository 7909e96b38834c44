/* comm_self — the suite on one rank. */
#include "comm/suite.h"

static void *world_new(const struct suite_job *job)
{
    (void)job;
    return NULL;
}
static void world_free(void *world) { (void)world; }

static enum status open_rank(struct suite_rank *me, const struct comm_config *config)
{
    struct comm_config mine = *config;
    int64_t bytes = -1;
    mine.kind = COMM_KIND_SELF;
    enum status st = comm_begin_open(&mine, &me->comm, NULL, &bytes);
    return st == ST_OK ? comm_end_open(me->comm, SUITE_GENERATION, NULL, NULL) : st;
}

static const int layouts[][2] = {{1, 1}};
static const struct suite suite_self_one = {.name = "self",
                                            .layouts_n = 1,
                                            .layouts = layouts,
                                            .world_new = world_new,
                                            .world_free = world_free,
                                            .open = open_rank};

static int begin(void **state)
{
    suite_this = &suite_self_one;
    return 0;
}

static const struct CMUnitTest tests[] = {SUITE_TESTS};
HARNESS_MAIN(tests, begin, NULL)
