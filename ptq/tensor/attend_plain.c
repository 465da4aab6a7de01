/* Integer attention in portable C with vectors of four 32-bit integers. */
#define TARGET
#define LANES         4
#define TILE_ROWS     4
#define KERNEL        calm_attend_plain
#define lower(a)      ((signed_words)((a) << 16) >> 16)
#define upper(a)      ((signed_words)(a) >> 16)
#define dot(s, a, b)  ((s) + (whole)(lower(a) * lower(b)) + (whole)(upper(a) * upper(b)))
#define greater(a, b) ((real)(((signed_words)(a) & ((a) > (b))) | ((signed_words)(b) & ~((a) > (b)))))
#include "ptq/tensor/attend_tile.h"
