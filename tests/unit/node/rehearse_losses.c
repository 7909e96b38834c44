/* rehearse_losses — two metrics files compared step by step: steps that only one has, lines without
 * a loss, cut lines, losses that are not finite, and what is no metrics file. */
#include "harness.h"

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "node/rehearse/losses.h"

static char dir[] = "/tmp/convoy-losses-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[2][FILE_PATH_MAX];
    static int i;
    i = !i;
    assert_int_equal(file_join(path[i], sizeof path[i], dir, name), ST_OK);
    return path[i];
}

/* compare — compares two files with this content; NULL: no such file. */
static enum status compare(const char *calm, const char *faulty, struct rehearse_losses *out)
{
    const char *text[] = {calm, faulty}, *name[] = {"calm", "faulty"};
    for (int i = 0; i < 2; i++) {
        unlink(path_of(name[i]));
        if (text[i] != NULL)
            assert_int_equal(file_replace(path_of(name[i]), text[i], strlen(text[i])), ST_OK);
    }
    return rehearse_losses_compare(path_of("calm"), path_of("faulty"), out);
}

TEST(test_compare)
{
    struct rehearse_losses found;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(compare("{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":2}\n"
                             "{\"step\":2,\"val_loss\":9}\n{\"step\":4,\"loss\":2}\n",
                             "{\"step\":2,\"loss\":2.5}\n{\"step\":3,\"loss\":1}\n"
                             "{\"step\":4,\"loss\":1.75}\n{\"step\":5,\"lo",
                             &found),
                     ST_OK);
    assert_int_equal(found.compared_n, 2);
    assert_true(found.worst == 0.25);
    assert_int_equal(found.worst_step, 2);
    assert_int_equal(compare("", "{\"step\":2,\"loss\":2.5}\n", &found), ST_OK);
    assert_int_equal(found.compared_n, 0);
    assert_int_equal(compare("{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":4}\n",
                             "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":4}\n", &found),
                     ST_OK);
    assert_int_equal(found.compared_n, 2);
    assert_true(isnan(found.worst));
    assert_int_equal(found.worst_step, 1);
}

TEST(test_refused)
{
    struct rehearse_losses found;
    assert_int_equal(compare(NULL, "", &found), ST_NO_INPUT);
    assert_int_equal(compare("{\"step\":1,\"loss\":4}\n", "no metrics\n", &found), ST_BAD_DATA);
    for (int i = 0; i < 2; i++)
        unlink(path_of(i ? "calm" : "faulty"));
    rmdir(dir);
}

HARNESS_RUN_ALL()
