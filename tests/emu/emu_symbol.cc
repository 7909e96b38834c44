/* emu_symbol — the program's own symbol table (see emu_limits.h). */
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/emu/emu_limits.h"

extern const char __executable_start[];

struct table {
    const Elf64_Sym *symbols;
    size_t n;
    const char *strings;
};

static const char *map_self(size_t *bytes)
{
    struct stat about;
    int fd = open("/proc/self/exe", O_RDONLY);
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
    struct table table = {};
    const char *all = map_self(&bytes);
    if (!all)
        return table;
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

const char *emu_symbol(const void *p, size_t *offset)
{
    static struct table table;
    if (!table.symbols)
        table = read_table();
    size_t at = (size_t)((const char *)p - __executable_start);
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
