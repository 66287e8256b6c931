/* Cosine similarity of two tiles of rows: cheap products with a proven bound, and scores as numpy computes them.
 *
 * Compiled once for each pair of an instruction set (the compiler's flags) and a kind of product: KIND 8 (int8; VNNI,
 * AMX or NEON's dot), 16 (int16) or 32 (float32). Every kind handles the columns in groups of 4 bytes, so all share one
 * loop. Each header is one part, and includes those that it depends on. Code for one kind of machine is in x86.h and
 * arm.h, which define vectors and their operations, and in avx.h, amx.h and neon.h, which multiply a panel. The
 * docstring of bounds.py has the proofs of the bounds and defines the terms used here.
 */
#include "scores.h"

#include "full.h"
#include "prepare.h"
#include "topk.h"
#include "pairs.h"

/* Write the sizes of the structures that Python passes, which it compares with its own. */
EXPORT void struct_bytes(int64_t *bytes) {
    bytes[0] = sizeof(form);
    bytes[1] = sizeof(side);
    bytes[2] = sizeof(best);
    bytes[3] = sizeof(found_pairs);
}
