/* Parts of a file of weights: how many bytes a plan takes, tensor by tensor, before anything is written.
 *
 * The bytes of a tensor depend on its own scheme alone, so that those of any plan add up from a few plans' parts. */
#pragma once

#include "ptq/model/layout.h"

/* One tensor of the file. */
typedef struct calm_file_part {
    const calm_job_ref *job;    /* whose weight it is, or a part of that; NULL: of none                     */
    bool experts;               /* it is of all experts of the block that have a job of that kind           */
    size_t data;                /* bytes of its elements, with what aligns the next                         */
    size_t label;               /* bytes of its entry in the header, at most                                */
    size_t elements;            /* weights that it has of the model: those of a weight's first part         */
} calm_file_part;

typedef struct calm_file_parts {
    calm_file_part *of;         /* [n] in ctx->out                                                          */
    size_t n;
    size_t head;                /* bytes next to them, at most: headers, keys, a tokenizer                   */
} calm_file_parts;
