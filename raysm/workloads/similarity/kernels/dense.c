/* Cosine similarity of two tiles of rows: cheap products with a proven bound, and scores as numpy computes them.
 *
 * Compiled once for each pair of an instruction set (the compiler's flags) and a kind of product: KIND 8 (int8; VNNI,
 * AMX or NEON's dot), 16 (int16) or 32 (float32). Every kind handles the columns in groups of 4 bytes, so all share one
 * loop. Each header is one part, and includes those that it is built on. What a machine has of its own stands in x86.h
 * and arm.h, which say what a vector is and does, and in avx.h, amx.h and neon.h, which multiply a panel. The bounds are
 * proven in bounds.py; the words are those of that docstring.
 */
#include "scores.h"

#include "full.h"
#include "prepare.h"
#include "topk.h"
#include "pairs.h"
