/* Calls NVTX as a program does that contains its headers, and checks what comes back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#ifdef HAS_MEMTRACE
/* The ELF note of every program that contains memtrace. */
__attribute__((section(".note.memtrace"), used, aligned(4)))
static const struct { unsigned name_length, length, kind; char name[12]; } note = { 9, 0, 1, "memtrace" };
#endif

typedef void (*function)(void);
typedef void *handle;

/* The functions by module and number, and the addresses of these variables. */
enum { CORE = 1, CORE2 = 5, SLOTS = 16 };
static function functions[6][SLOTS];
static function *slots[6][SLOTS + 1];

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static unsigned known_slots = SLOTS;

static int get_slots(int module, function ***out, unsigned *count) {
    if (module != CORE && module != CORE2) return 0;
    *out = slots[module];
    *count = known_slots;
    return 1;
}

static struct { size_t size; int (*get_slots)(int, function ***, unsigned *); } callbacks = { sizeof callbacks, get_slots };

static const void *get_table(uint32_t number) { return number == 1 ? &callbacks : 0; }
static const void *no_table(uint32_t number) { return 0; }

typedef int (*initializer)(const void *(*)(uint32_t));

static initializer find_tool(void) {
    void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
    return library ? (initializer)dlsym(library, "InitializeInjectionNvtx2") : 0;
}

static void initialize(void) {
    for (int module = 0; module < 6; module++)
        for (int n = 1; n < SLOTS; n++) slots[module][n] = &functions[module][n];
    initializer tool = find_tool();
    if (tool && tool(get_table) != 1) exit(90);
}

/* As in the headers, a function that nobody has put there does nothing. */
#define CALL(module, number, type, none, ...) \
    (functions[module][number] ? ((type)functions[module][number])(__VA_ARGS__) : (none))
static int push_a(const char *m) { return CALL(CORE, 9, int (*)(const char *), -2, m); }
static int push_w(const wchar_t *m) { return CALL(CORE, 10, int (*)(const wchar_t *), -2, m); }
static int pop(void) { return CALL(CORE, 11, int (*)(void), -2); }
static int push_attributes(const struct attributes *a) { return CALL(CORE, 8, int (*)(const struct attributes *), -2, a); }
static int domain_push_attributes(handle d, const struct attributes *a) {
    return CALL(CORE2, 4, int (*)(handle, const struct attributes *), -2, d, a);
}
static int domain_pop(handle d) { return CALL(CORE2, 5, int (*)(handle), -2, d); }
static handle string_a(handle d, const char *s) { return CALL(CORE2, 10, handle (*)(handle, const char *), 0, d, s); }
static handle string_w(handle d, const wchar_t *s) { return CALL(CORE2, 11, handle (*)(handle, const wchar_t *), 0, d, s); }
static handle domain_a(const char *n) { return CALL(CORE2, 12, handle (*)(const char *), 0, n); }
static handle domain_w(const wchar_t *n) { return CALL(CORE2, 13, handle (*)(const wchar_t *), 0, n); }
static void destroy(handle d) { if (functions[CORE2][14]) ((void (*)(handle))functions[CORE2][14])(d); }

static struct attributes attributes(int type, const void *message) {
    struct attributes made = { 3, sizeof made };
    made.message_type = type;
    made.message = message;
    return made;
}
static int push_ex(int type, const void *message) {
    struct attributes made = attributes(type, message);
    return push_attributes(&made);
}
static int domain_push(handle d, int type, const void *message) {
    struct attributes made = attributes(type, message);
    return domain_push_attributes(d, &made);
}

/* Blocks that are never freed, of 101 KiB, 102 KiB and so on. */
static void block(void) {
    static int blocks = 100;
    memset(malloc((size_t)++blocks << 10), 1, 1);
}

static void is(long found, long expected, int line) {
    if (found == expected) return;
    printf("line %d: %ld instead of %ld\n", line, found, expected);
    exit(91);
}
#define IS(found, expected) is(found, expected, __LINE__)

static void kinds(void) {
    errno = 7;
    IS(push_a("ascii"), 0); block();
    IS(push_w(L"größe 大 😀"), 1); block(); IS(pop(), 1);
    IS(push_ex(1, "ex"), 1); block(); IS(pop(), 1);
    IS(push_ex(2, L"ex wide"), 1); block(); IS(pop(), 1);
    char text[] = "kept";
    handle kept = string_a(0, text);
    strcpy(text, "gone");
    handle wide = string_w(domain_a("any"), L"kept wide");
    IS(kept && wide && kept != wide, 1);
    IS(string_w(0, L"kept") == kept, 1);
    IS(push_ex(3, kept), 1); block(); IS(pop(), 1);
    IS(push_ex(3, wide), 1); block(); IS(pop(), 1);
    block();
    IS(pop(), 0); block(); IS(pop() < 0, 1); IS(pop() < 0, 1);
    IS(errno, 7);
}

static void domains(void) {
    handle a = domain_a("app"), b = domain_w(L"solver"), none = domain_a(0);
    IS(a && b && none && a != b && a != none, 1);
    IS(domain_push(a, 1, "app"), 0); block();
    IS(domain_push(b, 2, L"solver"), 0); block();
    IS(domain_push(a, 1, "inner"), 1); block();
    IS(domain_pop(none) < 0, 1);
    IS(pop() < 0, 1);
    /* The outer range of the one domain ends with the domain, but not the other's. */
    handle c = domain_a("app");
    IS(domain_push(c, 1, "inner"), 0);
    destroy(a); IS(domain_pop(a) < 0, 1); block();
    IS(domain_pop(b), 0); block();
    /* The null handle is the domain of the plain functions. */
    IS(domain_push(0, 1, "default"), 0); block();
    destroy(0);
    IS(pop(), 0);
    IS(domain_pop(c), 0); block();
}

static void messages(void) {
    /* None at all: a level without a scope. */
    IS(push_a(0), 0); block();
    IS(push_w(0), 1); block();
    IS(push_attributes(0), 2); block();
    IS(push_ex(0, "unused"), 3); block();
    IS(push_ex(99, "unknown"), 4);
    IS(push_ex(1, 0), 5); block();
    IS(push_ex(3, 0), 6); IS(push_ex(3, (void *)0x7fffdeadbeef), 7); block();
    struct attributes small = attributes(1, "too small");
    small.size = 8;
    IS(push_attributes(&small), 8); block();
    IS(push_a(""), 9); block();
    for (int level = 9; level >= 0; level--) IS(pop(), level);
    IS(push_a("a\xff" "b\xe4\xb8"), 0); block(); pop();
    wchar_t wide[] = { 'a', 0xd800, 0x7fffffff, 'b', 0 };
    IS(push_w(wide), 0); block(); pop();
    /* Very long. */
    size_t length = 10 << 20;
    char *text = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t n = 0; n + 2 < length; n += 2) memcpy(text + n, "ä", 2);
    IS(push_a(text), 0); block(); pop();
    IS(push_ex(3, string_a(0, text)), 0); block(); pop();
    wchar_t *wides = (wchar_t *)text;
    for (size_t n = 0; n < 1 << 20; n++) wides[n] = 0xe4;
    wides[1 << 20] = 0;
    IS(push_w(wides), 0); block(); pop();
}

static void deep(void) {
    for (int level = 0; level < 10000; level++) IS(push_a("level"), level);
    block();
    for (int level = 9999; level >= 64; level--) IS(pop(), level);
    block();
    for (int level = 63; level >= 1; level--) IS(pop(), level);
    block();
    IS(pop(), 0);
    IS(pop() < 0, 1);
}

static void *leave_open(void *blocks) {
    IS(push_a("left open"), 0);
    if (blocks) block();
    if (blocks) { IS(push_a("second"), 1); block(); }
    return 0;
}
static void *work(void *unused) {
    handle own = domain_a("own");
    for (int n = 0; n < 1000; n++) {
        int level = push_a("worker");
        IS(domain_push(own, 1, "inner"), 0);
        IS(pop(), level);
        IS(push_a("worker"), level);
        IS(domain_pop(own), 0);
        IS(pop(), level);
    }
    return 0;
}
static void threads(void) {
    pthread_t all[8];
    pthread_create(&all[0], 0, leave_open, all);
    pthread_join(all[0], 0);
    block();
    for (int n = 0; n < 500; n++) {
        pthread_create(&all[0], 0, leave_open, 0);
        pthread_join(all[0], 0);
    }
    for (int n = 0; n < 8; n++) pthread_create(&all[n], 0, work, 0);
    for (int n = 0; n < 8; n++) pthread_join(all[n], 0);
}

/* Many names, for which tables grow. */
static void *name(void *thread) {
    for (int n = 0; n < 3000; n++) {
        char text[64];
        snprintf(text, sizeof text, "%ld of thread %ld", (long)n, (long)thread);
        IS(push_a(text), 0);
        IS(push_ex(3, string_a(0, "registered")), 1);
        free(malloc(2000));
        IS(pop(), 1);
        IS(pop(), 0);
    }
    return 0;
}
static void names(void) {
    pthread_t all[4];
    for (long n = 0; n < 4; n++) pthread_create(&all[n], 0, name, (void *)n);
    for (int n = 0; n < 4; n++) pthread_join(all[n], 0);
    IS(push_a("2999 of thread 3"), 0); block(); pop();
}

/* A child is not recorded, and counts on. */
static void forks(void) {
    IS(push_a("parent"), 0);
    for (int n = 0; n < 20; n++) {
        pid_t child = fork();
        if (child == 0) {
            IS(push_a("child"), 1);
            work(0);
            IS(pop(), 1);
            IS(pop(), 0);
            _exit(0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        IS(status, 0);
    }
    block();
    IS(pop(), 0);
}

static void others(void) {
    /* MarkEx, MarkA, MarkW, the starts and the end of process ranges, names; their counterparts for domains. */
    for (int n = 1; n < SLOTS; n++) IS(!functions[CORE][n], n < 8 || n > 11);
    for (int n = 1; n < SLOTS; n++) IS(!functions[CORE2][n], !strchr("\4\5\12\13\14\15\16", n));
    block();
    IS(push_a("range"), 0); block();
    IS(pop(), 0); block();
}

static void tables(void) {
    initializer tool = find_tool();
    memset(functions, 0, sizeof functions);
    IS(tool(0), 1);
    IS(tool(no_table), 1);
    callbacks.size = 8;
    IS(tool(get_table), 1);
    callbacks.size = sizeof callbacks;
    callbacks.get_slots = 0;
    IS(tool(get_table), 1);
    callbacks.get_slots = get_slots;
    known_slots = 10;
    slots[CORE][8] = 0;
    IS(tool(get_table), 1);
    IS(functions[CORE][9] && !functions[CORE][8] && !functions[CORE][10] && !functions[CORE][11], 1);
    /* Another copy of the headers. */
    known_slots = SLOTS;
    initialize();
    IS(push_a("twice"), 0); IS(pop(), 0); block();
}

/* No tool was found. */
static void elsewhere(void) {
    IS(push_a("nobody listens"), -2); block(); IS(pop(), -2);
    IS(domain_a("none") == 0, 1);
}

int main(int count, char **arguments) {
    struct { const char *name; void (*run)(void); } cases[] = {
        { "kinds", kinds }, { "domains", domains }, { "messages", messages }, { "deep", deep },
        { "threads", threads }, { "names", names }, { "forks", forks }, { "others", others }, { "tables", tables }, { "elsewhere", elsewhere },
    };
    /* A case that hangs has failed. */
    alarm(100);
    initialize();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        if (count == 2 && !strcmp(cases[n].name, arguments[1])) {
            cases[n].run();
            return 0;
        }
    return 92;
}
