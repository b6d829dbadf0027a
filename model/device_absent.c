/* device_absent.c: device.h in a build without CUDA: every function refuses. */
#include "model/device.h"

static bool absent(struct error *error)
{
    return error_set(error, ERROR_USAGE,
                     "this program was built without CUDA, so that it has no GPU to use: build it where nvcc is found "
                     "(CUDA_HOME=folder make), or use --device cpu");
}

bool device_is_built_in(void)
{
    return false;
}

int device_count(struct error *error)
{
    absent(error);
    return -1;
}

bool device_open(int index, struct device_description *description, struct error *error)
{
    (void)index, (void)description;
    return absent(error);
}

void *device_alloc(size_t bytes, const char *what, struct error *error)
{
    (void)bytes, (void)what;
    absent(error);
    return NULL;
}

bool device_free(void *memory, struct error *error)
{
    (void)memory;
    return absent(error);
}

void *device_host_alloc(size_t bytes, const char *what, struct error *error)
{
    (void)bytes, (void)what;
    absent(error);
    return NULL;
}

bool device_host_free(void *memory, struct error *error)
{
    (void)memory;
    return absent(error);
}

bool device_memory(size_t *free_bytes, size_t *total_bytes, struct error *error)
{
    (void)free_bytes, (void)total_bytes;
    return absent(error);
}

bool device_copy_in(void *device, const void *host, size_t bytes, device_stream stream, struct error *error)
{
    (void)device, (void)host, (void)bytes, (void)stream;
    return absent(error);
}

bool device_copy_out(void *host, const void *device, size_t bytes, device_stream stream, struct error *error)
{
    (void)host, (void)device, (void)bytes, (void)stream;
    return absent(error);
}

bool device_copy(void *to, const void *from, size_t bytes, device_stream stream, struct error *error)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return absent(error);
}

bool device_fill(void *device, int byte, size_t bytes, device_stream stream, struct error *error)
{
    (void)device, (void)byte, (void)bytes, (void)stream;
    return absent(error);
}

bool device_stream_create(device_stream *stream, struct error *error)
{
    (void)stream;
    return absent(error);
}

bool device_stream_destroy(device_stream stream, struct error *error)
{
    (void)stream;
    return absent(error);
}

bool device_stream_wait(device_stream stream, struct error *error)
{
    (void)stream;
    return absent(error);
}

bool device_event_create(device_event *event, struct error *error)
{
    (void)event;
    return absent(error);
}

bool device_event_destroy(device_event event, struct error *error)
{
    (void)event;
    return absent(error);
}

bool device_event_record(device_event event, device_stream stream, struct error *error)
{
    (void)event, (void)stream;
    return absent(error);
}

bool device_event_wait(device_event event, struct error *error)
{
    (void)event;
    return absent(error);
}

bool device_stream_follow(device_stream stream, device_event event, struct error *error)
{
    (void)stream, (void)event;
    return absent(error);
}

bool device_event_seconds(device_event start, device_event end, double *seconds, struct error *error)
{
    (void)start, (void)end, (void)seconds;
    return absent(error);
}

bool device_graph_begin(device_stream stream, struct error *error)
{
    (void)stream;
    return absent(error);
}

bool device_graph_end(device_stream stream, device_graph *graph, struct error *error)
{
    (void)stream, (void)graph;
    return absent(error);
}

bool device_graph_launch(device_graph graph, device_stream stream, struct error *error)
{
    (void)graph, (void)stream;
    return absent(error);
}

bool device_graph_destroy(device_graph graph, struct error *error)
{
    (void)graph;
    return absent(error);
}

bool device_check(const char *what, struct error *error)
{
    (void)what;
    return absent(error);
}
