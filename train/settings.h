/* settings.h: everything a command was asked to do, as plain data.
 *
 * The option table (options.h) fills it from, in rising order of precedence: defaults, preset, --config FILE, the
 * command line. The program's parts read it and never parse text themselves.
 */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "attention/recipe.h"
#include "model/config.h"

enum schedule_kind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD };
enum nonfinite_policy { NONFINITE_STOP, NONFINITE_SKIP };

#define SETTINGS_PATH           1024
#define SETTINGS_RECIPE_CHANGES 16

struct settings {
    char preset[32];
    char config_path[SETTINGS_PATH];
    char out[SETTINGS_PATH];    /* run folder */
    char resume[SETTINGS_PATH]; /* "never", "auto" or a checkpoint folder */
    uint64_t seed;
    char device[16]; /* "cpu" */
    int64_t threads; /* 0: all the machine's */
    bool deterministic;
    char data[SETTINGS_PATH];     /* a file or a folder of shards */
    char val_data[SETTINGS_PATH]; /* empty: the second part of --split */
    char split[32];               /* "90/5/5": train, validation, test shares of --data, in per cent */
    char documents[160];          /* how raw bytes become documents: "none", "length:N", "delimiter:HEX" */
    int64_t sequence_length;      /* T */
    int64_t batch;                /* sequences a step */
    int64_t micro_batch;          /* sequences at a time; 0: batch */
    int64_t steps, tokens;        /* one of the three is positive */
    double epochs;
    struct recipe recipe;
    struct model_config model;
    double learning_rate;
    enum schedule_kind schedule;
    int64_t warmup;               /* steps */
    double minimum_learning_rate; /* as a share of learning_rate */
    double decay_share;           /* WSD: last share of steps that decays */
    double beta1, beta2, epsilon, weight_decay, clip;
    int64_t eval_every, eval_tokens, save_every, keep, log_every;
    bool eval_exact; /* evaluate with exact attention beside the recipe's */
    enum nonfinite_policy nonfinite;
    int64_t time_limit; /* seconds; 0: none */
    bool dry_run, recompute, quiet;
    double peak_flops; /* for MFU; 0: n/a */
    /* eval, generate, probe, inspect */
    char checkpoint[SETTINGS_PATH];
    char prompt[SETTINGS_PATH];
    char vocabulary_file[SETTINGS_PATH]; /* tokenizer.bin; empty: none */
    int64_t max_new_tokens, top_k;
    double temperature;
    /* probe, inspect */
    bool read;
    int64_t places, layer;
    char picture[SETTINGS_PATH];
    /* data */
    char tokenizer[64];   /* name of the tokenizer whose ids are written */
    char end_of_text[16]; /* "none" or its id */
    int64_t token_width;  /* bytes; 0: the fewest that hold the vocabulary */
};

#endif
