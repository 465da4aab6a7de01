/* Shapes: what each place of a recipe document may hold. */
#pragma once

#include "ptq/base/option.h"

typedef enum calm_shape_kind {
    CALM_SHAPE_BOOL,
    CALM_SHAPE_INT,       /* a whole number, min .. max                                       */
    CALM_SHAPE_NUMBER,    /* min excluded, unless `from_min`                                  */
    CALM_SHAPE_TEXT,      /* of min .. max characters, that fits `pattern`                    */
    CALM_SHAPE_WORD,      /* one of `values`                                                  */
    CALM_SHAPE_LIST,      /* of min .. max items of `item`                                    */
    CALM_SHAPE_MAP,       /* an object of at most `max` members: keys that fit `pattern`, values of `item` */
    CALM_SHAPE_OBJECT,    /* an object whose members are rows of the table below `section`    */
    CALM_SHAPE_ANY,       /* an object that a run does not read                               */
    CALM_SHAPE_SCALAR,    /* a truth value, a number or a text                                */
    CALM_SHAPE_FALSE,
    CALM_SHAPE_VERSION,   /* the number `max`                                                 */
    CALM_SHAPE_EITHER     /* `item` or `other`, distinguished by their JSON types             */
} calm_shape_kind;

typedef struct calm_shape_pattern {
    const char *regex;    /* as JSON Schema has it */
    bool (*fits)(const char *text);
} calm_shape_pattern;

typedef struct calm_shape {
    calm_shape_kind kind;
    double min, max;
    const char *values;             /* joined by '|'                     */
    const char *section;            /* "model": rows "model.name", ...   */
    const calm_shape_pattern *pattern;    /* NULL: every text                  */
    const struct calm_shape *item, *other;
    bool from_min;                  /* of a NUMBER: min itself too       */
} calm_shape;

/* One place of a document. */
typedef struct calm_document_row {
    const char *place;              /* "calibration.samples"; members of the document have no dot                     */
    const char *help;               /* NULL: the option's                                                            */
    const calm_shape *shape;        /* NULL: the option's (calm_document_shape)                                       */
    bool required;
    bool chains;                    /* items may be objects with options: {"name", "options"}                        */
    bool if_true;                   /* written where it is true, or a word but the default, alone: documents of before
                                     * it keep their bytes                                                           */
} calm_document_row;

/* The rows in the order in which documents are written; *n their number. */
const calm_document_row *calm_document_rows(size_t *n);

/* The option of a row; NULL: it is none. */
const calm_option *calm_document_option(const calm_document_row *row);

/* The shape of a row: its own, or that of its option; built in *room. */
const calm_shape *calm_document_shape(const calm_document_row *row, calm_shape *room);

/* Is `place` a member of `section` ("" is the document), and under which key?  NULL: it is not. */
const char *calm_document_key(const char *place, const char *section);
