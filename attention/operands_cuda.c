/* operands_cuda.c: see operands_cuda.h. Host code only: pointers and launches. */
#include "attention/operands_cuda.h"

#include <stdio.h>
#include <string.h>

#include "attention/operands_cpu.h"

#define ALIGNMENT 256

static void *take(unsigned char *base, size_t *used, size_t bytes)
{
    void *piece = base ? base + *used : NULL;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

static size_t tensor_heads(enum operand_tensor tensor, const struct attention_shape *shape)
{
    return tensor == TENSOR_QUERY || tensor == TENSOR_DOUTPUT ? shape->heads : shape->kv_heads;
}

/* Bytes used; pointers are set if there is a base. */
static size_t lay_out(struct operands_cuda *operands, const struct recipe *recipe, const struct attention_shape *shape,
                      unsigned roles, unsigned char *base)
{
    size_t used = 0;
    memset(operands, 0, sizeof *operands);
    operands->roles = roles;
    operands->amax_bits = take(base, &used, ROLE_COUNT * sizeof(uint32_t));
    operands->dscore_largest = take(base, &used, sizeof(uint32_t));
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!(roles >> role & 1)) {
            continue;
        }
        const enum operand_role image = operand_image_role((enum operand_role)role, roles, recipe);
        const size_t rows = tensor_heads(operand_tensor((enum operand_role)role), shape) * shape->total_tokens;
        operands->owner[role] = (int)image == role;
        if ((int)image != role) {
            operands->image[role] = operands->image[image];
            operands->fold[role] = operands->fold[image];
            continue;
        }
        operands->image[role] = take(base, &used, rows * shape->head_dim * sizeof(uint16_t));
        if (operand_representation(recipe, (enum operand_role)role) == REPRESENTATION_E2M1_KEY) {
            operands->fold[role] = take(base, &used, rows);
        }
    }
    if (roles == OPERANDS_BACKWARD) {
        operands->delta = take(base, &used, shape->heads * shape->total_tokens * sizeof(float));
    }
    if (roles == OPERANDS_BACKWARD && recipe->dquery != DQUERY_FP32) {
        operands->dquery_scale = take(base, &used, shape->heads * shape->total_tokens * sizeof(int16_t));
    }
    return used;
}

size_t attention_workspace_bytes_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                      size_t max_documents)
{
    struct operands_cuda operands;
    (void)max_documents; /* the schedule has its own memory */
    const size_t forward = lay_out(&operands, recipe, shape, OPERANDS_FORWARD, NULL);
    const size_t backward = lay_out(&operands, recipe, shape, OPERANDS_BACKWARD, NULL);
    return forward > backward ? forward : backward;
}

enum attention_status operands_cuda_begin(struct operands_cuda *operands, const struct recipe *recipe,
                                          const struct attention_shape *shape, unsigned roles, void *workspace,
                                          size_t workspace_bytes)
{
    if (!workspace || (uintptr_t)workspace % ALIGNMENT != 0) {
        return ATTENTION_WORKSPACE;
    }
    return lay_out(operands, recipe, shape, roles, workspace) <= workspace_bytes ? ATTENTION_OK : ATTENTION_WORKSPACE;
}

/* All owned representations of one tensor in one job. */
static struct quantize_job tensor_job(const struct operands_cuda *operands, const struct recipe *recipe,
                                      const struct attention_shape *shape, const struct attention_schedule *schedule,
                                      enum operand_tensor tensor, const uint16_t *x, size_t stride)
{
    struct quantize_job job;
    memset(&job, 0, sizeof job);
    job.x = x;
    job.stride = stride;
    job.total_tokens = shape->total_tokens;
    job.heads = (uint32_t)tensor_heads(tensor, shape);
    job.normal = hadamard_normal(shape->head_dim);
    job.rule = recipe->rule;
    job.items = schedule->items;
    job.item_count = schedule->item_count;
    job.max_items = (uint32_t)schedule->max_items;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (operands->owner[role] && operand_tensor((enum operand_role)role) == tensor) {
            struct quantize_output *output = &job.output[job.outputs++];
            output->representation = operand_representation(recipe, (enum operand_role)role);
            output->to.image = operands->image[role];
            output->to.exponents = operands->fold[role];
            output->to.amax_bits = operands->amax_bits + role;
            job.rotate = operand_rotated(recipe, (enum operand_role)role, shape->head_dim);
        }
    }
    return job;
}

enum attention_status operands_cuda_fill(const struct operands_cuda *operands, const struct recipe *recipe,
                                         const struct attention_shape *shape, const struct attention_schedule *schedule,
                                         const struct attention_inputs_cuda *inputs, const struct doutput_job *doutput,
                                         attention_stream stream)
{
    const uint16_t *const tensors[] = {inputs->query, inputs->key, inputs->value, doutput ? doutput->doutput : NULL};
    const size_t strides[] = {inputs->query_stride, inputs->key_stride, inputs->value_stride,
                              doutput ? doutput->doutput_stride : 0};
    for (int tensor = TENSOR_QUERY; tensor <= (doutput ? TENSOR_DOUTPUT : TENSOR_VALUE); tensor++) {
        struct quantize_job job = tensor_job(operands, recipe, shape, schedule, (enum operand_tensor)tensor,
                                             tensors[tensor], strides[tensor]);
        if (tensor == TENSOR_DOUTPUT && recipe->delta != DELTA_DIRECT) {
            job.attention_output = doutput->output;
            job.attention_output_stride = doutput->output_stride;
            job.original_delta = recipe->delta == DELTA_ORIGINAL;
            job.delta = operands->delta;
        }
        const enum attention_status status = quantize_launch(&job, shape->head_dim, stream);
        if (status != ATTENTION_OK) {
            return status;
        }
    }
    return ATTENTION_OK;
}

/* ---- what a GPU cannot do ---- */

static const char *missing(const struct recipe *recipe, const struct attention_shape *shape, size_t shared_bytes)
{
    if (shape->head_dim != 64 && shape->head_dim != 128) {
        return "the GPU kernels have head_dim 64 and 128";
    }
    if (recipe->score == OPERAND_FP32) {
        return "recipe fp32 is the CPU's yardstick: a GPU has BF16 operands at most";
    }
    if (shared_bytes < 5 * TILE * shape->head_dim * sizeof(uint16_t)) {
        return shape->head_dim == 128 ? "the kernels of head_dim 128 need 160 KiB of shared memory a block"
                                      : "the kernels of head_dim 64 need 80 KiB of shared memory a block";
    }
    return NULL;
}

bool attention_check_cuda(const struct recipe *recipe, const struct attention_shape *shape, size_t shared_bytes,
                          char *message, size_t message_bytes)
{
    const char *reason = missing(recipe, shape, shared_bytes);
    if (reason) {
        snprintf(message, message_bytes, "attention on this GPU: %s", reason);
    }
    return !reason;
}
