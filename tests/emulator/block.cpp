/* block.cpp: fibers, their order, barriers, shared memory. See emulator.h.
 *
 * Contexts are switched with _setjmp and _longjmp, which make no system call; ucontext only starts a fiber on its own
 * stack, once: a fiber that is done waits for the next block.
 */
#include "tests/emulator/emulator.h"

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES  (256 * 1024)
#define PAGE_BYTES   4096
#define POISON       0xFF
#define CANARY       0xA5
#define CANARY_BYTES 128
#define SIGNAL_BYTES (64 * 1024)

__thread struct emulator_thread *emulator_self;
__thread struct emulator_block *emulator_team;
static std::mutex print_lock;
static std::atomic<bool> launch_failed;

/* ---- messages ---- */

static void print_failure(const char *text)
{
    const struct emulator_block *block = emulator_team;
    const std::lock_guard<std::mutex> guard(print_lock);
    if (launch_failed.exchange(true)) {
        return; /* the first says what is wrong */
    }
    std::fprintf(stderr, "emulator: kernel %s, block (%u, %u, %u)", block->launch->kernel, block->index.x,
                 block->index.y, block->index.z);
    if (emulator_self) {
        std::fprintf(stderr, ", thread (%u, %u, %u)", emulator_self->index.x, emulator_self->index.y,
                     emulator_self->index.z);
    }
    std::fprintf(stderr, ": %s\n", text);
}

[[noreturn]] static void leave_block(const char *text)
{
    print_failure(text);
    emulator_team->made = 0; /* its fibers stand in the middle of the kernel: start new ones next time */
    _longjmp(emulator_team->scheduler, 1);
}

void emulator_fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    leave_block(text);
}

static void on_bad_address(int number, siginfo_t *information, void *)
{
    if (!emulator_team || !emulator_self) {
        std::signal(number, SIG_DFL); /* host code: die as usual */
        return;
    }
    char where[256], text[384];
    emulator_describe_address(information->si_addr, where, sizeof where);
    std::snprintf(text, sizeof text, "access to address %p: %s", information->si_addr, where);
    leave_block(text);
}

/* A bad access inside a kernel ends the kernel, not the process. The handler needs a stack of its own: a fiber's own
 * may be what overflowed. */
static void watch_addresses()
{
    stack_t stack = {};
    stack.ss_size = SIGNAL_BYTES;
    stack.ss_sp = std::malloc(SIGNAL_BYTES);
    struct sigaction action = {};
    action.sa_sigaction = on_bad_address;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    if (!stack.ss_sp || sigaltstack(&stack, nullptr) != 0 || sigaction(SIGSEGV, &action, nullptr) != 0 ||
        sigaction(SIGBUS, &action, nullptr) != 0) {
        std::perror("emulator: signals");
        std::abort();
    }
}

/* ---- turns ---- */

/* First lane of the mask after `lane`, around the end; before it, if the block runs backwards. */
static unsigned next_lane(unsigned mask, unsigned lane, bool descending)
{
    if (descending) {
        const unsigned below = mask & ((1u << lane) - 1);
        return 31u - (unsigned)__builtin_clz(below ? below : mask);
    }
    const unsigned above = lane == 31 ? 0 : mask & (~0u << (lane + 1));
    return (unsigned)__builtin_ctz(above ? above : mask);
}

/* Who goes on when `number` cannot: its own warp first. NULL: nobody can. */
static struct emulator_thread *choose(struct emulator_block *block, unsigned number)
{
    if (block->ready_warps == 0) {
        return nullptr;
    }
    unsigned warp = number / WARP_LANES;
    if (block->warps[warp].ready == 0) {
        warp = next_lane(block->ready_warps, warp, block->descending);
    }
    struct emulator_warp *const chosen = &block->warps[warp];
    const unsigned lane = next_lane(chosen->ready, number % WARP_LANES, block->descending);
    chosen->ready &= ~(1u << lane);
    if (chosen->ready == 0) {
        block->ready_warps &= ~(1u << warp);
    }
    return &block->threads[warp * WARP_LANES + lane];
}

static void let_go_on(struct emulator_block *block, unsigned warp, unsigned lanes)
{
    if (lanes) {
        block->warps[warp].ready |= lanes;
        block->ready_warps |= 1u << warp;
    }
}

/* Lets others run; returns when it is this thread's turn again. */
static __attribute__((noinline)) void take_turns(struct emulator_thread *self)
{
    struct emulator_block *const block = emulator_team;
    struct emulator_thread *const next = choose(block, self->number);
    if (next == self) {
        return;
    }
    if (_setjmp(self->context) == 0) {
        emulator_self = next;
        _longjmp(next ? next->context : block->scheduler, 1);
    }
}

/* ---- barriers ---- */

void emulator_barrier(struct emulator_site site)
{
    struct emulator_block *const block = emulator_team;
    struct emulator_thread *const self = emulator_self;
    self->site = site;
    if (++block->arrived < block->count) {
        self->state = THREAD_IN_BLOCK;
        take_turns(self);
        return;
    }
    block->arrived = 0;
    for (unsigned i = 0; i < block->count; i++) {
        struct emulator_thread *const other = &block->threads[i];
        if (other->site.line != site.line || std::strcmp(other->site.file, site.file) != 0) {
            emulator_fail("divergent __syncthreads: %s:%d, but thread number %u waits at %s:%d", site.file, site.line,
                          i, other->site.file, other->site.line);
        }
        other->state = THREAD_RUNS;
    }
    for (unsigned warp = 0; warp * WARP_LANES < block->count; warp++) {
        const unsigned own = self->number / WARP_LANES == warp ? 1u << self->number % WARP_LANES : 0;
        let_go_on(block, warp, block->warps[warp].present & ~own);
    }
}

static void check_same(const struct emulator_thread *self, const struct emulator_thread *lanes, unsigned mask)
{
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const struct emulator_thread *const other = &lanes[lane];
        if ((mask >> lane & 1) && other != self &&
            (other->combine != self->combine || other->mask != self->mask || other->site.line != self->site.line)) {
            emulator_fail("divergent warp: %s:%d with mask %08x, but lane %u waits at %s:%d with mask %08x",
                          self->site.file, self->site.line, self->mask, lane, other->site.file, other->site.line,
                          other->mask);
        }
    }
}

uint64_t emulator_collective(emulator_combine combine, unsigned mask, uint64_t value, int parameter, int width,
                             struct emulator_site site)
{
    struct emulator_block *const block = emulator_team;
    struct emulator_thread *const self = emulator_self;
    const unsigned number = self->number / WARP_LANES, lane = self->number % WARP_LANES;
    struct emulator_warp *const warp = &block->warps[number];
    struct emulator_thread *const lanes = &block->threads[number * WARP_LANES];
    self->mask = mask & warp->present;
    self->combine = combine;
    self->value = value;
    self->parameter = parameter;
    self->width = width;
    self->site = site;
    if (!(mask >> lane & 1)) {
        emulator_fail("%s:%d: mask %08x does not hold the calling lane %u", site.file, site.line, mask, lane);
    }
    warp->waiting |= 1u << lane;
    if ((warp->waiting & self->mask) != self->mask) {
        self->state = THREAD_IN_WARP;
        take_turns(self);
        return self->result;
    }
    check_same(self, lanes, self->mask);
    combine(lanes, self->mask);
    warp->waiting &= ~self->mask;
    for (unsigned i = 0; i < WARP_LANES; i++) {
        if (self->mask >> i & 1) {
            lanes[i].state = THREAD_RUNS;
        }
    }
    let_go_on(block, number, self->mask & ~(1u << lane));
    return self->result;
}

/* ---- shared memory ---- */

static void *map_pages(size_t bytes)
{
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("emulator: mmap");
        std::abort();
    }
    return memory;
}

/* Memory with a protected page behind it (or before it). Returns the first usable byte. */
static unsigned char *map_guarded(size_t bytes, bool before)
{
    auto *memory = static_cast<unsigned char *>(map_pages(bytes + PAGE_BYTES));
    if (mprotect(before ? memory : memory + bytes, PAGE_BYTES, PROT_NONE) != 0) {
        std::perror("emulator: mprotect");
        std::abort();
    }
    return before ? memory + PAGE_BYTES : memory;
}

void *emulator_shared_memory()
{
    return emulator_team->dynamic;
}

void *emulator_shared_array(const void *key, size_t bytes, const char *name)
{
    struct emulator_block *const block = emulator_team;
    for (const struct emulator_array &array : block->arrays) {
        if (array.key == key) {
            return array.memory;
        }
    }
    const size_t room = (bytes + CANARY_BYTES - 1) / CANARY_BYTES * CANARY_BYTES + CANARY_BYTES;
    if (block->arrays_used + room > SHARED_ROOM) {
        emulator_fail("no room for the shared array %s of %zu bytes", name, bytes);
    }
    unsigned char *const memory = block->arrays_memory + block->arrays_used;
    std::memset(memory, POISON, bytes);
    std::memset(memory + bytes, CANARY, room - bytes);
    block->arrays_used += room;
    block->arrays.push_back({key, memory, bytes});
    size_t total = 0;
    for (const struct emulator_array &array : block->arrays) {
        total += array.bytes;
    }
    if (total > PLAIN_SHARED_BYTES || total + block->launch->shared_bytes > MOST_SHARED_BYTES) {
        emulator_fail("%zu bytes of shared arrays with %zu of dynamic shared memory: more than a block may have", total,
                      block->launch->shared_bytes);
    }
    return memory;
}

static void begin_shared(struct emulator_block *block)
{
    const size_t bytes = (block->launch->shared_bytes + CANARY_BYTES - 1) / CANARY_BYTES * CANARY_BYTES;
    block->dynamic = block->dynamic_end - bytes;
    std::memset(block->dynamic - CANARY_BYTES, CANARY, CANARY_BYTES);
    std::memset(block->dynamic, POISON, block->launch->shared_bytes);
    std::memset(block->dynamic + block->launch->shared_bytes, CANARY, bytes - block->launch->shared_bytes);
    block->arrays.clear();
    block->arrays_used = CANARY_BYTES;
    std::memset(block->arrays_memory, CANARY, CANARY_BYTES);
}

static bool is_canary(const unsigned char *memory, const unsigned char *end)
{
    for (; memory < end; memory++) {
        if (*memory != CANARY) {
            return false;
        }
    }
    return true;
}

static bool shared_intact(const struct emulator_block *block)
{
    bool intact = is_canary(block->dynamic - CANARY_BYTES, block->dynamic) &&
                  is_canary(block->dynamic + block->launch->shared_bytes, block->dynamic_end) &&
                  is_canary(block->arrays_memory, block->arrays_memory + CANARY_BYTES);
    for (const struct emulator_array &array : block->arrays) {
        intact = intact && is_canary(array.memory + array.bytes, array.memory + array.bytes + CANARY_BYTES);
    }
    return intact;
}

/* ---- fibers and blocks ---- */

static void fiber_main()
{
    struct emulator_thread *const self = emulator_self;
    if (_setjmp(self->context) == 0) {
        emulator_self = nullptr;
        _longjmp(emulator_team->scheduler, 1);
    }
    for (;;) {
        emulator_team->launch->body();
        self->state = THREAD_LEFT;
        emulator_team->left++;
        take_turns(self);
    }
}

static void make_fiber(struct emulator_block *block, unsigned number)
{
    struct emulator_thread *const thread = &block->threads[number];
    if (!thread->stack) {
        thread->stack = map_guarded(STACK_BYTES, true);
    }
    ucontext_t context;
    if (getcontext(&context) != 0) {
        std::perror("emulator: getcontext");
        std::abort();
    }
    context.uc_stack.ss_sp = thread->stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    emulator_self = thread;
    if (_setjmp(block->scheduler) == 0) {
        setcontext(&context);
    }
}

static struct emulator_block *make_block()
{
    auto *block = new emulator_block();
    block->threads = new emulator_thread[MOST_THREADS]();
    block->dynamic_end = map_guarded(SHARED_ROOM, false) + SHARED_ROOM;
    block->arrays_memory = map_guarded(SHARED_ROOM, false);
    watch_addresses();
    return block;
}

/* splitmix64: an order of turns for each block. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void begin_threads(struct emulator_block *block)
{
    const struct emulator_index size = block->launch->block;
    block->count = size.x * size.y * size.z;
    block->left = block->arrived = block->ready_warps = 0;
    while (block->made < block->count) {
        make_fiber(block, block->made);
        block->made++;
    }
    for (unsigned i = 0; i < block->count; i++) {
        struct emulator_thread *const thread = &block->threads[i];
        thread->index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        thread->number = i;
        thread->state = THREAD_RUNS;
        thread->copies.clear();
    }
    for (unsigned warp = 0; warp * WARP_LANES < block->count; warp++) {
        const unsigned lanes = block->count - warp * WARP_LANES;
        block->warps[warp].present = lanes >= WARP_LANES ? ~0u : (1u << lanes) - 1;
        block->warps[warp].ready = block->warps[warp].waiting = 0;
        let_go_on(block, warp, block->warps[warp].present);
    }
}

/* Nobody can go on: tells the first thread of each kind of waiting. */
static void report_deadlock(const struct emulator_block *block)
{
    char text[512];
    int used = std::snprintf(text, sizeof text, "no thread can go on; %u of %u have left the kernel", block->left,
                             block->count);
    const struct emulator_thread *last = nullptr;
    for (unsigned i = 0; i < block->count && used < (int)sizeof text; i++) {
        const struct emulator_thread *const thread = &block->threads[i];
        if (thread->state == THREAD_LEFT || (last && last->state == thread->state &&
                                             last->site.line == thread->site.line && last->mask == thread->mask)) {
            continue;
        }
        last = thread;
        if (thread->state == THREAD_IN_BLOCK) {
            used += std::snprintf(text + used, sizeof text - (size_t)used,
                                  "; thread number %u waits in __syncthreads at %s:%d", i, thread->site.file,
                                  thread->site.line);
        } else {
            used += std::snprintf(text + used, sizeof text - (size_t)used,
                                  "; thread number %u waits for its warp at %s:%d with mask %08x", i, thread->site.file,
                                  thread->site.line, thread->mask);
        }
    }
    print_failure(text);
}

static void run_block(const struct emulator_launch *launch, uint64_t number)
{
    static __thread struct emulator_block *own;
    struct emulator_block *const block = own ? own : make_block();
    own = emulator_team = block;
    block->launch = launch;
    block->index = {(unsigned)(number % launch->grid.x), (unsigned)(number / launch->grid.x % launch->grid.y),
                    (unsigned)(number / launch->grid.x / launch->grid.y)};
    begin_shared(block);
    begin_threads(block);
    const uint64_t order = mix(launch->order + number * UINT64_C(0x9E3779B97F4A7C15));
    block->descending = order & 1;
    if (_setjmp(block->scheduler) == 0) {
        emulator_self = choose(block, (unsigned)(order >> 1) % block->count);
        _longjmp(emulator_self->context, 1);
    }
    emulator_self = nullptr;
    if (!launch_failed && block->left < block->count) {
        report_deadlock(block);
        block->made = 0;
    } else if (!launch_failed && !shared_intact(block)) {
        print_failure("wrote outside its shared memory");
    }
    emulator_team = nullptr;
}

bool emulator_run(const struct emulator_launch &launch)
{
    const uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    const bool backwards = mix(launch.order) & 1;
    launch_failed = false;
#pragma omp parallel for schedule(dynamic) if (blocks > 1)
    for (uint64_t i = 0; i < blocks; i++) {
        if (!launch_failed) {
            run_block(&launch, backwards ? blocks - 1 - i : i);
        }
    }
    return !launch_failed;
}
