/* peer_copy_memory — copies outlive the process that made them; one that is torn, damaged or
 * of another run is never taken for a whole one. */
#include "harness.h"

#include <sys/mman.h>

#include "train/peer_copy/inside.h"

#define BYTES 50000
#define KILLS 60

static int memory_fd(void)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct peer_copy_memory open_memory(int fd, int64_t bytes, uint64_t fingerprint)
{
    struct peer_copy_memory m;
    const struct peer_copy_memory_config config = {
        .fd = fd, .slot_bytes = {bytes, bytes}, .fingerprint = fingerprint, .free_bytes = -1};
    assert_int_equal(peer_copy_memory_open(&config, &m), ST_OK);
    return m;
}

/* write_slot — a slice whose bytes are the step's. */
static void write_slot(struct peer_copy_memory *m, int slot, int64_t history, int64_t step)
{
    const struct peer_copy_stamp stamp = {
        .history = history, .step = step, .rank = 3, .bytes = m->slot_bytes[0]};
    peer_copy_memory_begin(m, slot);
    memset(peer_copy_memory_data(m, slot), (int)step & 255, (size_t)m->slot_bytes[0]);
    peer_copy_memory_commit(m, slot, &stamp,
                            peer_copy_memory_checksum(peer_copy_memory_data(m, slot), &stamp));
}

TEST(test_outlives)
{
    int fd = memory_fd();
    struct peer_copy_memory m = open_memory(fd, BYTES, 7);
    struct peer_copy_offer offer;
    assert_false(m.was_other);
    assert_int_equal(peer_copy_memory_oldest(&m, PEER_COPY_KEPT), 2);
    write_slot(&m, 2, 1, 40);
    assert_int_equal(peer_copy_memory_oldest(&m, PEER_COPY_KEPT), 3);
    write_slot(&m, 3, 1, 41);
    assert_int_equal(peer_copy_memory_oldest(&m, PEER_COPY_KEPT), 2);
    peer_copy_memory_set_history(&m, 9);
    peer_copy_memory_offer(&m, &offer);
    assert_int_equal(offer.suspect_history, 0);
    peer_copy_memory_set_suspect(&m, 9, 41);
    peer_copy_memory_close(&m);
    m = open_memory(fd, BYTES, 7);
    peer_copy_memory_offer(&m, &offer);
    assert_int_equal(offer.history, 9);
    assert_true(offer.suspect_history == 9 && offer.suspect_step == 41);
    assert_true(offer.has_room && offer.slot[2].is_complete && !offer.slot[1].is_complete);
    assert_int_equal(offer.slot[3].step, 41);
    assert_true(peer_copy_memory_is_sound(&m, 2) && peer_copy_memory_is_sound(&m, 3));
    peer_copy_memory_drop_newer(&m, 1, 41);
    peer_copy_memory_offer(&m, &offer);
    assert_true(offer.slot[2].is_complete && offer.slot[3].is_complete);
    peer_copy_memory_drop_newer(&m, 1, 40);
    peer_copy_memory_offer(&m, &offer);
    assert_true(offer.slot[2].is_complete && !offer.slot[3].is_complete);
    assert_int_equal(peer_copy_memory_oldest(&m, PEER_COPY_KEPT), 3);
    peer_copy_memory_drop_newer(&m, -1, -1);
    peer_copy_memory_offer(&m, &offer);
    assert_false(offer.slot[2].is_complete);
    peer_copy_memory_close(&m);
    close(fd);
}

/* Bytes that are written in chunks have the checksum of the whole. */
TEST(test_chunks)
{
    static char from[BYTES];
    const struct peer_copy_stamp stamp = {.history = 2, .step = 7, .rank = 1, .bytes = BYTES};
    int fd = memory_fd();
    struct peer_copy_memory m = open_memory(fd, BYTES, 7);
    for (int64_t i = 0; i < BYTES; i++)
        from[i] = (char)(i * 31 + i / 256);
    for (int64_t chunk = 13; chunk <= BYTES; chunk = chunk * 5 + 1) {
        peer_copy_memory_write_begin(&m, 0, &stamp);
        for (int64_t at = 0, n; at < BYTES; at += n) {
            assert_false(peer_copy_memory_is_sound(&m, 0));
            n = BYTES - at < chunk ? BYTES - at : chunk;
            peer_copy_memory_write(&m, 0, from + at, n);
        }
        peer_copy_memory_write_end(&m, 0, &stamp);
        assert_memory_equal(peer_copy_memory_data(&m, 0), from, BYTES);
        assert_true(peer_copy_memory_is_sound(&m, 0));
        assert_true(peer_copy_memory_checksum_of(&m, 0) ==
                    peer_copy_memory_checksum(peer_copy_memory_data(&m, 0), &stamp));
    }
    peer_copy_memory_close(&m);
    close(fd);
}

TEST(test_other_run)
{
    int fd = memory_fd();
    for (int way = 0; way < 2; way++) { /* other settings; other sizes */
        struct peer_copy_memory m = open_memory(fd, BYTES, 7);
        struct peer_copy_offer offer;
        write_slot(&m, 0, 1, 40);
        peer_copy_memory_close(&m);
        m = open_memory(fd, way ? BYTES + 9000 : BYTES, way ? 7 : 8);
        peer_copy_memory_offer(&m, &offer);
        assert_true(offer.was_other && !offer.slot[0].is_complete);
        peer_copy_memory_close(&m);
    }
    close(fd);
}

/* Own slices and those that are kept have sizes of their own: no slot reaches into another, and the
 * sizes belong to what must be the same. */
TEST(test_sizes)
{
    int fd = memory_fd();
    struct peer_copy_memory_config config = {
        .fd = fd, .slot_bytes = {BYTES, 3 * BYTES}, .fingerprint = 7, .free_bytes = -1};
    struct peer_copy_memory m;
    struct peer_copy_offer offer;
    assert_int_equal(peer_copy_memory_open(&config, &m), ST_OK);
    assert_int_equal(m.bytes, lseek(fd, 0, SEEK_END));
    for (int slot = 0; slot < PEER_COPY_SLOTS; slot++) {
        const struct peer_copy_stamp stamp = {
            .history = 1, .step = slot, .bytes = peer_copy_memory_room(&m, slot)};
        char *data = peer_copy_memory_data(&m, slot);
        assert_int_equal(stamp.bytes, slot < PEER_COPY_BUFFERS ? BYTES : 3 * BYTES);
        assert_true(data + stamp.bytes <= (char *)m.head + m.bytes);
        peer_copy_memory_begin(&m, slot);
        memset(data, slot + 1, (size_t)stamp.bytes);
        peer_copy_memory_commit(&m, slot, &stamp, peer_copy_memory_checksum(data, &stamp));
    }
    for (int slot = 0; slot < PEER_COPY_SLOTS; slot++)
        assert_true(peer_copy_memory_is_sound(&m, slot));
    peer_copy_memory_close(&m);
    config.slot_bytes[PEER_COPY_OWN] = 3 * BYTES;
    config.slot_bytes[PEER_COPY_KEPT] = BYTES;
    assert_int_equal(peer_copy_memory_open(&config, &m), ST_OK);
    peer_copy_memory_offer(&m, &offer);
    assert_true(offer.was_other && !offer.slot[0].is_complete);
    peer_copy_memory_close(&m);
    close(fd);
}

TEST(test_damage)
{
    int fd = memory_fd();
    struct peer_copy_memory m = open_memory(fd, BYTES, 7);
    for (int at = 0; at < BYTES; at += 991) {
        write_slot(&m, 1, 1, 40);
        assert_true(peer_copy_memory_is_sound(&m, 1));
        ((char *)peer_copy_memory_data(&m, 1))[at] ^= 4;
        assert_false(peer_copy_memory_is_sound(&m, 1));
    }
    peer_copy_memory_close(&m);
    close(fd);
}

TEST(test_no_room)
{
    int fd = memory_fd();
    struct peer_copy_memory m;
    struct peer_copy_memory_config config = {
        .fd = fd, .slot_bytes = {BYTES, BYTES}, .fingerprint = 7, .free_bytes = BYTES};
    assert_int_equal(peer_copy_memory_open(&config, &m), ST_RETRY);
    m = open_memory(fd, BYTES, 7);
    peer_copy_memory_close(&m);
    /* what is taken already needs no more */
    config.free_bytes = 0;
    assert_int_equal(peer_copy_memory_open(&config, &m), ST_OK);
    peer_copy_memory_release(&m, fd);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
}

/* A writer is killed at a random instant: what is complete is sound. */
TEST(test_killed_writer)
{
    int fd = memory_fd(), complete = 0, torn = 0;
    for (int k = 0; k < KILLS; k++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct peer_copy_memory m = open_memory(fd, BYTES, 7);
            for (int64_t step = 0;; step++)
                write_slot(&m, peer_copy_memory_oldest(&m, PEER_COPY_OWN), k + 1, step);
        }
        clock_sleep_ms(1 + k % 7);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct peer_copy_memory m = open_memory(fd, BYTES, 7);
        struct peer_copy_offer offer;
        peer_copy_memory_offer(&m, &offer);
        for (int slot = 0; slot < 2; slot++) {
            complete += offer.slot[slot].is_complete;
            torn += !offer.slot[slot].is_complete;
            assert_true(!offer.slot[slot].is_complete || peer_copy_memory_is_sound(&m, slot));
        }
        peer_copy_memory_close(&m);
    }
    print_message("# %d copies complete, %d torn in %d kills\n", complete, torn, KILLS);
    assert_true(complete > KILLS / 2 && torn > 0);
    close(fd);
}

HARNESS_RUN_ALL()
