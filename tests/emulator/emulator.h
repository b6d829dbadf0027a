/* emulator.h: how a kernel runs on the CPU: one fiber for each CUDA thread of a block, blocks spread over OpenMP
 * threads.
 *
 * A fiber runs until it has to wait for others: at __syncthreads, or at an operation of its warp (shuffle, ballot,
 * matrix product). Whoever arrives last does the operation's work for all. When nobody can go on, the block reports who
 * waits where: that is how divergent barriers and lanes that left too early are found. The order in which warps and
 * lanes take turns changes from block to block, so that a missing barrier shows.
 */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#define WARP_LANES         32
#define MOST_THREADS       1024
#define MOST_SHARED_BYTES  (227 * 1024) /* of one block, opted in: compute capability 9.0 */
#define PLAIN_SHARED_BYTES (48 * 1024)
#define SHARED_ROOM        (256 * 1024) /* for the dynamic part, and again for the arrays: whole pages */

struct emulator_index {
    unsigned x, y, z;
};

/* Source position of a barrier or a warp's operation. */
struct emulator_site {
    const char *file;
    int line;
};

#define EMULATOR_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct emulator_copy { /* of cp.async: started, not there yet */
    void *to;
    const void *from; /* NULL: zeros */
    bool commit;      /* not a copy but the end of a group */
};

struct emulator_thread;

/* Does a warp's operation once all lanes of `mask` are there: reads value and parameter of each, writes result. */
typedef void (*emulator_combine)(struct emulator_thread *lanes, unsigned mask);

enum emulator_state { THREAD_RUNS, THREAD_IN_WARP, THREAD_IN_BLOCK, THREAD_LEFT };

struct emulator_thread {
    jmp_buf context;
    struct emulator_index index;
    unsigned number; /* in the block */
    enum emulator_state state;
    struct emulator_site site;
    unsigned mask;
    emulator_combine combine;
    uint64_t value, result;
    int parameter, width;
    std::vector<emulator_copy> copies;
    void *stack;
};

struct emulator_warp {
    unsigned present, ready, waiting; /* lane masks */
};

struct emulator_array { /* a SHARED_ARRAY of this block */
    const void *key;
    unsigned char *memory;
    size_t bytes;
};

struct emulator_launch {
    const char *kernel;
    struct emulator_index grid, block;
    size_t shared_bytes;
    uint64_t order; /* seed of the order in which threads take turns */
    std::function<void()> body;
};

/* One per OpenMP thread, used for block after block. */
struct emulator_block {
    const struct emulator_launch *launch;
    struct emulator_index index;
    struct emulator_thread *threads; /* [MOST_THREADS], fibers made as far as `made` */
    unsigned made, count, left, arrived, ready_warps;
    struct emulator_warp warps[MOST_THREADS / WARP_LANES];
    bool descending;
    jmp_buf scheduler;
    unsigned char *dynamic_end, *dynamic; /* page-protected behind its end */
    unsigned char *arrays_memory;
    size_t arrays_used;
    std::vector<emulator_array> arrays;
};

extern __thread struct emulator_thread *emulator_self;
extern __thread struct emulator_block *emulator_team;

/* ---- block.cpp ---- */

/* Runs all blocks; false (and the reason on stderr) if one failed. */
bool emulator_run(const struct emulator_launch &launch);

/* Ends the running block with a message: kernel, block and thread are named. From a kernel only. */
[[noreturn]] void emulator_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void emulator_barrier(struct emulator_site site);
uint64_t emulator_collective(emulator_combine combine, unsigned mask, uint64_t value, int parameter, int width,
                             struct emulator_site site);
void *emulator_shared_array(const void *key, size_t bytes, const char *name);
void *emulator_shared_memory();

/* ---- lanes.cpp: what warps do together ---- */

void combine_nothing(struct emulator_thread *lanes, unsigned mask);
void combine_shuffle_index(struct emulator_thread *lanes, unsigned mask);
void combine_shuffle_up(struct emulator_thread *lanes, unsigned mask);
void combine_shuffle_down(struct emulator_thread *lanes, unsigned mask);
void combine_shuffle_xor(struct emulator_thread *lanes, unsigned mask);
void combine_ballot(struct emulator_thread *lanes, unsigned mask);
void combine_largest(struct emulator_thread *lanes, unsigned mask);
void combine_least(struct emulator_thread *lanes, unsigned mask);
void combine_sum(struct emulator_thread *lanes, unsigned mask);
void combine_mma_bf16(struct emulator_thread *lanes, unsigned mask);
void combine_ldmatrix(struct emulator_thread *lanes, unsigned mask);
void combine_ldmatrix_trans(struct emulator_thread *lanes, unsigned mask);

/* What one lane brings to a matrix product, or to ldmatrix. */
struct mma_fragments {
    float *c;
    const uint32_t *a, *b;
};
struct ldmatrix_request {
    uint32_t *to;
    const void *row;
};

/* cp.async: copies happen when the thread waits for them, as late as the hardware may. */
void emulator_copy_async(void *to, const void *from, bool valid);
void emulator_copy_commit();
void emulator_copy_wait(unsigned groups);

/* ---- runtime.cpp ---- */

/* The check before a launch and its way onto the stream. */
void emulator_submit(struct emulator_launch launch, const void *function, struct CUstream_st *stream);

/* Says which allocation is nearest to an address, for messages. */
void emulator_describe_address(const void *address, char *text, size_t bytes);

#endif
