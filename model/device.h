/* device.h: a GPU as the rest of the program sees it: memory, streams, copies, events, graphs.
 *
 * Only *_cuda.* files know the CUDA runtime; everything else includes this header. In a build without CUDA
 * (device_absent.c) every function that would need a device refuses with a message that says so. Pointers called
 * device memory must not be dereferenced by the host. Nothing here is called from several threads at once.
 */
#ifndef MODEL_DEVICE_H
#define MODEL_DEVICE_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

typedef struct CUstream_st *device_stream; /* NULL: the default stream */
typedef struct CUevent_st *device_event;
typedef struct CUgraphExec_st *device_graph;

struct device_description {
    char name[256];
    int major, minor; /* compute capability */
    int multiprocessors;
    size_t memory_bytes;
    size_t shared_bytes;                 /* of one block, when it asks for more than 48 KB */
    int driver_version, runtime_version; /* 1000 major + 10 minor */
};

/* True if the program was built with CUDA. */
bool device_is_built_in(void);

/* Number of devices; -1 and an error if there is no driver, or none for this build. */
int device_count(struct error *error);

/* Makes device `index` the calling thread's and describes it. Refuses devices below compute capability 8.0 (no BF16
 * tensor cores) and drivers older than the runtime the program was built with. */
bool device_open(int index, struct device_description *description, struct error *error);

/* ---- memory: `what` names the buffer in the message when there is not enough ---- */

void *device_alloc(size_t bytes, const char *what, struct error *error);
bool device_free(void *memory, struct error *error);
void *device_host_alloc(size_t bytes, const char *what, struct error *error); /* page-locked */
bool device_host_free(void *memory, struct error *error);
bool device_memory(size_t *free_bytes, size_t *total_bytes, struct error *error);

/* Copies in the stream's order; host memory must stay as it is until then, unless the stream is waited for. */
bool device_copy_in(void *device, const void *host, size_t bytes, device_stream stream, struct error *error);
bool device_copy_out(void *host, const void *device, size_t bytes, device_stream stream, struct error *error);
bool device_copy(void *to, const void *from, size_t bytes, device_stream stream, struct error *error);
bool device_fill(void *device, int byte, size_t bytes, device_stream stream, struct error *error);

/* ---- streams and events ---- */

bool device_stream_create(device_stream *stream, struct error *error);
bool device_stream_destroy(device_stream stream, struct error *error);
bool device_stream_wait(device_stream stream, struct error *error); /* until all it was given is done */

bool device_event_create(device_event *event, struct error *error);
bool device_event_destroy(device_event event, struct error *error);
bool device_event_record(device_event event, device_stream stream, struct error *error);
bool device_event_wait(device_event event, struct error *error);                          /* the host waits */
bool device_stream_follow(device_stream stream, device_event event, struct error *error); /* the stream does */
bool device_event_seconds(device_event start, device_event end, double *seconds, struct error *error);

/* ---- graphs: what is given to the stream between begin and end is recorded instead of done ---- */

bool device_graph_begin(device_stream stream, struct error *error);
bool device_graph_end(device_stream stream, device_graph *graph, struct error *error);
bool device_graph_launch(device_graph graph, device_stream stream, struct error *error);
bool device_graph_destroy(device_graph graph, struct error *error);

/* False if a launch failed since the last call; `what` says what was launched. Does not wait: errors of running kernels
 * come with the next wait. */
bool device_check(const char *what, struct error *error);

#ifdef __cplusplus
}
#endif

#endif
