/* sniff — see sniff.h. Sources of the magics: the formats' own specifications; RFC 8878 for
 * zstd. */
#include "data/sniff.h"

#include <string.h>

#define UNPACK "unpack it first "
#define TAR_AT 257
#define TAR "ustar"
#define SKIPPABLE_MAGIC 0x184d2a50u /* to …5f */

#define ROW(magic, what, remedy)                   \
    {                                              \
        magic, sizeof(magic) - 1, { what, remedy } \
    }
static const struct {
    const char *magic;
    size_t bytes;
    struct sniff_kind kind;
} list[] = {
    ROW("\x1f\x8b", "compressed by gzip", UNPACK "(gunzip)"),
    ROW("\x1f\x9d", "compressed by compress", UNPACK "(uncompress)"),
    ROW("PK\x03\x04", "a zip archive", UNPACK "(unzip)"),
    ROW("PK\x05\x06", "an empty zip archive", "use the files themselves"),
    ROW("\xfd"
        "7zXZ",
        "compressed by xz", UNPACK "(unxz)"),
    ROW("BZh", "compressed by bzip2", UNPACK "(bunzip2)"),
    ROW("\x04\x22\x4d\x18", "compressed by lz4", UNPACK "(unlz4)"),
    ROW("\x5d\x00\x00", "compressed by lzma", UNPACK "(unlzma)"),
    ROW("7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK "(7z x)"),
    ROW("Rar!\x1a\x07", "a RAR archive", UNPACK "(unrar x)"),
    ROW("!<arch>\n", "an ar archive", UNPACK "(ar x)"),
    ROW("PAR1", "a Parquet file", SNIFF_EXPORT),
    ROW("ARROW1", "an Arrow file", SNIFF_EXPORT),
    ROW("\xff\xff\xff\xff", "an Arrow stream, or not text", SNIFF_EXPORT),
    ROW("Obj\x01", "an Avro file", SNIFF_EXPORT),
    ROW("\x89HDF", "an HDF5 file", SNIFF_EXPORT),
    ROW("SQLite format 3", "an SQLite database", SNIFF_EXPORT),
    ROW("\x93NUMPY", "a NumPy array",
        "convert its ids with `convoy tokenize`, or write them as an llm.c token file"),
    ROW("%PDF-", "a PDF document", "extract its text first (pdftotext)"),
    ROW("\xd0\xcf\x11\xe0", "a document of an office program", "save it as plain text first"),
    ROW("{\\rtf", "an RTF document", "save it as plain text first"),
    ROW("\x7f"
        "ELF",
        "an executable (ELF)", "use a text file"),
    ROW("MZ\x90\x00", "an executable (PE)", "use a text file"),
    ROW("\xcf\xfa\xed\xfe", "an executable (Mach-O)", "use a text file"),
    ROW("\xca\xfe\xba\xbe", "an executable (Java or Mach-O)", "use a text file"),
    ROW("\x00"
        "asm",
        "an executable (WebAssembly)", "use a text file"),
    ROW("\x89PNG", "a picture (PNG)", "use a text file"),
    ROW("\xff\xd8\xff", "a picture (JPEG)", "use a text file"),
    ROW("GIF8", "a picture (GIF)", "use a text file"),
    ROW("OggS", "a recording (Ogg)", "use a text file"),
    ROW("GGUF\x02\x00", "a model (GGUF)", "use text as DATA"),
    ROW("GGUF\x03\x00", "a model (GGUF)", "use text as DATA"),
    ROW("\x00\x00\xfe\xff", "text in UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8"),
    ROW("\xff\xfe\x00\x00", "text in UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8"),
    ROW("\xff\xfe", "text in UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"),
    ROW("\xfe\xff", "text in UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"),
};

static const struct sniff_kind tar = {"a tar archive", UNPACK "(tar -xf)"};
static const struct sniff_kind safetensors = {"a model (safetensors)",
                                              "use text as DATA, and a model's folder as MODEL"};
static const struct sniff_kind pickle = {"a Python pickle",
                                         "write its text as plain text or JSON lines first"};

const struct sniff_kind *sniff_magic(const uint8_t *head, size_t n)
{
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (n >= list[i].bytes && memcmp(head, list[i].magic, list[i].bytes) == 0)
            return &list[i].kind;
    if (n >= TAR_AT + sizeof TAR - 1 && memcmp(head + TAR_AT, TAR, sizeof TAR - 1) == 0)
        return &tar;
    /* Eight bytes of a length below 16 MiB, then the header's JSON. */
    static const uint8_t zero[5];
    if (n > 9 && memcmp(head + 3, zero, sizeof zero) == 0 && head[8] == '{' &&
        (head[9] == '"' || head[9] == '}'))
        return &safetensors;
    return n > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 ? &pickle : NULL;
}

static uint32_t read_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool sniff_zstd(const uint8_t *head, size_t n)
{
    return n >= 4 && memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0;
}

bool sniff_skippable(const uint8_t *head, size_t n, int64_t *bytes_out)
{
    if (n < SNIFF_FRAME_BYTES || (read_u32(head) & ~15u) != SKIPPABLE_MAGIC)
        return false;
    *bytes_out = SNIFF_FRAME_BYTES + (int64_t)read_u32(head + 4);
    return true;
}

/* ---- text or not ---- */

/* length_of — returns the length of the UTF-8 character at p; 0: there is none. Unicode 16, table
 * 3-7. */
static size_t length_of(const uint8_t *p, const uint8_t *end)
{
    const size_t n = p[0] < 0x80   ? 1
                     : p[0] < 0xc2 ? 0
                     : p[0] < 0xe0 ? 2
                     : p[0] < 0xf0 ? 3
                     : p[0] < 0xf5 ? 4
                                   : 0;
    for (size_t i = 1; i < n; i++)
        if (p + i == end)
            return i; /* cut by the sample's end */
        else if ((p[i] & 0xc0) != 0x80)
            return 0;
    const bool is_overlong =
        n > 2 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90));
    const bool is_beyond =
        n > 2 && ((p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f));
    return is_overlong || is_beyond ? 0 : n;
}

static bool is_control(uint8_t c)
{
    return (c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1b) || c == 0x7f;
}

void sniff_add(struct sniff_count *count, const uint8_t *bytes, size_t n)
{
    const uint8_t *end = bytes + n;
    size_t i = 0;
    while (i < n && i < 3 && (bytes[i] & 0xc0) == 0x80)
        i++; /* the rest of a character that the sample's beginning cut */
    for (size_t length; i<n; i += length> 0 ? length : 1) {
        length = length_of(bytes + i, end);
        count->invalid += length == 0;
        count->controls += length == 1 && is_control(bytes[i]);
        count->zeros[i % 2] += bytes[i] == 0;
    }
    count->bytes += (int64_t)n;
}

int64_t sniff_bad(const struct sniff_count *count) { return count->invalid + count->controls; }

struct sniff_kind sniff_guess(const struct sniff_count *count)
{
    const int64_t zeros = count->zeros[0] + count->zeros[1];
    if (zeros > count->bytes / 5 && zeros < count->bytes * 9 / 10) {
        if (count->zeros[0] < zeros / 20)
            return (struct sniff_kind){"like UTF-16 (little-endian)",
                                       "convert it first: iconv -f UTF-16LE -t UTF-8"};
        if (count->zeros[1] < zeros / 20)
            return (struct sniff_kind){"like UTF-16 (big-endian)",
                                       "convert it first: iconv -f UTF-16BE -t UTF-8"};
    }
    if (count->controls < sniff_bad(count) / 100)
        return (struct sniff_kind){
            "like another encoding than UTF-8",
            "convert it first: iconv -f ENCODING -t UTF-8 (LATIN1, CP1252, KOI8-R, GB18030 …)"};
    return (struct sniff_kind){"binary", "use text in UTF-8 (iconv converts other encodings)"};
}

#ifdef FUZZ
#include "base/assert.h"

/* No count exceeds the bytes; samples at even offsets have the counts of the whole, except for
 * characters that they cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sniff_count whole = {0}, halves = {0};
    int64_t bytes = 0;
    const size_t half = size / 4 * 2;
    (void)sniff_magic(data, size);
    ASSERT(!sniff_skippable(data, size, &bytes) || (bytes >= 8 && !sniff_zstd(data, size)));
    sniff_add(&whole, data, size);
    sniff_add(&halves, data, half);
    sniff_add(&halves, data + half, size - half);
    ASSERT(sniff_bad(&whole) <= (int64_t)size && whole.bytes == (int64_t)size);
    ASSERT(halves.bytes == whole.bytes && sniff_bad(&halves) <= sniff_bad(&whole));
    ASSERT(sniff_bad(&halves) + 6 >= sniff_bad(&whole));
    ASSERT(sniff_guess(&whole).what != NULL);
    return 0;
}
#endif
