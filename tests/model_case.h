/* model_case.h: models with weights that make every part of them matter, beside their FP64 twins. */
#ifndef TESTS_MODEL_CASE_H
#define TESTS_MODEL_CASE_H

#include "data/batch.h"
#include "model/network.h"
#include "tests/support.h"

enum model_case { CASE_GPT2, CASE_LLAMA, CASE_LLAMA_TIED, MODEL_CASES };

#define CASE_VOCABULARY 61 /* padded to 128 */

/* Two layers of width 48; GPT-2 with 3 heads of 16, Llama with 4 of 16 on 2 key heads, so that heads are no width. */
struct model_config case_config(enum model_case which, size_t context);

/* Every tensor random, padded vocabulary rows too: linears keep the size of what they read, norm weights lie around 1,
 * biases matter, scores are of order 1. */
void loud_parameters(const struct network *network, struct random_stream *random, float *values);

struct network *case_network(const struct model_config *config, const struct network_options *options);

/* As doubles; freed by the caller. */
double *widened(const float *values, size_t count);

/* ||x - y|| / ||y|| over rows of `columns` of which x has stride `stride`. */
double error_to_fp64(const float *x, size_t stride, const double *y, size_t rows, size_t columns);

/* The largest of all tensors' relative errors; the tensor is named in `worst`. */
double gradient_error(const struct parameter_table *table, const float *x, const double *y, const char **worst);

#endif
