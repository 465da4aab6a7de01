/* Candidates of a scale search in vectors that every CPU has: what the kernels of all instruction sets must equal. */
#define TARGET
#define LANES                    2
#define CHOOSE(x, limit, beyond) ((reals)(((flags)(limit) & (beyond)) | ((flags)(x) & ~(beyond))))
#define ABOVE(x, limit)          CHOOSE(x, limit, (x) < (limit))
#define BELOW(x, limit)          CHOOSE(x, limit, (x) > (limit))
#define KERNELS                  calm_lanes_plain
#include "algorithms/search_lanes_tile.h"
