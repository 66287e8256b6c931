"""Which headers pass the proxy."""

from raysm.views.dashboard.headers import downstream_headers, upstream_headers

BROWSER = [
    ("Host", "127.0.0.1:8000"),
    ("User-Agent", "Mozilla/5.0"),
    ("Origin", "http://127.0.0.1:8000"),
    ("Sec-Fetch-Site", "same-origin"),
    ("Referer", "http://127.0.0.1:8000/secret/"),
    ("Cookie", "ray-authentication-token=other; session=1"),
    ("authorization", "Bearer another"),
    ("X-Ray-Authorization", "Bearer another"),
    ("X-Forwarded-Context", "/proxy/8000"),
    ("Connection", "keep-alive"),
    ("Accept", "*/*"),
]


def sent():
    return dict(upstream_headers(BROWSER, token="t0ken", address="127.0.0.1:9"))


def test_the_token_is_the_only_credential_that_the_head_sees():
    assert sent()["Authorization"] == "Bearer t0ken"
    assert not {"Cookie", "authorization", "X-Ray-Authorization"} & sent().keys()


def test_what_tells_ray_that_a_browser_asks_stays():
    assert sent()["User-Agent"] == "Mozilla/5.0"
    assert sent()["Origin"] == "http://127.0.0.1:8000"
    assert sent()["Sec-Fetch-Site"] == "same-origin"


def test_the_secret_path_does_not_reach_the_heads_access_log():
    assert sent()["Referer"] == "http://127.0.0.1:9/"
    assert not any("secret" in value or "/proxy/" in value for value in sent().values())


def test_what_concerns_one_connection_alone_does_not_pass():
    assert not {"Host", "Connection"} & sent().keys()
    assert sent()["Accept"] == "*/*"


def test_no_cookie_comes_back():
    answered = [("Set-Cookie", "ray-authentication-token=t0ken"), ("Content-Type", "text/html"), ("Server", "x")]
    assert downstream_headers(answered) == [("Content-Type", "text/html")]


def test_compressed_answers_stay_compressed():
    assert downstream_headers([("Content-Encoding", "gzip")]) == [("Content-Encoding", "gzip")]
