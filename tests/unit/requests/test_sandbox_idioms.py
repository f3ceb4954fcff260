"""Templates written as those of well-known models are render, or fail, as they do in jinja2's own sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Template
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from picker.requests.sandbox import Sandbox

HEADERS = """
{%- if not tools is defined or tools is none %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}
{{- '<s>' + system }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) + '\\n\\n' }}{%- endfor %}{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<h>' + message['role'] + '</h>' + message['content'] | trim + '<e>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {%- if call.name in ('search', 'python') %}
            {{- call.name + '.call(' }}
            {%- for name, value in call.arguments | items %}
                {{- name + '="' + value + '"' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
            {%- endfor %}{{- ')' }}
        {%- else %}{{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}{%- endif %}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<h>assistant</h>' }}{%- endif %}
"""

THINKING = """
{%- set ns = namespace(steps=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.steps and message.role == "user" and message.content is string
        and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.steps = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<m>' + message.role + '\\n' + content + '</m>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
        {%- elif '</t>' in content %}
            {%- set thought = content.split('</t>')[0].rstrip('\\n').split('<t>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</t>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thought)) %}
            {{- '<m>' + message.role + '\\n<t>' + thought.strip('\\n') + '</t>' + content.lstrip('\\n') }}
        {%- else %}{{- '<m>' + message.role + '\\n' + content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<c>' + call.name }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
        {%- endfor %}
        {{- '</m>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<m>user' }}{%- endif %}
        {{- '<r>' + content + '</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '</m>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<t></t>' }}{%- endif %}
"""

ALTERNATING = """
{%- set ns = namespace(at=0) %}
{%- for message in messages if message.role != 'system' %}
    {%- if message.role in ('user', 'assistant') and not message.get('tool_calls') %}
        {%- if (message['role'] == 'user') != (ns.at % 2 == 0) %}{{- raise_exception('roles take turns') }}{%- endif %}
        {%- set ns.at = ns.at + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and message == (messages | selectattr('role', 'equalto', 'user') | list | last) %}
            {{- '[T]' + tools | tojson + '[/T]' }}
        {%- endif %}
        {{- '[I]' }}{%- if loop.first and system is defined %}{{- system }}{%- endif %}{{- message.content + '[/I]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[' }}{%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}{{- out[:-1] }}
            {%- if not call.id is defined or call.id | length != 9 %}{{- ', "id": "none"}' }}
            {%- else %}{{- ', "id": "' + call.id + '"}' }}{%- endif %}
            {{- ', ' if not loop.last else ']' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {%- set content = message.content.content if message.content.content is defined else message.content %}
        {{- '{"content": ' + content | string + '}' }}
    {%- elif message.role == 'assistant' %}{{- ' ' + message.content | trim + '</s>' }}
    {%- else %}{%- continue %}{%- endif %}
{%- endfor %}
"""

TYPED = """
{%- macro typed(spec) %}
    {%- set names = {'string': 'str', 'integer': 'int'} %}
    {%- if names[spec.type] is defined %}{{- names[spec.type] }}
    {%- elif spec.type == 'array' %}{{- 'list[' + typed(spec.items) + ']' }}
    {%- elif spec.type == 'object' %}
        {%- if spec.additionalProperties is defined %}{{- 'dict[str, ' + typed(spec.additionalProperties) + ']' }}
        {%- else %}{{- 'dict' }}{%- endif %}
    {%- elif spec.type is iterable and spec.type is not string %}
        {{- 'Union[' }}{%- for t in spec.type %}{{- typed({'type': t}) }}
        {%- if not loop.last %}{{- ',' }}{%- endif %}{%- endfor %}{{- ']' }}
    {%- else %}{{- 'Any' }}{%- endif %}
{%- endmacro %}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- tool.name + '(' }}
    {%- for name, spec in tool.parameters.properties | dictsort %}
        {{- name + ': ' + typed(spec) }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
    {%- endfor %}
    {{- ')' }}{%- if tool.return is defined %}{{- ' -> ' + typed(tool.return) }}{%- endif %}
    {{- ' - ' + tool.description + '\\n' }}
{%- endfor %}
{%- for m in messages %}
    {{- m.role.upper().title() }}{{- (m.content or '').replace('a', 'b') }}{{- m.name }}
{%- endfor %}
"""

TURNS = """
{%- set ns = namespace(first=true, tool=false, outputs=0, system='') %}
{%- for m in messages %}
    {%- if m['role'] == 'system' %}{%- set ns.system = ns.system + m['content'] %}{%- endif %}
{%- endfor %}
{{- ns.system }}
{%- for m in messages %}
    {%- if m['role'] == 'assistant' and m['tool_calls'] is defined and m['tool_calls'] is not none %}
        {%- for c in m['tool_calls'] %}
            {%- if ns.first %}{{- '<a>' + (m['content'] or '') }}{%- set ns.first = false %}{%- endif %}
            {{- c['type'] + '<sep>' + c['function']['name'] + '\\n' + c['function']['arguments'] | tojson }}
        {%- endfor %}
        {%- set ns.tool = true %}
    {%- elif m['role'] == 'assistant' %}
        {%- set content = m['content'] %}
        {%- if '</t>' in content %}{%- set content = content.split('</t>') | last %}{%- endif %}
        {{- '<a>' + content + '<e>' }}{%- set ns.tool = false %}
    {%- elif m['role'] == 'tool' %}
        {%- set ns.outputs = ns.outputs + 1 %}{{- '<o>' ~ ns.outputs ~ m.content }}
    {%- endif %}
    {%- if loop.last and ns.tool %}{{- loop.index ~ '/' ~ loop.length ~ loop.revindex }}{%- endif %}
    {%- if loop.index0 > 7 %}{%- break %}{%- endif %}
{%- endfor %}
"""

LAZY = "{%- for pairs in messages | map('dictsort') %}{{ loop.index }}{{ loop.last }}{{ pairs }}{% endfor %}"

TEMPLATES = {
    "headers": HEADERS, "thinking": THINKING, "alternating": ALTERNATING, "typed": TYPED, "turns": TURNS, "lazy": LAZY,
}  # fmt: skip


def environment(kind: type[ImmutableSandboxedEnvironment]) -> ImmutableSandboxedEnvironment:
    made = kind(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False)
    made.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)

    def refuse(message: str) -> None:
        raise ValueError(message)

    made.globals["raise_exception"] = refuse
    return made


COMPILED: Mapping[str, tuple[Template, Template]] = {
    name: (
        environment(Sandbox).from_string(source),
        environment(ImmutableSandboxedEnvironment).from_string(source),
    )
    for name, source in TEMPLATES.items()
}

texts = st.sampled_from(["", "a", " a\n", "<t>\nb</t>\n\nc", "</t>", "<r>x</r>", "{0.__class__}", "é"])
wild = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | texts,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "items", "content", "get", "properties", "keys", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, usual, wild)


types = st.sampled_from(["string", "integer", "array", "object"])
specs = st.fixed_dictionaries(
    {"type": mostly(types | st.lists(types, max_size=2))},
    optional={
        "items": st.fixed_dictionaries({"type": types}),
        "additionalProperties": st.fixed_dictionaries({"type": types}),
    },
)
functions = st.fixed_dictionaries(
    {"name": mostly(st.sampled_from(["search", "f"]))},
    optional={
        "arguments": mostly(st.dictionaries(st.sampled_from(["city", "items", "strip"]), texts, max_size=2)),
        "description": mostly(texts),
        "parameters": st.fixed_dictionaries(
            {"properties": mostly(st.dictionaries(texts, specs, max_size=2))}
        ),
        "return": specs,
    },
)
calls = st.fixed_dictionaries(
    {"function": mostly(functions)}, optional={"id": mostly(st.just("123456789")), "type": mostly(texts)}
)
roles = st.sampled_from(["system", "user", "user", "assistant", "assistant", "tool"])
messages = st.fixed_dictionaries(
    {"role": mostly(roles), "content": mostly(texts)},
    optional={
        "tool_calls": st.lists(calls, min_size=1, max_size=2),
        "reasoning_content": mostly(texts),
        "name": mostly(texts),
    },
)
variables = st.fixed_dictionaries(
    {"messages": st.lists(messages, min_size=1, max_size=4), "add_generation_prompt": st.booleans()},
    optional={
        "tools": st.none() | st.lists(functions | st.fixed_dictionaries({"function": functions}), max_size=2),
        "enable_thinking": mostly(st.booleans()),
        "system": mostly(texts),
    },
)


def outcome(template: Template, given: Mapping[str, Any]) -> object:
    try:
        return template.render(**given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is to be the same
        return type(error), str(error)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@given(given_=variables)
def test_a_models_template_says_the_same_in_both_sandboxes(name: str, given_: dict[str, Any]) -> None:
    ours, theirs = COMPILED[name]
    assert outcome(ours, given_) == outcome(theirs, given_)


def test_what_a_loop_stumbles_over_ahead_is_no_error_of_the_loop() -> None:
    ours, theirs = COMPILED["lazy"]
    given_ = {"messages": [{"a": 1}, "text", {"b": 2}]}
    assert ours.render(**given_) == theirs.render(**given_) == "1[('a', 1)]"
