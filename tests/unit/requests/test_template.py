"""A conversation rendered as the engine renders it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import TemplateError

from picker.requests.ask import Chat
from picker.requests.media import identity
from picker.requests.template import RenderError, Template, find_template
from tests.unit.requests.conftest import TEMPLATE

PARTS = (
    "{% for message in messages %}<{{ message['role'] }}>"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}</>"
    "{% endfor %}"
)


def render(template: str, *messages: dict[str, Any], limit: int = 10_000, **chat: Any) -> str:
    rendered = Template(template, {"bos_token": "<s>"}).render(Chat(messages, **chat), limit=limit)
    assert rendered.whole == (chat.get("exact_until") is None)
    return rendered.text


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_generation_prompt_is_added_unless_it_is_switched_off() -> None:
    assert render(TEMPLATE, user("Hi")) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(TEMPLATE, user("Hi"), add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_arguments_of_the_client_reach_the_template() -> None:
    assert render(TEMPLATE, user("Hi"), arguments={"enable_thinking": False}).endswith(
        "<think>\n\n</think>\n\n"
    )


def test_tools_are_given_in_the_engines_order_of_fields_and_unescaped() -> None:
    function = {"strict": True, "parameters": {"type": "object"}, "description": "Grüße", "name": "wetter"}
    text = render(TEMPLATE, user("Hi"), tools=[{"function": function, "type": "function"}])
    assert (
        'Tools: [{"type": "function", "function": {"name": "wetter", "description": "Grüße", '
        '"parameters": {"type": "object"}, "strict": true}}]'
    ) in text


def test_arguments_of_tool_calls_are_objects_to_the_template() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city": "Paris"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert "<|im_start|>assistant\nParis<|im_end|>" in render(TEMPLATE, message)


def test_parts_are_joined_by_line_ends_where_the_template_wants_text() -> None:
    parts = [{"type": "text", "text": "one"}, "two", {"type": "refusal", "refusal": "three"}]
    assert "user\none\ntwo\nthree<|im_end|>" in render(TEMPLATE, user(parts))


def test_text_is_given_as_a_part_where_the_template_walks_over_parts() -> None:
    assert render(PARTS, user("Hi"), user([{"type": "text", "text": "a"}, "b"])) == "<user>Hi</><user>ab</>"


@pytest.mark.parametrize(
    ("source", "walks"),
    [
        (TEMPLATE, False),
        (PARTS, True),
        ("{% for m in messages[1:] %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% set parts = m.content %}{% for c in parts %}{{ c }}{% endfor %}{% endfor %}", True),
        ("{% macro show(content) %}{% for c in content %}{{ c }}{% endfor %}{% endmacro %}{{ show(messages) }}", True),
        ("{% for m in messages %}{% for t in m.tool_calls %}{{ t }}{% endfor %}{% endfor %}", False),
    ],
)  # fmt: skip
def test_a_template_tells_by_its_loops_whether_it_walks_over_parts(source: str, walks: bool) -> None:
    assert Template(source, {}).walks_parts is walks


@pytest.mark.parametrize("template", [TEMPLATE, PARTS])
def test_text_before_the_first_picture_is_told_and_no_more(template: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [user("before"), user(["see", image]), user("after")]
    text = render(template, *messages, exact_until=1)
    whole = render(template, user("before"), user("see"), user("after"))
    assert "before" in text
    assert "see" not in text
    assert whole.startswith(text)


@pytest.mark.parametrize("template", [TEMPLATE, PARTS])
def test_what_follows_the_first_picture_is_told_by_texts_and_identities(template: str) -> None:
    image, other = ({"type": "image_url", "image_url": {"url": url}} for url in ("x", "y"))
    messages = [user("before"), user(["see", image, "and"]), user([other]), user("after")]
    rendered = Template(template, {}).render(Chat(messages, exact_until=1), limit=1000)
    identities = [part for part in rendered.behind if isinstance(part, bytes)]
    texts = "".join(part for part in rendered.behind if isinstance(part, str))
    assert identities == [identity(image), identity(other)]
    assert texts.index("see") < texts.index("and") < texts.index("after")
    assert "MEDIA" not in texts
    again = Template(template, {}).render(Chat([*messages, user("more")], exact_until=1), limit=1000)
    assert again.text == rendered.text
    *kept, last = rendered.behind
    assert list(again.behind[: len(kept)]) == kept
    assert isinstance(last, str)
    assert last.endswith(("assistant\n", "</>"))


def test_a_client_cannot_write_a_mark() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [user(["MEDIA0.", image, "MEDIA1. MEDIAabc7."])]
    rendered = Template(TEMPLATE, {}).render(Chat(messages, exact_until=0), limit=1000)
    assert sum(isinstance(part, bytes) for part in rendered.behind) == 1
    assert "MEDIA0." in "".join(part for part in rendered.behind if isinstance(part, str))


def test_a_template_that_leaves_out_the_picture_leaves_out_its_identity() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    only_last = "{{ messages[-1].content }}{{ messages[0].content }}"
    rendered = Template(only_last, {}).render(Chat([user([image]), user("x")], exact_until=0), limit=1000)
    assert (rendered.text, rendered.whole) == ("x", False)
    with pytest.raises(RenderError, match="leaves out"):
        Template("x", {}).render(Chat([user([image])], exact_until=0), limit=1000)


def test_a_final_message_to_be_continued_stays_open() -> None:
    messages = (user("Hi"), {"role": "assistant", "content": "It is "})
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    assert render(TEMPLATE, *messages, **options).endswith("<|im_start|>assistant\nIt is ")
    trimming = TEMPLATE.replace("message.content }}", "(message.content | trim) }}")
    assert render(trimming, *messages, **options).endswith("<|im_start|>assistant\nIt is")
    assert render(PARTS, *messages, **options).endswith("<assistant>It is ")


def test_a_template_is_not_told_that_the_final_message_is_continued() -> None:
    source = "{{ continue_final_message is defined }} {{ messages[-1].content }}"
    arguments = {"continue_final_message": True}
    assert render(source, user("x"), continue_final_message=True, arguments=arguments) == "False x"


def test_the_libraries_of_templates_are_there() -> None:
    source = (
        "{% for m in messages %}{% if m.content == 'skip' %}{% continue %}{% endif %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% endfor %}{{ bos_token }}{{ strftime_now('%Y') | length }}{{ {'a': 'é'} | tojson }}"
    )
    assert render(source, user("skip"), user("x")) == 'x<s>4{"a": "é"}'


def test_line_ends_behind_blocks_are_trimmed_as_transformers_does() -> None:
    assert render("  {% if true %}\n  x\n  {% endif %}\n", user("Hi")) == "  x\n"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system messages here') }}",
        "{{ nothing.at.all }}",
        "{{ messages | tojson(indent=missing) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(1000000) %}x{% endfor %}",
        "{% for m in messages %}{{ m.content + 1 }}{% endfor %}",
    ],
)
def test_a_template_that_fails_or_strays_is_a_render_error(source: str) -> None:
    with pytest.raises(RenderError):
        render(source, user("Hi"))


def test_a_conversation_that_grows_too_long_is_stopped() -> None:
    with pytest.raises(RenderError, match="more than 100 characters"):
        render(TEMPLATE, user("x" * 200), limit=100)


def test_broken_tool_calls_are_a_render_error() -> None:
    broken: list[Any] = [[1], [{}], [{"function": 3}], [{"function": {"arguments": "{"}}], 7]
    for calls in broken:
        with pytest.raises(RenderError):
            render(TEMPLATE, {"role": "assistant", "content": "x", "tool_calls": calls})


def test_arguments_nested_deep_do_not_escape_as_another_error() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"x": deep}}}
    try:
        render(TEMPLATE, user("Hi"), tools=[tool])
    except RenderError:
        return


def test_a_source_that_is_no_template_is_refused_at_load() -> None:
    with pytest.raises(TemplateError):
        Template("{% if %}", {})


def test_templates_are_found_in_transformers_order_of_preference(tmp_path: Path) -> None:
    assert find_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(
        '{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, 3]}'
    )
    assert find_template(tmp_path) == ("D", "tokenizer_config.json")
    assert find_template(tmp_path, tools=True) == ("T", "tokenizer_config.json")
    (tmp_path / "chat_template.jinja").write_text("J")
    assert find_template(tmp_path) == ("J", "chat_template.jinja")
    more = tmp_path / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text("U")
    assert find_template(tmp_path, tools=True) == ("U", "tool_use.jinja")
    config.write_text('{"chat_template": "C"}')
    (tmp_path / "chat_template.jinja").unlink()
    assert find_template(tmp_path) == ("C", "tokenizer_config.json")


@pytest.mark.parametrize("template", [TEMPLATE, PARTS, "{{ messages | tojson }}"])
@pytest.mark.parametrize("continued", [False, True])
def test_a_message_that_is_shaped_already_renders_as_one_that_has_to_be(
    template: str, *, continued: bool
) -> None:
    plain = [user("Hi"), {"role": "assistant", "content": "It is "}]
    others = [[{**each, "name": None} for each in plain], [dict(reversed(each.items())) for each in plain]]
    before = [dict(each) for each in plain]
    wanted = {render(template, *messages, continue_final_message=continued) for messages in (plain, *others)}
    assert len(wanted) == 1
    assert plain == before, "a client's message stays as it is"
