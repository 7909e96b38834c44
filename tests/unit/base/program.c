/* program — the name in hints: as the program was called, unless a shell would read it
 * otherwise. */
#include "harness.h"

#include "base/program.h"

TEST(name_as_called)
{
    static const struct {
        const char *argv0, *name;
    } trials[] = {
        {"build/convoy", "build/convoy"},
        {"/usr/bin/convoy", "/usr/bin/convoy"},
        {"./convoy", "./convoy"},
        {"../x-1/a_b+c", "../x-1/a_b+c"},
        {NULL, "convoy"},
        {"", "convoy"},
        {"my folder/convoy", "convoy"},
        {"a;rm", "convoy"},
        {"-x", "convoy"},
        {"$HOME/convoy", "convoy"},
        {"a'b", "convoy"},
    };
    char longest[5000];
    assert_string_equal(program_name(), "convoy");
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        program_set(trials[i].argv0);
        assert_string_equal(program_name(), trials[i].name);
    }
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    program_set(longest);
    assert_string_equal(program_name(), "convoy");
}

HARNESS_RUN_ALL()
