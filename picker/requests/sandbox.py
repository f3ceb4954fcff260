"""
The sandbox that chat templates run in: jinja2's, with a short way to what nearly every access of theirs is.

jinja2 asks Python for an attribute first, catches what Python says for a message's field, and then asks whether the
attribute is harmless. The answers to that are known for a dictionary's fields, for what a loop tells of itself, and for
the methods of a text that make another value of it.
"""

from __future__ import annotations

from types import BuiltinMethodType
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

_OF_DICTIONARIES = frozenset(dir(dict))
"""Attributes of every dictionary: such a name is no field to ``.name``, and may be one to change it."""
_OF_LOOPS = frozenset({"first", "last", "index", "index0", "revindex", "revindex0", "length"})
"""Numbers and flags that a loop tells of itself."""
_OF_TEXTS = frozenset(
    {
        "count", "endswith", "find", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace",
        "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
    }
)  # fmt: skip
"""Methods of a text that are harmless; ``format`` and ``format_map`` reach into what they are given."""


class _Code(CodeGenerator):
    """Looks a field of a variable up in place, where the variable is a dictionary that has it."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 - as jinja2
        if (
            not isinstance(node.node, nodes.Name)
            or node.attr in _OF_DICTIONARIES
            or self.environment.is_async
        ):
            super().visit_Getattr(node, frame)
            return
        self.write("(")
        self.visit(node.node, frame)
        self.write(f"[{node.attr!r}] if type(")
        self.visit(node.node, frame)
        self.write(f") is dict and {node.attr!r} in ")
        self.visit(node.node, frame)
        self.write(" else ")
        super().visit_Getattr(node, frame)
        self.write(")")


class Sandbox(ImmutableSandboxedEnvironment):
    """What `ImmutableSandboxedEnvironment` allows and answers, sooner."""

    code_generator_class = _Code

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The attribute or field that ``obj.attribute`` means to a template."""
        kind = type(obj)
        if kind is dict:
            if attribute in obj and attribute not in _OF_DICTIONARIES:
                return obj[attribute]
        elif kind is str and attribute in _OF_TEXTS:
            return getattr(obj, attribute)
        elif kind is LoopContext and attribute in _OF_LOOPS:
            try:
                return getattr(obj, attribute)
            except AttributeError:  # of what it runs over, made as it goes; to jinja2 the loop lacks it
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as jinja2
        """Call what a template calls."""
        if type(__obj) is BuiltinMethodType and type(__obj.__self__) is str and __obj.__name__ in _OF_TEXTS:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return __obj(*args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)
