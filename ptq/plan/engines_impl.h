/* What engines take: the shape of the table (engine_table.c), which engines.c judges by.  Only these two include it. */
#pragma once

#include "ptq/plan/engines.h"

#define MAX_FORMATS 4
#define MAX_GROUPS 8
#define MAX_TILES 2

/* Widths as a set. */
#define B(bits)   (1u << (bits))
#define B_2_TO_8  (B(2) | B(3) | B(4) | B(5) | B(6) | B(7) | B(8))
#define B_4_AND_8 (B(4) | B(8))
#define B_STORED  (B(2) | B(3) | B(4) | B(8))    /* that calm has a layout for */

/* What a kernel divides the shape by; 0: any. */
typedef struct calm_engine_tile {
    size_t columns, rows;
} calm_engine_tile;

/* Kernels of one kind of scale. */
typedef struct calm_engine_kernels {
    unsigned bits, zeros;             /* widths, and those at which zero points may be                             */
    calm_engine_tile tiles[MAX_TILES];            /* one of them must divide the shape; none: every shape */
} calm_engine_kernels;

/* Sides of the matrix along which codes must fill 32-bit words. */
enum { FILLS_IN = 1, FILLS_OUT = 2, FILLS_ZEROS = 4 /* the output side, where there are zero points */ };

/* Kernels of whole numbers next to activations in FP8: widths, the one size of groups they take (0: any), tiles. */
typedef struct calm_engine_fp8 {
    unsigned bits;
    size_t group;
    calm_engine_tile tiles[MAX_TILES];
} calm_engine_fp8;

/* What a kernel family asks. */
typedef struct calm_engine_limits {
    calm_engine_kernels grouped, rowwise;         /* weight-only: scales of groups, one scale per row */
    size_t groups[MAX_GROUPS];        /* sizes that are known, ended by 0; none: every size                        */
    size_t group_multiple;            /* that every size is a multiple of; 0: none                                 */
    calm_engine_kernels eights;       /* those of 8 bits, of either kind, where they are others,                 */
    size_t eights_group;              /* and the one size of their groups                                          */
    bool orders;                      /* groups may be of columns in any order                                     */
    unsigned fills;
    unsigned families;                /* rows of schemes.def next to the integers, as a set of B(CALM_FAMILY_X),    */
    unsigned act_families;            /* and those whose activations are quantized                                 */
    size_t nvfp4;                     /* columns of a block of NVFP4; 0: those of a group                          */
    calm_engine_tile fp8;             /* what FP8 without blocks divides the shape by                              */
    bool whole_parts;                 /* parts of a linear are computed by themselves: blocks may end within them  */
    unsigned pairs;                   /* with quantized activations: widths of weights; 0: weight-only             */
    unsigned acts;                    /* widths of those activations                                               */
    unsigned pairs_group;             /* widths of such weights that may have groups                               */
    bool act_zeros;                   /* activations may have zero points                                          */
    bool act_static;                  /* activations may have one scale for all                                    */
    bool fp8_static;                  /* and those of FP8                                                          */
    bool fp8_alike;                   /* one scale for weights goes with one for activations, one per row with one per
                                         token                                                                     */
    calm_engine_fp8 fp8_inputs;
    calm_engine_tile pair[MAX_TILES];             /* shapes with quantized activations */
    calm_engine_tile act_zero[MAX_TILES];         /* and with zero points of those */
    size_t head_rows;                 /* heads are padded to a multiple of this many rows, and loaded row by row */
    bool head_whole;                  /* its words hold inputs of all rows, so that it cannot be padded            */
} calm_engine_limits;

typedef struct calm_engine_reading {
    const char *format;               /* NULL: no more                                                             */
    calm_engine_limits dense, experts;            /* experts without any width: none may be quantized */
    calm_tie tie;
} calm_engine_reading;

struct calm_engine {
    const char *name, *formats, *hardware;
    calm_engine_reading readings[MAX_FORMATS];
};

/* All, `any` first, in the order of CALM_ENGINE_NAMES; *n their number. */
const calm_engine *const *calm_engine_table(size_t *n);
