/* memory.cpp: the device's memory: poisoned, fenced by protected pages, its edges checked when it is freed. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>

#include "tests/emulator/emulator.h"
#include "tests/emulator/stream.h"

#define PAGE_BYTES   4096
#define ALIGNMENT    256
#define POISON       0xFF
#define CANARY       0xA5
#define DEVICE_BYTES ((size_t)4 << 30)

struct allocation {
    size_t bytes;
    unsigned char *pages; /* the mapping, fences included */
    size_t mapped;
};

static std::mutex lock;
static std::map<uintptr_t, struct allocation> allocations; /* by first byte */
static size_t allocated;

/* The allocation that starts at or before an address; end() if none. Call under the lock. */
static std::map<uintptr_t, struct allocation>::const_iterator find_before(uintptr_t address)
{
    auto next = allocations.upper_bound(address);
    return next == allocations.begin() ? allocations.end() : std::prev(next);
}

static size_t pages_for(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    const cudaError_t forbidden = error_if_capturing();
    if (forbidden != cudaSuccess) {
        return forbidden;
    }
    *memory = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    const std::lock_guard<std::mutex> guard(lock);
    if (bytes > DEVICE_BYTES - allocated) {
        return error_note(cudaErrorMemoryAllocation);
    }
    const size_t room = pages_for(bytes), mapped = room + 2 * PAGE_BYTES;
    void *const pages = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        return error_note(cudaErrorMemoryAllocation);
    }
    auto *const first = static_cast<unsigned char *>(pages) + PAGE_BYTES;
    if (mprotect(first, room, PROT_READ | PROT_WRITE) != 0) {
        munmap(pages, mapped);
        return error_note(cudaErrorMemoryAllocation);
    }
    unsigned char *const start = first + (room - bytes) / ALIGNMENT * ALIGNMENT; /* close to the fence behind it */
    std::memset(first, CANARY, room);
    std::memset(start, POISON, bytes);
    allocations[reinterpret_cast<uintptr_t>(start)] = {bytes, static_cast<unsigned char *>(pages), mapped};
    allocated += bytes;
    *memory = start;
    return cudaSuccess;
}

static size_t damaged(const unsigned char *from, const unsigned char *to)
{
    size_t count = 0;
    for (; from < to; from++) {
        count += *from != CANARY;
    }
    return count;
}

cudaError_t cudaFree(void *memory)
{
    const cudaError_t forbidden = error_if_capturing();
    if (forbidden != cudaSuccess || !memory) {
        return forbidden;
    }
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = allocations.find(reinterpret_cast<uintptr_t>(memory));
    if (found == allocations.end()) {
        std::fprintf(stderr, "emulator: cudaFree of %p, which was not allocated\n", memory);
        return error_note(cudaErrorInvalidValue);
    }
    const struct allocation gone = found->second;
    const auto *start = static_cast<const unsigned char *>(memory);
    const size_t before = damaged(gone.pages + PAGE_BYTES, start);
    const size_t behind = damaged(start + gone.bytes, gone.pages + gone.mapped - PAGE_BYTES);
    allocations.erase(found);
    allocated -= gone.bytes;
    munmap(gone.pages, gone.mapped);
    if (before + behind > 0) {
        std::fprintf(stderr,
                     "emulator: cudaFree: %zu bytes before and %zu bytes behind an allocation of %zu were written\n",
                     before, behind, gone.bytes);
        return error_note(cudaErrorIllegalAddress);
    }
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    *memory = std::aligned_alloc(PAGE_BYTES, pages_for(bytes));
    return *memory || bytes == 0 ? cudaSuccess : error_note(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    std::free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    const std::lock_guard<std::mutex> guard(lock);
    *free = DEVICE_BYTES - allocated;
    *total = DEVICE_BYTES;
    return cudaSuccess;
}

void emulator_describe_address(const void *address, char *text, size_t bytes)
{
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto found = find_before(at); /* in a signal handler: without the lock */
    if (found == allocations.end() || at - found->first > found->second.bytes + PAGE_BYTES + ALIGNMENT) {
        std::snprintf(text, bytes, "not device memory");
    } else if (at - found->first >= found->second.bytes) {
        std::snprintf(text, bytes, "%zu bytes behind the end of an allocation of %zu",
                      (size_t)(at - found->first) - found->second.bytes, found->second.bytes);
    } else {
        std::snprintf(text, bytes, "byte %zu of an allocation of %zu, misaligned or stack overflow",
                      (size_t)(at - found->first), found->second.bytes);
    }
}

/* ---- copies ---- */

enum place { PLACE_HOST, PLACE_DEVICE, PLACE_BROKEN };

static enum place place_of(const void *memory, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto at = reinterpret_cast<uintptr_t>(memory);
    const auto found = find_before(at);
    if (found == allocations.end() || at >= found->first + found->second.bytes) {
        return PLACE_HOST;
    }
    return bytes <= found->first + found->second.bytes - at ? PLACE_DEVICE : PLACE_BROKEN;
}

static cudaError_t check_copy(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const enum place target = place_of(to, bytes), source = place_of(from, bytes);
    if (target == PLACE_BROKEN || source == PLACE_BROKEN) {
        std::fprintf(stderr, "emulator: a copy of %zu bytes leaves its allocation\n", bytes);
        return cudaErrorInvalidValue;
    }
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (target == PLACE_DEVICE) || from_device != (source == PLACE_DEVICE))) {
        std::fprintf(stderr, "emulator: a copy's direction does not fit its pointers\n");
        return cudaErrorInvalidMemcpyDirection;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    const cudaError_t wrong = bytes > 0 ? check_copy(to, from, bytes, kind) : cudaSuccess;
    if (wrong != cudaSuccess) {
        return error_note(wrong);
    }
    return stream_do(stream, [=] {
        if (bytes > 0) {
            std::memmove(to, from, bytes);
        }
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const cudaError_t forbidden = error_if_capturing();
    return forbidden != cudaSuccess ? forbidden : cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes > 0 && place_of(memory, bytes) != PLACE_DEVICE) {
        std::fprintf(stderr, "emulator: cudaMemset of %zu bytes outside device memory\n", bytes);
        return error_note(cudaErrorInvalidValue);
    }
    return stream_do(stream, [=] {
        if (bytes > 0) {
            std::memset(memory, value, bytes);
        }
        return cudaSuccess;
    });
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    const cudaError_t forbidden = error_if_capturing();
    return forbidden != cudaSuccess ? forbidden : cudaMemsetAsync(memory, value, bytes, nullptr);
}
