/* version — see version.h. Must not know libraries. */
#include "base/version.h"

#ifndef CONVOY_VERSION
#error "the Makefile passes CONVOY_VERSION, CONVOY_COMMIT and CONVOY_DATE"
#endif

const char *version_text(void) { return CONVOY_VERSION; }

const char *version_date(void) { return CONVOY_DATE; }

const char *version_commit(void) { return CONVOY_COMMIT; }

const char *version_linked(void)
{
#ifdef CONVOY_LINKED
    return CONVOY_LINKED;
#else
    return "";
#endif
}

const char *version_compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}
