/* harness_groups — the program of a folder of unit tests: runs the files that its arguments name by
 * their stems (none: all), each in a process of its own, and numbers their tests on. */
#include "harness.h"

struct harness_group *harness_groups;

struct tap {
    int tests_n;
    bool has_failed; /* a test of the file under way */
};

/* Returns the file's name without folders and ".c". */
static const char *stem_of(const struct harness_group *group, char *out, size_t cap)
{
    const char *slash = strrchr(group->file, '/');
    snprintf(out, cap, "%s", slash ? slash + 1 : group->file);
    out[strcspn(out, ".")] = 0;
    return out;
}

/* Writes a line of a file's TAP: a test gets the next number and the file's stem. */
static void write_line(struct tap *tap, const char *stem, const char *line)
{
    int n, at = 0;
    const bool is_bad = strncmp(line, "not ", 4) == 0;
    if (sscanf(line, "1..%d", &n) == 1)
        return;
    if (sscanf(line + (is_bad ? 4 : 0), "ok %d - %n", &n, &at) == 1 && at > 0) {
        printf("%sok %d - %s: %s", is_bad ? "not " : "", ++tap->tests_n, stem,
               line + (is_bad ? 4 : 0) + at);
        tap->has_failed = tap->has_failed || is_bad;
    } else {
        fputs(line, stdout);
    }
    fflush(stdout);
}

static pid_t start(const struct harness_group *group, FILE **out)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        exit(group->run() == 0 ? 0 : 1);
    }
    close(ends[1]);
    *out = fdopen(ends[0], "r");
    return child;
}

/* Runs the tests of a file. false: one failed, or the process ended otherwise. */
static bool run(struct tap *tap, const struct harness_group *group)
{
    char stem[128], *line = NULL;
    size_t cap = 0;
    int how = -1;
    FILE *out = NULL;
    pid_t child = start(group, &out);
    stem_of(group, stem, sizeof stem);
    tap->has_failed = false;
    while (out && getline(&line, &cap, out) > 0)
        write_line(tap, stem, line);
    free(line);
    if (out)
        fclose(out);
    if (child > 0)
        waitpid(child, &how, 0);
    if (how != 0 && !tap->has_failed) {
        printf("not ok %d - %s: ended with wait status 0x%x\n", ++tap->tests_n, stem,
               (unsigned)how);
        tap->has_failed = true;
    }
    return !tap->has_failed;
}

static int by_file(const void *a, const void *b)
{
    const struct harness_group *const *x = a, *const *y = b;
    return strcmp((*x)->file, (*y)->file);
}

static bool is_named(const struct harness_group *group, int argc, char **argv)
{
    char stem[128];
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], stem_of(group, stem, sizeof stem)) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    struct harness_group *group[256];
    int groups_n = 0, failed = 0;
    struct tap tap = {0};
    for (struct harness_group *at = harness_groups; at && groups_n < 256; at = at->next)
        if (is_named(at, argc, argv))
            group[groups_n++] = at;
    qsort(group, (size_t)groups_n, sizeof *group, by_file);
    for (int i = 0; i < groups_n; i++)
        failed += !run(&tap, group[i]);
    printf("1..%d\n", tap.tests_n);
    return failed || groups_n == 0;
}
