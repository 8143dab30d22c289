/* Preloaded: interrupts each thread ten thousand times a second, and writes how often when the process ends, into the file TICKED.
   What a thread waits for ends with EINTR: the handler restarts nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
static atomic_long ticks;
static void tick(int signal) { (void)signal; atomic_fetch_add(&ticks, 1); }
static void tick_here(void) {
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF };
    event.sigev_notify_thread_id = gettid();
    struct itimerspec each = { { 0, 100000 }, { 0, 100000 } };
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each, 0)) abort();
}
__attribute__((constructor)) static void begin(void) {
    struct sigaction action = { .sa_handler = tick };
    sigaction(SIGPROF, &action, 0);
    tick_here();
}
__attribute__((destructor)) static void end(void) {
    FILE *file = fopen(getenv("TICKED"), "w");
    fprintf(file, "%ld", atomic_load(&ticks));
    fclose(file);
}
struct start { void *(*run)(void *), *argument; };
static void *ticking(void *given) {
    struct start start = *(struct start *)given;
    free(given);
    tick_here();
    return start.run(start.argument);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) next = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    *start = (struct start){ run, argument };
    return next(thread, how, ticking, start);
}
