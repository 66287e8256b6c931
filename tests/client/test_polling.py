import itertools

from raysm.client.targets.aws import AWSConnection
from raysm.client.targets.connection import Polling


def test_pauses_grow_up_to_their_limit_and_never_end():
    assert list(itertools.islice(Polling(first_s=1, most_s=3, growth=2).pauses(), 5)) == [1, 2, 3, 3, 3]


def test_a_log_of_many_streams_is_looked_at_less_often_and_yet_it_is():
    polling = Polling(first_s=1, most_s=3, stream_s=0.5)
    assert [polling.between_looks(2.0, streams) for streams in (0, 4, 16, 1000)] == [2.0, 2.0, 8.0, 20.0]
    assert Polling(first_s=1, most_s=3).between_looks(0.1, 1000) == 0.1


def test_ten_people_with_sixteen_instances_each_keep_within_the_accounts_calls_for_logs():
    polling = AWSConnection.polling
    assert 10 * 16 / polling.between_looks(min(polling.first_s, 5.0), 16) < 25
