/* program — see program.h. */
#include "base/program.h"

#include <string.h>

#include "base/text.h"

static char name[4096] = "convoy";

void program_set(const char *argv0)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (argv0 == NULL || argv0[0] == 0 || argv0[0] == '-' || argv0[strspn(argv0, plain)] != 0 ||
        !text_copy(name, sizeof name, argv0))
        text_copy(name, sizeof name, "convoy");
}

const char *program_name(void) { return name; }
