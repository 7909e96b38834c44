/* termination — see termination.h. */
#include "node/termination.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

void termination_write(const char *path, int code, const char *sentence)
{
    char line[2048];
    struct stat at;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    text_format(line, sizeof line, "exit code %d: %s\n", code, sentence);
    if (fstat(fd, &at) == 0 && S_ISREG(at.st_mode) && ftruncate(fd, 0) == 0)
        (void)!write(fd, line, strlen(line));
    close(fd);
}
