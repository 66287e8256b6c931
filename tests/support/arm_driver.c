/* Runs the kernels of dense.c on one problem: for machines that are emulated, where there is no Python.
 *
 * arm_driver PROBLEM ANSWER: both are files of arrays, one behind the other, as tests/support/emulated.py has them. */
#include "dense.c"

#include <stdio.h>

typedef struct {
    int64_t kind, d, left, right, left_start, right_start, k, same, diagonal, mixed, clusters;
    double slop, most, growth, threshold;
} problem;

static FILE *in, *out;

static void *take(int64_t bytes) {
    /* A cache line more, as the engine's arrays have it. */
    char *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (fread(at, 1, bytes, in) != (size_t)bytes) exit(3);
    return at;
}

static void *zeros(int64_t bytes) {
    char *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    return memset(at, 0, bytes);
}

static void give(const void *at, int64_t bytes) { fwrite(at, 1, bytes, out); }

static int64_t whole(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static void lay_out(const side *s, form *f) {
    int64_t n = s->n, groups = s->groups;
    f->cheap = zeros(4 * groups * whole(n, pack_rows()));
    f->finer = zeros(4 * groups * n);
    f->panels = zeros(4 * groups * whole(n, panel_columns()));
    f->first = zeros(4 * n);
    f->scale = zeros(4 * n), f->error = zeros(4 * n), f->length = zeros(4 * n), f->shift = zeros(4 * n);
    f->finer_error = zeros(4 * n), f->middle = zeros(8 * n);
}

/* About the centre, and where there are clusters about theirs: centres and squares of all, then radii. */
static side made(const problem *p, int64_t n, int64_t start, const char *rows, const double *norms,
                 const double *centres, const double *squares, const double *radii, const double *signs) {
    side s = {.rows = rows, .stride = p->d * p->kind, .kind = p->kind, .n = n, .d = p->d, .start = start};
    s.norms = norms, s.slop = p->slop;
    s.groups = whole((p->d * (int64_t)sizeof(element) + 3) / 4, group_step());
    s.overall.centres = centres, s.overall.squares = squares;
    lay_out(&s, &s.overall);
    if (p->clusters) {
        s.local.centres = centres + p->d, s.local.squares = squares + 1, s.local.radii = radii;
        s.local.places = take(4 * n);
        lay_out(&s, &s.local);
    }
    if (prepare(&s, p->clusters, p->mixed ? signs : NULL, p->most, p->growth)) exit(4);
    return s;
}

int main(int count, char **names) {
    if (count != 3 || !(in = fopen(names[1], "rb")) || !(out = fopen(names[2], "wb"))) return 2;
    const problem *p = take(sizeof *p);
    char *left = take(p->left * p->d * p->kind), *right = take(p->right * p->d * p->kind);
    double *left_norms = take(8 * p->left), *right_norms = take(8 * p->right);
    double *centres = take(8 * (p->clusters + 1) * p->d), *squares = take(8 * (p->clusters + 1));
    double *radii = take(8 * p->clusters);
    double *signs = take(p->mixed ? 8 * p->d : 0);
    side l = made(p, p->left, p->left_start, left, left_norms, centres, squares, radii, signs);
    side r = made(p, p->right, p->right_start, right, right_norms, centres, squares, radii, signs);
    best of_left = {take(8 * p->left * p->k), take(4 * p->left), p->k};
    best of_right = {take(8 * p->right * p->k), take(4 * p->right), p->k};
    int64_t scored = topk(&l, &r, &of_left, p->diagonal ? &of_left : &of_right, p->clusters, p->same, p->diagonal);
    give(&scored, 8);
    give(of_left.keys, 8 * p->left * p->k);
    give(of_right.keys, 8 * p->right * p->k);
    found_pairs found;
    int64_t scored_pairs = pairs(&l, &r, (float)p->threshold, p->clusters, p->same, &found);
    if (scored_pairs < 0) return 4;
    give(&scored_pairs, 8);
    give(&found.count, 8);
    give(found.i, 4 * found.count);
    give(found.j, 4 * found.count);
    give(found.scores, 4 * found.count);
    float *scores = zeros(4 * p->left * p->right);
    if (all_scores(&l, &r, scores, p->right)) return 4;
    give(scores, 4 * p->left * p->right);
    int64_t *i = zeros(8 * p->left * p->right), *j = zeros(8 * p->left * p->right);
    for (int64_t at = 0; at < p->left * p->right; at++) i[at] = at / p->right, j[at] = at % p->right;
    if (pair_scores(&l, &r, i, j, p->left * p->right, scores)) return 4;
    give(scores, 4 * p->left * p->right);
    return fclose(out);
}
