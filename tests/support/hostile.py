"""The example's hostile scenario with shorter waits."""

import re
from pathlib import Path

HOSTILE = Path(__file__).parents[2] / "examples" / "hostile.toml"
FIFTH = 5.0


def soon_over():
    """Return the text of the example's scenario with a fifth of each wait.

    Names that resolve after 4 s are also later than the first instance asks for them.
    """
    text, waits = re.subn(
        r"(?m)^(\w+_s = )([\d.]+)$", lambda each: f"{each[1]}{float(each[2]) / FIFTH}", HOSTILE.read_text()
    )
    assert waits == 3
    return text
