"""A griffe extension for fields with ``kw_only=False`` in a class of keywords, which griffe shows as keywords too."""

from typing import Any

import griffe


class Positional(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        correct(pkg)


def correct(item: griffe.Object) -> None:
    for member in item.members.values():
        if member.is_alias or not (member.is_module or member.is_class):
            continue
        # Subclasses share the parameters of inherited fields.
        for name, field in member.attributes.items() if "__init__" in member.members else ():
            if not field.is_alias and "kw_only=False" in str(field.value):
                member.members["__init__"].parameters[name].kind = griffe.ParameterKind.positional_or_keyword
        correct(member)
