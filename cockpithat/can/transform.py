"""Arithmetic of a mapping's ``math`` transform, such as ``floor((x*40)-100)``, without ``eval``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
    "round": round,
    "sqrt": math.sqrt,
}
_MAX_LENGTH = 200


class FormulaError(ValueError):
    """The formula is outside the language: numbers, ``x``, ``+ - * / %``, and a few functions."""


class Formula:
    """A compiled formula of one variable ``x``. Calling it costs one walk of its few nodes.

    Raises :class:`FormulaError` when built from text outside the language. Calling raises
    ``ArithmeticError`` or ``ValueError`` where the arithmetic is undefined.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise FormulaError(f"formula is longer than {_MAX_LENGTH} characters")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise FormulaError(f"not a formula: {text!r}") from error
        self._evaluate = _compile(tree.body, text)

    def __call__(self, x: float) -> float:
        return self._evaluate(x)


def _compile(node: ast.expr, text: str) -> Callable[[float], float]:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return lambda _x: number
        case ast.Name(id="x"):
            return lambda x: x
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compile(operand, text)
            return lambda x: -inner(x)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            apply, a, b = _BINARY[type(op)], _compile(left, text), _compile(right, text)
            return lambda x: apply(a(x), b(x))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            function, inner = _FUNCTIONS[name], _compile(argument, text)
            return lambda x: function(inner(x))
        case _:
            raise FormulaError(
                f"formula {text!r} uses {ast.unparse(node)!r}; allowed are numbers, x, + - * / % "
                f"and {', '.join(sorted(_FUNCTIONS))}"
            )
