/* Preloaded: numbers the calls that make, fill, sync or rename files in a folder, and lets some of them fail as on a full disk.
   FULL_DISK is "FOLDER:NUMBER:KIND", of the first call that fails. Kind 0: that call alone. 1: it writes half, and all later ones fail.
   2: none fails, but each is interrupted by a signal first, and then writes half. FULL_DISK_CALLS and FULL_DISK_FAILED are files that
   get a line for each call, and for each that failed; FULL_DISK_PROGRAM is the only program that has failures, if there is one. */
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
void full_disk_renames(void);
static atomic_long calls, failures;
static _Thread_local int is_again;
void full_disk(const char *in, long number, int of_kind) {
    first = 0;
    snprintf(folder, sizeof folder, "%s/", in);
    kind = of_kind;
    atomic_store(&calls, 0);
    atomic_store(&failures, 0);
    first = number;
    if (number) full_disk_renames();
}
long full_disk_failed(void) { return atomic_load(&failures); }
__attribute__((constructor)) static void begin(void) {
    char text[PATH_MAX], *number, *of_kind;
    const char *program = getenv("FULL_DISK_PROGRAM");
    if (!getenv("FULL_DISK")) return;
    /* Also what others start inherits the filter of renames. */
    full_disk_renames();
    if (program && strcmp(program, program_invocation_short_name)) return;
    snprintf(text, sizeof text, "%s", getenv("FULL_DISK"));
    of_kind = strrchr(text, ':'), *of_kind++ = 0;
    number = strrchr(text, ':'), *number++ = 0;
    full_disk(text, atol(number), atoi(of_kind));
}
static void note(const char *file, const char *call, const char *path) {
    char text[PATH_MAX + 32];
    if (!file) return;
    int list = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    syscall(SYS_write, list, text, snprintf(text, sizeof text, "%s %s\n", call, path));
    syscall(SYS_close, list);
}
static int fails(const char *call, const char *path) {
    if (kind != 2) atomic_fetch_add(&failures, 1), note(getenv("FULL_DISK_FAILED"), call, path);
    errno = kind == 2 ? EINTR : ENOSPC;
    return -1;
}
/* 0: nothing of ours; 1: as ever; 2: only half; -1: fails. */
static int answer(const char *call, const char *path) {
    size_t length = strlen(folder);
    /* The folder itself may be a file. */
    if (!first || strncmp(path, folder, length - (strlen(path) == length - 1))) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    note(getenv("FULL_DISK_CALLS"), call, path);
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
static const char *absolute(const char *path, char *whole, size_t size) {
    char here[PATH_MAX];
    if (*path == '/' || !getcwd(here, sizeof here)) return path;
    snprintf(whole, size, "%s/%s", here, path);
    return whole;
}
int open64(const char *path, int flags, ...) {
    NEXT(open64);
    char whole[2 * PATH_MAX];
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return flags & O_CREAT && answer("open", absolute(path, whole, sizeof whole)) < 0 ? -1 : next(path, flags, mode);
}
/* What no signal interrupts. */
static int refused(const char *call, const char *path) {
    char whole[2 * PATH_MAX];
    return kind != 2 && answer(call, absolute(path, whole, sizeof whole)) < 0;
}
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); return refused("mkdir", path) ? -1 : next(path, mode); }
__attribute__((visibility("hidden"))) int full_disk_refuses_rename(const char *to) { return refused("rename", to); }
