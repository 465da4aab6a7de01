/* The shape of the engine table (engine_table.c), which engines.c reads.  Only these two files include it. */
#pragma once

#include "ptq/plan/engines.h"

#define MAX_FORMATS 4
#define MAX_GROUPS 8
#define MAX_TILES 2

/* Bit widths as a set of bits. */
#define B(bits)   (1u << (bits))
#define B_2_TO_8  (B(2) | B(3) | B(4) | B(5) | B(6) | B(7) | B(8))
#define B_4_AND_8 (B(4) | B(8))
#define B_STORED  (B(2) | B(3) | B(4) | B(8))    /* widths that calm can pack for these formats */

/* Numbers that must divide a linear's columns and rows; 0: no condition. */
typedef struct calm_engine_tile {
    size_t columns, rows;
} calm_engine_tile;

/* Kernels of one kind of scale (per group, or per row). */
typedef struct calm_engine_kernels {
    unsigned bits, zeros;             /* sets: widths; widths at which zero points are allowed     */
    calm_engine_tile tiles[MAX_TILES];            /* one tile must divide the shape; empty list: any shape */
} calm_engine_kernels;

/* Sides of the matrix along which codes must fill whole 32-bit words. */
enum { FILLS_IN = 1, FILLS_OUT = 2, FILLS_ZEROS = 4 /* the output side, where there are zero points */ };

/* Kernels of integer weights with FP8 activations: widths, the only group size (0: any), tiles. */
typedef struct calm_engine_fp8 {
    unsigned bits;
    size_t group;
    calm_engine_tile tiles[MAX_TILES];
} calm_engine_fp8;

/* The limits of an engine's kernels for one format. */
typedef struct calm_engine_limits {
    calm_engine_kernels grouped, rowwise;         /* weight-only: one scale per group; one scale per row */
    size_t groups[MAX_GROUPS];        /* allowed group sizes, ended by 0; empty: every size        */
    size_t group_multiple;            /* divides every allowed group size; 0: no condition         */
    calm_engine_kernels eights;       /* 8-bit kernels, grouped or per row, if they differ; bits 0: they do not */
    size_t eights_group;              /* the only group size of `eights`                           */
    bool orders;                      /* groups may be of columns in any order                                     */
    unsigned fills;                   /* set of FILLS_*                                            */
    unsigned families;                /* set of B(CALM_FAMILY_X): weight-only families of schemes.def */
    unsigned act_families;            /* the same for families with quantized activations          */
    size_t nvfp4;                     /* columns that NVFP4 kernels need a multiple of; 0: the block size */
    calm_engine_tile fp8;             /* tile of FP8 kernels with scales per row or per linear     */
    bool whole_parts;                 /* parts of a linear run separately: row blocks may end within a part */
    unsigned pairs;                   /* widths of weights with quantized activations; 0: weight-only */
    unsigned acts;                    /* widths of integer activations                             */
    unsigned pairs_group;             /* the widths of `pairs` that may have groups                */
    bool act_zeros;                   /* activations may have zero points                          */
    bool act_static;                  /* integer activations may have one static scale             */
    bool fp8_static;                  /* FP8 activations may have one static scale                 */
    bool fp8_alike;                   /* FP8: one scale per linear needs a static activation scale, one scale per
                                         row needs one activation scale per token */
    calm_engine_fp8 fp8_inputs;       /* integer weights with FP8 activations                      */
    calm_engine_tile pair[MAX_TILES];             /* tiles with quantized activations              */
    calm_engine_tile act_zero[MAX_TILES];         /* tiles with asymmetric activations             */
    size_t head_rows;                 /* the engine pads a head to a multiple of this many rows; 0: it does not */
    bool head_whole;                  /* packed tensors run across the rows of a head, so it cannot be padded */
} calm_engine_limits;

typedef struct calm_engine_reading {
    const char *format;               /* NULL: end of the list                                     */
    calm_engine_limits dense, experts;            /* all widths empty: none may be quantized       */
    calm_tie tie;
} calm_engine_reading;

struct calm_engine {
    const char *name, *formats, *hardware;
    calm_engine_reading readings[MAX_FORMATS];
};

/* Returns all engines, `any` first, in the order of CALM_ENGINE_NAMES; *n receives their number. */
const calm_engine *const *calm_engine_table(size_t *n);
