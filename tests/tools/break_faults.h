/* Faults: checkpoints with exactly one fault, made from correct ones. */
#ifndef CALM_TESTS_BREAK_FAULTS_H
#define CALM_TESTS_BREAK_FAULTS_H

#include "ptq/base/context.h"

/* What a fault does to `a` and `b`.  A tensor is named by the end of its name; the first tensor whose name ends so is
 * meant. */
typedef enum break_kind {
    BREAK_SET,    /* member `a` ("quantization_config/format") of `file` becomes the JSON b; NULL: removed; "/+":
                     appended */
    BREAK_ENTRY,  /* the same within the header of `file`, NULL: model.safetensors                    */
    BREAK_DROP,   /* tensor a is missing                                                              */
    BREAK_RENAME, /* the end a of a tensor's name becomes b                                           */
    BREAK_COPY,   /* tensor a has a copy, whose name ends in b instead of a                           */
    BREAK_DTYPE,  /* tensor a has the dtype b, of as many bytes                                       */
    BREAK_SHAPE,  /* the two sizes of tensor a are exchanged                                          */
    BREAK_POKE,   /* the first bytes of tensor a become the hex digits b, "N@hex" from byte N on      */
    BREAK_HEADER, /* the first `a` within the header of model.safetensors becomes b, of as many bytes */
    BREAK_CUT,    /* file a loses its last bytes, as many as b says                                   */
    BREAK_APPEND, /* file a has b appended                                                            */
    BREAK_REMOVE, /* file a is missing                                                                */
    BREAK_MOVE,   /* file a becomes b                                                                 */
    BREAK_TEXT,   /* file a holds b                                                                   */
    BREAK_BYTES,  /* the first `a` within model.gguf becomes b, of as many bytes                      */
    BREAK_KEY,    /* bytes of the value of key a of model.gguf become the hex digits b: "N@hex"       */
    BREAK_DATA,   /* bytes of tensor a of model.gguf become the hex digits b                          */
    BREAK_TYPE,   /* number, one hex byte, of the type of tensor a of model.gguf                      */
    BREAK_SWALLOW, /* the first string of key a of model.gguf, an array, takes the second into itself */
} break_kind;

typedef struct break_fault {
    const char *name;
    const char *good;  /* the correct checkpoint: "ct", "ct-mixed", "gptq", ... */
    const char *rule;  /* rule that must be among the findings                  */
    const char *where; /* part of the finding's place                           */
    break_kind kind;
    const char *a, *b;
    const char *file;   /* BREAK_SET: NULL is config.json */
    const char *target; /* engine to ask; NULL: any       */
} break_fault;

/* All faults; the last one has name NULL. */
extern const break_fault break_faults[];

/* Copies the directory `from` to `to`, which must not exist, with the fault. */
calm_status break_checkpoint(calm_ctx *ctx, const char *from, const char *to, const break_fault *fault);

#endif
