/* version — which program this is: release, commit, compiler. The build passes them in; nothing
 * else is compiled again when only the commit changed. Must not know libraries. */
#ifndef CONVOY_BASE_VERSION_H
#define CONVOY_BASE_VERSION_H

const char *version_text(void);     /* "0.1.0" */
const char *version_commit(void);   /* twelve hex digits, or "unknown" outside a git checkout */
const char *version_date(void);     /* of the commit, "2026-11-22"; "" outside a git checkout */
const char *version_compiler(void); /* "gcc 12.2.0" */
/* What the release has inside besides the libraries that tell their versions themselves: lines
 * "name version licence". */
const char *version_linked(void);

#endif
