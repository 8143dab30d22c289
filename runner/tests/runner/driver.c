/* A fake NVIDIA driver with the functions that the runner calls, whose results are macros. The runner takes it for a real
   driver because it is not memtrace's simulated one. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
    if (getenv("STARTED")) creat(getenv("STARTED"), 0600);
    if (INIT < 0) abort();
    return INIT;
}
int cuDeviceGetCount(int *count) { return *count = COUNT, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 24ul << 30, 0; }
int cuDeviceGetName(char *name, int room, int device) { return strncpy(name, "Test GPU 9000", room), 0; }
int cuGetErrorName(int code, const char **name) {
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *name ? 0 : 1;
}
