/* place — see place.h. */
#include "conf/place.h"

#include <stddef.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/launcher.h"

struct place place_here(char **environment)
{
    return (struct place){.environment = environment,
                          .root = "",
                          .pid = (int)getpid(),
                          .parent = (int)getppid(),
                          .is_terminal = isatty(STDOUT_FILENO) || isatty(STDERR_FILENO)};
}

static bool has_file(const struct place *place, const char *path)
{
    char full[512];
    return text_format(full, sizeof full, "%s%s", place->root, path) && file_exists(full);
}

/* is_container — of Docker, Podman (which sets `container`, as systemd-nspawn does), or what else
 * gives process number 1. A shell that was opened in a container starts us some levels below; then
 * the container does not end with us. */
static bool is_container(const struct place *place)
{
    bool is_marked = has_file(place, "/.dockerenv") || has_file(place, "/run/.containerenv") ||
                     launcher_find(place->environment, "container") != NULL;
    return place->pid == 1 || (place->parent <= 1 && is_marked);
}

const char *place_name(const struct place *place)
{
    if (place->is_terminal)
        return NULL;
    if (launcher_find(place->environment, "KUBERNETES_SERVICE_HOST") != NULL)
        return "Kubernetes";
    if (launcher_find(place->environment, "SLURM_JOB_ID") != NULL)
        return "Slurm";
    return is_container(place) ? "container" : NULL;
}
