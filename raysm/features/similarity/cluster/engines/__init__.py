"""Engines that compare tiles of rows, and the choice between them.

The answers are the same on every machine, bit for bit. The manifest has the ``Engine.name`` of each
that computed:

========================  ==========================================================================
int8 AMX                  Intel from Sapphire Rapids on (m7i, c7i, r7i and later), rows of at least
                          32 elements
int8 AVX-512 VNNI         Intel from Cascade Lake, AMD from Zen 4 on (m5, c5 in part; m6i, m7a and
                          later)
int16 AVX-512             Intel Skylake servers
int16 AVX2                every other x86-64 of the last ten years
int8 NEON dot             ARM from Graviton2 on (m6g and later), rows of at least 8 elements
float32 AVX-512, ...      if a probe finds it faster than integers, or the caller asks for
                          ``float32``
float64 NumPy (reason)    no C compiler, no private folder of this user, or a NumPy that sums in
                          another order
sparse ...                CSR rows, see ``sparse``
float16 CUDA (GPU)        the GPUs of the cluster, for top-k and thresholds of dense rows, see
                          ``cuda``
========================  ==========================================================================

" mixed" after the name: rows are multiplied by one orthogonal matrix first, which spreads large
elements.
"""
