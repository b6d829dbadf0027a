/* device_cuda.cu: see device.h. Each function is a call of the runtime and its error in words. */
#include "model/device.h"

#include <cstdio>

#include <cuda_runtime.h>

#define LEAST_MAJOR 8

static bool failed(struct error *error, const char *what, cudaError_t status)
{
    cudaGetLastError(); /* told once: the next call is judged by itself */
    return error_set(error, ERROR_FAILED, "%s: the GPU says: %s (%s)", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

static bool done(struct error *error, const char *what, cudaError_t status)
{
    return status == cudaSuccess || failed(error, what, status);
}

bool device_is_built_in(void)
{
    return true;
}

int device_count(struct error *error)
{
    int count = 0;
    if (!done(error, "looking for GPUs (is the NVIDIA driver installed, and is this user allowed to use it?)", cudaGetDeviceCount(&count))) {
        return -1;
    }
    return count;
}

static bool versions_fit(struct device_description *description, struct error *error)
{
    if (!done(error, "asking for the driver's version", cudaDriverGetVersion(&description->driver_version)) ||
        !done(error, "asking for the runtime's version", cudaRuntimeGetVersion(&description->runtime_version))) {
        return false;
    }
    const int driver = description->driver_version, runtime = description->runtime_version;
    if (driver / 1000 < runtime / 1000) {
        return error_set(error, ERROR_FAILED,
                         "the GPU driver is for CUDA %d.%d, this program was built with CUDA %d.%d: update the driver, or build with an "
                         "older toolkit (CUDA_HOME=folder make)",
                         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    return true;
}

bool device_open(int index, struct device_description *description, struct error *error)
{
    const int count = device_count(error);
    if (count < 0 || !versions_fit(description, error)) {
        return false;
    }
    if (index < 0 || index >= count) {
        return error_set(error, ERROR_USAGE, "there is no GPU %d: this machine has %d, counted from 0", index, count);
    }
    struct cudaDeviceProp properties;
    if (!done(error, "choosing a GPU", cudaSetDevice(index)) ||
        !done(error, "describing a GPU", cudaGetDeviceProperties(&properties, index))) {
        return false;
    }
    if (properties.major < LEAST_MAJOR) {
        return error_set(error, ERROR_FAILED,
                         "GPU %d is %s, compute capability %d.%d: 8.0 or newer is needed (BF16 matrix products); use --device cpu", index,
                         properties.name, properties.major, properties.minor);
    }
    std::snprintf(description->name, sizeof description->name, "%s", properties.name);
    description->major = properties.major;
    description->minor = properties.minor;
    description->multiprocessors = properties.multiProcessorCount;
    description->memory_bytes = properties.totalGlobalMem;
    description->shared_bytes = properties.sharedMemPerBlockOptin;
    return true;
}

/* ---- memory ---- */

static void *given(struct error *error, cudaError_t status, void *memory, size_t bytes, const char *place, const char *what)
{
    if (status == cudaSuccess) {
        return memory;
    }
    size_t left = 0, total = 0;
    cudaGetLastError();
    if (status == cudaErrorMemoryAllocation && cudaMemGetInfo(&left, &total) == cudaSuccess) {
        error_set(error, ERROR_FAILED, "out of %s memory: %s needs %zu MiB; the GPU has %zu of %zu MiB left. Lower --micro-batch or --seq-len",
                  place, what, bytes >> 20, left >> 20, total >> 20);
    } else {
        failed(error, what, status);
    }
    return nullptr;
}

void *device_alloc(size_t bytes, const char *what, struct error *error)
{
    void *memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    return given(error, status, memory, bytes, "GPU", what);
}

bool device_free(void *memory, struct error *error)
{
    return done(error, "giving GPU memory back", cudaFree(memory));
}

void *device_host_alloc(size_t bytes, const char *what, struct error *error)
{
    void *memory = nullptr;
    const cudaError_t status = cudaMallocHost(&memory, bytes > 0 ? bytes : 1);
    return given(error, status, memory, bytes, "page-locked host", what);
}

bool device_host_free(void *memory, struct error *error)
{
    return done(error, "giving page-locked memory back", cudaFreeHost(memory));
}

bool device_memory(size_t *free_bytes, size_t *total_bytes, struct error *error)
{
    return done(error, "asking for the GPU's free memory", cudaMemGetInfo(free_bytes, total_bytes));
}

bool device_copy_in(void *device, const void *host, size_t bytes, device_stream stream, struct error *error)
{
    return done(error, "copying to the GPU", cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

bool device_copy_out(void *host, const void *device, size_t bytes, device_stream stream, struct error *error)
{
    return done(error, "copying from the GPU", cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
}

bool device_copy(void *to, const void *from, size_t bytes, device_stream stream, struct error *error)
{
    return done(error, "copying on the GPU", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

bool device_fill(void *device, int byte, size_t bytes, device_stream stream, struct error *error)
{
    return done(error, "filling GPU memory", cudaMemsetAsync(device, byte, bytes, stream));
}

/* ---- streams and events ---- */

bool device_stream_create(device_stream *stream, struct error *error)
{
    return done(error, "making a stream", cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

bool device_stream_destroy(device_stream stream, struct error *error)
{
    return done(error, "removing a stream", cudaStreamDestroy(stream));
}

bool device_stream_wait(device_stream stream, struct error *error)
{
    return done(error, "waiting for the GPU", cudaStreamSynchronize(stream));
}

bool device_event_create(device_event *event, struct error *error)
{
    return done(error, "making an event", cudaEventCreateWithFlags(event, cudaEventDefault));
}

bool device_event_destroy(device_event event, struct error *error)
{
    return done(error, "removing an event", cudaEventDestroy(event));
}

bool device_event_record(device_event event, device_stream stream, struct error *error)
{
    return done(error, "recording an event", cudaEventRecord(event, stream));
}

bool device_event_wait(device_event event, struct error *error)
{
    return done(error, "waiting for the GPU", cudaEventSynchronize(event));
}

bool device_stream_follow(device_stream stream, device_event event, struct error *error)
{
    return done(error, "letting a stream wait", cudaStreamWaitEvent(stream, event, 0));
}

bool device_event_seconds(device_event start, device_event end, double *seconds, struct error *error)
{
    float milliseconds = 0;
    const cudaError_t status = cudaEventElapsedTime(&milliseconds, start, end);
    *seconds = (double)milliseconds / 1000;
    return done(error, "reading the time between two events", status);
}

/* ---- graphs ---- */

bool device_graph_begin(device_stream stream, struct error *error)
{
    return done(error, "recording a graph", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

bool device_graph_end(device_stream stream, device_graph *graph, struct error *error)
{
    cudaGraph_t recorded = nullptr;
    *graph = nullptr;
    if (!done(error, "recording a graph", cudaStreamEndCapture(stream, &recorded))) {
        return false;
    }
    const cudaError_t made = cudaGraphInstantiate(graph, recorded, 0);
    const cudaError_t removed = cudaGraphDestroy(recorded);
    return done(error, "making a graph ready", made) && done(error, "removing a graph's record", removed);
}

bool device_graph_launch(device_graph graph, device_stream stream, struct error *error)
{
    return done(error, "starting a graph", cudaGraphLaunch(graph, stream));
}

bool device_graph_destroy(device_graph graph, struct error *error)
{
    return done(error, "removing a graph", cudaGraphExecDestroy(graph));
}

bool device_check(const char *what, struct error *error)
{
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess || failed(error, what, status);
}
