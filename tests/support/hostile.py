"""The example's hostile scenario, soon over: what AWS does now and then, with waits that show the same at a fifth."""

import re
from pathlib import Path

HOSTILE = Path(__file__).parents[2] / "examples" / "hostile.toml"
FIFTH = 5.0


def soon_over():
    """Return the text of the example's scenario with each of its waits at a fifth.

    Names that resolve after 20 s had every job of the tests wait so long, which was most of their time; after 4 s they
    are later than the first who asks for them as well.
    """
    text, waits = re.subn(
        r"(?m)^(\w+_s = )([\d.]+)$", lambda each: f"{each[1]}{float(each[2]) / FIFTH}", HOSTILE.read_text()
    )
    assert waits >= 4
    return text
