// compare_cuda.cpp: the project's conversions against CUDA's own host conversions, input by input. Built and run only
// where the CUDA headers are: `make figures`. Prints one line a format and exits 1 at the first difference.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "attention/formats.h"

static unsigned differences = 0;

static void compare(const char *format, float x, unsigned ours, unsigned theirs)
{
    if (ours != theirs && differences++ < 10) {
        std::printf("%s of %a: 0x%02x, CUDA 0x%02x\n", format, static_cast<double>(x), ours, theirs);
    }
}

static void compare_encoders(float x)
{
    compare("E4M3", x, e4m3_encode(x), __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
    compare("E2M1", x, e2m1_encode(x), __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest) & 15u);
}

static float half_to_float(__half_raw raw)
{
    return __half2float(__half(raw));
}

static void compare_value(const char *format, unsigned code, float ours, float theirs)
{
    const bool same = std::isnan(ours) ? std::isnan(theirs) : float_to_bits(ours) == float_to_bits(theirs);
    if (!same && differences++ < 10) {
        std::printf("%s code 0x%02x: %a, CUDA %a\n", format, code, static_cast<double>(ours),
                    static_cast<double>(theirs));
    }
}

int main()
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        compare_encoders(float_from_bits(bits << 16));
    }
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 10000000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const uint32_t bits = static_cast<uint32_t>(state >> 32), exponent = 115 + (state & 0xFFFF) % 24;
        compare_encoders(float_from_bits(i & 1 ? bits : (bits & 0x807FFFFFu) | exponent << 23));
    }
    for (unsigned code = 0; code < 256; code++) {
        const auto byte = static_cast<uint8_t>(code);
        compare_value("E4M3", code, e4m3_decode(byte), half_to_float(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
        const __nv_bfloat16_raw power = __nv_cvt_e8m0_to_bf16raw(byte);
        compare_value("E8M0", code, e8m0_decode(byte), bf16_decode(power.x));
        if (code < 16) {
            compare_value("E2M1", code, e2m1_decode(byte), half_to_float(__nv_cvt_fp4_to_halfraw(byte, __NV_E2M1)));
        }
    }
    std::printf(
        "formats against CUDA's host conversions: 65536 BF16 and 10000000 FP32 inputs, all codes: %u differences\n",
        differences);
    return differences != 0;
}
