/* arena: aligned allocations in order, measuring without memory, and assertions when it is full or
 * sealed. */
#include "harness.h"

#include "base/arena.h"

static _Alignas(ARENA_ALIGN) char memory[1024];

TEST(blocks_are_aligned_and_apart)
{
    struct arena a;
    arena_init(&a, "test", memory, sizeof(memory));
    char *first = arena_alloc(&a, 1), *second = arena_alloc(&a, 64), *empty = arena_alloc(&a, 0),
         *third = arena_alloc(&a, 65);
    assert_ptr_equal(first, memory);
    assert_ptr_equal(second, memory + 64);
    assert_ptr_equal(empty, memory + 128);
    assert_ptr_equal(third, memory + 128);
    assert_int_equal(a.used_bytes, 256);
    assert_ptr_equal(arena_alloc(&a, 768), memory + 256); /* to the last byte */
}

TEST(measuring_needs_no_memory)
{
    struct arena a;
    arena_init(&a, "measure", NULL, 0);
    assert_null(arena_alloc(&a, (size_t)1 << 40));
    assert_int_equal((uintptr_t)arena_alloc(&a, 100), (uintptr_t)1 << 40);
    assert_int_equal(a.used_bytes, ((size_t)1 << 40) + 128);
}

static void too_much(void)
{
    struct arena a;
    arena_init(&a, "test", memory, 128);
    arena_alloc(&a, 64);
    arena_alloc(&a, 65);
}
static void fake_device_too_much(void)
{
    struct arena a;
    arena_init(&a, "test", memory, 128);
    arena_alloc(&a, SIZE_MAX); /* rounding up would wrap to 0 */
}
static void after_the_seal(void)
{
    struct arena a;
    arena_init(&a, "test", memory, 128);
    arena_seal(&a);
    arena_alloc(&a, 1);
}
static void crooked_base(void)
{
    struct arena a;
    arena_init(&a, "test", memory + 8, 128);
}

TEST(misuse_is_a_bug)
{
    void (*const cases[])(void) = {too_much, fake_device_too_much, after_the_seal, crooked_base};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pid_t child = fork();
        if (child == 0) {
            dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
            cases[i]();
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), 70);
    }
}

HARNESS_RUN_ALL()
