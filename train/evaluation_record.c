/* evaluation_record.c: see evaluation_record.h. */
#include "train/evaluation_record.h"

#include <math.h>

#include "train/log.h"

#define SENTENCE 256
#define BAR      24 /* characters of the longest bar of the picture */

static json_t *reals(const double *values)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < EVALUATE_POSITIONS; i++) {
        if (json_array_append_new(array, log_real(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *evaluation_record(const struct evaluation *evaluation, const char *recipe, enum causality probed)
{
    char verdict[SENTENCE];
    evaluation_sentence(evaluation, probed, verdict, sizeof verdict);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:s}", "recipe", recipe, "causality",
                     causality_name(probed), "own", log_real(evaluation->own), "exact", log_real(evaluation->exact),
                     "gap", log_real(evaluation->gap), "gap_se", log_real(evaluation->gap_se), "bits_per_byte",
                     log_real(evaluation->bits_per_byte), "tokens", (json_int_t)evaluation->tokens, "documents",
                     (json_int_t)evaluation->documents, "position_gap", reals(evaluation->position_gap), "position_se",
                     reals(evaluation->position_se), "verdict", verdict);
}

/* "-----|" or "     |+++": a bar around an axis. */
static void print_bar(double value, double largest, FILE *to)
{
    const int length = largest > 0 && isfinite(value) ? (int)lround(fabs(value) / largest * BAR) : 0;
    const int left = value < 0 ? length : 0, right = value < 0 ? 0 : length;
    fprintf(to, "%*s", BAR - left, "");
    for (int i = 0; i < left; i++) {
        fputc('-', to);
    }
    fputc('|', to);
    for (int i = 0; i < right; i++) {
        fputc('+', to);
    }
    fputc('\n', to);
}

static void print_positions(const struct evaluation *evaluation, FILE *to)
{
    double largest = 0;
    for (size_t i = 0; i < EVALUATE_POSITIONS; i++) {
        largest = fmax(largest, fabs(evaluation->position_gap[i])); /* fmax passes over NaN */
    }
    fprintf(to, "gap by position in the scale group of %d (the last has no later token to read)\n", EVALUATE_POSITIONS);
    for (size_t i = 0; i < EVALUATE_POSITIONS; i++) {
        if (evaluation->position_tokens[i] > 0) {
            fprintf(to, "  %2zu  %+.5f +- %.5f  ", i, evaluation->position_gap[i], evaluation->position_se[i]);
            print_bar(evaluation->position_gap[i], largest, to);
        }
    }
}

void evaluation_print(const struct evaluation *evaluation, const char *recipe, enum causality probed, FILE *to)
{
    char verdict[SENTENCE];
    evaluation_sentence(evaluation, probed, verdict, sizeof verdict);
    fprintf(to, "own      %.6f nats a token with %s (%s)\n", evaluation->own, recipe, causality_name(probed));
    if (isfinite(evaluation->bits_per_byte)) {
        fprintf(to, "         %.6f bits a byte\n", evaluation->bits_per_byte);
    }
    if (evaluation->has_exact) {
        fprintf(to, "exact    %.6f nats a token with exact attention, same weights and tokens\n", evaluation->exact);
        fprintf(to, "gap      %+.6f +- %.6f (own - exact, standard error over documents)\n", evaluation->gap,
                evaluation->gap_se);
    }
    fprintf(to, "scored   %zu tokens of %zu documents\n", evaluation->tokens, evaluation->documents);
    fprintf(to, "verdict  %s\n", verdict);
    if (evaluation->has_exact) {
        print_positions(evaluation, to);
    }
}
