/* Shapes: which JSON values each place of a recipe document may have. */
#pragma once

#include "ptq/base/option.h"

typedef enum calm_shape_kind {
    CALM_SHAPE_BOOL,
    CALM_SHAPE_INT,       /* a whole number from min to max */
    CALM_SHAPE_NUMBER,    /* a number above min (or min itself, if `from_min`) up to max */
    CALM_SHAPE_TEXT,      /* a text of min to max characters that matches `pattern` */
    CALM_SHAPE_WORD,      /* one of `values` */
    CALM_SHAPE_LIST,      /* min to max items of shape `item` */
    CALM_SHAPE_MAP,       /* an object of at most `max` members: keys match `pattern`, values have shape `item` */
    CALM_SHAPE_OBJECT,    /* an object whose members are the rows of the table below `section` */
    CALM_SHAPE_ANY,       /* an object that a run does not read */
    CALM_SHAPE_SCALAR,    /* a boolean, a number or a text */
    CALM_SHAPE_FALSE,
    CALM_SHAPE_VERSION,   /* the number `max`                                                 */
    CALM_SHAPE_EITHER     /* `item` or `other`, distinguished by their JSON types             */
} calm_shape_kind;

typedef struct calm_shape_pattern {
    const char *regex;    /* in the syntax of JSON Schema */
    bool (*fits)(const char *text);
} calm_shape_pattern;

typedef struct calm_shape {
    calm_shape_kind kind;
    double min, max;
    const char *values;             /* joined by '|'                     */
    const char *section;            /* "model": rows "model.name", ...   */
    const calm_shape_pattern *pattern;    /* NULL: any text */
    const struct calm_shape *item, *other;
    bool from_min;                  /* NUMBER: min itself is allowed */
} calm_shape;

/* One place of a document. */
typedef struct calm_document_row {
    const char *place;              /* "calibration.samples"; members of the document have no dot                     */
    const char *help;               /* NULL: the help of its option */
    const calm_shape *shape;        /* NULL: the shape of its option (calm_document_shape) */
    bool required;
    bool chains;                    /* items may be objects with options: {"name", "options"} */
    bool if_true;                   /* written only if it is true, or a word other than the default, so that documents
                                     * older than the option keep their bytes */
} calm_document_row;

/* Returns the rows in the order in which documents are written; *n receives their number. */
const calm_document_row *calm_document_rows(size_t *n);

/* Returns the option of a row; NULL: the row has none. */
const calm_option *calm_document_option(const calm_document_row *row);

/* Returns the row's shape, or else the shape of its option, built in *room. */
const calm_shape *calm_document_shape(const calm_document_row *row, calm_shape *room);

/* Returns the key of `place` in `section` ("" is the document); NULL: `place` is no member of `section`. */
const char *calm_document_key(const char *place, const char *section);
