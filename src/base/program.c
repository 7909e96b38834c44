/* program — see program.h. */
#include "base/program.h"

#include <stdbool.h>
#include <string.h>

#include "base/text.h"

static char name[4096] = "convoy";

static bool is_plain(const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    return text[0] != 0 && text[0] != '-' && text[strspn(text, plain)] == 0;
}

void program_set(const char *argv0)
{
    if (argv0 == NULL || !is_plain(argv0) || !text_copy(name, sizeof name, argv0))
        text_copy(name, sizeof name, "convoy");
}

const char *program_name(void) { return name; }
