/* Renames, which programs make without C's functions: a filter of the kernel turns them into a signal, whose handler decides. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
int full_disk_refuses_rename(const char *to);
/* The sixth argument, which no rename has, of the calls that the filter lets through. */
#define OURS 0x6f757273
/* Not by C's function: a library that watches for filters would see it. */
static long call(long number, long a, long b, long c, long d, long e, long f) {
#ifdef __x86_64__
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}
static void decide(int signal, siginfo_t *info, void *context) {
    mcontext_t *state = &((ucontext_t *)context)->uc_mcontext;
    int number = info->si_syscall, before = errno;
#ifdef __x86_64__
    greg_t *all = state->gregs;
    long a = all[REG_RDI], b = all[REG_RSI], c = all[REG_RDX], d = all[REG_R10], e = all[REG_R8];
    greg_t *result = &all[REG_RAX];
    int is_short = number == SYS_rename || number == SYS_link;
#else
    unsigned long long *result = state->regs;
    long a = result[0], b = result[1], c = result[2], d = result[3], e = result[4];
    int is_short = 0;
#endif
    int is_refused = full_disk_refuses_rename((const char *)(is_short ? b : d));
    *result = is_refused ? -ENOSPC : call(number, a, b, c, d, e, OURS);
    errno = before;
}
#define STEP(code, value, yes, no) { code, yes, no, value }
#define IS(value, yes, no) STEP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define LOAD(field) STEP(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field), 0, 0)
#define ANSWER(value) STEP(BPF_RET | BPF_K, value, 0, 0)
void full_disk_renames(void) {
    static int is_done;
    if (is_done) return;
    is_done = 1;
    struct sigaction action = { .sa_sigaction = decide, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART };
    struct sock_filter steps[] = {
        LOAD(nr), IS(SYS_renameat, 4, 0), IS(SYS_renameat2, 3, 0), IS(SYS_linkat, 2, 0),
#ifdef __x86_64__
        IS(SYS_rename, 1, 0), IS(SYS_link, 0, 2),
#else
        ANSWER(SECCOMP_RET_ALLOW), ANSWER(SECCOMP_RET_ALLOW),
#endif
        LOAD(args[5]), IS(OURS, 0, 1), ANSWER(SECCOMP_RET_ALLOW), ANSWER(SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = { sizeof steps / sizeof *steps, steps };
    if (sigaction(SIGSYS, &action, NULL)) abort();
    call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
    if (call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, (long)&program, 0, 0, 0)) abort();
}
/* memtrace's threads block all signals; the filter's must get through. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    static __typeof__(pthread_sigmask) *next;
    if (!next) next = dlsym(RTLD_NEXT, "pthread_sigmask");
    sigset_t without;
    if (set && how != SIG_UNBLOCK) {
        without = *set, set = &without;
        sigdelset(&without, SIGSYS);
    }
    return next(how, set, before);
}
