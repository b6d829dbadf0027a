/* embedding_cuda.cu: token and position tables. See ops_cuda.h; definition: embedding_cpu.c.
 *
 * Backward without atomics: rows are sorted by the table row they name (stable: in their order), equal ones form runs,
 * and a block owns a run and 256 columns. Its warps take every eighth row of the run; their sums are added in order.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "attention/sort_cuda.h"
#include "model/vector.cuh"

#define THREADS      256
#define WARPS        (THREADS / 32)
#define TILE_COLUMNS (32 * VECTOR)
#define ALIGNMENT    256

/* ---- forward ---- */

static __global__ void __launch_bounds__(THREADS) embedding_kernel(const int32_t *tokens, const int32_t *positions,
                                                                   const uint16_t *token_table, const uint16_t *position_table,
                                                                   size_t count, size_t columns, uint16_t *y)
{
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR;
    if (at >= count) {
        return;
    }
    const size_t row = at / columns, column = at % columns;
    float x[VECTOR], position[VECTOR];
    load_bf16(token_table + (size_t)tokens[row] * columns + column, x);
    if (position_table) {
        load_bf16(position_table + (size_t)positions[row] * columns + column, position);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            x[i] += position[i];
        }
    }
    store_bf16(y + at, x);
}

bool embedding_forward_cuda(const int32_t *tokens, const int32_t *positions, const uint16_t *token_table, const uint16_t *position_table,
                            size_t rows, size_t columns, uint16_t *y, device_stream stream, struct error *error)
{
    const size_t count = rows * columns;
    if (count == 0) {
        return true;
    }
    LAUNCH(embedding_kernel, blocks_for(count / VECTOR, THREADS), dim3(THREADS), 0, stream, tokens, positions, token_table, position_table,
           count, columns, y);
    return device_check("embedding, forward", error);
}

/* ---- backward ---- */

struct sorted_rows {
    int32_t *ids, *rows;             /* sorted, largest id first */
    int32_t *unsorted, *heads, *run; /* row numbers; 1 where a run starts; its number */
    int32_t *starts;                 /* [rows + 1]: where run i starts, behind the last the end */
    int32_t *runs;                   /* one number */
    void *scratch;
    size_t scratch_bytes, bytes;
};

static void *take(unsigned char *base, size_t *used, size_t bytes)
{
    void *piece = base ? base + *used : nullptr;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

static struct sorted_rows lay_out(size_t rows, void *workspace)
{
    struct sorted_rows sorted = {};
    auto *const base = static_cast<unsigned char *>(workspace);
    int32_t **const arrays[] = {&sorted.ids, &sorted.rows, &sorted.unsorted, &sorted.heads, &sorted.run, &sorted.starts};
    for (int32_t **array : arrays) {
        *array = static_cast<int32_t *>(take(base, &sorted.bytes, (rows + 1) * sizeof(int32_t)));
    }
    sorted.runs = static_cast<int32_t *>(take(base, &sorted.bytes, sizeof(int32_t)));
    sorted.scratch_bytes = sort_scratch_bytes(rows);
    sorted.scratch = take(base, &sorted.bytes, sorted.scratch_bytes);
    return sorted;
}

size_t embedding_workspace_bytes_cuda(size_t rows)
{
    return lay_out(rows, nullptr).bytes;
}

static __device__ __forceinline__ size_t thread_of_grid()
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

static __global__ void number_kernel(int32_t *numbers, size_t rows)
{
    if (thread_of_grid() < rows) {
        numbers[thread_of_grid()] = (int32_t)thread_of_grid();
    }
}

static __global__ void heads_kernel(const int32_t *ids, size_t rows, int32_t *heads)
{
    const size_t i = thread_of_grid();
    if (i < rows) {
        heads[i] = i == 0 || ids[i] != ids[i - 1];
    }
}

static __global__ void starts_kernel(const int32_t *heads, const int32_t *run, size_t rows, int32_t *starts, int32_t *runs)
{
    const size_t i = thread_of_grid();
    if (i < rows && heads[i]) {
        starts[run[i]] = (int32_t)i;
    }
    if (i == rows - 1) {
        const int32_t count = run[i] + heads[i];
        starts[count] = (int32_t)rows;
        *runs = count;
    }
}

struct embedding_job {
    const int32_t *ids, *rows, *starts, *runs;
    const uint16_t *dy;
    float *gradient;
    size_t columns;
};

static __global__ void __launch_bounds__(THREADS) embedding_backward_kernel(const struct embedding_job job)
{
    SHARED_ARRAY(float, sums, WARPS * TILE_COLUMNS);
    if ((int32_t)blockIdx.x >= *job.runs) {
        return;
    }
    const int32_t first = job.starts[blockIdx.x], end = job.starts[blockIdx.x + 1];
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
    const size_t tile = (size_t)blockIdx.y * TILE_COLUMNS, column = tile + (size_t)lane * VECTOR;
    float sum[VECTOR] = {0}, dy[VECTOR];
    if (column < job.columns) {
        for (int32_t i = first + warp; i < end; i += WARPS) {
            load_bf16(job.dy + (size_t)job.rows[i] * job.columns + column, dy);
#pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                sum[j] += dy[j];
            }
        }
    }
    store_fp32(sums + warp * TILE_COLUMNS + lane * VECTOR, sum);
    __syncthreads();
    const size_t own = tile + threadIdx.x; /* TILE_COLUMNS threads, a column each */
    if (own < job.columns) {
        float total = sums[threadIdx.x];
        for (int i = 1; i < WARPS; i++) {
            total += sums[i * TILE_COLUMNS + threadIdx.x];
        }
        job.gradient[(size_t)job.ids[first] * job.columns + own] += total;
    }
}

static_assert(THREADS == TILE_COLUMNS, "a thread for each column of the tile");

static bool sort_rows(const struct sorted_rows &sorted, const int32_t *ids, size_t rows, device_stream stream, struct error *error)
{
    const dim3 grid = blocks_for(rows, THREADS), block(THREADS);
    LAUNCH(number_kernel, grid, block, 0, stream, sorted.unsorted, rows);
    if (sort_descending(sorted.scratch, sorted.scratch_bytes, ids, sorted.ids, sorted.unsorted, sorted.rows, rows, stream) != cudaSuccess) {
        return device_check("sorting tokens", error) && error_set(error, ERROR_FAILED, "sorting tokens on the GPU failed");
    }
    LAUNCH(heads_kernel, grid, block, 0, stream, sorted.ids, rows, sorted.heads);
    if (sort_exclusive_sum(sorted.scratch, sorted.scratch_bytes, sorted.heads, sorted.run, rows, stream) != cudaSuccess) {
        return device_check("numbering tokens", error) && error_set(error, ERROR_FAILED, "numbering tokens on the GPU failed");
    }
    LAUNCH(starts_kernel, grid, block, 0, stream, sorted.heads, sorted.run, rows, sorted.starts, sorted.runs);
    return true;
}

bool embedding_backward_cuda(const int32_t *ids, size_t rows, size_t table_rows, const uint16_t *dy, size_t columns, float *gradient,
                             void *workspace, device_stream stream, struct error *error)
{
    if (rows == 0) {
        return true;
    }
    const struct sorted_rows sorted = lay_out(rows, workspace);
    if (!sort_rows(sorted, ids, rows, stream, error)) {
        return false;
    }
    struct embedding_job job = {};
    job.ids = sorted.ids;
    job.rows = sorted.rows;
    job.starts = sorted.starts;
    job.runs = sorted.runs;
    job.dy = dy;
    job.gradient = gradient;
    job.columns = columns;
    const size_t most_runs = rows < table_rows ? rows : table_rows;
    const dim3 grid((unsigned)most_runs, (unsigned)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS));
    LAUNCH(embedding_backward_kernel, grid, dim3(THREADS), 0, stream, job);
    return device_check("embedding, backward", error);
}
