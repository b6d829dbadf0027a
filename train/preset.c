/* preset.c: see preset.h. The option table's defaults are byte-tiny's, so its list is empty. */
#include "train/preset.h"

#include <string.h>

/* What the larger models share: half a million tokens a step, as GPT-3's smaller models were trained. */
#define HALF_MILLION_TOKENS                                                                                            \
    " seq-len=1024 batch=512 micro-batch=4 warmup=700 min-lr=0.1 eval-tokens=1048576 save-every=1000"

static const struct preset presets[] = {
    {"byte-tiny", "0.8 M parameters, bytes, T = 256: minutes on a laptop", ""},
    {"enwik8", "77 M parameters, bytes, T = 1024: the paper's leakage experiment",
     "layers=6 width=1024 heads=8 head-dim=128 seq-len=1024 batch=64 micro-batch=8 steps=6000 lr=6e-4 warmup=200 "
     "eval-every=500 eval-tokens=524288 save-every=1000"},
    {"gpt2-124m", "GPT-2 small",
     "layers=12 width=768 heads=12 head-dim=64 vocabulary=50257 steps=19560 lr=6e-4" HALF_MILLION_TOKENS},
    {"gpt2-350m", "GPT-2 medium",
     "layers=24 width=1024 heads=16 head-dim=64 vocabulary=50257 steps=60000 lr=3e-4" HALF_MILLION_TOKENS},
    {"llama-160m", "Llama shape, 12 heads of 64 on 4 key heads, GPT-2's vocabulary",
     "family=llama layers=12 width=768 heads=12 kv-heads=4 head-dim=64 ffn=2048 vocabulary=50257 tied=false "
     "steps=19560 lr=6e-4" HALF_MILLION_TOKENS},
    {"llama-1b", "Llama shape, 32 heads of 64 on 8 key heads, Llama 3's vocabulary",
     "family=llama layers=16 width=2048 heads=32 kv-heads=8 head-dim=64 ffn=8192 vocabulary=128256 rope-base=500000 "
     "recompute=true steps=60000 lr=3e-4" HALF_MILLION_TOKENS},
};

size_t preset_count(void)
{
    return sizeof presets / sizeof *presets;
}

const struct preset *preset_at(size_t index)
{
    return &presets[index];
}

const struct preset *preset_find(const char *name)
{
    for (size_t i = 0; i < preset_count(); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}
