"""The package as text: a folder flows in, its modules and what each of them imports flow out; nothing is imported."""

import ast
from dataclasses import dataclass
from pathlib import Path

from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file of the package."""

    name: str
    """``raysm.client.job.handle``; of a package ``raysm.client``."""
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def modules_of(root):
    """Return the modules of the package below ``root``, by name."""
    read = []
    for path in sorted((root / "raysm").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        text = path.read_text()
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        read.append(Module(name=name, path=path, text=text, tree=ast.parse(text)))
    return {module.name: module for module in read}


def statements(tree):
    """Yield every statement below ``tree``; ``ast.walk`` looks into expressions too, ten times as many nodes."""
    open_blocks = [tree]
    while open_blocks:
        block = open_blocks.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(block, name, [])
            open_blocks += inner
            yield from inner


def imported(tree, *, top_level_only=False):
    """Yield what a file imports, wherever in it and for whatever purpose: ``module``, or ``module.name``."""
    for node in tree.body if top_level_only else statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(tree, names):
    """Return the modules of ``names`` that a file imports anywhere."""
    # What is no module is a name of the module before it.
    nearest = {name if name in names else name.rpartition(".")[0] for name in imported(tree)}
    return nearest & set(names)


def circles(modules):
    """Return the groups of modules that import each other: the strongly connected ones of two or more."""
    numbers = {name: number for number, name in enumerate(modules)}
    # What a module imports of its own package is the package's file too, which runs first: no circle of anybody's.
    arrows = [
        (numbers[name], numbers[used])
        for name, module in modules.items()
        for used in imports(module.tree, modules) - {name}
        if not modules[used].is_package
    ]
    rows, columns = zip(*arrows, strict=True) if arrows else ((), ())
    graph = csr_array(([True] * len(arrows), (rows, columns)), shape=(len(modules), len(modules)))
    count, labels = connected_components(graph, connection="strong")
    groups = [
        sorted(name for name, label in zip(modules, labels, strict=True) if label == group) for group in range(count)
    ]
    return sorted(group for group in groups if len(group) > 1)
