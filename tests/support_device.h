/* support_device.h: what the suites of the GPU's kernels need. The same suites run in the emulator, on the CPU, and on
 * a GPU; `emulated` tells which. Every function fails the test that calls it if the device refuses. */
#ifndef TESTS_SUPPORT_DEVICE_H
#define TESTS_SUPPORT_DEVICE_H

#include "model/device.h"
#include "tests/support.h"

#ifdef EMULATED
#define IS_EMULATED 1
#else
#define IS_EMULATED 0
#endif

/* Opens device 0; call first in every test. */
struct device_description device_for_test(void);

/* Device memory with the host's bytes in it; filled with 0xFF if `host` is NULL. */
void *upload(const void *host, size_t bytes);
void download(void *host, const void *device, size_t bytes); /* waits for the device first */
void release(void *device);                                  /* in the emulator this checks the memory's edges */

/* BF16: rounds `x` in place to what the device will hold and uploads that; and back. */
uint16_t *upload_bf16(float *x, size_t count);
void download_bf16(float *x, const uint16_t *device, size_t count);

/* Fails the test with the device's message. */
void must(bool good, const struct error *error);

#endif
