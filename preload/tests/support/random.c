/* Allocates at random, by every function of C, on as many threads as the first argument says; the second one is the seed.
   Compiled as C++, it allocates by operators and containers, too. All threads hold most at one moment, when nothing else happens. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#include <new>
#include <string>
#include <vector>
#endif
enum { SLOTS = 20, LARGE = 16384, MOST = 220000, STEPS = 600 };
static pthread_barrier_t barrier;
struct Slot { void *block; unsigned kind; };
#ifdef __cplusplus
struct alignas(256) Wide { char bytes[256]; };
enum { KINDS = 13 };
#else
enum { KINDS = 9 };
#endif
static void *made(unsigned kind, size_t size) {
    void *block = 0;
    switch (kind) {
    case 0: block = malloc(size); break;
    case 1: block = calloc(size / 8, 8); break;
    case 2: posix_memalign(&block, 4096, size); break;
    case 3: block = aligned_alloc(64, size / 64 * 64); break;
    case 4: block = memalign(32, size); break;
    case 5: block = valloc(size); break;
    case 6: block = pvalloc(size); break;
    case 7: block = realloc(0, size); break;
    case 8: block = reallocarray(0, size / 8, 8); break;
#ifdef __cplusplus
    case 9: return new char[size];
    case 10: return new Wide[size / 256];
    case 11: { std::vector<long> *all = new std::vector<long>; for (size_t n = 0; n < size / 8; n++) all->push_back(n); return all; }
    case 12: { std::string *text = new std::string; while (text->size() < size) *text += *text + "text"; return text; }
#endif
    }
    memset(block, 1, size / 64 * 64 / 2);
    return block;
}
static void freed(struct Slot *slot) {
    switch (slot->kind) {
#ifdef __cplusplus
    case 9: delete[] (char *)slot->block; break;
    case 10: delete[] (Wide *)slot->block; break;
    case 11: delete (std::vector<long> *)slot->block; break;
    case 12: delete (std::string *)slot->block; break;
#endif
    default: free(slot->block);
    }
    slot->block = 0;
}
static void *work(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    struct Slot slots[SLOTS] = { { 0, 0 } };
    for (int n = 0; n < STEPS; n++) {
        struct Slot *slot = &slots[rand_r(&seed) % SLOTS];
        size_t size = rand_r(&seed) % 3 ? LARGE / 2 + rand_r(&seed) % (MOST - LARGE) : 64 + rand_r(&seed) % LARGE;
        if (!slot->block) {
            slot->kind = rand_r(&seed) % KINDS;
            slot->block = made(slot->kind, size);
        } else if (rand_r(&seed) % 3 && slot->kind < 9) {
            slot->block = realloc(slot->block, size);
        } else {
            freed(slot);
        }
    }
    pthread_barrier_wait(&barrier);
    void *large[2 * SLOTS];
    for (int n = 0; n < 2 * SLOTS; n++) large[n] = malloc(2 * MOST);
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < 2 * SLOTS; n++) free(large[n]);
    return 0;
}
int main(int count, char **arguments) {
    int threads = atoi(arguments[1]), seed = atoi(arguments[2]);
    pthread_t all[128];
    pthread_barrier_init(&barrier, 0, threads);
    for (int n = 1; n < threads; n++) pthread_create(&all[n], 0, work, (void *)(size_t)(seed * 100 + n));
    work((void *)(size_t)seed);
    for (int n = 1; n < threads; n++) pthread_join(all[n], 0);
    return 0;
}
