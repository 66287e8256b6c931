"""Looking at a grid until it is over."""

from raysm.views.grid.shown import shown_snapshot
from raysm.views.grid.watching import look_until_over
from tests.views.grid.test_screen import view


def test_only_what_is_news_is_shown_and_whoever_has_seen_enough_ends_it():
    views, seen = [view(), view(at_s=5.0), view(states={"done": 20})], []
    left = iter(views)
    look_until_over(lambda: shown_snapshot(next(left)), seen.append, lambda seconds: len(seen) == 2)
    assert [each.at_s for each in seen] == [views[0].at_s, views[2].at_s]
