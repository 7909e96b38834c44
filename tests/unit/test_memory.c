/* test_memory — resident memory follows what is touched, and is not read more often than once a second. */
#include "harness.h"

#include <string.h>
#include <sys/mman.h>

#include "train/memory.h"

#define TOUCHED ((size_t)64 << 20)

static void test_follows(void **state)
{
    (void)state;
    struct memory memory = {0};
    int64_t before = memory_resident(&memory, 1000);
    assert_true(before > 100000);
    char *data = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    memset(data, 1, TOUCHED);
    assert_int_equal(memory_resident(&memory, 1500), before);
    assert_true(memory_resident(&memory, 2000) - before > (int64_t)TOUCHED / 2);
    munmap(data, TOUCHED);
}

static void test_left(void **state)
{
    (void)state;
    assert_int_equal(memory_available("MemTotal:  99 kB\nMemFree:  3 kB\nMemAvailable:   1234 kB\n"), 1234 * 1024);
    assert_int_equal(memory_available("MemTotal:  99 kB\n"), -1);
    assert_int_equal(memory_available("MemAvailable: x\n"), -1);
    assert_int_equal(memory_available("MemAvailable: 99999999999999999999999999999999999999 kB\n"), -1);
    assert_int_equal(memory_available(""), -1);
    assert_true(memory_free() > 1 << 20);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows), cmocka_unit_test(test_left)};
HARNESS_MAIN(tests)
