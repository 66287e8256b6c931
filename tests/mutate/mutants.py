"""The small changes that are made to a module."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: the text of some lines of a module, before and after."""

    number: int
    line: int
    statement: int
    """The line at which the statement around it begins; 0 if that runs when the module is
    imported."""
    before: str
    after: str
    source: str
    """The complete module with this change."""

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.number:4}  line {self.line}: {before}  ->  {after}"


def mutants_of(source: str) -> list[Mutant]:
    """Return every change to a module, in the order of its lines."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = source.encode()
    tree = ast.parse(source)
    statements = _statements(tree)
    found = []
    changes = sorted(_changes(tree), key=lambda change: _place(change[0]))
    for node, new in changes:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        changed = data[:begin] + new.encode() + data[end:]
        mutant = Mutant(
            number=len(found) + 1,
            line=node.lineno,
            statement=statements.get(node, 0),
            before=data[begin:end].decode(),
            after=new,
            source=changed.decode(),
        )
        ast.parse(mutant.source)
        found.append(mutant)
    return found


def _statements(tree: ast.Module) -> dict[ast.AST, int]:
    """Return for each node below a function the line of the innermost statement around it."""
    lines: dict[ast.AST, int] = {}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    # Outer ones come first, so that inner statements replace their lines.
    for function in functions:
        for statement in (inner for outer in function.body for inner in ast.walk(outer)):
            if isinstance(statement, ast.stmt):
                lines |= dict.fromkeys(ast.walk(statement), statement.lineno)
    return lines


def _place(node: ast.AST) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield nodes, each with the text that takes its place."""
    skipped = _without_behaviour(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.expr):
            for new in _expression(node):
                yield node, f"({new})"
        elif isinstance(node, ast.stmt):
            yield from _statement(node)


def _without_behaviour(tree: ast.Module) -> set[ast.AST]:
    """Return annotations, decorators, and what an error says: no test should hold its wording."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            roots += node.decorator_list
        elif isinstance(node, ast.Raise):
            roots.append(node.exc)
        elif isinstance(node, ast.JoinedStr):
            roots.append(node)
    return {child for root in roots if root is not None for child in ast.walk(root)}


def _expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            yield ast.unparse(ast.Compare(left, [COMPARISONS[type(op)]()], [right]))
        case ast.BoolOp(op=op, values=values):
            word = "and" if isinstance(op, ast.And) else "or"
            for left_out in values:
                yield f" {word} ".join(
                    f"({ast.unparse(each)})" for each in values if each is not left_out
                )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield ast.unparse(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if not any(
                isinstance(side, ast.Constant | ast.JoinedStr | ast.Tuple | ast.List)
                and not _is_number(side)
                for side in (left, right)
            ):
                yield ast.unparse(ast.BinOp(left, ARITHMETIC[type(op)](), right))
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield str(value + 1)
        case ast.Name(id=name) if name in NAMES:
            yield NAMES[name]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield ast.unparse(ast.IfExp(test, orelse, body))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _statement(node: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case (
            ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign() | ast.Delete()
        ):
            yield node, "pass"
        case ast.Continue() | ast.Break():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
        case ast.If(test=test) | ast.While(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
                yield test, f"(not {ast.unparse(test)})"
        case ast.With(items=items):
            for item in items:
                if item.optional_vars is None:
                    # The block without what it is within, such as a lock.
                    yield item.context_expr, "__import__('contextlib').nullcontext()"
