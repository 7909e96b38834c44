/* emu_symbol — the symbol table of the program, or of the library that holds the emulation (see
 * emu_limits.h). With EMU_HIP: kernels by their names in a code object (emu_control.h). */
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/emu/emu_limits.h"

struct table {
    const char *base; /* where the file is loaded */
    const Elf64_Sym *symbols;
    size_t n;
    const char *strings;
};

static const char *map_file(const char *path, size_t *bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    void *all = fstat(fd, &about) == 0
                    ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                    : MAP_FAILED;
    close(fd);
    *bytes = (size_t)about.st_size;
    return all == MAP_FAILED ? NULL : (const char *)all;
}

static struct table read_table(void)
{
    size_t bytes;
    Dl_info here;
    struct table table = {};
    if (!dladdr((const void *)map_file, &here))
        return table;
    const char *all =
        map_file(strstr(here.dli_fname, ".so") ? here.dli_fname : "/proc/self/exe", &bytes);
    if (!all)
        return table;
    table.base = (const char *)here.dli_fbase;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)all;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(all + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB) {
            table.symbols = (const Elf64_Sym *)(all + sections[i].sh_offset);
            table.n = sections[i].sh_size / sizeof *table.symbols;
            table.strings = all + sections[sections[i].sh_link].sh_offset;
        }
    return table;
}

static struct table table;

const char *emu_symbol(const void *p, size_t *offset)
{
    if (!table.symbols)
        table = read_table();
    size_t at = (size_t)((const char *)p - table.base);
    *offset = 0;
    for (size_t i = 0; i < table.n; i++) {
        const Elf64_Sym *s = &table.symbols[i];
        int type = ELF64_ST_TYPE(s->st_info);
        if ((type == STT_FUNC || type == STT_OBJECT) && at >= s->st_value &&
            at < s->st_value + s->st_size) {
            *offset = at - s->st_value;
            return table.strings + s->st_name;
        }
    }
    return "?";
}

#ifdef EMU_HIP
/* Writes the name of a function without spaces, and HIP's vectors as emu.h calls them. */
static void plain_name(const char *symbol, char *out, size_t cap)
{
    static const char vector[] = "HIP_vector_type<unsigned int, ";
    int status;
    size_t n = 0;
    char *name = abi::__cxa_demangle(symbol, NULL, NULL, &status);
    for (const char *c = name; c && *c && n + 32 < cap; c++)
        if (strncmp(c, vector, sizeof vector - 1) == 0) {
            c += sizeof vector - 1; /* "4u>" */
            n += (size_t)snprintf(out + n, cap - n, "emu_vec%c<unsignedint>", *c);
            c += 2;
        } else if (*c != ' ') {
            out[n++] = *c;
        }
    out[n] = 0;
    free(name);
}

/* Returns the parameters of a function, or the arguments of a template, in a plain name, which it
 * cuts: the text between the last, or the first, top-level pair of these brackets. */
static const char *list_of(char *name, char open, char close)
{
    int depth = 0;
    const char *list = "";
    for (char *c = name; *c; c++) {
        depth -= *c == close;
        if (depth == 0 && *c == close) {
            *c = 0;
            if (open == '<')
                break;
        }
        if (*c == open && depth++ == 0)
            list = c + 1;
    }
    return list;
}

#define NAME_MAX_BYTES 1024
int emu_find_kernel(const char *name, struct emu_kernel *out)
{
    char want[NAME_MAX_BYTES], has[NAME_MAX_BYTES], cut[NAME_MAX_BYTES];
    size_t offset, prefix = strcspn(name, "I");
    (void)emu_symbol(NULL, &offset);
    *out = {};
    plain_name(name, want, sizeof want);
    memcpy(cut, want, sizeof cut);
    const char *parameters = list_of(cut, '(', ')');
    for (size_t i = 0; i < table.n; i++) {
        const Elf64_Sym *s = &table.symbols[i];
        const char *symbol = table.strings + s->st_name;
        const bool is_unpack = strncmp(symbol, "_Z10emu_unpackI", 15) == 0;
        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
            (!is_unpack && strncmp(symbol, name, prefix) != 0))
            continue;
        plain_name(symbol, has, sizeof has);
        if (!is_unpack && strcmp(has, want) == 0)
            out->kernel = table.base + s->st_value;
        if (is_unpack && strcmp(list_of(has, '<', '>'), parameters) == 0)
            out->unpack = table.base + s->st_value;
    }
    return out->kernel && out->unpack;
}

int emu_run_kernel(const struct emu_kernel *k, const unsigned *grid, const unsigned *block,
                   size_t shared_bytes, void *stream, void **args)
{
    int (*unpack)(const void *, dim3, dim3, size_t, void *, void **) = NULL;
    memcpy(&unpack, &k->unpack, sizeof unpack);
    return unpack(k->kernel, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]),
                  shared_bytes, stream, args);
}
#endif
