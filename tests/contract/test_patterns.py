import pytest

from raysm.contract.patterns import compiled


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r".+", "one line", True),
        (r".+", "two\nlines", False),
        (r".*", "two\nlines", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "größe: 日本_1", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "a#b", False),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws-cn1:x", True),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws_cn:x", False),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "what Python cannot say\n", True),
    ],
)
def test_a_pattern_of_the_api_matches_as_it_does_there(pattern, text, matches):
    assert bool(compiled(pattern).fullmatch(text)) is matches
