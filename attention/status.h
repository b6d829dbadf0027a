/* status.h: what a call into attention/ can answer. Static text, as cuBLAS and NCCL do; nothing here exits or prints.
 */
#ifndef ATTENTION_STATUS_H
#define ATTENTION_STATUS_H

enum attention_status {
    ATTENTION_OK,
    ATTENTION_BAD_SHAPE,      /* heads, head_dim or token count outside what the recipe or device handles */
    ATTENTION_BAD_OFFSETS,    /* document offsets: first not 0, decreasing, or last not total_tokens */
    ATTENTION_BAD_RECIPE,     /* contradictory switches: recipe_check says which */
    ATTENTION_BAD_STRIDE,     /* a row stride smaller than the row, or a null pointer */
    ATTENTION_WORKSPACE,      /* the workspace is smaller than attention_workspace_bytes says */
    ATTENTION_INFERENCE_ONLY, /* the recipe's exponential has no backward */
    ATTENTION_DEVICE,         /* the GPU refused a launch or a copy */
    ATTENTION_STATUS_COUNT,
};

/* One sentence, static, never NULL. */
const char *attention_status_text(enum attention_status status);

#endif
