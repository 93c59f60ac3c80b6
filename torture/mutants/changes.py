"""Small changes of a program that a test should notice: each makes one mutant of a module, or of a Lua script."""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import CodeType
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}
_LONG = 160  # characters
_FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any"}
_ENCODINGS = ("utf-8", "latin-1", "ascii")  # a changed name is another name of the same encoding, or of none
_UNCHANGED_NAMES = ("__slots__", "__all__", "_log")
_LUA = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r" < ", " <= "),
        (r" <= ", " < "),
        (r" > ", " >= "),
        (r" >= ", " > "),
        (r" == ", " ~= "),
        (r" ~= ", " == "),
        (r" \+ ", " - "),
        (r" - ", " + "),
        (r" \* ", " + "),
        (r" and ", " or "),
        (r" or ", " and "),
        (r"\bnot ", ""),
        (r"\btrue\b", "false"),
        (r"\bfalse\b", "true"),
        (r"\bmath\.max\b", "math.min"),
        (r"\bmath\.min\b", "math.max"),
        (r"(?<![\w.\[])\d+\b(?!\])", "({} + 1)"),
        (r"^\s+[\w.]+(?:, [\w.]+)* = .*$", ""),
        (r"^\s+redis\.call\(.*$", ""),
    )
]


@dataclass(frozen=True)
class Mutant:
    """One change. `text` names it, whatever its line number is.

    `function` is the outermost function around it, as its name and first line, or None if the change is in what a
    module does when it is imported. `line` is that of the statement. `code` is the changed module, or a Lua script.
    """

    path: Path
    text: str
    line: int
    function: tuple[str, int] | None
    code: CodeType | str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}: {self.text}"


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file, in order."""
    return _lua_mutants(path) if path.suffix == ".lua" else _python_mutants(path)


def _lua_mutants(path: Path) -> Iterator[Mutant]:
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines):
        code = line.partition("--")[0]
        for pattern, replacement in _LUA:
            for found in pattern.finditer(code):
                changed = code[: found.start()] + replacement.format(found[0]) + code[found.end() :]
                text = f"{line.strip()}  =>  {changed.strip() or '(removed)'}"
                script = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                yield Mutant(path, text, number + 1, None, script)


def _python_mutants(path: Path) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text("utf-8"))
    for place in _places(tree, _Place(tree, lambda _: None, tree)):
        before = _header(place.statement)
        for new in _changes(place):
            place.put(ast.copy_location(new, place.node))
            ast.fix_missing_locations(tree)
            after = _header(new if place.node is place.statement else place.statement)
            if after == before:  # such as the exchange of two equal arguments
                continue
            code = compile(tree, path, "exec")
            name = f"{place.function[0]}: " if place.function else ""
            yield Mutant(
                path, f"{name}{_difference(before, after)}", getattr(place.statement, "lineno", 1), place.function, code
            )
        place.put(place.node)


@dataclass(frozen=True)
class _Place:
    """A node, how to put another one in its place, and what surrounds it."""

    node: ast.AST
    put: Callable[[ast.AST], None]
    statement: ast.AST
    function: tuple[str, int] | None = None
    wording: bool = False  # text for people


_REMOVED = ast.Pass()


def _places(parent: ast.AST, around: _Place) -> Iterator[_Place]:
    """What may be changed below a node."""
    for name, value in ast.iter_fields(parent):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for node, put in _parts(parent, name, value):
            if _is_left(node) or _is_check_of_lengths(parent, node):
                continue
            function = around.function
            if name == "body" and function is None and isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                function = (parent.name, min([parent.lineno, *(each.lineno for each in parent.decorator_list)]))
            statement = node if isinstance(node, ast.stmt) else around.statement
            wording = around.wording or isinstance(node, ast.JoinedStr | ast.Raise)
            place = _Place(node, put, statement, function, wording)
            yield place
            yield from _places(node, place)


def _parts(parent: ast.AST, name: str, value: Any) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """The nodes in one field, and how to put another there."""
    if isinstance(value, list):
        for index, node in enumerate(value):
            if isinstance(node, ast.AST):
                yield node, lambda new, index=index: value.__setitem__(index, new)  # type: ignore[misc]
    elif isinstance(value, ast.AST):
        yield value, lambda new: setattr(parent, name, new)


def _is_left(node: ast.AST) -> bool:
    """Whether nothing below this is changed: types, texts for people, and what only logs."""
    match node:
        case ast.Expr(ast.Constant()) | ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("_log")))) | ast.Call(ast.Name("TypeVar" | "cast" | "NewType")):
            return True
        case ast.Assign([ast.Name(name)], value):  # the second is the alias of a type
            return name in _UNCHANGED_NAMES or (isinstance(value, ast.Subscript) and name.lstrip("_")[:1].isupper())
        case ast.AnnAssign(value=None) | ast.arg() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.ClassDef(bases=bases):
            return any(ast.unparse(base).startswith("Protocol") for base in bases)
    return False


def _is_check_of_lengths(call: ast.AST, node: ast.AST) -> bool:
    """Whether this is the `strict` of a `zip`, which is for a defect that no input reaches."""
    match call, node:
        case ast.Call(ast.Name("zip")), ast.keyword("strict"):
            return True
    return False


def _changes(place: _Place) -> Iterator[ast.AST]:  # noqa: C901 - one case for each kind of node
    """What may stand in the place of this node."""
    match node := place.node:
        case ast.Compare(ops=ops):
            for index, operator in enumerate(ops):
                for other in _COMPARISONS[type(operator)]:
                    yield _with(node, ops=[*ops[:index], other(), *ops[index + 1 :]])
        case ast.BoolOp(op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS and not _is_text(node):
            yield _with(node, op=_OPERATORS[type(op)]())
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(value):
            yield from map(ast.Constant, _other_values(value, place.wording))
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(value) if value is not None and ast.unparse(value) not in ("None", "False"):  # which are alike
            yield _with(node, value=ast.Constant(None))
        case ast.Call(ast.Name(name)) if name in _FUNCTIONS:
            yield _with(node, func=ast.Name(_FUNCTIONS[name], ast.Load()))
        case ast.Call(ast.Name("suppress")):  # errors in any order
            pass
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred):
            yield _with(node, args=[second, first, *rest])
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    if place.function and _may_go(place.node):
        yield _REMOVED


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _other_values(value: Any, wording: bool) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1] if value else [1]
        case float():
            return [value * 2 + 1]
        case str() if not wording and " " not in value and value not in _ENCODINGS:
            return [value[:-1] + "~"]
        case bytes():
            return [value[:-1] + b"~"]
    return []


def _is_text(node: ast.AST) -> bool:
    """Whether an operator joins or formats texts."""
    return isinstance(node, ast.BinOp) and any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _may_go(node: ast.AST) -> bool:
    """Whether a statement may be removed: one that has an effect and whose names nothing needs."""
    match node:
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            return True
        case ast.Assign([ast.Attribute() | ast.Subscript()]) | ast.AnnAssign(ast.Attribute() | ast.Subscript()):
            return True
    return False


def _header(statement: ast.AST) -> str:
    """A statement without those in it, on one line."""
    if statement is _REMOVED:
        return "(removed)"
    if isinstance(statement, ast.If | ast.While | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith | ast.FunctionDef):
        statement = _with(statement, body=[], orelse=[], decorator_list=[])
    return " ".join(ast.unparse(statement).split())


def _difference(before: str, after: str) -> str:
    """What was changed into what, without what is far from it in a long statement."""
    if len(before) > _LONG:
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        start = max(0, common - _LONG // 4)
        before, after = before[start:], after[start:]
    return f"{before[:_LONG]}  =>  {after[:_LONG]}"


def noted(path: Path) -> CodeType:
    """A module that calls `_reached` with its path and the line before each statement in a function."""
    tree = ast.parse(path.read_text("utf-8"))
    changed = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and (node, name) not in changed:
                    changed.add((node, name))
                    setattr(node, name, [each for statement in block for each in (_note(path, statement), statement)])
    return compile(ast.fix_missing_locations(tree), path, "exec")


def _note(path: Path, statement: ast.stmt) -> ast.stmt:
    place = ast.Tuple([ast.Constant(str(path)), ast.Constant(statement.lineno)], ast.Load())
    call = ast.Call(ast.Name("_reached", ast.Load()), [place], [])
    return ast.copy_location(ast.Expr(call), statement)
