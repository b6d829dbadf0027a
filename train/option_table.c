/* option_table.c: the one table of options. See options.h for what a row is; everything else about an option follows
 * from it. */
#include "train/options.h"

#include <string.h>

#define FIELD(field)           offsetof(struct settings, field), sizeof(((struct settings *)0)->field)
#define TEXT(field)            FIELD(field), .low = 0, .high = 0
#define RANGE(field, from, to) FIELD(field), .low = (from), .high = (to)

#define TRAIN    (1u << COMMAND_TRAIN)
#define EVAL     (1u << COMMAND_EVAL)
#define GENERATE (1u << COMMAND_GENERATE)
#define PROBE    (1u << COMMAND_PROBE)
#define INSPECT  (1u << COMMAND_INSPECT)
#define SELFTEST (1u << COMMAND_SELFTEST)
#define DATA     (1u << COMMAND_DATA)
#define REPORT   (1u << COMMAND_REPORT)
#define TRAINED  (EVAL | GENERATE | PROBE | INSPECT) /* commands that read a checkpoint */
#define ALL      (TRAIN | TRAINED | SELFTEST)

#define COUNT_MAX  9007199254740992.0 /* 2^53: integers that JSON readers keep exactly */
#define EXTENT_MAX 268435456.0        /* what sizes of a model or batch may be: their products are checked apart */

static const struct option table[] = {
    {"preset", OPTION_PRESET, TRAIN, TEXT(preset), .initial = "byte-tiny", .value = "NAME", .heading = "General",
     .help = "model and training settings to start from"},
    {"config", OPTION_CONFIG, TRAIN | TRAINED, TEXT(config_path), .initial = "", .value = "FILE", .heading = "General",
     .help = "JSON file of options, as --print-config prints; the command line overrides it"},
    {"seed", OPTION_INTEGER, ALL, RANGE(seed, 0, COUNT_MAX), .initial = "1", .value = "N", .heading = "General",
     .help = "of initial weights, data order, stochastic rounding and sampling"},
    {"device", OPTION_WORD, ALL, TEXT(device), .initial = "cpu", .choices = "cpu", .value = "NAME",
     .heading = "General", .help = "where to compute"},
    {"threads", OPTION_INTEGER, ALL, RANGE(threads, 0, 4096), .initial = "0", .value = "N", .heading = "General",
     .help = "threads to compute with; 0: as OMP_NUM_THREADS or the machine says"},
    {"deterministic", OPTION_SWITCH, TRAIN | EVAL, TEXT(deterministic), .initial = "true", .heading = "General",
     .help = "same bits from the same binary, threads and BLAS; the CPU knows no other way"},
    {"quiet", OPTION_SWITCH, TRAIN | TRAINED, TEXT(quiet), .initial = "false", .heading = "General",
     .help = "no progress lines; warnings and results stay"},

    {"out", OPTION_TEXT, TRAIN, TEXT(out), .initial = "", .value = "FOLDER", .heading = "Run",
     .help = "run folder: configuration, log, checkpoints; needed"},
    {"resume", OPTION_TEXT, TRAIN, TEXT(resume), .initial = "never", .value = "never|auto|FOLDER", .heading = "Run",
     .help = "never: --out must not hold a run; auto: go on from its newest whole checkpoint, or begin; or a "
             "checkpoint's folder"},
    {"dry-run", OPTION_SWITCH, TRAIN, TEXT(dry_run), .initial = "false", .heading = "Run",
     .help = "check everything, print the memory plan and stop before anything is written"},
    {"time-limit", OPTION_INTEGER, TRAIN, RANGE(time_limit, 0, 1e9), .initial = "0", .value = "SECONDS",
     .heading = "Run", .help = "save and leave after this long; 0: none"},
    {"save-every", OPTION_INTEGER, TRAIN, RANGE(save_every, 0, COUNT_MAX), .initial = "0", .value = "STEPS",
     .heading = "Run", .help = "steps between checkpoints; 0: only at the end"},
    {"keep", OPTION_INTEGER, TRAIN, RANGE(keep, 0, COUNT_MAX), .initial = "2", .value = "N", .heading = "Run",
     .help = "newest checkpoints that are kept; 0: all"},
    {"log-every", OPTION_INTEGER, TRAIN, RANGE(log_every, 1, COUNT_MAX), .initial = "10", .value = "STEPS",
     .heading = "Run", .help = "steps between progress lines; the log file has every step"},
    {"on-nonfinite", OPTION_CHOICE, TRAIN, TEXT(nonfinite), .initial = "stop", .choices = "stop|skip",
     .value = "POLICY", .heading = "Run",
     .help = "a loss or gradient that is NaN or infinite stops the run (exit code 3), or skips the update"},

    {"checkpoint", OPTION_TEXT, TRAINED, TEXT(checkpoint), .initial = "", .value = "FOLDER", .heading = "Model",
     .help = "a run folder (its newest checkpoint) or a checkpoint's folder"},
    {"family", OPTION_CHOICE, TRAIN, TEXT(model.family), .initial = "gpt2", .choices = "gpt2|llama", .value = "NAME",
     .heading = "Model", .help = "gpt2: LayerNorm, learned positions, GELU, biases; llama: RMSNorm, RoPE, SwiGLU"},
    {"layers", OPTION_INTEGER, TRAIN, RANGE(model.layers, 1, 10000), .initial = "4", .value = "N", .heading = "Model",
     .help = "transformer blocks"},
    {"width", OPTION_INTEGER, TRAIN, RANGE(model.width, 1, EXTENT_MAX), .initial = "128", .value = "N",
     .heading = "Model", .help = "channels of the residual stream"},
    {"heads", OPTION_INTEGER, TRAIN, RANGE(model.heads, 1, 65536), .initial = "2", .value = "N", .heading = "Model",
     .help = "query heads"},
    {"kv-heads", OPTION_INTEGER, TRAIN, RANGE(model.kv_heads, 0, 65536), .initial = "0", .value = "N",
     .heading = "Model", .help = "key and value heads; divides --heads; 0: as many"},
    {"head-dim", OPTION_INTEGER, TRAIN, RANGE(model.head_dim, 0, 256), .initial = "0", .value = "N", .heading = "Model",
     .help = "channels of a head, a multiple of 16; 0: width / heads"},
    {"ffn", OPTION_INTEGER, TRAIN, RANGE(model.ffn, 0, EXTENT_MAX), .initial = "0", .value = "N", .heading = "Model",
     .help = "hidden width of the MLP; 0: 4 width (gpt2), 8/3 width rounded up to a multiple of 64 (llama)"},
    {"vocabulary", OPTION_INTEGER, TRAIN, RANGE(model.vocabulary, 1, EXTENT_MAX), .initial = "256", .value = "N",
     .heading = "Model", .help = "token ids are below it"},
    {"context", OPTION_INTEGER, TRAIN, RANGE(model.context, 0, EXTENT_MAX), .initial = "0", .value = "N",
     .heading = "Model", .help = "longest document the model can take; 0: --seq-len"},
    {"tied", OPTION_SWITCH, TRAIN, TEXT(model.tied_head), .initial = "true", .heading = "Model",
     .help = "the output layer is the token embedding; gpt2 knows no other way"},
    {"norm-epsilon", OPTION_FLOAT, TRAIN, RANGE(model.norm_epsilon, 1e-12, 0.5), .initial = "1e-5", .value = "X",
     .heading = "Model", .help = "added to the variance under the root"},
    {"rope-base", OPTION_FLOAT, TRAIN, RANGE(model.rope_base, 2, 1e9), .initial = "10000", .value = "X",
     .heading = "Model", .help = "llama: base of the rotary frequencies"},

    {"recipe", OPTION_RECIPE, TRAIN, FIELD(recipe), .initial = "mxfp8", .value = "NAME", .heading = "Attention",
     .help = "numerics of attention; `flamia recipes` lists them"},
    {"recipe", OPTION_RECIPE, TRAINED, FIELD(recipe), .initial = "", .value = "NAME", .heading = "Attention",
     .help = "numerics of attention; `flamia recipes` lists them; empty: the command's own choice"},
    {"recipe-set", OPTION_CHANGE, TRAIN | TRAINED, FIELD(recipe), .initial = "", .value = "KEY=VALUE",
     .heading = "Attention", .help = "change one switch of the recipe; may be repeated"},

    {"data", OPTION_TEXT, TRAIN | EVAL | PROBE | INSPECT, TEXT(data), .initial = "", .value = "PATH", .heading = "Data",
     .help = "a file (raw bytes, or a shard) or a folder of shards"},
    {"val-data", OPTION_TEXT, TRAIN | EVAL, TEXT(val_data), .initial = "", .value = "PATH", .heading = "Data",
     .help = "validation data; --data is then trained on whole; empty: the second part of --split"},
    {"split", OPTION_TEXT, TRAIN | EVAL | PROBE | INSPECT, TEXT(split), .initial = "90/5/5", .value = "A/B/C",
     .heading = "Data", .help = "shares of --data for training, validation and test, in per cent"},
    {"documents", OPTION_TEXT, TRAIN | EVAL | PROBE | INSPECT | DATA, TEXT(documents), .initial = "none",
     .value = "HOW", .heading = "Data", .help = "how raw bytes become documents: none, length:N, delimiter:HEX"},
    {"seq-len", OPTION_INTEGER, TRAIN, RANGE(sequence_length, 1, 16777216), .initial = "256", .value = "N",
     .heading = "Data", .help = "tokens of a sequence"},
    {"batch", OPTION_INTEGER, TRAIN, RANGE(batch, 1, 16777216), .initial = "8", .value = "N", .heading = "Data",
     .help = "sequences of a step"},
    {"micro-batch", OPTION_INTEGER, TRAIN | EVAL, RANGE(micro_batch, 0, 16777216), .initial = "0", .value = "N",
     .heading = "Data", .help = "sequences computed at a time, less memory; divides --batch; 0: all"},

    {"steps", OPTION_INTEGER, TRAIN, RANGE(steps, 0, COUNT_MAX), .initial = "1000", .value = "N",
     .heading = "Optimizer", .help = "length of the run; or --tokens, or --epochs"},
    {"tokens", OPTION_INTEGER, TRAIN, RANGE(tokens, 0, COUNT_MAX), .initial = "0", .value = "N", .heading = "Optimizer",
     .help = "length of the run in tokens, rounded up to a step"},
    {"epochs", OPTION_REAL, TRAIN, RANGE(epochs, 0, 1e9), .initial = "0", .value = "X", .heading = "Optimizer",
     .help = "length of the run in passes over the training share, rounded up to a step"},
    {"lr", OPTION_REAL, TRAIN, RANGE(learning_rate, 0, 1e6), .initial = "1e-3", .value = "X", .heading = "Optimizer",
     .help = "highest learning rate"},
    {"lr-schedule", OPTION_CHOICE, TRAIN, TEXT(schedule), .initial = "cosine", .choices = "cosine|linear|constant|wsd",
     .value = "NAME", .heading = "Optimizer", .help = "how it goes from --lr to --min-lr after the warm-up"},
    {"warmup", OPTION_INTEGER, TRAIN, RANGE(warmup, 0, COUNT_MAX), .initial = "50", .value = "STEPS",
     .heading = "Optimizer", .help = "steps in which the rate rises linearly to --lr"},
    {"min-lr", OPTION_REAL, TRAIN, RANGE(minimum_learning_rate, 0, 1), .initial = "0.1", .value = "SHARE",
     .heading = "Optimizer", .help = "final learning rate, as a share of --lr"},
    {"decay-share", OPTION_REAL, TRAIN, RANGE(decay_share, 0, 1), .initial = "0.2", .value = "SHARE",
     .heading = "Optimizer", .help = "wsd: share of the steps, at the end, in which the rate falls"},
    {"beta1", OPTION_REAL, TRAIN, RANGE(beta1, 0, 0.999999), .initial = "0.9", .value = "X", .heading = "Optimizer",
     .help = "AdamW: decay of the mean of gradients"},
    {"beta2", OPTION_REAL, TRAIN, RANGE(beta2, 0, 0.999999), .initial = "0.95", .value = "X", .heading = "Optimizer",
     .help = "AdamW: decay of the mean of squared gradients"},
    {"eps", OPTION_REAL, TRAIN, RANGE(epsilon, 1e-30, 1), .initial = "1e-8", .value = "X", .heading = "Optimizer",
     .help = "AdamW: added to the root of the mean of squares"},
    {"weight-decay", OPTION_REAL, TRAIN, RANGE(weight_decay, 0, 1e3), .initial = "0.1", .value = "X",
     .heading = "Optimizer", .help = "AdamW: decay of matrices, times the learning rate"},
    {"clip", OPTION_REAL, TRAIN, RANGE(clip, 0, 1e30), .initial = "1", .value = "X", .heading = "Optimizer",
     .help = "largest norm of the whole gradient; 0: no clipping"},
    {"recompute", OPTION_SWITCH, TRAIN, TEXT(recompute), .initial = "false", .heading = "Optimizer",
     .help = "keep only each block's input and compute its forward again in the backward: less memory, a third slower"},
    {"peak-flops", OPTION_REAL, TRAIN, RANGE(peak_flops, 0, 1e20), .initial = "0", .value = "X", .heading = "Optimizer",
     .help = "FLOP/s that MFU is measured against; 0: unknown, MFU is n/a"},

    {"eval-every", OPTION_INTEGER, TRAIN, RANGE(eval_every, 0, COUNT_MAX), .initial = "250", .value = "STEPS",
     .heading = "Evaluation", .help = "steps between evaluations; 0: only at the end"},
    {"eval-tokens", OPTION_INTEGER, TRAIN | EVAL, RANGE(eval_tokens, 0, COUNT_MAX), .initial = "16384", .value = "N",
     .heading = "Evaluation", .help = "tokens scored, rounded up to a sequence; 0: the whole validation share"},
    {"eval-exact", OPTION_SWITCH, TRAIN | EVAL, TEXT(eval_exact), .initial = "true", .heading = "Evaluation",
     .help = "score the same tokens with exact attention too, and print the gap"},

    {"prompt", OPTION_TEXT, GENERATE, TEXT(prompt), .initial = "", .value = "TEXT", .heading = "Generation",
     .help = "text to go on from; for a model of other tokens than bytes, their ids: \"464 3290\""},
    {"max-new-tokens", OPTION_INTEGER, GENERATE, RANGE(max_new_tokens, 1, COUNT_MAX), .initial = "256", .value = "N",
     .heading = "Generation", .help = "tokens to generate, past the model's context too"},
    {"temperature", OPTION_REAL, GENERATE, RANGE(temperature, 0, 100), .initial = "1", .value = "X",
     .heading = "Generation", .help = "divides the logits; 0: always the likeliest token"},
    {"top-k", OPTION_INTEGER, GENERATE, RANGE(top_k, 0, EXTENT_MAX), .initial = "0", .value = "N",
     .heading = "Generation", .help = "draw from the K likeliest tokens; 0: from all"},

    {"tokenizer", OPTION_TEXT, GENERATE, TEXT(vocabulary_file), .initial = "", .value = "FILE", .heading = "Generation",
     .help = "tokenizer.bin that turns ids into text; empty: bytes, or the ids as numbers"},

    {"read", OPTION_SWITCH, PROBE, TEXT(read), .initial = "false", .heading = "Probe",
     .help = "bits of the next byte readable at the row before it: of the logits of --checkpoint, else of attention"},
    {"places", OPTION_INTEGER, PROBE, RANGE(places, 1, 65536), .initial = "12", .value = "N", .heading = "Probe",
     .help = "tokens perturbed, or rows read"},
    {"picture", OPTION_TEXT, PROBE, TEXT(picture), .initial = "", .value = "FILE", .heading = "Probe",
     .help = "write an SVG picture, rows x perturbed token, of --recipe"},
    {"head-dim", OPTION_INTEGER, PROBE | INSPECT, RANGE(model.head_dim, 16, 256), .initial = "64", .value = "N",
     .heading = "Probe", .help = "channels of a head, where there is no --checkpoint"},
    {"layer", OPTION_INTEGER, PROBE | INSPECT, RANGE(layer, 0, 10000), .initial = "0", .value = "N", .heading = "Probe",
     .help = "layer of the checkpoint whose activations are looked at"},

    {"out", OPTION_TEXT, REPORT, TEXT(out), .initial = "", .value = "FILE", .heading = "Report",
     .help = "the page; empty: report.html in the first run's folder"},

    {"out", OPTION_TEXT, DATA, TEXT(out), .initial = "", .value = "FILE", .heading = "Shards",
     .help = "write: the shard to be written"},
    {"vocabulary", OPTION_INTEGER, DATA, RANGE(model.vocabulary, 0, EXTENT_MAX), .initial = "0", .value = "N",
     .heading = "Shards", .help = "write: ids are below it; check: refuse ids that are not; 0: not given"},
    {"tokenizer", OPTION_TEXT, DATA, TEXT(tokenizer), .initial = "", .value = "NAME", .heading = "Shards",
     .help = "write: name of the tokenizer that made the ids; empty: unnamed"},
    {"width", OPTION_INTEGER, DATA, RANGE(token_width, 0, 4), .initial = "0", .value = "1|2|4", .heading = "Shards",
     .help = "write: bytes of a token; 0: the fewest that hold the vocabulary"},
    {"end-of-text", OPTION_TEXT, DATA, TEXT(end_of_text), .initial = "none", .value = "ID", .heading = "Shards",
     .help = "write: id of the end-of-text token, or none; it does not cut documents"},
};

static const struct command_info commands[COMMAND_COUNT] = {
    [COMMAND_TRAIN] = {"train", "", 0, "train a model on a data set"},
    [COMMAND_EVAL] = {"eval", "", 0, "score a checkpoint with its recipe and with exact attention"},
    [COMMAND_GENERATE] = {"generate", "", 0, "continue a text, with exact attention"},
    [COMMAND_PROBE] = {"probe", "", 0, "show which later tokens an earlier row of attention can see"},
    [COMMAND_INSPECT] = {"inspect", "", 0, "show what quantization does to each operand of attention"},
    [COMMAND_RECIPES] = {"recipes", "[NAME...]", OPERANDS_MAX, "list the numerics that attention can have"},
    [COMMAND_SELFTEST] = {"selftest", "", 0, "check the kernels on this machine"},
    [COMMAND_DATA] = {"data", "info|check|write PATH...", OPERANDS_MAX, "describe, check or write data sets"},
    [COMMAND_REPORT] = {"report", "RUN...", OPERANDS_MAX, "write a page of curves from the logs of runs"},
};

const struct command_info *command_info(enum command_id command)
{
    return &commands[command];
}

size_t option_count(void)
{
    return sizeof table / sizeof *table;
}

const struct option *option_at(size_t index)
{
    return &table[index];
}

const struct option *option_find(enum command_id command, const char *name, size_t length)
{
    for (size_t i = 0; i < option_count(); i++) {
        if ((table[i].commands & (1u << command)) && strlen(table[i].name) == length &&
            memcmp(table[i].name, name, length) == 0) {
            return &table[i];
        }
    }
    return NULL;
}
