/* runtime.cpp: the device, errors, streams, events, graphs and the check before a launch. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/emulator/emulator.h"
#include "tests/emulator/stream.h"

#define DEVICE_VERSION 13000

typedef std::function<cudaError_t()> stream_work;

struct CUgraph_st {
    std::vector<stream_work> work;
    std::vector<struct CUstream_st *> streams; /* that record into it */
};

struct CUgraphExec_st {
    std::vector<stream_work> work;
};

struct CUstream_st {
    struct CUgraph_st *capture; /* NULL: work is done at once */
};

struct CUevent_st {
    std::chrono::steady_clock::time_point time;
    struct CUgraph_st *capture; /* the graph in which it was recorded last */
    bool timed;
};

static struct CUstream_st default_stream;
static struct CUgraph_st *capturing; /* one at a time */
static bool capture_broken;
static cudaError_t last_error, fatal_error;
static uint64_t launches;
static std::map<const void *, size_t> shared_limits; /* of kernels that opted in */

/* ---- errors ---- */

cudaError_t error_note(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

cudaError_t error_if_capturing()
{
    if (fatal_error != cudaSuccess) {
        return fatal_error;
    }
    if (!capturing) {
        return cudaSuccess;
    }
    capture_broken = true;
    std::fprintf(stderr, "emulator: a call that allocates or waits, while a stream is being captured\n");
    return error_note(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaPeekAtLastError()
{
    return fatal_error != cudaSuccess ? fatal_error : last_error;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &entry : error_texts) {
        if (entry.error == error) {
            return entry.text;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &entry : error_texts) {
        if (entry.error == error) {
            return entry.name;
        }
    }
    return "unrecognized error code";
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? fatal_error : error_note(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device != 0) {
        return error_note(cudaErrorInvalidDevice);
    }
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated on the CPU");
    size_t free;
    cudaMemGetInfo(&free, &properties->totalGlobalMem);
    properties->sharedMemPerBlock = PLAIN_SHARED_BYTES;
    properties->sharedMemPerBlockOptin = MOST_SHARED_BYTES;
    properties->sharedMemPerMultiprocessor = MOST_SHARED_BYTES + 1024;
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->warpSize = WARP_LANES;
    properties->maxThreadsPerBlock = MOST_THREADS;
    properties->maxThreadsPerMultiProcessor = 2 * MOST_THREADS;
    properties->l2CacheSize = 1 << 20;
    properties->regsPerBlock = 65536;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess) {
        return error;
    }
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)properties.sharedMemPerBlockOptin;
        return cudaSuccess;
    }
    return error_note(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize()
{
    return error_if_capturing();
}

cudaError_t cudaDeviceReset()
{
    fatal_error = last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = DEVICE_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = DEVICE_VERSION;
    return cudaSuccess;
}

/* ---- launches ---- */

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > MOST_SHARED_BYTES) {
            return error_note(cudaErrorInvalidValue);
        }
        shared_limits[kernel] = (size_t)value;
    }
    return cudaSuccess;
}

static bool configuration_is_legal(const struct emulator_launch &launch, const void *function)
{
    const uint64_t threads = (uint64_t)launch.block.x * launch.block.y * launch.block.z;
    const auto limit = shared_limits.find(function);
    const size_t opted =
        limit == shared_limits.end() ? PLAIN_SHARED_BYTES : std::max<size_t>(limit->second, PLAIN_SHARED_BYTES);
    return threads > 0 && threads <= MOST_THREADS && launch.block.z <= 64 && launch.grid.x > 0 &&
           launch.grid.x <= 0x7FFFFFFF && launch.grid.y > 0 && launch.grid.y <= 65535 && launch.grid.z > 0 &&
           launch.grid.z <= 65535 && launch.shared_bytes <= opted;
}

/* CHECK_SEED changes the order in which threads take turns, as it changes the inputs. */
static uint64_t order_of_launch()
{
    const char *seed = std::getenv("CHECK_SEED");
    return (seed ? std::strtoull(seed, nullptr, 0) : 0) + ++launches * UINT64_C(0xD1342543DE82EF95);
}

void emulator_submit(struct emulator_launch launch, const void *function, cudaStream_t stream)
{
    if (!configuration_is_legal(launch, function)) {
        std::fprintf(stderr, "emulator: %s<<<(%u, %u, %u), (%u, %u, %u), %zu>>> is no legal configuration\n",
                     launch.kernel, launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
                     launch.block.z, launch.shared_bytes);
        error_note(cudaErrorInvalidConfiguration);
        return;
    }
    stream_do(stream, [launch]() mutable {
        launch.order = order_of_launch();
        if (!emulator_run(launch)) {
            fatal_error = cudaErrorLaunchFailure;
        }
        return fatal_error;
    });
}

/* ---- streams and events ---- */

static struct CUstream_st *stream_of(cudaStream_t stream)
{
    return stream ? stream : &default_stream;
}

cudaError_t stream_do(cudaStream_t stream, stream_work work)
{
    struct CUgraph_st *const graph = stream_of(stream)->capture;
    if (fatal_error != cudaSuccess) {
        return fatal_error;
    }
    if (graph) {
        graph->work.push_back(std::move(work));
        return cudaSuccess;
    }
    return work();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new CUstream_st();
    return fatal_error;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream) {
        return error_note(cudaErrorInvalidResourceHandle);
    }
    delete stream;
    return fatal_error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return stream_of(stream)->capture ? error_if_capturing() : fatal_error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    struct CUstream_st *const waiting = stream_of(stream);
    if (event->capture && event->capture == capturing && !waiting->capture) {
        waiting->capture = capturing; /* a stream that waits for a captured event is captured too */
        capturing->streams.push_back(waiting);
    }
    return fatal_error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new CUevent_st();
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return fatal_error;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event) {
        return error_note(cudaErrorInvalidResourceHandle);
    }
    delete event;
    return fatal_error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream_of(stream)->capture;
    event->time = std::chrono::steady_clock::now();
    return fatal_error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return event->capture && event->capture == capturing ? error_if_capturing() : fatal_error;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->timed || !end->timed) {
        return error_note(cudaErrorInvalidResourceHandle);
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return fatal_error;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    if (!stream || capturing) {
        return error_note(cudaErrorStreamCaptureUnsupported);
    }
    capturing = new CUgraph_st();
    capturing->streams.push_back(stream);
    stream->capture = capturing;
    capture_broken = false;
    return fatal_error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    if (!stream || !stream->capture || stream->capture != capturing) {
        return error_note(cudaErrorInvalidValue);
    }
    for (struct CUstream_st *recorded : capturing->streams) {
        recorded->capture = nullptr;
    }
    struct CUgraph_st *const finished = capturing;
    capturing = nullptr;
    if (capture_broken) {
        delete finished;
        return error_note(cudaErrorStreamCaptureInvalidated);
    }
    *graph = finished;
    return fatal_error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status = !stream_of(stream)->capture ? cudaStreamCaptureStatusNone
              : capture_broken            ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    *executable = new CUgraphExec_st{graph->work};
    return fatal_error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    for (const stream_work &work : executable->work) {
        const cudaError_t error = stream_do(stream, work);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return fatal_error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    delete executable;
    return cudaSuccess;
}
