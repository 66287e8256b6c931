"""Record what the oldest botocore admitted knows of SageMaker's jobs: ``python -m tests.oldest_botocore WHEEL``.

It writes names, bounds, patterns and values to ``tests/support/recorded/oldest_botocore.json``, and
no documentation.
"""

import datetime
import gzip
import json
import re
import sys
import zipfile
from pathlib import Path

RECORD = Path(__file__).parent / "support" / "recorded" / "oldest_botocore.json"

MODEL = "botocore/data/sagemaker/2017-07-24/service-2.json.gz"

OPERATIONS = (
    "CreateTrainingJob",
    "CreateProcessingJob",
    "DescribeTrainingJob",
    "DescribeProcessingJob",
)


def undocumented(value):
    """Return a part of the model without its documentation and the errors that an operation may raise."""
    if isinstance(value, dict):
        return {
            key: undocumented(item)
            for key, item in value.items()
            if key not in ("documentation", "errors")
        }
    return [undocumented(item) for item in value] if isinstance(value, list) else value


def references(value):
    """Yield the names of the shapes that a part of the model refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("shape"), str):
            yield value["shape"]
        for item in value.values():
            yield from references(item)


def reached(shapes, names):
    """Return the shapes that are reached from ``names``, by name."""
    found, open_ = {}, list(names)
    while open_:
        name = open_.pop()
        if name not in found:
            found[name] = undocumented(shapes[name])
            open_ += references(found[name])
    return dict(sorted(found.items()))


def record(wheel):
    """Return what is written of a wheel of botocore."""
    with zipfile.ZipFile(wheel) as archive:
        model = json.loads(gzip.decompress(archive.read(MODEL)))
    operations = {name: undocumented(model["operations"][name]) for name in OPERATIONS}
    return {
        "version": re.match(r"botocore-([\d.]+)-", Path(wheel).name)[1],
        "read": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "operations": sorted(model["operations"]),
        "model": {
            "metadata": model["metadata"],
            "operations": operations,
            "shapes": reached(model["shapes"], references(operations)),
        },
    }


if __name__ == "__main__":
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record(sys.argv[1]), ensure_ascii=False) + "\n")
