import itertools

from raysm.client.pace import Pace


def test_pauses_grow_up_to_their_limit_and_never_end():
    assert list(itertools.islice(Pace(first_s=1, most_s=3, growth=2).pauses(), 5)) == [1, 2, 3, 3, 3]
