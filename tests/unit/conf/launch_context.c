/* launch_context: a pod, a Slurm job, a container, or a shell. */
#include "harness.h"

#include "conf/launcher.h"

static char *none[] = {NULL};
static const char *root;

static const char *name(char **environment, int pid, int parent, bool is_terminal)
{
    const struct launcher_context context = {.environment = environment,
                                             .root = root,
                                             .pid = pid,
                                             .parent = parent,
                                             .is_terminal = is_terminal};
    const char *found = launcher_context_name(&context);
    return found != NULL ? found : "shell";
}

static void leave(const char *path)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fclose(file);
}

static void drop(const char *path)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(remove(full), 0);
}

TEST(variables)
{
    char *pod[] = {"KUBERNETES_SERVICE_HOST=10.96.0.1", NULL}, *job[] = {"SLURM_JOB_ID=3", NULL},
         *unset[] = {"KUBERNETES_SERVICE_HOST=", NULL};
    assert_string_equal(name(pod, 71, 70, false), "Kubernetes");
    assert_string_equal(name(job, 71, 70, false), "Slurm");
    assert_string_equal(name(unset, 71, 70, false), "shell");
    assert_string_equal(name(pod, 1, 0, true), "shell"); /* a person watches */
    assert_string_equal(name(job, 71, 70, true), "shell");
}

static int open_root(void **state)
{
    char run[600];
    root = harness_tmpdir();
    snprintf(run, sizeof run, "%s/run", root);
    return mkdir(run, 0700);
}

/* A shell in a container starts us some levels below its first process; a daemon's parent is 1
 * without any container. */
TEST_WITH(containers, open_root, NULL)
{
    char *marked[] = {"container=podman", NULL};
    assert_string_equal(name(none, 1, 0, false), "container");
    assert_string_equal(name(none, 7, 1, false), "shell");
    assert_string_equal(name(marked, 7, 1, false), "container");
    assert_string_equal(name(marked, 8, 7, false), "shell");
    leave("/.dockerenv");
    assert_string_equal(name(none, 7, 1, false), "container");
    assert_string_equal(name(none, 8, 7, false), "shell");
    assert_string_equal(name(none, 1, 0, true), "shell");
    drop("/.dockerenv");
    leave("/run/.containerenv");
    assert_string_equal(name(none, 7, 1, false), "container");
    drop("/run/.containerenv");
}

static bool is_container(char **environment, int pid, int parent)
{
    const struct launcher_context context = {.environment = environment,
                                             .root = root,
                                             .pid = pid,
                                             .parent = parent,
                                             .is_terminal = true};
    return launcher_context_is_container(&context);
}

/* Whether a person watches does not matter, nor how deep in the container a shell is. */
TEST(inside_of_containers)
{
    char *marked[] = {"container=podman", NULL},
         *pod[] = {"KUBERNETES_SERVICE_HOST=10.96.0.1", NULL}, *job[] = {"SLURM_JOB_ID=3", NULL};
    assert_false(is_container(none, 8, 7));
    assert_false(is_container(none, 8, 1));
    assert_false(is_container(job, 8, 7));
    assert_true(is_container(none, 1, 0));
    assert_true(is_container(marked, 8, 7));
    assert_true(is_container(pod, 8, 7));
    leave("/.dockerenv");
    assert_true(is_container(none, 8, 7));
    drop("/.dockerenv");
    leave("/run/.containerenv");
    assert_true(is_container(none, 8, 7));
    drop("/run/.containerenv");
}

TEST(this_process)
{
    const struct launcher_context context = launcher_context_here(none);
    assert_int_equal(context.pid, getpid());
    assert_int_equal(context.parent, getppid());
    assert_string_equal(context.root, "");
    assert_ptr_equal(context.environment, none);
}

HARNESS_RUN_ALL()
