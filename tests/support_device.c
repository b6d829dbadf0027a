/* support_device.c: see support_device.h. */
#include "tests/support_device.h"

#include <stdlib.h>

#include "attention/formats.h"

void must(bool good, const struct error *error)
{
    ck_assert_msg(good, "%s", error->text);
}

struct device_description device_for_test(void)
{
    struct device_description description;
    struct error error;
    must(device_open(0, &description, &error), &error);
    return description;
}

void *upload(const void *host, size_t bytes)
{
    struct error error;
    void *device = device_alloc(bytes, "a test", &error);
    must(device != NULL, &error);
    must(host ? device_copy_in(device, host, bytes, NULL, &error) : device_fill(device, 0xFF, bytes, NULL, &error),
         &error);
    must(device_stream_wait(NULL, &error), &error);
    return device;
}

void download(void *host, const void *device, size_t bytes)
{
    struct error error;
    must(device_copy_out(host, device, bytes, NULL, &error) && device_stream_wait(NULL, &error), &error);
}

void release(void *device)
{
    struct error error;
    must(device_free(device, &error), &error);
}

uint16_t *upload_bf16(float *x, size_t count)
{
    uint16_t *codes = test_alloc(count * sizeof *codes);
    for (size_t i = 0; i < count; i++) {
        codes[i] = bf16_encode(x[i]);
        x[i] = bf16_decode(codes[i]);
    }
    uint16_t *device = upload(codes, count * sizeof *codes);
    free(codes);
    return device;
}

void download_bf16(float *x, const uint16_t *device, size_t count)
{
    uint16_t *codes = test_alloc(count * sizeof *codes);
    download(codes, device, count * sizeof *codes);
    for (size_t i = 0; i < count; i++) {
        x[i] = bf16_decode(codes[i]);
    }
    free(codes);
}
