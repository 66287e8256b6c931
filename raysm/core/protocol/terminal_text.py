"""Text of others, made safe to print: logs, failure reasons, names of files, jobs and metrics.

Escape sequences and control characters can write to the clipboard, change the title, move the
cursor over earlier lines, hide text or reverse its order. Sequences that only choose colours and
fonts stay (SGR of ECMA-48).
"""

import re

SUSPECT = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls of C0 but for tabs and line breaks, DEL, C1, the marks that override the direction of
text, and what stands for bytes that are not UTF-8, which a notebook cannot show."""
PART = re.compile(rf"\x1b\[([0-9;:]*)m|{SUSPECT.pattern}")
RESET = "\x1b[0m"
CONCEAL = 8
# Colours of 256 are 38;5;N and of 24 bits 38;2;R;G;B, where N may be 8 as well.
COLOURS = ("38", "48", "58")
VALUES = {"5": 1, "2": 3}


def visible(text: str) -> str:
    """Return text that can be printed to a terminal.

    Colours stay to the end of their line, other controls are escaped.

    The result of text that was made visible before is the same text.
    """
    return "\n".join(map(_visible_line, text.split("\n"))) if SUSPECT.search(text) else text


def _visible_line(line: str) -> str:
    is_coloured = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_coloured
        if match[1] is None or _conceals(match[1]):
            # As Python writes it: \x1b, \u202e.
            return match[0][0].encode("unicode_escape").decode() + match[0][1:]
        is_coloured = match[1] not in ("", "0")
        return match[0]

    shown = PART.sub(replace, line)
    return shown + RESET if is_coloured else shown


def _conceals(parameters: str) -> bool:
    words = iter(parameters.split(";"))
    for word in words:
        if word in COLOURS:
            kind = next(words, "")
            if kind not in VALUES:
                return True
            for _ in range(VALUES[kind]):
                next(words, "")
        elif word.partition(":")[0].lstrip("0") == str(CONCEAL):
            return True
    return False
