/* launch_context — see launch_context.h. */
#include "conf/launch_context.h"

#include <stddef.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/launcher.h"

struct launch_context launch_context_here(char **environment)
{
    return (struct launch_context){.environment = environment,
                                   .root = "",
                                   .pid = (int)getpid(),
                                   .parent = (int)getppid(),
                                   .is_terminal = isatty(STDOUT_FILENO) || isatty(STDERR_FILENO)};
}

static bool has_file(const struct launch_context *context, const char *path)
{
    char full[512];
    return text_format(full, sizeof full, "%s%s", context->root, path) && file_exists(full);
}

/* is_container — a container of Docker or Podman (which sets `container`, as systemd-nspawn does),
 * or process number 1. A shell opened in a container starts this process some levels below; then
 * the container does not end with it. */
static bool is_container(const struct launch_context *context)
{
    bool is_marked = has_file(context, "/.dockerenv") || has_file(context, "/run/.containerenv") ||
                     launcher_find(context->environment, "container") != NULL;
    return context->pid == 1 || (context->parent <= 1 && is_marked);
}

const char *launch_context_name(const struct launch_context *context)
{
    if (context->is_terminal)
        return NULL;
    if (launcher_find(context->environment, "KUBERNETES_SERVICE_HOST") != NULL)
        return "Kubernetes";
    if (launcher_find(context->environment, "SLURM_JOB_ID") != NULL)
        return "Slurm";
    return is_container(context) ? "container" : NULL;
}
