"""The short ways of the sandbox lead where jinja2's own lead."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from picker.requests.sandbox import Sandbox

OURS, THEIRS = Sandbox(), ImmutableSandboxedEnvironment()


class Marked(str):
    """A text of another type."""

    __slots__ = ()


NAMES = sorted(
    {*dir(dict), *dir(str), *dir(list), "role", "content", "first", "last", "index", "length", "unsafe", "0"}
)
OBJECTS: list[Any] = [
    {},
    {"role": "user", "content": None, "items": [1], "update": 2, "__class__": 3, "format": "x", "clear": 4, "_x": 5},
    "text", Marked("text"), ["a"], ("a",), 7, None, True, {"a"},
]  # fmt: skip


def answer(environment: ImmutableSandboxedEnvironment, thing: Any, name: str) -> object:
    found = environment.getattr(thing, name)
    if isinstance(found, Undefined):
        return type(found), found._undefined_message, found._undefined_exception
    return repr(found).partition(" at 0x")[0]


@pytest.mark.parametrize("thing", OBJECTS, ids=repr)
def test_an_attribute_or_field_is_what_jinja2_says(thing: Any) -> None:
    for name in (*NAMES, "_x"):
        assert answer(OURS, thing, name) == answer(THEIRS, thing, name)


SOURCES = [
    (
        "{% for m in ms %}{{ loop.first }}{{ loop.last }}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
        "{{ loop.revindex0 }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.nothing }}"
        "{{ loop.cycle('a', 'b') }}{{ loop.changed(m) }}{{ loop.depth }}{% endfor %}"
    ),
    "{% for m in ms recursive %}{{ loop.first }}{% if m.inner %}{{ loop(m.inner) }}{% endif %}{% endfor %}",
    (
        "{% for m in ms %}{{ m.content.strip().upper() }}{{ m.content.split('a')[0] }}{{ m.content.replace('a', 'b') }}"
        "{{ m.content.startswith('a') }}{{ m.content.count('a') }}{{ m.content.rsplit('a', maxsplit=1) }}{% endfor %}"
    ),
    "{{ nothing }}{{ ms.role }}{% set d = {'a': 1} %}{{ d.a }}{{ d.b }}{{ d.items() | list }}{{ nothing.more }}",
    "{% macro m(x) %}{{ x.content }}{{ x.get('role') }}{{ x.items }}{% endmacro %}{{ m(ms[0]) }}{{ m(ms[-1]) }}",
    "{% set n = namespace(a=1) %}{% for m in ms %}{% set n.a = m.inner %}{{ n.a }}{{ n.b }}{% endfor %}",
    "{% for m in ms if m.content %}{% for c in m.content %}{{ c.content }}{{ c.upper() }}{% endfor %}{% endfor %}",
    "{{ ms | map(attribute='content') | list }}{{ ms | selectattr('role') | list }}{{ ms[0]['content'] }}",
    "{{ ms[0].content.format(ms) }}",
    "{{ '{0.__class__}'.format(ms) }}",
    "{{ ('{a.__class__}' | replace('a', 'b')).format_map({'b': ms}) }}",
    "{{ ms[0].content.split(1) }}",
    "{{ ms[0].content.strip(nothing=1) }}",
    "{{ ms[0].clear() }}",
    "{{ ms[0].update({'a': 1}) }}",
    "{{ ms[0].get('content') }}{{ ms[0].items() | list }}{{ ms[0].keys() | list }}",
    "{{ ms.append(1) }}",
    "{{ ms[0].content.__class__ }}",
    "{{ ms[0].content.__class__.__mro__ }}",
    "{{ ms[0].nothing.more }}",
    "{{ ms[0].content.strip.__self__ }}",
    "{% set strip = ms[0].content.strip %}{{ strip() }}{{ strip('a') }}",
    "{% macro m(x) %}{{ x.strip() }}{{ caller() }}{% endmacro %}{% call m(' a ') %}b{% endcall %}",
    "{{ range(3) | list }}{{ range(9999999) }}",
]


@lru_cache
def compiled(environment: ImmutableSandboxedEnvironment, source: str) -> Template:
    return environment.from_string(source)


def outcome(environment: ImmutableSandboxedEnvironment, source: str, messages: list[Any]) -> object:
    try:
        return compiled(environment, source).render(ms=messages)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be the same
        return type(error), str(error)


@pytest.mark.parametrize("source", SOURCES)
@given(
    contents=st.lists(
        st.text(alphabet="ab {}0", max_size=8) | st.none() | st.integers(), min_size=1, max_size=4
    ),
    fields=st.dictionaries(
        st.sampled_from(["inner", "items", "get", "update", "strip"]), st.just([{"content": "a"}])
    ),
)
def test_a_template_renders_or_fails_as_it_does_with_jinja2(
    source: str, contents: list[Any], fields: dict[str, Any]
) -> None:
    messages = [{"role": "user", "content": content, **fields} for content in contents]
    assert outcome(OURS, source, messages) == outcome(THEIRS, source, messages)
