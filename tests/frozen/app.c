/* The program of the recordings in this folder: blocks of C's allocator and of the driver, some of which stay live. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long address;
static int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
static int (*alloc)(address *, size_t), (*release)(address);
static void driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int device;
    init = dlsym(library, "cuInit"), get = dlsym(library, "cuDeviceGet");
    retain = dlsym(library, "cuDevicePrimaryCtxRetain"), current = dlsym(library, "cuCtxSetCurrent");
    alloc = dlsym(library, "cuMemAlloc_v2"), release = dlsym(library, "cuMemFree_v2");
    if (init(0) || get(&device, 0) || retain(&context, device) || current(context)) exit(3);
}
static char *load(size_t bytes) { return memset(malloc(bytes), 1, bytes); }
static address on_gpu(size_t bytes) {
    address block;
    if (alloc(&block, bytes)) exit(4);
    return block;
}
static void step(int number) {
    char *activations = load(100000 + 1000 * number), *more = load(300000);
    free(activations);
    more = realloc(more, 50000 + number);
    free(more);
    if (alloc) { address block = on_gpu(1 << 20); release(block); }
}
/* How many steps; whether there is a GPU; whether it is killed at the end. */
int main(int count, char **arguments) {
    char *weights = load(1000000);
    if (atoi(arguments[2])) { driver(); on_gpu(5000000); }
    for (int number = 0; number < atoi(arguments[1]); number++) {
        step(number);
        if (number % 100 == 0) usleep(150000);
    }
    char *left = load(70000);
    if (atoi(arguments[3])) { usleep(400000); kill(getpid(), 9); }
    return weights == left;
}
