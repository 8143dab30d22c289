/* C's allocator once more, for a comparison: counts blocks of at least 16 KiB (COUNTED_FROM) and writes what it counted when the process ends:
   bytes that are live, the most that were live at once, allocations, threads that made some, and the size of the largest. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);
enum { PLACES = 1 << 22 };
static size_t large = 16384;
static struct { void *block; long size; } places[PLACES];
static long live, most, allocations, threads, largest;
/* At a fixed place: one that the loader has to allocate would be asked for in `malloc`. */
static __thread __attribute__((tls_model("initial-exec"))) int is_known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *given(void *block, size_t size) {
    if (!block || malloc_usable_size(block) < large) return block;
    pthread_mutex_lock(&lock);
    unsigned long at = (unsigned long)block / 16 * 2654435761u % PLACES;
    while (places[at].block && places[at].block != (void *)1) at = (at + 1) % PLACES;
    places[at].block = block; places[at].size = size;
    live += size; allocations++;
    if (!is_known) { is_known = 1; threads++; }
    if (size > largest) largest = size;
    if (live > most) most = live;
    pthread_mutex_unlock(&lock);
    return block;
}
static void taken(void *block) {
    if (!block) return;
    pthread_mutex_lock(&lock);
    unsigned long at = (unsigned long)block / 16 * 2654435761u % PLACES;
    while (places[at].block && places[at].block != block) at = (at + 1) % PLACES;
    if (places[at].block) { places[at].block = (void *)1; live -= places[at].size; }
    pthread_mutex_unlock(&lock);
}
size_t malloc_usable_size(void *block) {
    static size_t (*next)(void *);
    if (!next) next = dlsym(RTLD_NEXT, "malloc_usable_size");
    return next(block);
}
void *malloc(size_t size) { return given(__libc_malloc(size), size); }
void *calloc(size_t count, size_t size) { return given(__libc_calloc(count, size), count * size); }
void *memalign(size_t alignment, size_t size) { return given(__libc_memalign(alignment, size), size); }
void *aligned_alloc(size_t alignment, size_t size) { return given(__libc_memalign(alignment, size), size); }
int posix_memalign(void **to, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) || alignment & (alignment - 1)) return EINVAL;
    void *block = given(__libc_memalign(alignment, size), size);
    if (block) *to = block;
    return block ? 0 : ENOMEM;
}
void *valloc(size_t size) { return given(__libc_valloc(size), size); }
void *pvalloc(size_t size) { return given(__libc_pvalloc(size), size); }
void free(void *block) { taken(block); __libc_free(block); }
void *realloc(void *block, size_t size) {
    long before = 0;
    if (block && malloc_usable_size(block) >= large) {
        pthread_mutex_lock(&lock);
        for (unsigned long at = (unsigned long)block / 16 * 2654435761u % PLACES; places[at].block; at = (at + 1) % PLACES)
            if (places[at].block == block) { before = places[at].size; break; }
        pthread_mutex_unlock(&lock);
    }
    taken(block);
    void *moved = __libc_realloc(block, size);
    if (!moved && size && before) { given(block, before); allocations--; }
    return given(moved, size);
}
/* The program may change its environment. */
static char file_name[4096];
static void end(void) {
    long counted[] = { live, most, allocations, threads, largest };
    char name[4200];
    snprintf(name, sizeof name, "%s.%d", file_name, getpid());
    FILE *file = fopen(name, "w");
    fprintf(file, "%ld %ld %ld %ld %ld\n", counted[0], counted[1], counted[2], counted[3], counted[4]);
    fclose(file);
}
/* A library that is preloaded later is initialized earlier: recording begins after this, and ends right before `end`. What C++'s
   library has allocated by now is not counted. */
__attribute__((constructor)) static void begin(void) {
    strncpy(file_name, getenv("COUNTED"), sizeof file_name - 1);
    if (getenv("COUNTED_FROM")) large = atol(getenv("COUNTED_FROM"));
    live = most = allocations = threads = largest = is_known = 0;
    memset(places, 0, sizeof places);
    atexit(end);
}
