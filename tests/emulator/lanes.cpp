/* lanes.cpp: what the lanes of a warp do together, done by the lane that arrives last. See emulator.h. */
#include "tests/emulator/emulator.h"

#include <cstring>

static bool takes_part(unsigned mask, unsigned lane)
{
    return mask >> lane & 1;
}

void combine_nothing(struct emulator_thread *, unsigned)
{
}

/* ---- shuffles ---- */

static void shuffle(struct emulator_thread *lanes, unsigned mask, unsigned lane, int source)
{
    if (!takes_part(mask, (unsigned)source)) {
        emulator_fail("%s:%d: lane %u reads lane %d, which does not take part (mask %08x)", lanes[lane].site.file,
                      lanes[lane].site.line, lane, source, mask);
    }
    lanes[lane].result = lanes[source].value;
}

/* For each lane the lane it reads; outside its segment of `width` lanes, its own. */
template <class Source> static void shuffle_all(struct emulator_thread *lanes, unsigned mask, Source source)
{
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if (takes_part(mask, lane)) {
            const int width = lanes[lane].width, first = (int)lane / width * width;
            const int wanted = source((int)lane, first, width, lanes[lane].parameter);
            shuffle(lanes, mask, lane, wanted);
        }
    }
}

void combine_shuffle_index(struct emulator_thread *lanes, unsigned mask)
{
    shuffle_all(lanes, mask, [](int, int first, int width, int index) { return first + (index & (width - 1)); });
}

void combine_shuffle_up(struct emulator_thread *lanes, unsigned mask)
{
    shuffle_all(lanes, mask, [](int lane, int first, int, int distance) {
        return lane - distance < first ? lane : lane - distance;
    });
}

void combine_shuffle_down(struct emulator_thread *lanes, unsigned mask)
{
    shuffle_all(lanes, mask, [](int lane, int first, int width, int distance) {
        return lane + distance >= first + width ? lane : lane + distance;
    });
}

/* A partner in a later segment gives the lane its own value; one in an earlier segment may be read, as on the device.
 */
void combine_shuffle_xor(struct emulator_thread *lanes, unsigned mask)
{
    shuffle_all(lanes, mask, [](int lane, int first, int width, int bits) {
        return (lane ^ bits) >= first + width ? lane : lane ^ bits;
    });
}

/* ---- reductions of 32-bit numbers ---- */

template <class Fold> static void reduce(struct emulator_thread *lanes, unsigned mask, uint32_t start, Fold fold)
{
    uint32_t all = start;
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if (takes_part(mask, lane)) {
            all = fold(all, (uint32_t)lanes[lane].value, lane);
        }
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if (takes_part(mask, lane)) {
            lanes[lane].result = all;
        }
    }
}

void combine_ballot(struct emulator_thread *lanes, unsigned mask)
{
    reduce(lanes, mask, 0, [](uint32_t all, uint32_t x, unsigned lane) { return all | (x != 0 ? 1u << lane : 0u); });
}

void combine_largest(struct emulator_thread *lanes, unsigned mask)
{
    reduce(lanes, mask, 0, [](uint32_t all, uint32_t x, unsigned) { return x > all ? x : all; });
}

void combine_least(struct emulator_thread *lanes, unsigned mask)
{
    reduce(lanes, mask, ~0u, [](uint32_t all, uint32_t x, unsigned) { return x < all ? x : all; });
}

void combine_sum(struct emulator_thread *lanes, unsigned mask)
{
    reduce(lanes, mask, 0, [](uint32_t all, uint32_t x, unsigned) { return all + x; });
}

/* ---- matrices: layouts of PTX ISA, mma.m16n8k16 with .bf16 and ldmatrix.m8n8.x4.b16 ---- */

static float bf16_low(uint32_t pair)
{
    const uint32_t bits = pair << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

static float bf16_high(uint32_t pair)
{
    return bf16_low(pair >> 16);
}

static const struct mma_fragments *fragments_of(const struct emulator_thread *lane)
{
    return reinterpret_cast<const struct mma_fragments *>((uintptr_t)lane->value);
}

/* With g = lane / 4, t = lane % 4: A registers 0..3 hold rows g, g + 8, g, g + 8 and columns 2 t + {0, 0, 8, 8} + {0,
 * 1}; B registers hold rows 2 t + {0, 8} + {0, 1} of column g. */
static void gather(const struct emulator_thread *lanes, float (*a)[16], float (*b)[8])
{
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const struct mma_fragments *own = fragments_of(&lanes[lane]);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            float *to = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
            to[0] = bf16_low(own->a[i]);
            to[1] = bf16_high(own->a[i]);
        }
        for (unsigned i = 0; i < 2; i++) {
            b[2 * t + 8 * i][g] = bf16_low(own->b[i]);
            b[2 * t + 8 * i + 1][g] = bf16_high(own->b[i]);
        }
    }
}

static void need_whole_warp(const struct emulator_thread *lanes, unsigned mask)
{
    if (mask != ~0u) {
        emulator_fail("%s:%d: a matrix instruction needs all 32 lanes (mask %08x)",
                      lanes[__builtin_ctz(mask)].site.file, lanes[__builtin_ctz(mask)].site.line, mask);
    }
}

void combine_mma_bf16(struct emulator_thread *lanes, unsigned mask)
{
    need_whole_warp(lanes, mask);
    float a[16][16], b[16][8], c[16][8];
    gather(lanes, a, b);
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const float *own = fragments_of(&lanes[lane])->c;
        for (unsigned i = 0; i < 4; i++) {
            c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = own[i];
        }
    }
    for (unsigned row = 0; row < 16; row++) {
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned column = 0; column < 8; column++) {
                c[row][column] += a[row][k] * b[k][column];
            }
        }
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        float *own = fragments_of(&lanes[lane])->c;
        for (unsigned i = 0; i < 4; i++) {
            own[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        }
    }
}

static const struct ldmatrix_request *request_of(const struct emulator_thread *lane)
{
    return reinterpret_cast<const struct ldmatrix_request *>((uintptr_t)lane->value);
}

/* Matrix i's row r is where lane 8 i + r points. Lane l gets elements (l / 4, 2 (l % 4) + {0, 1}); transposed: (2 (l %
 * 4) + {0, 1}, l / 4). */
static void load_matrices(struct emulator_thread *lanes, unsigned mask, bool transposed)
{
    need_whole_warp(lanes, mask);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t matrix[8][8];
        for (unsigned row = 0; row < 8; row++) {
            const void *from = request_of(&lanes[8 * i + row])->row;
            if ((uintptr_t)from % 16 != 0) {
                emulator_fail("%s:%d: ldmatrix: lane %u's row is not aligned to 16 bytes", lanes[0].site.file,
                              lanes[0].site.line, 8 * i + row);
            }
            std::memcpy(matrix[row], from, sizeof matrix[row]);
        }
        for (unsigned lane = 0; lane < WARP_LANES; lane++) {
            const unsigned g = lane / 4, t = lane % 4 * 2;
            const uint32_t low = transposed ? matrix[t][g] : matrix[g][t];
            const uint32_t high = transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            request_of(&lanes[lane])->to[i] = low | high << 16;
        }
    }
}

void combine_ldmatrix(struct emulator_thread *lanes, unsigned mask)
{
    load_matrices(lanes, mask, false);
}

void combine_ldmatrix_trans(struct emulator_thread *lanes, unsigned mask)
{
    load_matrices(lanes, mask, true);
}

/* ---- cp.async ---- */

void emulator_copy_async(void *to, const void *from, bool valid)
{
    if ((uintptr_t)to % 16 != 0 || (valid && (uintptr_t)from % 16 != 0)) {
        emulator_fail("cp.async: %p <- %p is not aligned to 16 bytes", to, from);
    }
    emulator_self->copies.push_back({to, valid ? from : nullptr, false});
}

void emulator_copy_commit()
{
    emulator_self->copies.push_back({nullptr, nullptr, true});
}

void emulator_copy_wait(unsigned groups)
{
    std::vector<emulator_copy> &copies = emulator_self->copies;
    size_t committed = 0, done = 0;
    for (const emulator_copy &copy : copies) {
        committed += copy.commit;
    }
    for (; committed > groups; done++) {
        const emulator_copy &copy = copies[done];
        if (copy.commit) {
            committed--;
        } else if (copy.from) {
            std::memcpy(copy.to, copy.from, 16);
        } else {
            std::memset(copy.to, 0, 16);
        }
    }
    copies.erase(copies.begin(), copies.begin() + (std::ptrdiff_t)done);
}
