/* Asks for driver functions in every way that C has, or searches memory for their addresses, and prints what it finds. It
 * judges nothing: `cargo xtask driver` compares what several runs print.
 *
 *     probe lookups NAMES local|global    one line for each look-up of each name in the file, and the tables of functions without names
 *     probe tables LIBRARY...             loads the libraries, calls them, and lists words that lead to the driver or to memtrace
 *
 * An address is printed as FILE+OFFSET, with the offset from where the file is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char DRIVER[] = "libcuda.so.1";

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *place(const void *address) {
    static char text[512];
    Dl_info object;
    if (!address) return "null";
    if (!dladdr(address, &object) || !object.dli_fname) return "nowhere";
    uintptr_t offset = (uintptr_t)address - (uintptr_t)object.dli_fbase;
    snprintf(text, sizeof text, "%s+%lx", file_of(object.dli_fname), (unsigned long)offset);
    return text;
}

/* Whether the last look-up left an error. */
static const char *error(void) { return dlerror() ? "error" : "fine"; }

static void by_name(void *driver, const char *name) {
    const char *versions[] = {"libcuda.so.1", "LIBCUDA_1"};
    const void *found = dlsym(driver, name);
    printf("dlsym %s %s", name, place(found)), printf(" %s\n", error());
    found = dlsym(RTLD_DEFAULT, name);
    printf("default %s %s", name, place(found)), printf(" %s\n", error());
    found = dlsym(RTLD_NEXT, name);
    printf("next %s %s", name, place(found)), printf(" %s\n", error());
    for (int i = 0; i < 2; i++) {
        found = dlvsym(driver, name, versions[i]);
        printf("dlvsym-%s %s %s", versions[i], name, place(found)), printf(" %s\n", error());
    }
}

typedef int (*first_form)(const char *, void **, int, uint64_t);
typedef int (*second_form)(const char *, void **, int, uint64_t, int *);

static void by_version(first_form first, second_form second, const char *name) {
    static const int VERSIONS[] = {10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010,
                                   12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020};
    for (unsigned i = 0; i < sizeof VERSIONS / sizeof *VERSIONS; i++)
        for (uint64_t flags = 0; flags < 4; flags++) {
            /* What is not written stays recognizable. */
            void *one = &first, *two = &first;
            int status = -1, result = first(name, &one, VERSIONS[i], flags);
            const char *found = one == &first ? "untouched" : place(one);
            printf("v1-%d-%d %s %s %d\n", VERSIONS[i], (int)flags, name, found, result);
            result = second(name, &two, VERSIONS[i], flags, &status);
            found = two == &first ? "untouched" : place(two);
            printf("v2-%d-%d %s %s %d %d\n", VERSIONS[i], (int)flags, name, found, result, status);
        }
}

/* Tables of functions without names, by number; each begins with its size. CUDA's run-time library asks for them. */
static void export_tables(void *driver) {
    static const unsigned char TABLES[][16] = {
        {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
        {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
        {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}};
    int (*get)(const uintptr_t **, const void *) = dlsym(driver, "cuGetExportTable");
    for (unsigned i = 0; get && i < sizeof TABLES / sizeof *TABLES; i++) {
        const uintptr_t *table = 0;
        int result = get(&table, TABLES[i]);
        uintptr_t count = table ? table[0] / sizeof *table : 0;
        printf("table-%u all %s %d %lu\n", i, place(table), result, (unsigned long)count);
        for (uintptr_t at = 1; at < count; at++) printf("table-%u %lu %s fine\n", i, (unsigned long)at, place((void *)table[at]));
    }
}

static int lookups(const char *names, int flags) {
    char name[256];
    void *driver = dlopen(DRIVER, RTLD_NOW | flags);
    FILE *list = fopen(names, "r");
    if (!driver || !list) return fprintf(stderr, "no driver, or no names\n"), 1;
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    first_form first = dlsym(driver, "cuGetProcAddress");
    second_form second = dlsym(driver, "cuGetProcAddress_v2");
    if (!init || !first || !second) return fprintf(stderr, "the driver is too old\n"), 1;
    printf("cuInit - - %d\n", init(0));
    export_tables(driver);
    while (fscanf(list, "%255s", name) == 1) {
        by_name(driver, name);
        by_version(first, second, name);
    }
    return 0;
}

/* The code of the driver, and that of memtrace: the object that has its note, or the preloaded library. */
static struct { uintptr_t start, end, base; const char *kind; } codes[2] = {{0, 0, 0, "driver"}, {0, 0, 0, "memtrace"}};

static int find_code(struct dl_phdr_info *object, size_t size, void *memtrace) {
    /* The program itself has no name here. */
    const char *file = object->dlpi_name[0] ? file_of(object->dlpi_name) : program_invocation_short_name;
    int is_driver = !strncmp(file, "libcuda.so", 10);
    int is_memtrace = !strcmp(file, memtrace);
    for (int i = 0; (is_driver || is_memtrace) && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        codes[is_memtrace].base = object->dlpi_addr;
        codes[is_memtrace].start = object->dlpi_addr + segment->p_vaddr;
        codes[is_memtrace].end = codes[is_memtrace].start + segment->p_memsz;
    }
    return 0;
}

static const char *moment;

static void search(const char *where, uintptr_t from, uintptr_t to) {
    for (from = (from + 7) & ~(uintptr_t)7; from + 8 <= to; from += 8) {
        uintptr_t word = *(volatile uintptr_t *)from;
        for (int i = 0; i < 2; i++)
            if (codes[i].end && word >= codes[i].start && word < codes[i].end)
                printf("%s %s %s %lx\n", moment, where, codes[i].kind, (unsigned long)(word - codes[i].base));
    }
}

static struct { uintptr_t start, end; } known[4096];
static unsigned known_count;

/* Searches the data of the libraries in the list; notes where the data of every object is. */
static int search_object(struct dl_phdr_info *object, size_t size, void *libraries) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W)) continue;
        uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        if (known_count < sizeof known / sizeof *known) known[known_count].start = start, known[known_count++].end = end;
        for (char **library = libraries; *library; library++)
            if (!strcmp(file_of(object->dlpi_name), file_of(*library))) search(file_of(*library), start, end);
    }
    return 0;
}

/* Searches anonymous memory outside every object: C's heap, and mappings. The stack has what calls have left there. */
static void search_heap(void) {
    unsigned long start, end;
    char line[512], access[8], name[256];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        name[0] = 0;
        sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &start, &end, access, name);
        int is_data = 0;
        for (unsigned i = 0; i < known_count; i++) is_data |= start < ((known[i].end + 4095) & ~4095ul) && known[i].start < end;
        if (!is_data && !strncmp(access, "rw", 2) && (!name[0] || !strcmp(name, "[heap]"))) search("heap", start, end);
    }
    if (maps) fclose(maps);
}

static void search_all(const char *at, char **libraries) {
    const char *memtrace = getenv("PROBE_MEMTRACE");
    moment = at, known_count = 0;
    dl_iterate_phdr(find_code, (void *)(memtrace ? memtrace : "none"));
    dl_iterate_phdr(search_object, libraries);
    search_heap();
}

/* Functions of the libraries that look driver functions up; all fail without a device. */
static void call(void *library) {
    void *handle = 0;
    int number = 0;
    int (*count)(int *) = dlsym(library, "cudaGetDeviceCount");
    int (*alloc)(void **, size_t) = dlsym(library, "cudaMalloc");
    int (*blas)(void **) = dlsym(library, "cublasCreate_v2");
    int (*blas_lt)(void **) = dlsym(library, "cublasLtCreate");
    if (count) printf("returned cudaGetDeviceCount %d\n", count(&number));
    if (alloc) printf("returned cudaMalloc %d\n", alloc(&handle, 100));
    if (blas) printf("returned cublasCreate %d\n", blas(&handle));
    if (blas_lt) printf("returned cublasLtCreate %d\n", blas_lt(&handle));
}

static int tables(char **libraries) {
    search_all("start", libraries);
    for (char **library = libraries; *library; library++) {
        void *loaded = dlopen(*library, RTLD_NOW | RTLD_GLOBAL);
        if (!loaded) return fprintf(stderr, "%s\n", dlerror()), 1;
        call(loaded);
    }
    search_all("end", libraries);
    return 0;
}

int probe(int count, char **arguments) {
    int is_lookups = count == 4 && !strcmp(arguments[1], "lookups");
    if (is_lookups) return lookups(arguments[2], !strcmp(arguments[3], "global") ? RTLD_GLOBAL : 0);
    if (count > 2 && !strcmp(arguments[1], "tables")) return tables(arguments + 2);
    return fprintf(stderr, "probe lookups NAMES local|global, or probe tables LIBRARY...\n"), 2;
}

#ifdef PROBE_HOST
/* As src/main.rs, without memtrace: the first argument is this file as a library. */
int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    int (*its_probe)(int, char **) = library ? dlsym(library, "probe") : 0;
    return its_probe ? its_probe(count - 1, arguments + 1) : 2;
}
#elif !defined PROBE_LIBRARY
int main(int count, char **arguments) { return probe(count, arguments); }
#endif
