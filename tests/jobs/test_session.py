"""A session as a user has it, on one embedded cluster of two instances that all tests share."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import raysm
from raysm.errors import CallCancelled, CallFailed, InvalidRequest
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def digits(home, by_value):
    """A session of two instances."""
    with raysm.Session(cluster=raysm.Cluster(count=2), name="digits") as session:
        yield session


def doubled(x):
    print("doubling", x)
    return 2 * x


class Worn(Exception):
    """An exception of the user's own."""


def wear(x):
    raise Worn(f"no good: {x}")


def pid_of(_):
    return os.getpid()


def wait_for(path):
    while not path.exists():
        time.sleep(0.05)
    return "waited"


def test_a_function_runs_there_and_what_it_prints_is_printed_here(digits, capsys):
    assert digits.run(doubled, 21) == 42
    assert "doubling 21" in capsys.readouterr().out.splitlines()


def test_what_it_raises_is_raised_here_with_the_remote_frames(digits):
    with pytest.raises(Worn, match="no good: 3") as raised:
        digits.run(wear, 3)
    (note,) = raised.value.__notes__
    assert note.startswith("in the session digits on algo-1:")
    assert "in wear\n" in note
    assert "raysm/features" not in note


def test_a_function_has_joined_ray_and_sees_all_instances(digits):
    def hosts():
        import ray

        return sorted(node["Labels"]["raysm.io/host"] for node in ray.nodes() if node["Alive"])

    assert digits.run(hosts) == ["algo-1", "algo-2"]


def test_several_calls_run_at_once_each_in_a_process_of_its_own(digits):
    def meet(other):
        import pathlib
        import time

        pathlib.Path(f"met-{other}").touch()
        until_s = time.monotonic() + 120
        while not pathlib.Path(f"met-{1 - other}").exists():
            assert time.monotonic() < until_s
            time.sleep(0.01)
        return pid_of(None)

    calls = [digits.submit(meet, number) for number in (0, 1)]
    assert len({call.result(timeout=180) for call in calls}) == 2
    assert all(call.done() for call in calls)
    # A burst of short ones does not need a process each.
    calls = [digits.submit(os.getpid) for _ in range(200)]
    assert len({call.result(timeout=180) for call in calls}) < 20


def test_a_call_that_kills_its_process_is_named_and_takes_nobody_along(digits):
    with pytest.raises(CallFailed, match="_exit"):
        digits.run(os._exit, 3)
    assert digits.run(doubled, 1) == 2


def test_cells_share_a_namespace_print_here_and_show_their_last_value(digits, capsys):
    assert digits.exec("x = 20\nprint('in the cell')").result is None
    assert repr(digits.exec("x + 1")) == "21"
    digits.exec("import sys; print(sys.argv)", args=["--lr", 0.1], filename="train.py")
    lines = capsys.readouterr().out.splitlines()
    assert {"in the cell", "['train.py', '--lr', '0.1']"} <= {*lines}
    with pytest.raises(ZeroDivisionError) as raised:
        digits.exec("1 / 0", filename="train.py")
    assert 'File "train.py", line 1' in raised.value.__notes__[0]


def test_a_task_of_a_cell_prints_into_that_cell(digits, capsys):
    digits.exec(
        "import ray\n@ray.remote(num_cpus=0)\ndef say():\n    print('from a task')\nray.get(say.remote())"
    )

    def has_printed():
        digits.exec("import time\ntime.sleep(0.5)")  # Ray looks at its logs a few times a second
        return "from a task" in capsys.readouterr().out

    until(has_printed)


def test_each_line_that_a_map_prints_is_in_the_jobs_log(digits):
    assert list(digits.map(doubled, range(7000, 7004))) == [14000, 14002, 14004, 14006]
    printed = {f"doubling {x}" for x in range(7000, 7004)}
    until(lambda: printed <= {line.text.rpartition(") ")[2].strip() for line in digits.job.lines()})


def test_values_are_pushed_and_pulled(digits):
    digits.push(model={"w": 1}, name="a")
    assert digits.pull("model") == {"w": 1}
    assert digits.pull("name", "model") == ("a", {"w": 1})
    assert "model" in digits.complete("mod")
    with pytest.raises(NameError, match="'nothing'"):
        digits.pull("nothing")


def test_a_cell_is_interrupted_alone_and_the_namespace_stays(digits, tmp_path):
    digits.exec("kept = 1")
    beside = digits.submit(wait_for, tmp_path / "go")
    cell = digits.cell("import time\nkept = 2\ntime.sleep(600)")
    until(lambda: cell.status.state == beside.status.state == "running")
    waiting = digits.cell("kept = 3")
    until(
        lambda: (
            len([each for each in digits._connection.fetch_statuses() if each.state != "done"]) == 3
        )
    )
    assert digits.interrupt() == 2
    for each in (cell, waiting):
        with pytest.raises(CallCancelled):
            each.result(timeout=60)
    assert digits.pull("kept") in (1, 2)
    (tmp_path / "go").touch()
    assert beside.result(timeout=60) == "waited"


def test_ctrl_c_interrupts_the_cell_that_is_waited_for(digits):
    import threading

    main = threading.get_ident()
    known = {status.id for status in digits._connection.fetch_statuses()}

    def interrupt():
        until(
            lambda: [
                each
                for each in digits._connection.fetch_statuses()
                if each.id not in known and each.state == "running"
            ]
        )
        signal.pthread_kill(main, signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    with pytest.raises(KeyboardInterrupt):
        digits.exec("import time\ntime.sleep(600)")
    user.join()
    assert repr(digits.exec("'still here'")) == "'still here'"


def test_a_large_value_goes_both_ways_and_one_that_is_scattered_is_everywhere(digits):
    import numpy as np

    array = np.arange(5_000_000)

    def changed(values):
        values[0] = 7
        return values

    assert digits.run(changed, array)[0] == 7
    scattered = digits.scatter({"array": array})
    assert digits.run(lambda value: int(value["array"].sum()), scattered) == array.sum()
    add = functools.partial(lambda item, value: item + int(value["array"][item]), value=scattered)
    assert list(digits.map(add, range(100))) == [2 * item for item in range(100)]
    digits.push(large=array)
    assert digits.pull("large")[-1] == array[-1]
    assert list(digits.map(pow, [2, 3], [3, 2])) == [8, 9]


def test_a_cell_is_that_of_a_notebook_on_each_instance(digits):
    for host in ("algo-1", "algo-2"):
        cell = digits.exec(
            "from IPython.display import HTML\nprint('one')\ndisplay(HTML('<b>two</b>'))\n!echo three",
            on=host,
        )
        kinds = [
            (each["output_type"], each.get("text", each.get("data", {}).get("text/html")))
            for each in cell.outputs
        ]
        assert [kind for kind in kinds if "<b>" in kind[1]] == [("display_data", "<b>two</b>")]
        assert cell.text.index("one") < cell.text.index("HTML") < cell.text.index("three")
    with pytest.raises(InvalidRequest, match="input"):
        digits.run(lambda: input("name? "))


def test_a_map_survives_the_death_of_its_processes_and_an_item_that_kills_all_fails_alone(
    digits, tmp_path
):
    marks = str(tmp_path)

    def dies(x):
        mark = os.path.join(marks, str(x))
        if x == 1 or (x == 4 and not os.path.exists(mark)):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    results = list(digits.map(dies, range(6), return_exceptions=True))
    assert [result for result in results if isinstance(result, int)] == [0, *range(2, 6)]
    assert "3 processes died of it" in str(results[1])


def test_a_cell_of_another_instance_has_its_own_namespace_prints_here_and_fails_as_the_heads_do(
    digits, capsys
):
    digits.exec("x = 'on the head'")
    assert (
        repr(
            digits.exec(
                "import os\nprint('hello')\nx = os.environ['SM_CURRENT_HOST']\nx", on="algo-2"
            )
        )
        == "'algo-2'"
    )
    # Not alone: Ray brings lines of tasks that ran before when it has them.
    assert "hello" in capsys.readouterr().out.splitlines()
    assert (digits.pull("x"), digits.pull("x", on="algo-2")) == ("on the head", "algo-2")
    with pytest.raises(ZeroDivisionError) as raised:
        digits.exec("1 / 0", on="algo-2")
    assert raised.value.__notes__[0].startswith("in the session digits on algo-2:")
    with pytest.raises(InvalidRequest, match="'algo-9'.* algo-1, algo-2"):
        digits.exec("1", on="algo-9")


def test_a_command_runs_on_the_instance_that_is_named(digits, capsys):
    assert digits.shell("echo $SM_CURRENT_HOST; exit 3", on="algo-2") == 3
    assert "algo-2" in capsys.readouterr().out.splitlines()
    with pytest.raises(InvalidRequest, match="'algo-9'.* algo-1, algo-2"):
        digits.shell("true", on="algo-9")


def test_another_client_finds_it_by_its_name_and_what_it_knows(digits):
    call = digits.submit(doubled, 4)
    assert call.result() == 8
    other = raysm.Session.attach("digits")
    found = next(each for each in other.calls() if each.id == call.id)
    assert (found.result(timeout=60), found.logs()) == (8, "doubling 4\n")
    other.detach()
    assert digits.run(doubled, 1) == 2


def test_a_client_that_is_killed_in_a_call_finds_its_result_and_nothing_ran_twice(digits, tmp_path):
    mark = tmp_path / "ran"
    code = f"""
        import raysm
        def work():
            import time
            open({str(mark)!r}, "a").write("x")
            time.sleep(3)
            return "the result"
        call = raysm.Session.attach("digits").submit(work)
        print(call.id, flush=True)
        call.result()
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    id = client.stdout.readline().strip()
    until(mark.exists)
    client.kill()
    client.communicate()
    call = next(each for each in digits.calls() if each.id == id)
    assert call.result(timeout=120) == "the result"
    assert mark.read_text() == "x"


def test_a_call_that_is_the_last_line_of_a_program_is_executed(digits, tmp_path):
    for number in range(4):
        mark = str(tmp_path / str(number))
        code = f"import raysm; raysm.Session.attach('digits').submit(open, {mark!r}, 'w')"
        subprocess.run([sys.executable, "-c", code], check=True)
        until(Path(mark).exists)


@raysm.remote
def tripled(x):
    return 3 * x


# That it runs as a job where no session is open is shown by client/test_options.
def test_a_decorated_function_runs_here_in_the_session(digits):
    assert tripled(2) == 6
    call = tripled.submit(2)
    assert (call.result(), call.name) == (6, "tripled")
