/* operands_cpu.h: the operands of one attention call on the CPU, laid out in the caller's workspace. For attention/
 * only.
 *
 * Roles of one tensor that have the same representation share one image. A call computes with decoded values:
 * [heads][total_tokens][head_dim] for what is read by rows, and channel-major copies, [kv_heads][head_dim][key_stride],
 * of what the scores and dP read by columns.
 */
#ifndef ATTENTION_OPERANDS_CPU_H
#define ATTENTION_OPERANDS_CPU_H

#include "attention/quantize.h"

/* Hands out pieces of the workspace; with a NULL base it only counts. */
struct arena {
    unsigned char *base;
    size_t used;
};
void *arena_take(struct arena *arena, size_t bytes); /* aligned to 64 bytes relative to the base */
struct arena arena_begin(void *workspace);           /* aligns the base; ARENA_SLACK bytes may be lost */
#define ARENA_SLACK 64

struct operand_set {
    unsigned roles;                 /* bit per role in use */
    float *values[ROLE_COUNT];      /* images, shared where representations are */
    uint8_t *exponents[ROLE_COUNT]; /* [heads][total_tokens], REPRESENTATION_E2M1_KEY only, else NULL */
    bool owner[ROLE_COUNT];         /* this role's image is quantized for it (not shared from an earlier role) */
};

enum operand_tensor { TENSOR_QUERY, TENSOR_KEY, TENSOR_VALUE, TENSOR_DOUTPUT };
enum operand_tensor operand_tensor(enum operand_role role);

/* The first role of `roles` whose image serves this one: itself, if there is none before it. */
enum operand_role operand_image_role(enum operand_role role, unsigned roles, const struct recipe *recipe);

void operand_set_carve(struct operand_set *set, unsigned roles, const struct recipe *recipe,
                       const struct attention_shape *shape, struct arena *arena);

/* Quantizes every owned role. `doutput` may be NULL if no role needs it. */
void operand_set_fill(const struct operand_set *set, const struct recipe *recipe, const struct attention_shape *shape,
                      const struct documents *documents, const struct attention_inputs *inputs, const float *doutput,
                      size_t doutput_stride);

/* Elements between channels of a channel-major copy: total_tokens and a tile more, which is zero. */
size_t operand_key_stride(size_t total_tokens);

/* to [heads][head_dim][key_stride] = from [heads][total_tokens][head_dim], channel-major. */
void operand_transpose(const float *from, size_t heads, size_t total_tokens, size_t head_dim, float *to);

/* Shape, offsets, recipe, pointers and workspace, as both passes demand them. */
enum attention_status attention_check(const struct recipe *recipe, const struct attention_shape *shape,
                                      const struct documents *documents, const struct attention_inputs *inputs,
                                      bool training, const void *workspace, size_t workspace_bytes);

/* Bytes of each pass's workspace; attention_workspace_bytes is the larger. */
size_t attention_forward_workspace_cpu(const struct recipe *recipe, const struct attention_shape *shape);
size_t attention_backward_workspace_cpu(const struct recipe *recipe, const struct attention_shape *shape);

/* True if queries and keys of these tiles (first tokens, from the document's start) share one diagonal decision. */
bool operand_on_diagonal(bool causal, size_t query, size_t key, int span);

#endif
