/* command_recipes.c: `flamia recipes`: the presets, operand by operand; `flamia recipes NAME...`: every switch. */
#include <stdio.h>
#include <string.h>

#include "attention/quantize.h"
#include "train/commands.h"
#include "train/options.h"

static const char *probability_name(enum probability_format format)
{
    static const char *const names[] = {"FP32", "BF16", "E4M3 x 2^c", "E4M3, exponent per row and 32 keys",
                                        "NVFP4, 16 along keys"};
    return names[format];
}

static const char *dvalue_name(enum probability_format format)
{
    static const char *const names[] = {"FP32", "BF16", "E4M3 x 2^8", "E4M3 x 2^8", "NVFP4, 16 along queries"};
    return names[format];
}

static const char *dscore_name(const struct recipe *recipe)
{
    static const char *const scales[] = {"E4M3, exponent per 32 x 32", "E4M3, exponent per query and 32 keys",
                                         "E4M3, exponent per 128 x 128", "E4M3, one scale per call",
                                         "E4M3, fixed exponent"};
    switch (recipe->dscore) {
    case DSCORE_FP32:
        return "FP32";
    case DSCORE_BF16:
        return "BF16";
    case DSCORE_E2M1:
        return recipe->dscore_stochastic ? "NVFP4 along keys for dQ, along queries for dK (stochastic)"
                                         : "NVFP4 along keys for dQ, along queries for dK";
    case DSCORE_E4M3:
        break;
    }
    return scales[recipe->dscore_scale];
}

static void print_operands(const struct recipe *recipe)
{
    printf("%s (%s)\n", recipe->name, causality_name(recipe_causality(recipe)));
    for (int role = 0; role < ROLE_COUNT; role++) {
        printf("  %-24s %s\n", operand_role_name((enum operand_role)role),
               representation_name(operand_representation(recipe, (enum operand_role)role)));
    }
    printf("  %-24s %s\n  %-24s %s\n  %-24s %s\n", "P in PV", probability_name(recipe->probability), "P in dV",
           dvalue_name(recipe->probability_dvalue), "dS", dscore_name(recipe));
}

static void print_switches(const struct recipe *recipe)
{
    const char *key, *help;
    char value[64];
    printf("  switches (--recipe-set KEY=VALUE)\n");
    for (size_t i = 0; recipe_switch(recipe, i, &key, value, sizeof value, &help); i++) {
        printf("    %-22s %-16s %s\n", key, value, help);
    }
}

static void print_summary(void)
{
    printf("%-14s %-9s %-30s %-30s %s\n", "recipe", "causal", "Q, K in S", "V in PV", "dS");
    for (size_t i = 0; i < recipe_count(); i++) {
        const struct recipe *recipe = recipe_at(i);
        printf("%-14s %-9s %-30s %-30s %s\n", recipe->name, causality_name(recipe_causality(recipe)),
               representation_name(operand_representation(recipe, ROLE_KEY_SCORE)),
               representation_name(operand_representation(recipe, ROLE_VALUE_OUTPUT)), dscore_name(recipe));
    }
    printf(
        "\nexact: no bit of an earlier row depends on a later token; in block: only values below the normal range of a "
        "block of 32 do;\n"
        "leaky: more than that. `flamia recipes NAME` shows every operand and switch, `flamia probe` measures it.\n");
}

int command_recipes(int argc, char **argv)
{
    struct settings settings;
    struct operands operands = {.count = 0};
    int exit_code;
    if (!options_start(COMMAND_RECIPES, argc, argv, &settings, &operands, &exit_code)) {
        return exit_code;
    }
    for (size_t i = 0; i < operands.count; i++) {
        if (!recipe_find(operands.items[i])) {
            fprintf(stderr, "flamia: recipes: there is no recipe '%.100s'; `flamia recipes` lists them\n",
                    operands.items[i]);
            return ERROR_USAGE;
        }
    }
    if (operands.count == 0) {
        print_summary();
    }
    for (size_t i = 0; i < operands.count; i++) {
        print_operands(recipe_find(operands.items[i]));
        print_switches(recipe_find(operands.items[i]));
    }
    return fflush(stdout) == 0 ? 0 : ERROR_FAILED;
}
