/* status.c: see status.h. */
#include "attention/status.h"

const char *attention_status_text(enum attention_status status)
{
    switch (status) {
    case ATTENTION_OK:
        return "done";
    case ATTENTION_BAD_SHAPE:
        return "attention: the shape is not supported: heads must be a multiple of key/value heads, head_dim a "
               "multiple of 16 from 16 "
               "to 256 (a power of two where the recipe rotates), tokens below 2^31";
    case ATTENTION_BAD_OFFSETS:
        return "attention: document offsets must begin at 0, never decrease and end at the number of tokens";
    case ATTENTION_BAD_RECIPE:
        return "attention: the recipe's switches contradict each other; `flamia recipes NAME` lists them";
    case ATTENTION_BAD_STRIDE:
        return "attention: a tensor is missing, or its token stride is smaller than its row";
    case ATTENTION_WORKSPACE:
        return "attention: the workspace is missing or smaller than attention_workspace_bytes says";
    case ATTENTION_INFERENCE_ONLY:
        return "attention: this exponential is for inference only, there is no backward for it";
    case ATTENTION_DEVICE:
        return "attention: the GPU refused a launch or a copy";
    case ATTENTION_STATUS_COUNT:
        break;
    }
    return "attention: unknown status";
}
