"""Make the job of a row: fill the grid's template with the row's columns, and package it.

Texts of the template may have columns in braces, ``{lr}`` or ``{lr:.3g}``. Columns that no text
uses are hyperparameters. A row's own options win over those of the template. ``{state}`` and
``{channel_NAME}`` stay, for the job to fill, unless columns have these names.
"""

import dataclasses
import functools
import hashlib
import re
import secrets
import string
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.client.source.package import Package
from raysm.core.client.submit import Prepared, prepare
from raysm.core.protocol.names import ROW_TAG
from raysm.core.protocol.store import put_first
from raysm.core.request import Cluster, Input, Limits, MetricDefinition, Target, Workload
from raysm.core.request.job import check_channels, hyperparameter_text
from raysm.errors import InvalidRequest, did_you_mean
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.market import Place, place_of
from raysm.features.grid.region import Prepare, token_of
from raysm.features.grid.row import Row, Value
from raysm.features.grid.store.store import GridRecord

# -- texts with columns in braces


def names_in(template: Any) -> frozenset[str]:
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    _mapped(template, collect)
    return frozenset(name for text in texts for _, name, _ in _parts(text) if name is not None)


def check_names(template: Any, columns: Iterable[str], origin: str) -> None:
    """Check that a template's braces hold the rows' columns or names that all templates have."""
    columns = sorted(set(columns) - set(GIVEN))
    # Braces cannot hold a column whose name has one of these.
    known = [f"{{{column}}}" for column in (*columns, *GIVEN) if set(column).isdisjoint(":!{}")]
    for name in sorted(
        name for name in names_in(template) - {*columns, *GIVEN} if not IN_JOB.fullmatch(name)
    ):
        # 0.7, because even {a} and {b} are alike in their braces.
        hint = did_you_mean(f"{{{name}}}", known, cutoff=0.7) or (
            f"; its columns are {', '.join(columns) or 'none'}; "
            f"braces also take {', '.join(GIVEN)}, state, channel_NAME"
        )
        raise InvalidRequest(
            f"{{{name}}}: {origin} has no column {name!r}{hint} (write a literal brace twice)"
        )


def fill(template: Any, values: Mapping[str, Value], where: str) -> Any:
    """Return a template filled with a row's values; parts without braces stay the same objects."""
    return _mapped(
        template,
        lambda text: _fill_text(text, values, where) if "{" in text or "}" in text else text,
    )


def _mapped(template: Any, change: Callable[[str], str]) -> Any:
    """Return a template with each of its texts changed; unchanged parts stay the same objects."""
    if isinstance(template, str):
        return change(template)
    if isinstance(template, Mapping):
        entries = {key: _mapped(value, change) for key, value in template.items()}
        return entries if any(entries[key] is not template[key] for key in entries) else template
    if isinstance(template, tuple | list):
        items = [_mapped(item, change) for item in template]
        return (
            type(template)(items)
            if any(a is not b for a, b in zip(items, template, strict=True))
            else template
        )
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        fields = {
            field.name: getattr(template, field.name)
            for field in dataclasses.fields(template)
            if field.init
        }
        changed = {name: _mapped(value, change) for name, value in fields.items()}
        # Replace only if necessary, since replacing checks a workload again, which may be slow.
        changed = {name: value for name, value in changed.items() if value is not fields[name]}
        return dataclasses.replace(template, **changed) if changed else template
    return template


def _fill_text(text: str, values: Mapping[str, Value], where: str) -> str:
    parts = []
    for literal, name, form in _parts(text):
        parts.append(literal)
        if name is None:
            continue
        if name not in values and IN_JOB.fullmatch(name):
            parts.append(f"{{{name}}}")
            continue
        value = values.get(name)
        if value is None:
            raise InvalidRequest(
                f"{where}: the column {name!r} is empty, but {text!r} uses it; "
                "fill it, or leave the row out"
            )
        try:
            parts.append(format(_formatted_value(value, form), form))
        except ValueError as error:
            raise InvalidRequest(
                f"{where}, column {name!r}: {value!r} does not fit the format {form!r}"
            ) from error
    return "".join(parts)


def _formatted_value(value: Value, form: str) -> Value:
    """Return a value of a row as the format means it: CSV files hold numbers as text.

    A format for text ends in ``s``, or aligns and has no type.
    """
    if not isinstance(value, str) or not form or form.endswith("s") or set(form) & set("<>^"):
        return value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


# Cached, since all rows of a grid have the same few texts.
@functools.lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[tuple[str, str | None, str], ...]:
    """Return the literal parts of a text, each with the name and format that follow it."""
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} cannot be filled: {error}; write a literal brace twice"
        ) from error
    parts = []
    for literal, name, form, conversion in parsed:
        if name == "" or conversion or "{" in (form or ""):
            raise InvalidRequest(
                f"{text!r}: braces hold a column, as in {{lr}} or {{lr:.3g}}, "
                f"got {{{name}}}; double literal braces"
            )
        # A name is looked up as a whole: attributes, as in str.format, would let a file of rows
        # reach into the program.
        parts.append((literal, name, form or ""))
    return tuple(parts)


# -- the request of a row

GIVEN = ("account", "count", "instance_type", "key", "region")
"""Names that every template may use, whatever the columns are."""

IN_JOB = re.compile("state|channel_.+")
"""Names that a job replaces by folders in the arguments of its script."""

MAX_HYPERPARAMETERS = 100
MAX_CHARACTERS = 2_500
"""Limits of CreateTrainingJob: hyperparameters, and characters of a value.
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    workload: Workload
    target: Target
    options: Mapping[str, Any]
    package: Package | None = None


@dataclass(frozen=True, kw_only=True)
class Template:
    """The request of all rows, with columns in braces."""

    workload: Workload
    target: Target
    options: Mapping[str, Any] = field(default_factory=dict)
    package: Package | None = None
    """The pickled workload, pickled once and the same for all rows; None if nothing was pickled."""

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return names_in(self._parts)

    @property
    def volume_gb(self) -> int:
        cluster: Cluster = self.options.get("cluster") or Cluster()
        return cluster.volume_gb

    @property
    def output_kms_key(self) -> str | None:
        """The key for the jobs' outputs and the state of a grid that Batch runs.

        None uses the bucket's key.
        """
        security = self.options.get("security")
        return security.output_kms_key if security else None

    @property
    def _parts(self) -> tuple[Any, ...]:
        # A pickled workload may have braces of its own.
        workload = () if self.package is not None else (self.workload,)
        return *workload, dict(self.options), getattr(self.target, "image", None)

    def check(self, columns: Collection[str], origin: str) -> None:
        """Check that the rows have all columns that the template uses."""
        # Retries, rates and spot capacity need training jobs.
        if (kind := self.options.get("kind", "training")) != "training":
            raise InvalidRequest(f"a grid runs training jobs, got kind={kind!r}; leave kind out")
        names = [*columns, *GIVEN]
        for part in self._parts:
            check_names(part, columns, origin)
        # A pickled argument with the name of a column would reach the program with its braces.
        for argument, value in self.workload.parameters.items() if self.package is not None else ():
            for name in names:
                if isinstance(value, str) and f"{{{name}}}" in value:
                    raise InvalidRequest(
                        f"the argument {argument!r} of {self.workload.title} has {{{name}}}, "
                        "but a pickled workload is the same for all rows: use a script, "
                        "or let the rows differ in inputs (input_NAME) or environment (env_NAME)"
                    )

    def job(
        self, row: Row, place: Place, count: int, account: Callable[[], str] = lambda: ""
    ) -> Filled:
        where = row.label
        values: dict[str, Value] = {
            **row.parameters,
            "key": row.key,
            "region": place.region,
            "instance_type": place.instance_type,
            "count": count,
            "account": account() if "account" in self.names else None,
        }
        options = dict(fill(dict(self.options), values, where))
        cluster = options.get("cluster") or Cluster()
        if any(not isinstance(each, str) for each in cluster.alternatives):
            raise InvalidRequest(
                "a grid's alternatives are names of types: each row has one count for all types, "
                "and no training plan"
            )
        # No alternatives here: the attempt names the types from which the service chooses.
        options["cluster"] = replace(
            cluster,
            instance_type=place.instance_type,
            count=count,
            alternatives=(),
        )
        options["inputs"] = _inputs(options.get("inputs") or {}, row)
        for name, of_row in (("environment", row.environment), ("tags", row.tags)):
            options[name] = {**(options.get(name) or {}), **of_row}
        options["hyperparameters"] = self._hyperparameters(
            options.get("hyperparameters") or {}, row, where
        )
        limits = options.get("limits") or Limits()
        runtime_s = row.max_runtime_s or limits.max_runtime_s
        # Limits accepts max_wait_s only for spot capacity.
        wait_s = limits.max_wait_s if place.spot and (limits.max_wait_s or 0) >= runtime_s else None
        options["limits"] = replace(
            limits,
            max_runtime_s=runtime_s,
            spot=place.spot,
            max_wait_s=wait_s,
            # The grid has a cap for all its jobs.
            max_cost_per_day=None,
        )
        workload = (
            self.workload
            if self.package is not None
            else _fill_workload(self.workload, values, where)
        )
        given = options["inputs"].items()
        channels = {
            name: item if isinstance(item, Input) else Input(str(item)) for name, item in given
        }
        try:
            check_channels(workload, channels, count)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{where}: {error}; a column input_NAME gives the row's input NAME"
            ) from error
        if row.checkpoint is not None:
            options["checkpoint_uri"] = row.checkpoint
        target: Target = self.target.in_region(place.region)
        image = row.image or getattr(target, "image", None)
        if image is not None and hasattr(target, "image"):
            target = replace(target, image=fill(image, values, where))
        options = {name: value for name, value in options.items() if value not in (None, {}, ())}
        return Filled(workload=workload, target=target, options=options, package=self.package)

    def _hyperparameters(self, common: Mapping[str, str], row: Row, where: str) -> dict[str, str]:
        unused = {name: value for name, value in row.parameters.items() if name not in self.names}
        of_row = {
            name: hyperparameter_text(name, value)
            for name, value in unused.items()
            if value is not None
        }
        merged = {**common, **of_row}
        if len(merged) > MAX_HYPERPARAMETERS:
            raise InvalidRequest(
                f"{where}: {len(merged)} hyperparameters (unused columns count), "
                f"and SageMaker takes at most {MAX_HYPERPARAMETERS}; leave out columns"
            )
        for name, text in of_row.items():
            if len(text) > MAX_CHARACTERS:
                raise InvalidRequest(
                    f"{where}, column {name!r}: {len(text):,} characters, "
                    f"but a hyperparameter has at most {MAX_CHARACTERS:,}; "
                    "put the text into a file and the file's URI into the column"
                )
        return merged


def _fill_workload(workload: Workload, values: Mapping[str, Value], where: str) -> Workload:
    """Return the workload of a row.

    An option and its value are joined if the value begins with ``-``.

    argparse would read ``-1.6e-05`` in ``--shift -1.6e-05`` as an option; ``--shift=-1.6e-05`` is
    clear.
    """
    filled: Any = fill(workload, values, where)
    args = getattr(filled, "args", ())
    template = getattr(workload, "args", ())
    joined: list[str] = []
    for word, text in zip(args, template, strict=True):
        is_value = word is not text and text.startswith("{") and word.startswith("-")
        if is_value and joined and joined[-1].startswith("--") and "=" not in joined[-1]:
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    changed: Workload = filled if len(joined) == len(args) else replace(filled, args=tuple(joined))
    return changed


def _inputs(common: Mapping[str, Any], row: Row) -> dict[str, Any]:
    inputs = dict(common)
    for channel, uri in row.addresses.items():
        given = inputs.get(channel)
        # The template says how a channel is distributed among instances; the row says where its
        # data are.
        of_row: Input | str = replace(given, uri=uri) if isinstance(given, Input) else uri
        if channel in row.manifests:
            of_row = replace(of_row if isinstance(of_row, Input) else Input(of_row), manifest=True)
        inputs[channel] = of_row
    return inputs


# -- the job of an attempt

Services = Callable[[Target], Service]

SECRET_BYTES = 32

MAX_TAG_CHARACTERS = 256


def preparing(template: Template, grid: GridRecord, secret: str, services: Services) -> Prepare:
    """Return the function that prepares the jobs of a grid.

    The same attempt always makes the same job: name, token and checkpoint are derived from the
    grid's file and secret, so that a repeated call finds the first job.
    """

    def make(row: Row, attempt: Attempt) -> Prepared:
        place = place_of(attempt)
        of_place = services(template.target.in_region(place.region))
        job = template.job(row, place, attempt.count, lambda: of_place.account)
        # A row's image is part of its target.
        service = of_place if job.target == of_place.target else services(job.target)
        options = dict(job.options)
        if attempt.choice:
            options["cluster"] = replace(options["cluster"], alternatives=attempt.types[1:])
        # The same limit as the budget counts.
        options["limits"] = replace(options["limits"], max_runtime_s=attempt.max_runtime_s)
        options["metrics"] = with_rate(options.get("metrics") or (), grid.rules.rate)
        # All attempts of a row have one folder: each continues from the last checkpoint. The
        # key itself counts too, because two keys may have one hash.
        values = hashlib.sha256(f"{row.digest}/{row.key}".encode()).hexdigest()[:8]
        folder = f"{service.places.root}/grids/{grid.prefix}{row.key_hash}-{values}"
        options.setdefault("checkpoint_uri", folder)
        options["name"] = f"{grid.prefix}{row.key_hash}"
        return prepare(
            job.package or job.workload,
            on=service,
            job_name=attempt.name,
            token=token_of(secret, attempt),
            shares=True,
            own_tags={ROW_TAG: row_tag(grid.name, row)},
            **options,
        )

    return make


def row_tag(grid: str, row: Row) -> str:
    """Return the value of the tag that names the row of a job."""
    # A key may have characters that values of tags cannot have.
    text = f"{row.position}/{grid}/{row.key}"[:MAX_TAG_CHARACTERS]
    return "".join(letter if letter.isalnum() or letter in " _.:/=+-@" else "_" for letter in text)


def is_tag_of(tag: str, grid: str, row: Row) -> bool:
    """Return whether a job's tag names this row, wherever the row stands in its source."""
    own = row_tag(grid, row)
    is_cut = MAX_TAG_CHARACTERS in (len(own), len(tag))
    names = [text.partition("/")[2] for text in (own, tag)]
    length = min(map(len, names)) if is_cut else None
    return names[0][:length] == names[1][:length]


def with_rate(
    metrics: Iterable[MetricDefinition], rate: str | None
) -> tuple[MetricDefinition, ...]:
    """Return the metric definitions, and one for the grid's rate unless the user has defined it."""
    metrics = tuple(metrics)
    if rate is None or any(each.name == rate for each in metrics):
        return metrics
    # raysm.report writes an event as a line of JSON, with the name before the value.
    regex = rf'"name": "{re.escape(rate)}", "value": (-?[0-9.eE+-]+)'
    return (*metrics, MetricDefinition(name=rate, regex=regex))


def secret_path(store: Path) -> Path:
    return store.with_suffix(".key")


def secret_of(store: Path) -> str:
    path = secret_path(store)
    if not path.exists():
        # Not in the store, which the user may show to others. If two runs start at once, both use
        # the first one's secret: with another secret, a repeated Create would create another job.
        put_first(path, secrets.token_hex(SECRET_BYTES), mode=0o600)
    return path.read_text(encoding="utf-8")
