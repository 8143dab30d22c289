/* A test program, linked against the driver if LINKED is defined. Prints its process, folder, devices, environment and
   arguments. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text ? text : "not set";
}

int main(int count, char **arguments) {
    char folder[4096];
    int devices = -1;
#ifdef LINKED
    if (cuInit(0) == 0) cuDeviceGetCount(&devices);
#endif
    if (count > 2 && !strcmp(arguments[1], "exit")) return atoi(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "raise")) return raise(atoi(arguments[2]));
    printf("process=%d\nfolder=%s\ndevices=%d\n", getpid(), getcwd(folder, sizeof folder), devices);
    printf("used=%s\npath=%s\n", variable("MEMTRACE_GPU_USED"), variable("LD_LIBRARY_PATH"));
    for (int i = 1; i < count; i++) printf("argument=%s\n", arguments[i]);
    return 0;
}
