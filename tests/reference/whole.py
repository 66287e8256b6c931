"""The pages of the interactive side and of the grid: what there is of each, with the values that the code has."""

from raysm.cli import arguments
from raysm.cli.grid_arguments import UNNAMED
from raysm.client.logs import pending
from raysm.client.session import files, handle, mapping, wire
from raysm.client.tunnel import plugin
from raysm.contract import session
from raysm.grid import attempt, conclusion, endings, grid_file, placing, rules, task, write_back
from raysm.grid.endings import ENDINGS
from raysm.grid.rows import columns, source
from raysm.grid.shared import lease
from raysm.request.session import SessionWorkload
from raysm.views.card import job_card, watch
from raysm.views.dashboard import server as dashboard
from raysm.workloads.session import calls, host, jupyters, lifetime, output, remote_calls, server
from tests.reference import declared
from tests.reference.commands import anchor, commands_of, told
from tests.reference.docstrings import cell, code, table


def pages():
    """Return the pages by their path below ``docs/reference``."""
    return {"interactive.md": _interactive(), "grid.md": _grid()}


def _of_commands(*beginnings):
    """Return a table of the commands whose names begin so."""
    every = dict(commands_of("raysm", arguments.build_parser()))
    rows = [
        [f"[{name}](commands.md#{anchor(name)})", cell(told(command))]
        for begin in beginnings
        for name, command in every.items()
        if name == begin or name.startswith(f"{begin} ")
    ]
    return table(["command", "what it does"], rows)


def _fields(cls, titles=("field", "meaning")):
    return table(list(titles), [[code(item.name), cell(item.meaning)] for item in declared.fields(cls)])


def _states(cls):
    return table(
        ["state", "meaning"], [[code(item.value.strip("'")), cell(item.meaning)] for item in declared.fields(cls)]
    )


def _values(titles, rows):
    return table(titles, [[cell(value), cell(meaning)] for value, meaning in rows])


def _seconds(value):
    whole = f"{value:g} s"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if value >= 2 * length and value % length == 0:
            return f"{value // length:g} {unit}"
    return whole


def _size(value):
    units = ("KiB", "MiB", "GiB")
    power = max(power for power in range(3) if value >= 1024 ** (power + 1))
    return f"{value // 1024 ** (power + 1)} {units[power]}"


# The interactive side


def _interactive():
    defaults = {item.name: item.value for item in declared.fields(SessionWorkload)}
    parts = [
        "# Interactive",
        "What there is of sessions, the dashboard, tunnels, notebooks and cards: the commands, the Python, the states, "
        "the times and the limits. How it is done: [sessions](../how-to/sessions.md), "
        "[notebooks](../how-to/work-in-a-notebook.md), [the dashboard](../how-to/look-at-the-dashboard.md), "
        "[tunnels and shells](../how-to/reach-a-running-job.md). Why it is so: "
        "[sessions](../explanation/sessions.md), [security](../explanation/security.md).",
        "## Commands",
        _of_commands("raysm session", "raysm exec", "raysm shell", "raysm tunnel", "raysm dashboard", "raysm token"),
        "In a notebook they are `%raysm start|connect|status|result|dashboard|keep|on|off|close` and `%%raysm`: "
        "[their options](../how-to/work-in-a-notebook.md#run-cells-on-a-cluster). Ray's own commands and clients take "
        "`raysm://NAME` as an address, a session's name or a job's: `ray job submit --address raysm://digits …`.",
        "## Python",
        table(
            ["name", "what it is"],
            [
                [
                    "[`raysm.Session`](api/sessions.md)",
                    "a cluster that stays: `run`, `submit`, `map`, `exec`, `cell`, "
                    "`push`, `pull`, `put`, `get`, `shell`, `tunnel`, `dashboard`, `jupyter`, `keep`, `close`",
                ],
                [
                    "[`raysm.Session.attach(NAME)`](api/sessions.md#sessionattach)",
                    "one that runs, from another program",
                ],
                [
                    "[`raysm.remote`](api/submitting.md)",
                    "a function that runs here, as a job, or in the session that is open",
                ],
                [
                    "[`Job.dashboard()`, `Job.tunnel(PORT)`](api/submitting.md)",
                    "ways into a job that runs",
                ],
                ["[`Job.watch()`, `Job.plot(NAME)`](api/submitting.md)", "a live card in a notebook, and a curve"],
                ["[`raysm.jobs(…)`](api/experiments.md)", "what ran, as a table"],
            ],
        ),
        "## States",
        "The job of a session is like any other ([its states](events.md#state)); in its log stand besides "
        f"`{session.SERVING}` (it takes calls), `{session.WARNING}` (it ends soon, and why) and "
        f"`{session.CLOSING}` (it ends, and why). A call is "
        f"`{session.WAITING}`, `{session.RUNNING}` or `{session.DONE}`; `Session.calls()` lists them:",
        _fields(session.CallStatus),
        "Its `kind`:",
        table(
            ["kind", "what it is"],
            [
                [code(getattr(session, item.name)), cell(item.meaning)]
                for item in declared.constants(session)
                if item.name in ("CALL", "BATCH", "SHELL", "CELL", "PUSH", "PULL")
            ],
        ),
        "How a session is, `Session.state`:",
        _fields(session.SessionState),
        "### Errors that are not retried",
        "A row is not retried if the reason of its failure begins with one of these exceptions, of any rank, or if its "
        "script did not take its arguments (argparse):",
        ", ".join(map(code, endings.DETERMINISTIC)) + ".",
        "Every other failure of a program counts as one of its `retries`: another exception, an exit status, a signal.",
        "## Times",
        _values(
            ["time", "of what"],
            [
                (
                    _seconds(float(defaults["idle_timeout_s"])),
                    "nothing runs and a client is attached: the session ends (`--idle`, `idle_timeout_s`)",
                ),
                (
                    _seconds(float(defaults["idle_timeout_detached_s"])),
                    "nothing runs and none is attached: it ends (`--idle-detached`, `idle_timeout_detached_s`)",
                ),
                (_seconds(lifetime.WARNING_S), "before an idle end it warns; of shorter times, a quarter of them"),
                (_seconds(session.HEARTBEAT_S), "how often a client says that it is there"),
                (_seconds(lifetime.ATTACHED_S), "for how long it counts as attached after that"),
                (_seconds(host.LOOK_S), "how often the head looks whether an end is due: idle, or the budget"),
                (_seconds(host.INTERRUPTED_S), "what runs has so long to end when the session is closed"),
                (_seconds(pending.AFTER_S), "a start that takes longer says why it waits"),
                (
                    _seconds(wire.PATIENCE_S),
                    "for how long the head may be away before a call gives up, while the "
                    "service says that the job runs",
                ),
                (
                    _seconds(wire.SILENCE_S),
                    "without a word the client asks for one, and after half as long again it connects anew",
                ),
                (_seconds(handle.CLOSED_S), "`close()` waits so long for the job's end"),
                (_seconds(plugin.AGENT_S), "how long a tunnel on AWS waits for the agent of the instance to connect"),
                (_seconds(jupyters.START_S), "JupyterLab on the head has so long to start"),
                (_seconds(watch.MIN_PAUSE_S), "between two drawings of a card, at least"),
            ],
        ),
        "## Limits",
        _values(
            ["limit", "of what"],
            [
                (_size(server.MAX_BODY_BYTES), "arguments of one call, pickled; files (`put`, `get`) have no limit"),
                (_size(files.DIRECT_BYTES), "files up to this go directly to AWS's instances, larger ones through S3"),
                (f"{output.KEPT_CHARACTERS:,} characters", "of what one call has printed are kept, the last ones"),
                (f"{calls.KEPT_CALLS:,}", "calls whose values were fetched are remembered, the latest"),
                (f"{mapping.MOST_ITEMS:,} items, {_size(mapping.MOST_BYTES)}", "of a map in one batch"),
                (f"{remote_calls.DEATHS}", "tries of an item of a map whose process dies"),
                (_size(dashboard.MAX_UPLOAD_BYTES), "of one upload through the dashboard's page"),
                (f"{job_card.MAX_BYTES:,} bytes", "of one drawing of a card"),
                (f"{job_card.MAX_LINES}", "lines of the log on a card, the last ones"),
            ],
        ),
        "Functions travel pickled: both ends need the same two first numbers of Python, `3.11`. There is one namespace "
        "on each instance, in which one cell runs at a time. Dashboards and tunnels are at addresses of this machine's "
        f"loopback alone; a dashboard's has {8 * dashboard.PREFIX_BYTES} random bits in its path.",
        "## Files",
        "Calls and cells run in the folder `Session.state.folder` of the head. What is written there, and what the "
        "names of the namespace hold, ends with the session: `get` and `pull` bring it here. What is written to "
        "`$SM_MODEL_DIR` is the job's result.",
    ]
    return "\n\n".join(parts) + "\n"


# The grid


def _grid():
    parts = [
        "# Grid",
        "What there is of a grid, a job for each row: the commands, the Python, the columns, the file, the rules, the "
        "states, the times and the limits. How it is done: [run a grid](../how-to/run-a-grid.md), "
        "[by AWS Batch](../how-to/start-a-grid-by-aws-batch.md). Why nothing is lost: "
        "[how a grid keeps its rows](../explanation/grid-controller.md).",
        "## Commands",
        _of_commands("raysm grid", "raysm prices", "raysm quotas"),
        f"`raysm grid {'` and `raysm grid '.join(UNNAMED)}` take the only grid that there is where none is named. "
        "`raysm grid run` exits with 0 where all rows are done, with 1 where one is not; other numbers are those of "
        "[every command](commands.md#exit-status).",
        "## Python",
        "[`raysm.Grid`](api/grids.md), [`raysm.Rules`](api/grids.md#raysmrules), "
        "[`raysm.Query`](api/grids.md#raysmquery), [`raysm.shards`](api/grids.md#raysmshards), "
        "[`raysm.attach_grid`](api/grids.md#raysmattach_grid) and its handle.",
        "## Columns of a row",
        table(["column", "what it says"], [[code(name), cell(each.summary)] for name, each in columns.COLUMNS.items()]),
        "A column that begins with "
        + ", ".join(f"`{family}_`" for family in columns.FAMILIES)
        + " is a channel, a channel by its manifest, a variable, a tag: `input_data` is the channel `data`. Every "
        "other column is a parameter, which stands where `{its name}` stands, and where it stands nowhere is a "
        "hyperparameter.",
        "## The file",
        "`raysm grid run drives.toml` reads from a file what flags say else; flags win. At its top "
        + ", ".join(
            f"`{name}`" for name in (*grid_file.WORKLOAD, *grid_file.OWN) if name not in ("rows", "rules", "batch")
        )
        + "; in `[rows]` "
        + ", ".join(f"`{name}`" for name in grid_file.ROWS)
        + "; in `[rules]` those below; in `[batch]` "
        + ", ".join(f"`{name}`" for name in grid_file.BATCH)
        + "; and all tables of [a project file](../how-to/keep-options-in-a-file.md).",
        "## Rules",
        table(
            ["rule", "default", "meaning"],
            [[code(item.name), code(item.value), cell(item.meaning)] for item in declared.fields(rules.Rules)],
        ),
        "## States",
        "Of a row, `raysm grid rows NAME --state STATE`:",
        _states(attempt.TaskState),
        "Of one try of it, which is a job:",
        _states(attempt.AttemptState),
        "Of the grid: `open`; `paused`, because its first rows failed for one reason (`raysm grid run … --go-on` "
        "goes on all the same), or because its budget allows no more; `stopping`; `closed`, when nothing of it "
        "can go on by itself.",
        "## How a try ends",
        "By the service's own words. A row that waits again goes elsewhere, or later; only some ends count as one of "
        "its `retries`.",
        table(
            ["end", "the row then", "counts", "what to do"],
            [
                [code(each.name), code(str(each.then)), "yes" if each.uses_retry else "", cell(each.advice)]
                for each in ENDINGS.values()
            ],
        ),
        "### Errors that are not retried",
        "A row is not retried if the reason of its failure begins with one of these exceptions, of any rank, or if its "
        "script did not take its arguments (argparse):",
        ", ".join(map(code, endings.DETERMINISTIC)) + ".",
        "Every other failure of a program counts as one of its `retries`: another exception, an exit status, a signal.",
        "## Times",
        _values(
            ["time", "of what"],
            [
                (_seconds(task.MAX_RUNTIME_S), "of a job, where its row does not say"),
                (_seconds(task.UNKNOWN_S), "what a row is believed to take, where it does not say"),
                (_seconds(placing.PROBE_S), "a first job runs so long before the others are sent"),
                (_seconds(conclusion.LANDING_S), "within which a call whose answer was lost may still be carried out"),
                (_seconds(lease.LEASE_S), "of silence after which another machine may go on with a shared grid"),
            ],
        ),
        "## Limits",
        _values(
            ["limit", "of what"],
            [
                (f"{source.MAX_ROWS:,}", "rows, unless `--max-rows` says otherwise"),
                (f"{columns.KEY_CHARACTERS}", "characters of a key"),
                (f"{write_back.MOST_CHARACTERS:,}", "characters of a reason that is written back"),
            ],
        ),
        "## Files",
        "A grid is one SQLite file on this machine, `HOME/grids/NAME.db` (HOME is `RAYSM_HOME`, else `~/.raysm`), and "
        "with `--shared`, or on AWS, a copy in the bucket: [Files](files.md#in-the-bucket). `--write-back` writes the "
        f"table `{write_back.TABLE}`: {', '.join(f'`{name}`' for name in write_back.COLUMNS)}.",
    ]
    return "\n\n".join(parts) + "\n"
