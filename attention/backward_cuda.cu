/* backward_cuda.cu: the backward's launches, in order. Definition: backward_cpu.c.
 *
 * Quantize Q, K, V and dO (with D); where the recipe asks, D as a direct sum and the call's largest dS; then dQ, then dK and dV.
 */
#include "attention/backward.cuh"

static struct backward_call make_call(const struct operands_cuda &operands, const struct recipe *recipe, const struct attention_shape *shape,
                                      const struct attention_schedule *schedule, const float *lse,
                                      const struct attention_random_cuda *random, const struct attention_gradients_cuda *gradients)
{
    struct backward_call call = {};
    call.query = operands.image[ROLE_QUERY_SCORE];
    call.key = operands.image[ROLE_KEY_SCORE];
    call.value = operands.image[ROLE_VALUE_DPROBABILITY];
    call.doutput = operands.image[ROLE_DOUTPUT_DPROBABILITY];
    call.query_dkey = operands.image[ROLE_QUERY_DKEY];
    call.doutput_dvalue = operands.image[ROLE_DOUTPUT_DVALUE];
    call.key_dquery = operands.image[ROLE_KEY_DQUERY];
    call.key_dquery_diagonal = operands.image[ROLE_KEY_DQUERY_DIAGONAL];
    call.fold = operands.fold[ROLE_KEY_DQUERY];
    call.fold_diagonal = operands.fold[ROLE_KEY_DQUERY_DIAGONAL];
    call.lse = lse;
    call.delta = operands.delta;
    call.dquery_scale = operands.dquery_scale;
    call.dscore_largest = operands.dscore_largest;
    call.dquery = gradients->query;
    call.dkey = gradients->key;
    call.dvalue = gradients->value;
    call.dquery_stride = gradients->query_stride;
    call.dkey_stride = gradients->key_stride;
    call.dvalue_stride = gradients->value_stride;
    call.items = schedule->items;
    call.item_count = schedule->item_count;
    call.seed_step = random->seed_step;
    call.total_tokens = shape->total_tokens;
    call.heads = (uint32_t)shape->heads;
    call.kv_heads = (uint32_t)shape->kv_heads;
    call.layer = random->layer;
    call.query_offset = random->query_offset;
    call.probability = recipe->probability_dvalue;
    call.dscore = recipe->dscore;
    call.dscore_scale = recipe->dscore_scale;
    call.rule = recipe->rule;
    call.dscore_exponent = recipe->dscore_exponent;
    call.diagonal_span = recipe->diagonal_backward;
    call.factor = shape->softmax_scale * 1.44269504088896341f;
    call.softmax_scale = shape->softmax_scale;
    call.normal = hadamard_normal(shape->head_dim);
    call.causal = shape->causal;
    call.polynomial = recipe->exponential_backward == EXPONENTIAL_POLYNOMIAL;
    call.rotated = recipe_rotates(recipe, shape->head_dim);
    call.stochastic = recipe->dscore_stochastic;
    return call;
}

/* D by its direct sum and the call's largest dS, where the recipe wants them. */
static enum attention_status prepass(struct backward_call *call, const struct recipe *recipe, const struct attention_shape *shape,
                                     const struct attention_schedule *schedule, attention_stream stream)
{
    enum attention_status status = ATTENTION_OK;
    if (recipe->delta == DELTA_DIRECT) {
        call->pass = PASS_DELTA;
        status = backward_dquery_launch(call, shape, schedule->max_items, stream);
    }
    if (status == ATTENTION_OK && recipe->dscore == DSCORE_E4M3 && recipe->dscore_scale == DSCORE_TENSOR) {
        call->pass = PASS_LARGEST;
        if (cudaMemsetAsync(call->dscore_largest, 0, sizeof(uint32_t), stream) != cudaSuccess) {
            return ATTENTION_DEVICE;
        }
        status = backward_dquery_launch(call, shape, schedule->max_items, stream);
    }
    return status;
}

enum attention_status attention_backward_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                              const struct attention_schedule *schedule, const struct attention_inputs_cuda *inputs,
                                              const uint16_t *output, size_t output_stride, const float *lse,
                                              const uint16_t *output_gradient, size_t output_gradient_stride,
                                              const struct attention_random_cuda *random,
                                              const struct attention_gradients_cuda *gradients, void *workspace, size_t workspace_bytes,
                                              attention_stream stream)
{
    struct operands_cuda operands;
    const struct doutput_job doutput = {output_gradient, output, output_gradient_stride, output_stride};
    enum attention_status status = operands_cuda_begin(&operands, recipe, shape, OPERANDS_BACKWARD, workspace, workspace_bytes);
    if (status == ATTENTION_OK) {
        status = operands_cuda_fill(&operands, recipe, shape, schedule, inputs, &doutput, stream);
    }
    if (status == ATTENTION_OK && operands.dquery_scale) {
        status = dquery_scales_cuda(recipe, shape, schedule, &operands, stream);
    }
    if (status != ATTENTION_OK) {
        return status;
    }
    struct backward_call call = make_call(operands, recipe, shape, schedule, lse, random, gradients);
    status = prepass(&call, recipe, shape, schedule, stream);
    call.pass = PASS_GRADIENT;
    if (status == ATTENTION_OK) {
        status = backward_dquery_launch(&call, shape, schedule->max_items, stream);
    }
    return status == ATTENTION_OK ? backward_dkey_launch(&call, shape, schedule->max_items, stream) : status;
}
