/* static_trees — runs the static stage on the trees of tests/check/trees. */
#ifndef CONVOY_TESTS_STATIC_TREES_H
#define CONVOY_TESTS_STATIC_TREES_H

#include "harness.h"

#include "check/check.h"

#define TREES_UNPACK "tests/check/trees/unpack.pl"
#define TREES_MAX 256

struct static_tree {
    char name[40], verdict[8], row[40], subject[64], remedy[128], why[256], settings[160];
};

static inline void static_trees_field(char *out, size_t cap, char **rest)
{
    const char *field = strsep(rest, "\t");
    assert_non_null(field);
    text_copy(out, cap, field);
}

/* static_trees_list — every tree, with the row that is expected of it. */
static inline int static_trees_list(struct static_tree *out)
{
    char line[1024];
    int n = 0;
    FILE *list = popen(TREES_UNPACK " --list", "r");
    assert_non_null(list);
    while (fgets(line, sizeof line, list)) {
        char *rest = line;
        line[strcspn(line, "\n")] = 0;
        assert_true(n < TREES_MAX);
        struct static_tree *t = &out[n++];
        static_trees_field(t->name, sizeof t->name, &rest);
        static_trees_field(t->verdict, sizeof t->verdict, &rest);
        static_trees_field(t->row, sizeof t->row, &rest);
        static_trees_field(t->subject, sizeof t->subject, &rest);
        static_trees_field(t->remedy, sizeof t->remedy, &rest);
        static_trees_field(t->why, sizeof t->why, &rest);
        static_trees_field(t->settings, sizeof t->settings, &rest);
    }
    assert_int_equal(pclose(list), 0);
    return n;
}

struct static_trees {
    char root[600]; /* where the tree stands */
    FILE *names, *answers;
    pid_t pid;
};

static inline void static_trees_open(struct static_trees *t)
{
    int names[2], answers[2];
    text_format(t->root, sizeof t->root, "%s/tree", harness_tmpdir());
    assert_true(pipe(names) == 0 && pipe(answers) == 0);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        dup2(names[0], 0);
        dup2(answers[1], 1);
        close(names[1]);
        close(answers[0]);
        execl(TREES_UNPACK, TREES_UNPACK, t->root, (char *)NULL);
        _exit(127);
    }
    close(names[0]);
    close(answers[1]);
    t->names = fdopen(names[1], "w");
    t->answers = fdopen(answers[0], "r");
    assert_true(t->names && t->answers);
}

/* static_trees_become — puts that tree in the place of the one before. */
static inline void static_trees_become(struct static_trees *t, const char *name)
{
    char line[16] = "";
    fprintf(t->names, "%s\n", name);
    fflush(t->names);
    assert_non_null(fgets(line, sizeof line, t->answers));
    assert_string_equal(line, "ok\n");
}

static inline void static_trees_close(struct static_trees *t)
{
    int how;
    fclose(t->names);
    fclose(t->answers);
    assert_int_equal(waitpid(t->pid, &how, 0), t->pid);
    assert_int_equal(how, 0);
}

static inline void static_trees_set(struct check_config *config, const char *settings)
{
    char copy[160], *rest = copy, *word;
    static char name[40];
    int64_t value;
    text_copy(copy, sizeof copy, settings);
    while ((word = strsep(&rest, " ")) != NULL) {
        char *equals = strchr(word, '=');
        if (equals == NULL)
            continue;
        *equals = 0;
        if (strcmp(word, "data") == 0) {
            text_copy(name, sizeof name, equals + 1);
            config->data_addr = name;
            continue;
        }
        assert_int_equal(text_parse_i64(equals + 1, -1, 4096, &value), TEXT_OK);
        int *field = strcmp(word, "expected") == 0   ? &config->gpus_expected
                     : strcmp(word, "used") == 0     ? &config->gpus_used
                     : strcmp(word, "allotted") == 0 ? &config->gpus_allotted
                     : strcmp(word, "locals") == 0   ? &config->place.locals
                                                     : &config->place.nodes;
        *field = (int)value;
    }
}

/* static_trees_run — the rows of a node that looks as the folder `root` does. */
static inline void static_trees_run(const char *root, const char *settings, struct check_rows *rows)
{
    struct check_config config = {.place = {.ranks = 1, .node = 3, .nodes = 8, .locals = 1},
                                  .root = root,
                                  .dir = "",
                                  .gpus_expected = -1};
    static_trees_set(&config, settings);
    if (config.place.node >= config.place.nodes)
        config.place.node = 0;
    config.place.ranks = config.place.nodes * config.place.locals;
    config.place.rank = config.place.node * config.place.locals;
    check_static_run(&config, 1000, rows);
}

static inline void static_trees_print(const struct check_rows *rows)
{
    for (int i = 0; i < rows->n; i++)
        print_message("# %s | %s | %s | %g | %s | %s\n", check_row_verdict(rows->row[i].verdict),
                      rows->row[i].name, rows->row[i].subject, rows->row[i].value, rows->row[i].why,
                      rows->row[i].remedy);
}

#endif
