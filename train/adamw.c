/* adamw.c: the optimizer's state. */
#include "train/adamw.h"

#include <math.h>
#include <stdlib.h>

size_t adamw_bytes(size_t elements)
{
    return 2 * elements * sizeof(float);
}

bool adamw_create(struct adamw *adamw, const struct parameter_table *table, struct error *error)
{
    adamw->mean = calloc(table->elements, sizeof(float));
    adamw->square = calloc(table->elements, sizeof(float));
    adamw->updates = 0;
    if (adamw->mean && adamw->square) {
        return true;
    }
    adamw_destroy(adamw);
    return error_set(error, ERROR_FAILED, "out of memory: the optimizer needs %zu bytes for its moments",
                     adamw_bytes(table->elements));
}

void adamw_destroy(struct adamw *adamw)
{
    free(adamw->mean);
    free(adamw->square);
    adamw->mean = NULL;
    adamw->square = NULL;
}

const struct parameter *parameter_nonfinite(const struct parameter_table *table, const float *values)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct parameter *parameter = &table->entries[i];
        for (size_t j = 0; j < parameter->rows * parameter->columns; j++) {
            if (!isfinite(values[parameter->offset + j])) {
                return parameter;
            }
        }
    }
    return NULL;
}
