"""Magics and live cards in a real kernel, with a session's own server: one talk, of which each test sees a part."""

import re

import pytest

from tests.support.kernel_talk import talk
from tests.support.session_process import serving
from tests.support.stub_job import TOKEN
from tests.support.watched_jobs import BEGIN

for package in ("ipykernel", "jupyter_client"):
    pytest.importorskip(package)

STREAMED = """%%raysm
import pathlib, time
print("first", flush=True)
while not pathlib.Path({path!r}).exists():
    time.sleep(0.05)
print("second")
import sys
print("to stderr", file=sys.stderr)"""

RAISES = "%%raysm\nx = 1\n\ndef divide(a):\n    return a / 0\n\ndivide(x)"
SLEEPS = '%%raysm\nkept = 5\nimport time\nprint("sleeping")\ntime.sleep(600)'
OPEN = """
from tests.support.stub_job import near
digits = near({folder!r}, {port})"""

RICH = """%%raysm
from IPython.display import HTML
print("before")
shown = display(HTML("<b>one</b>"), display_id=True)
print("between")
display({"a": 1})"""


def steps(folder, port):
    return {
        "load": "%load_ext raysm",
        "no_session": "%%raysm\n1",
        "open": OPEN.format(folder=str(folder), port=port),
        "connect": "%raysm connect digits",
        "streamed": {
            "code": STREAMED.format(path=str(folder / "go")),
            "when": "first",
            "touch": str(folder / "go"),
        },
        "raises": RAISES,
        "syntax": "%%raysm\nx = (",
        "interrupt": {"code": SLEEPS, "when": "sleeping", "interrupt": True},
        "kept": "%%raysm\nkept * 2",
        "shown": "%%raysm\nclass Page:\n    def _repr_html_(self):\n        return '<b>page</b>'\nPage()",
        "rich": RICH,
        "magic": "%%raysm\n%timeit -n 1 -r 1 1 + 1\n!echo from the shell\nlen?",
        "figure": "%%raysm\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
        "bar": "%%raysm\nfrom tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass",
        "asks": "%%raysm\ninput('name? ')",
        "awaits": "%%raysm\nimport asyncio\nawait asyncio.sleep(0, 'awaited')",
        "executed": "cell = digits.exec('print(1); display(2); 3')\n[cell.text, len(cell.outputs), repr(cell.result)]",
        "push": "a, b = 3, [4]\nboth = 0",
        "pushed": "%%raysm --push a,b --pull both\nboth = [a, *b]",
        "pulled": "both",
        "future": "%%raysm --async -o later\nprint('late'); 6 * 7",
        "result": "print(later.result(), later.logs())",
        "wrong": "%raysm conect digits",
        "wrong_option": "%%raysm --psh a\n1",
        "wrong_name": "%%raysm --push nothing_of_that_name\n1",
        "in_cell": {"complete": "%%raysm\nprint(kep"},
        "on": "%raysm on",
        "remote": "kept += 1\nmissing_name",
        "complete": {"complete": "kep"},
        "attribute": {"complete": "time.slee"},
        "off": "%raysm off",
        "local": "'kept' in globals()",
        "status": "%raysm status",
        "close": "%raysm close",
        "closed": "%%raysm\n1",
        "begin": f"import os\nos.chdir({str(folder)!r})\n{BEGIN}",
        "watch": "watching = job.watch()\nwatching",
        "watched": LATER,
        "wait": WAIT,
        "again": "second.wait(); second.result()",
    }


LATER = """
assert not watching.wait(0)
hostile = "</pre></div><script>alert(1)</script>\\x1b[31m"
fake.lines[job.name] = (hostile, *(line(Metric(name="loss", value=1 / (step + 1), step=step)) for step in range(5)))
fake.is_over = True
assert watching.wait(60)
"""

WAIT = """
import threading
fake.is_over = False
second = raysm.submit(raysm.Script("train.py"), on=fake, name="second", cluster=raysm.Cluster(count=2))
try:
    second.wait(0.2)
except TimeoutError:
    pass
threading.Timer(1.0, lambda: setattr(fake, "is_over", True)).start()
second.result()
"""


def cards(answer, kind="results"):
    return [data["text/html"] for data in answer[kind] if "text/html" in data]


def test_a_card_is_drawn_again_in_its_own_cell_while_later_cells_run(answers):
    (first,) = cards(answers["watch"])
    assert "InProgress" in first
    last = cards(answers["watched"], "updates")[-1]
    assert all(
        part in last for part in ("Completed", "0.2", "<svg", "raysm.attach", "&lt;script&gt;")
    )
    assert "<script" not in last
    assert "\x1b" not in last
    # What a reader without HTML has, GitHub's or a terminal's, is up to date too.
    assert "Completed" in answers["watched"]["updates"][-1]["text/plain"]


def test_a_cell_that_waits_for_a_job_shows_one_card(answers):
    assert answers["wait"]["status"] == "ok", answers["wait"]
    (first,) = cards(answers["wait"])
    assert "InProgress" in first
    assert "Completed" in cards(answers["wait"], "updates")[-1]
    assert cards(answers["again"]) == cards(answers["again"], "updates") == []


@pytest.fixture(scope="module")
def answers(tmp_path_factory, home):
    folder = tmp_path_factory.mktemp("kernel")
    with serving(folder) as port:
        asked = steps(folder, port)
        return dict(zip(asked, talk(folder, *asked.values()), strict=True))


def plain(lines):
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def test_a_session_is_connected_to_and_shown_as_a_card(answers):
    assert answers["connect"]["status"] == "ok", answers["connect"]
    for step in ("connect", "status"):
        assert "<b>digits</b>" in answers[step]["results"][0]["text/html"]


def test_output_is_there_while_the_cell_still_runs(answers):
    # It goes on only once the first line was seen here.
    assert answers["streamed"]["stdout"] == "first\nsecond\n"
    assert answers["streamed"]["stderr"] == "to stderr\n"


def test_a_traceback_is_native_with_the_cells_own_line(answers):
    failed = answers["raises"]
    text = plain(failed["traceback"])
    assert failed["ename"] == "ZeroDivisionError"
    assert re.search(r'File "Cell In\[\d+\]", line 7, in <module>\n    divide\(x\)', text)
    assert re.search(r"line 5, in divide\n    return a / 0", text)
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "raysm" not in text


def test_a_syntax_error_has_its_line(answers):
    text = plain(answers["syntax"]["traceback"])
    assert re.search(r'File "Cell In\[\d+\]", line 2\n    x = \(', text)
    assert "raysm" not in text


def test_an_interrupt_ends_the_cell_alone_and_leaves_the_namespace(answers):
    stopped = answers["interrupt"]
    assert stopped["ename"] == "KeyboardInterrupt"
    assert plain(stopped["traceback"]).count("\n") == 0
    # A second on a machine of its own; here others work on it.
    assert stopped["interrupted_s"] < 60
    assert answers["kept"]["results"][0]["text/plain"] == "10"


def test_variables_travel_both_ways(answers):
    assert answers["pushed"]["status"] == "ok", answers["pushed"]
    assert answers["pulled"]["results"][0]["text/plain"] == "[3, 4]"


def test_a_cell_that_nobody_waits_for_is_a_future(answers):
    assert answers["future"]["stdout"] == ""
    assert answers["result"]["stdout"] == "42 late\n\n"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("no_session", "%raysm start begins one"),
        ("wrong", "'conect'"),
        ("wrong_option", "--psh"),
        ("wrong_name", "'nothing_of_that_name'"),
        ("closed", "%raysm start begins one"),
    ],
)
def test_what_is_wrong_is_one_line(answers, step, text):
    answer = answers[step]
    assert answer["status"] == "error"
    (line,) = answer["stderr"].splitlines()
    assert line.startswith("UsageError: ")
    assert text in line


def test_every_cell_is_remote_until_off(answers):
    failed = answers["remote"]
    assert failed["ename"] == "NameError"
    assert re.search(
        r'File "Cell In\[\d+\]", line 2, in <module>\n    missing_name', plain(failed["traceback"])
    )
    assert answers["local"]["results"][0]["text/plain"] == "False"


def test_names_of_the_session_are_completed(answers):
    assert answers["in_cell"]["matches"] == ["kept"]
    assert answers["complete"]["matches"] == ["kept"]
    assert answers["attribute"]["matches"] == ["time.sleep"]


def test_the_token_is_nowhere_in_what_a_notebook_keeps(answers):
    assert TOKEN not in str(answers)


def test_what_a_cell_displays_arrives_in_every_form(answers):
    first, second = answers["rich"]["results"]
    assert first["text/html"] == "<b>one</b>"
    assert second["text/plain"] == "{'a': 1}"
    assert answers["rich"]["stdout"] == "before\nbetween\n"
    assert answers["figure"]["results"][0]["image/png"].startswith("iVBOR")


def test_a_cell_is_that_of_ipython(answers):
    assert "loop (mean" in answers["magic"]["stdout"]
    assert "from the shell" in answers["magic"]["stdout"]
    assert "Return the number of items" in answers["magic"]["results"][0]["text/plain"]
    assert "3/3" in answers["bar"]["stderr"]
    assert answers["awaits"]["results"][0]["text/plain"] == "'awaited'"
    (told,) = plain(answers["asks"]["traceback"]).splitlines()
    assert "input() does not work in a session" in told


def test_a_cell_that_is_executed_by_a_call_returns_all_of_it(answers):
    result = answers["executed"]["results"][-1]["text/plain"]
    assert result == r"['1\n2\n3\n', 3, '3']"
