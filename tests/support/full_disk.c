/* Preloaded: numbers the calls that make, fill or sync files in a folder, and lets some of them fail as on a full disk.
   FULL_DISK is "FOLDER:NUMBER:KIND", of the first call that fails. Kind 0: that call alone. 1: it writes half, and all later ones fail.
   2: none fails, but each is interrupted by a signal first, and then writes half. FULL_DISK_FAILED is a file that tells of a failure. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static char folder[PATH_MAX];
static long first;
static int kind;
static atomic_long calls, failures;
static _Thread_local int is_again;
void full_disk(const char *in, long number, int of_kind) {
    first = 0;
    snprintf(folder, sizeof folder, "%s/", in);
    kind = of_kind;
    atomic_store(&calls, 0);
    atomic_store(&failures, 0);
    first = number;
}
long full_disk_failed(void) { return atomic_load(&failures); }
__attribute__((constructor)) static void begin(void) {
    char text[PATH_MAX], *number, *of_kind;
    if (!getenv("FULL_DISK")) return;
    snprintf(text, sizeof text, "%s", getenv("FULL_DISK"));
    of_kind = strrchr(text, ':'), *of_kind++ = 0;
    number = strrchr(text, ':'), *number++ = 0;
    full_disk(text, atol(number), atoi(of_kind));
}
static int fails(const char *call, const char *path) {
    char text[PATH_MAX + 32];
    const char *tell = getenv("FULL_DISK_FAILED");
    if (kind != 2) atomic_fetch_add(&failures, 1);
    if (tell && kind != 2) {
        int file = syscall(SYS_openat, AT_FDCWD, tell, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        syscall(SYS_write, file, text, snprintf(text, sizeof text, "%s %s\n", call, path));
        syscall(SYS_close, file);
    }
    errno = kind == 2 ? EINTR : ENOSPC;
    return -1;
}
/* 0: nothing of ours; 1: as ever; 2: only half; -1: fails. */
static int answer(const char *call, const char *path) {
    if (!first || strncmp(path, folder, strlen(folder))) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (kind == 2) { is_again = !is_again; return is_again ? fails(call, path) : 2; }
    if (kind == 1 && number == first && strstr(call, "write")) return 2;
    return kind == 1 ? number >= first ? fails(call, path) : 1 : number == first ? fails(call, path) : 1;
}
static int answer_of(const char *call, int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return answer(call, path);
}
static size_t part(int answer, size_t size) { return answer == 2 ? (size + 1) / 2 : size; }
#define NEXT(name) static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name)
ssize_t write(int file, const void *bytes, size_t size) {
    NEXT(write);
    int how = answer_of("write", file);
    return how < 0 ? -1 : next(file, bytes, part(how, size));
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    NEXT(pwrite64);
    int how = answer_of("pwrite", file);
    return how < 0 ? -1 : next(file, bytes, part(how, size), at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    NEXT(writev);
    int how = answer_of("writev", file);
    return how < 0 ? -1 : how == 2 && count > 0 ? write(file, parts->iov_base, parts->iov_len) : next(file, parts, count);
}
int fsync(int file) { NEXT(fsync); return answer_of("fsync", file) < 0 ? -1 : next(file); }
int fdatasync(int file) { NEXT(fdatasync); return answer_of("fdatasync", file) < 0 ? -1 : next(file); }
int open64(const char *path, int flags, ...) {
    NEXT(open64);
    char whole[2 * PATH_MAX], here[PATH_MAX];
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    snprintf(whole, sizeof whole, "%s/%s", *path == '/' || !getcwd(here, sizeof here) ? "" : here, path);
    const char *absolute = *path == '/' ? path : whole;
    return flags & O_CREAT && answer("open", absolute) < 0 ? -1 : next(path, flags, mode);
}
