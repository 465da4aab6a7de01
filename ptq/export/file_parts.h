/* Sizes of the tensors in the file of a plan, computed before anything is written.
 *
 * A tensor's size depends only on its own scheme, so the size of any plan is a sum over the parts of a few plans. */
#pragma once

#include "ptq/arch/layout.h"

/* One tensor of the file. */
typedef struct calm_file_part {
    const calm_job_ref *job;    /* the job whose weight, or part of a weight, it is; NULL: none             */
    bool experts;               /* it holds this weight of all experts of the block                         */
    size_t data;                /* bytes of its elements and of the padding after them                      */
    size_t label;               /* upper bound of the bytes of its entry in the header                      */
    size_t elements;            /* number of the model's weights in it; 0 for further tensors of a weight   */
} calm_file_part;

typedef struct calm_file_parts {
    calm_file_part *of;         /* [n] in ctx->out                                                          */
    size_t n;
    size_t head;                /* upper bound of all other bytes: headers, keys, a tokenizer               */
} calm_file_parts;
