/* Compare sparse rows with sparse rows: find pairs that may be among the answers, and score them by the definition.
 *
 * Rows are CSR with rising columns. Products are summed in float32 over the columns that two rows share, by the
 * postings of the right rows (for each column, the rows that have it, and their elements): one left row after the
 * other, into one float for each right row. The number of columns matters only for one integer of
 * each; if there are many, the right rows list only those columns that they have.
 *
 * An untouched sum is -0.0, and a touched one never is: the caller passes no unit element smaller than 2**-62, so that
 * no product vanishes, and products that cancel leave +0.0.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define UNTOUCHED 0x80000000u /* the bits of -0.0f */
#define NO_KEY UINT64_MAX
#define SCAN_AT 10 /* if more than one in so many sums is touched, scanning all is faster than listing the touched */
#define STRIDE 64
#define MAX_BITS (1 << 22) /* 512 KiB */

typedef struct {
    int64_t count, start, columns;
    const int64_t *begins;  /* [count + 1] */
    const int32_t *indices; /* rising in each row */
    const float *unit;      /* divided by the row's norm */
    const double *data;     /* as given */
    const double *norms;
} Rows;

typedef struct {
    int32_t row;
    float value;
} Posting;

typedef struct {
    int64_t count;
    const int32_t *names;    /* [count]: the columns that have postings, rising; NULL: all columns are listed */
    const int32_t *first;    /* [count + 1]: where each column's postings begin */
    const Posting *postings; /* rows rising in each column */
} Columns;

typedef struct {
    int64_t k;
    uint64_t *keys;
    const float *floors;
    float *least; /* a pair whose sum does not exceed it cannot enter */
    double bound;
} Best;

typedef struct {
    float *sums, *near, *none;
    int32_t *touched, *found;
    int32_t *places; /* of the left row's columns that the right rows have */
    float *elements; /* of these columns */
    uint64_t *bits;  /* the left row's columns */
    int is_exact;    /* each column has a bit of its own */
    int64_t mask;    /* of a column, for its bit */
    int64_t *at;
    double *products;
    void *memory;
} Room;

/* Write the sizes of the structures that Python passes, which it compares with its own. */
PUBLIC void struct_bytes(int64_t *bytes) {
    bytes[0] = sizeof(Rows);
    bytes[1] = sizeof(Columns);
    bytes[2] = sizeof(Best);
}

#define NO_MEMORY (-1)
#define WRONG_COLUMNS (-2)

/* Return whether the columns of each row rise within [0, columns): they become indices. */
static int is_canonical(const Rows *rows) {
    if (rows->begins[0] != 0) return 0;
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->begins[i + 1] < rows->begins[i]) return 0;
    /* Only now are all elements known to lie before the last row's end. */
    for (int64_t i = 0; i < rows->count; i++) {
        int64_t before = -1;
        for (int64_t p = rows->begins[i]; p < rows->begins[i + 1]; p++) {
            if (rows->indices[p] <= before) return 0;
            before = rows->indices[p];
        }
        if (before >= rows->columns) return 0;
    }
    return 1;
}

/* ---- scores by the definition ------------------------------------------------------------------------------ */

/* Return numpy.sum of the dense row of n products from column `low` on. Adding zeros changes nothing, so only the order
 * of the other products matters; for one or two there is none. */
static double summed(const int64_t *at, const double *products, int64_t count, int64_t low, int64_t n) {
    if (count == 0) return 0.0;
    if (count == 1) return products[0];
    if (count == 2) return products[0] + products[1];
    int64_t i = 0;
    if (n <= 128) {
        double lanes[8] = {0}, sum;
        int64_t tail = low + n - n % 8;
        for (; i < count && at[i] < tail; i++) lanes[(at[i] - low) % 8] += products[i];
        sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
        for (; i < count; i++) sum += products[i];
        return sum;
    }
    int64_t half = n / 2;
    half -= half % 8;
    while (i < count && at[i] < low + half) i++;
    return summed(at, products, i, low, half) + summed(at + i, products + i, count - i, low + half, n - half);
}

static void mark(const Room *room, const Rows *rows, int64_t i) {
    for (int64_t p = rows->begins[i]; p < rows->begins[i + 1]; p++) {
        int64_t bit = rows->indices[p] & room->mask;
        room->bits[bit >> 6] |= 1ull << (bit & 63);
    }
}

static void unmark(const Room *room, const Rows *rows, int64_t i) {
    for (int64_t p = rows->begins[i]; p < rows->begins[i + 1]; p++) room->bits[(rows->indices[p] & room->mask) >> 6] = 0;
}

static inline int marked(const uint64_t *bits, int64_t mask, int32_t column) {
    int64_t bit = column & mask;
    return bits[bit >> 6] >> (bit & 63) & 1;
}

/* Return where the column is, or would be, in rising columns from `from` to `end`. */
static inline int64_t place(const int32_t *columns, int64_t from, int64_t end, int32_t column) {
    while (from < end) {
        int64_t middle = (from + end) / 2;
        if (columns[middle] < column)
            from = middle + 1;
        else
            end = middle;
    }
    return from;
}

/* Prefetch a row's columns: scored rows are scattered over the memory. */
static void fetch(const Rows *rows, int64_t j) {
    for (int64_t p = rows->begins[j]; p < rows->begins[j + 1] && p < rows->begins[j] + 64; p += 16)
        __builtin_prefetch(rows->indices + p);
}

/* The score of left row i, which is marked, and right row j. */
static float score(const Room *room, const Rows *left, int64_t i, const Rows *right, int64_t j) {
    int64_t from = left->begins[i], end = left->begins[i + 1], count = 0;
    /* Copies: the compiler would read the pointers again after each write. */
    const int32_t *indices = left->indices, *others = right->indices;
    const uint64_t *bits = room->bits;
    int64_t mask = room->mask, *at = room->at, last = right->begins[j + 1];
    double *products = room->products;
    int is_exact = room->is_exact;
    for (int64_t p = right->begins[j]; p < last; p++) {
        int32_t column = others[p];
        if (!marked(bits, mask, column)) continue;
        from = place(indices, from, end, column);
        if (!is_exact && (from == end || indices[from] != column)) continue;
        at[count] = column;
        products[count++] = left->data[from++] * right->data[p];
    }
    double norms = left->norms[i] * right->norms[j];
    return norms == 0 ? 0.0f : (float)(summed(at, products, count, 0, left->columns) / norms) + 0.0f;
}

/* squares[count]: the dot product of each row with itself, by the definition. */
PUBLIC int64_t sparse_squares(const Rows *rows, double *squares) {
    if (!is_canonical(rows)) return WRONG_COLUMNS;
    int64_t most = 0;
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->begins[i + 1] - rows->begins[i] > most) most = rows->begins[i + 1] - rows->begins[i];
    int64_t *at = malloc(8 * (size_t)most + 8);
    double *products = malloc(8 * (size_t)most + 8);
    if (at && products)
        for (int64_t i = 0; i < rows->count; i++) {
            int64_t begin = rows->begins[i], count = rows->begins[i + 1] - begin;
            for (int64_t p = 0; p < count; p++) {
                at[p] = rows->indices[begin + p];
                products[p] = rows->data[begin + p] * rows->data[begin + p];
            }
            squares[i] = summed(at, products, count, 0, rows->columns);
        }
    int64_t result = at && products ? 0 : NO_MEMORY;
    free(at);
    free(products);
    return result;
}

/* ---- keys, the same as in keys.py ------------------------------------------------------------------------------- */

static uint64_t key_of(float value, int64_t index) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint64_t)(bits >> 31 ? bits : ~bits & 0x7fffffffu) << 32 | (uint64_t)index;
}

static float score_of(uint64_t key) {
    uint32_t falling = (uint32_t)(key >> 32), bits = falling >> 31 ? falling : ~falling & 0x7fffffffu;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void raise_least(const Best *best, int64_t i) {
    uint64_t last = best->keys[(i + 1) * best->k - 1];
    float reached = best->floors[i];
    if (last != NO_KEY && score_of(last) > reached) reached = score_of(last);
    best->least[i] = isinf(reached) ? reached : nextafterf((float)((double)reached - best->bound), -INFINITY);
}

static void insert(const Best *best, int64_t i, uint64_t key) {
    uint64_t *keys = best->keys + i * best->k;
    int64_t at = best->k - 1;
    if (key >= keys[at]) return;
    for (; at > 0 && keys[at - 1] > key; at--) keys[at] = keys[at - 1];
    keys[at] = key;
    raise_least(best, i);
}

/* ---- sums ---------------------------------------------------------------------------------------------------- */

/* Check rows. A side is checked before it is compared, so the other functions need not do it. */
PUBLIC int64_t sparse_check(const Rows *rows) { return is_canonical(rows) ? 0 : WRONG_COLUMNS; }

/* Check rows, and transpose them: fill first[columns + 1] and postings[n] of Columns, for n elements. */
PUBLIC int64_t sparse_columns(const Rows *rows, int32_t *first, Posting *postings) {
    if (!is_canonical(rows)) return WRONG_COLUMNS;
    int64_t size = rows->begins[rows->count];
    memset(first, 0, (size_t)(rows->columns + 1) * sizeof *first);
    for (int64_t p = 0; p < size; p++) first[rows->indices[p]]++;
    for (int64_t c = 0; c < rows->columns; c++) first[c + 1] += first[c];
    /* first[c] is the end of column c now; filling from the back turns it into the beginning. */
    for (int64_t i = rows->count - 1; i >= 0; i--)
        for (int64_t p = rows->begins[i]; p < rows->begins[i + 1]; p++)
            postings[--first[rows->indices[p]]] = (Posting){(int32_t)i, rows->unit[p]};
    first[rows->columns] = (int32_t)size;
    return 0;
}

/* Find the touched sums of [0, n) above the smaller of `mine` and least[j]; reset all sums to untouched. */
static int64_t scan(float *restrict sums, const float *restrict least, float mine, int64_t n, int32_t *restrict found,
                    float *restrict near) {
    int64_t count = 0;
    const uint32_t *bits = (const uint32_t *)(const void *)sums;
    for (int64_t start = 0; start < n; start += STRIDE) {
        int64_t stop = start + STRIDE < n ? start + STRIDE : n;
        int any = 0;
        for (int64_t j = start; j < stop; j++) {
            float cut = least[j] < mine ? least[j] : mine;
            any |= (sums[j] > cut) & (bits[j] != UNTOUCHED);
        }
        if (any)
            for (int64_t j = start; j < stop; j++) {
                float cut = least[j] < mine ? least[j] : mine;
                if (!(sums[j] > cut) || bits[j] == UNTOUCHED) continue;
                near[count] = sums[j];
                found[count++] = (int32_t)j;
            }
        for (int64_t j = start; j < stop; j++) sums[j] = -0.0f;
    }
    return count;
}

/* The elements of a left row, and the places of their columns in the lists of the right rows. */
typedef struct {
    const int32_t *places;
    const float *elements;
    int64_t count;
} Listed;

static int64_t add_and_scan(const Room *room, Listed left, const Columns *right, const int32_t *first,
                            const float *least, float mine, int64_t n) {
    for (int64_t p = 0; p < left.count; p++) {
        int32_t column = left.places[p], stop = right->first[column + 1];
        float element = left.elements[p];
        for (int32_t q = first[column]; q < stop; q++) room->sums[right->postings[q].row] += element * right->postings[q].value;
    }
    return scan(room->sums, least, mine, n, room->found, room->near);
}

static int64_t add_and_list(const Room *room, Listed left, const Columns *right, const int32_t *first,
                            const float *least, float mine) {
    int64_t touched = 0, count = 0;
    for (int64_t p = 0; p < left.count; p++) {
        int32_t column = left.places[p], stop = right->first[column + 1];
        float element = left.elements[p];
        for (int32_t q = first[column]; q < stop; q++) {
            int32_t j = right->postings[q].row;
            uint32_t before;
            memcpy(&before, room->sums + j, 4);
            room->touched[touched] = j; /* without a branch: the next entry overwrites it if it is not new */
            touched += before == UNTOUCHED;
            room->sums[j] += element * right->postings[q].value;
        }
    }
    for (int64_t t = 0; t < touched; t++) {
        int32_t j = room->touched[t];
        float sum = room->sums[j], cut = least[j] < mine ? least[j] : mine;
        room->sums[j] = -0.0f;
        room->found[count] = j;
        room->near[count] = sum;
        count += sum > cut;
    }
    return count;
}

/* Return the place of a column in the lists of the right rows, or -1 if no right row has it. */
static inline int64_t place_of(const Columns *right, int32_t column) {
    if (!right->names) return column;
    int64_t at = place(right->names, 0, right->count, column);
    return at < right->count && right->names[at] == column ? at : -1;
}

static Listed listed(const Room *room, const Rows *left, int64_t i, const Columns *right) {
    int64_t begin = left->begins[i], end = left->begins[i + 1], count = 0;
    if (!right->names) return (Listed){left->indices + begin, left->unit + begin, end - begin};
    for (int64_t p = begin; p < end; p++) {
        int64_t at = place_of(right, left->indices[p]);
        if (at < 0) continue;
        room->places[count] = (int32_t)at;
        room->elements[count++] = left->unit[p];
    }
    return (Listed){room->places, room->elements, count};
}

/* Sum left row i against all right rows; return the number of candidates, in room->found with sums in room->near. */
static int64_t candidates(const Room *room, const Rows *rows, int64_t i, const Columns *right, const int32_t *first,
                          const float *least, float mine, int64_t n) {
    Listed left = listed(room, rows, i, right);
    int64_t hits = 0;
    for (int64_t p = 0; p < left.count; p++) {
        int32_t column = left.places[p], begin = first[column];
        hits += right->first[column + 1] - begin;
        __builtin_prefetch(right->postings + begin);
    }
    if (hits == 0) return 0;
    if (hits > n / SCAN_AT) return add_and_scan(room, left, right, first, least, mine, n);
    return add_and_list(room, left, right, first, least, mine);
}

/* Allocate memory for the comparison of `left` with n right rows; NULL if there is none. */
static void *take(Room *room, const Rows *left, int64_t n) {
    int64_t most = 0, side = (n + STRIDE) & ~(int64_t)(STRIDE - 1), words = left->columns / 64 + 1;
    room->is_exact = left->columns <= MAX_BITS;
    room->mask = room->is_exact ? -1 : MAX_BITS - 1;
    if (!room->is_exact) words = MAX_BITS / 64;
    for (int64_t i = 0; i < left->count; i++)
        if (left->begins[i + 1] - left->begins[i] > most) most = left->begins[i + 1] - left->begins[i];
    char *at = room->memory = malloc((size_t)(5 * 4 * side + 8 * words + 24 * most));
    if (!at) return NULL;
    room->at = (int64_t *)(void *)at, at += 8 * most;
    room->products = (double *)(void *)at, at += 8 * most;
    room->bits = (uint64_t *)(void *)at, at += 8 * words;
    room->places = (int32_t *)(void *)at, at += 4 * most;
    room->elements = (float *)(void *)at, at += 4 * most;
    room->sums = (float *)(void *)at, at += 4 * side;
    room->near = (float *)(void *)at, at += 4 * side;
    room->none = (float *)(void *)at, at += 4 * side;
    room->touched = (int32_t *)(void *)at, at += 4 * side;
    room->found = (int32_t *)(void *)at;
    memset(room->bits, 0, (size_t)(8 * words));
    for (int64_t j = 0; j < side; j++) room->sums[j] = -0.0f, room->none[j] = INFINITY;
    return room->memory;
}

/* ---- top-k, pairs and scores
 * ----------------------------------------------------------------------------------------- */

/* Return whether left row i, which is marked, has a column. */
static int has(const Room *room, const Rows *left, int64_t i, int32_t column) {
    if (!marked(room->bits, room->mask, column)) return 0;
    if (room->is_exact) return 1;
    int64_t at = place(left->indices, left->begins[i], left->begins[i + 1], column);
    return at < left->begins[i + 1] && left->indices[at] == column;
}

/* Offer each row of `left` the rows of `right` with which it shares no column, whose score is 0, the lowest first. */
static void offer_zeros(const Room *room, const Rows *left, const Rows *right, const Best *best, int same) {
    for (int64_t i = 0; i < left->count; i++) {
        const uint64_t *last = best->keys + (i + 1) * best->k - 1;
        if (best->floors[i] > 0 || key_of(0.0f, right->start) >= *last) continue;
        mark(room, left, i);
        for (int64_t j = 0; j < right->count && key_of(0.0f, right->start + j) < *last; j++) {
            if (same && right->start + j == left->start + i) continue;
            int64_t p = right->begins[j], end = right->begins[j + 1];
            while (p < end && !has(room, left, i, right->indices[p])) p++;
            if (p == end) insert(best, i, key_of(0.0f, right->start + j));
        }
        unmark(room, left, i);
    }
}

/* The best k of the left rows among the right ones, and, unless `theirs` is NULL, the reverse.
 *
 * With `cursor`, a copy of columns->first, both are the same rows: each pair is computed once, and offered to both. */
PUBLIC int64_t sparse_topk(const Rows *left, const Rows *right, const Columns *columns, const Best *mine,
                           const Best *theirs, int32_t *cursor, int same) {
    Room room;
    if (!take(&room, left, right->count > left->count ? right->count : left->count)) return NO_MEMORY;
    for (int64_t i = 0; i < left->count; i++) raise_least(mine, i);
    if (theirs && theirs != mine)
        for (int64_t j = 0; j < right->count; j++) raise_least(theirs, j);
    const float *least = theirs ? theirs->least : room.none;
    for (int64_t i = 0; i < left->count; i++) {
        /* Rows before this one have moved the cursors of its columns up to this row: step over it. */
        for (int64_t p = left->begins[i]; cursor && p < left->begins[i + 1]; p++) cursor[place_of(columns, left->indices[p])]++;
        int64_t count = candidates(&room, left, i, columns, cursor ? cursor : columns->first, least, mine->least[i],
                                   right->count);
        if (!count) continue;
        mark(&room, left, i);
        for (int64_t f = 0; f < count; f++) fetch(right, room.found[f]);
        for (int64_t f = 0; f < count; f++) {
            int64_t j = room.found[f];
            if (same && right->start + j == left->start + i) continue;
            /* The thresholds have risen since. */
            if (!(room.near[f] > mine->least[i]) && !(room.near[f] > least[j])) continue;
            float value = score(&room, left, i, right, j);
            insert(mine, i, key_of(value, right->start + j));
            if (theirs) insert(theirs, j, key_of(value, left->start + i));
        }
        unmark(&room, left, i);
    }
    offer_zeros(&room, left, right, mine, same);
    if (theirs && theirs != mine) offer_zeros(&room, right, left, theirs, same);
    free(room.memory);
    return 0;
}

/* Pairs of left rows from `begin` on whose score is at least `threshold`; stop before a row that might not fit.
 *
 * `capacity` is at least right->count. counts[i] is set for each row that was done, neighbors and similarities follow
 * each other, in no order within a row. Returns the row after the last that was done, -1 without memory. */
PUBLIC int64_t sparse_pairs(const Rows *left, const Rows *right, const Columns *columns, int64_t begin, float cut,
                            float threshold, int64_t capacity, int64_t *counts, uint32_t *neighbors, float *similarities) {
    Room room;
    if (!take(&room, left, right->count)) return NO_MEMORY;
    int64_t i = begin, done = 0;
    for (; i < left->count && capacity - done >= right->count; i++) {
        int64_t count = candidates(&room, left, i, columns, columns->first, room.none, cut, right->count);
        int64_t before = done;
        if (count) mark(&room, left, i);
        for (int64_t f = 0; f < count; f++) {
            similarities[done] = score(&room, left, i, right, room.found[f]);
            neighbors[done] = (uint32_t)(right->start + room.found[f]);
            done += similarities[done] >= threshold;
        }
        if (count) unmark(&room, left, i);
        counts[i] = done - before;
    }
    free(room.memory);
    return i;
}

/* Write all scores of left rows begin to end with the right rows into out[end - begin, right->count]. */
PUBLIC int64_t sparse_scores(const Rows *left, const Rows *right, const Columns *columns, int64_t begin, int64_t end,
                             float *out) {
    Room room;
    if (!take(&room, left, right->count)) return NO_MEMORY;
    memset(out, 0, (size_t)((end - begin) * right->count) * sizeof *out);
    for (int64_t i = begin; i < end; i++, out += right->count) {
        int64_t count = candidates(&room, left, i, columns, columns->first, room.none, -INFINITY, right->count);
        if (!count) continue;
        mark(&room, left, i);
        for (int64_t f = 0; f < count; f++) out[room.found[f]] = score(&room, left, i, right, room.found[f]);
        unmark(&room, left, i);
    }
    free(room.memory);
    return 0;
}
