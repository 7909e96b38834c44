/* version — release, commit, date and compiler of this program. The build passes all but the
 * compiler as macros to version.c, so that only this file is compiled again when only the commit
 * changed. Must not know libraries: their list is text that the build passes, too. */
#ifndef CONVOY_BASE_VERSION_H
#define CONVOY_BASE_VERSION_H

const char *version_text(void);   /* "0.2.0" */
const char *version_commit(void); /* twelve hex digits, or "unknown" outside a git checkout */
const char *version_date(void);   /* date of the commit, "2026-11-22"; "" outside a git checkout */
const char *version_compiler(void); /* "gcc 12.2.0" */
/* version_linked — returns the libraries that a release contains, as lines "name version licence",
 * without the libraries that report their own version; "" if this is no release. */
const char *version_linked(void);

#endif
