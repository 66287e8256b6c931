import numpy as np

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode, encode


def test_keys_rise_as_scores_fall_and_of_one_score_as_the_numbers_rise():
    scores = np.array([1, 0.5, 0.5, 2.0**-149, 0, -(2.0**-149), -1], dtype=np.float32)
    keys = encode(scores, np.array([9, 3, 4, 8, 0, 2**32 - 1, 7]))
    assert (np.diff(keys.astype(object)) > 0).all()
    assert keys[-1] < EMPTY_KEY


def test_scores_and_numbers_come_back_bit_by_bit_and_nobody_as_no_score():
    rng = np.random.default_rng(0)
    scores, numbers = rng.uniform(-1, 1, 500).astype(np.float32), rng.integers(0, 2**32, 500)
    found = decode(np.append(encode(scores, numbers), EMPTY_KEY))
    np.testing.assert_array_equal(found[0], np.append(scores, np.float32(-np.inf)))
    np.testing.assert_array_equal(found[1][:-1], numbers)
