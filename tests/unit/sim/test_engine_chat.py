from __future__ import annotations

import json
from pathlib import Path

import pytest

from picker.sim.engine.chat import ChatError, ChatTemplate
from picker.sim.engine.engine import Limits, Speech
from picker.sim.engine.tokens import Tokenizer
from picker.sim.model import DIRECTORY

TEMPLATE = ChatTemplate(DIRECTORY)
TOKENIZER = Tokenizer(DIRECTORY)


def test_a_chat_renders_turn_by_turn() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert TEMPLATE.render(chat) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert TEMPLATE.render(chat, generation_prompt=False).endswith("Hello<|im_end|>\n")


def test_content_in_parts_is_its_texts_a_line_each() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in TEMPLATE.render([{"role": "user", "content": parts}])


def test_equal_pictures_are_equal_words_and_others_are_not() -> None:
    def content(url: str) -> list[dict[str, object]]:
        return [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": url}}]

    one, same, other = (
        TOKENIZER.encode(TEMPLATE.render([{"role": "user", "content": content(url)}])) for url in "aab"
    )
    assert one == same != other
    assert len(one) > 40


def test_tools_stand_in_the_system_message_once() -> None:
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = TEMPLATE.render(chat, tools=[{"type": "function", "function": {"name": "f\u00fc"}}])
    assert text.count("<|im_start|>system") == 1
    assert '{"type": "function", "function": {"name": "f\u00fc"}}' in text


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": "user", "content": [{"type": "text", "text": 3}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": 7},
    ],
)
def test_messages_that_cannot_be_rendered_are_refused(message: dict[str, object]) -> None:
    with pytest.raises(ChatError):
        TEMPLATE.render([message])


def test_a_template_may_refuse_and_reads_the_special_tokens(tmp_path: Path) -> None:
    config = {
        "bos_token": {"content": "<s>"},
        "chat_template": "{{ bos_token }}{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    template = ChatTemplate(tmp_path)
    assert template.render([{"role": "user"}]) == "<s>"
    with pytest.raises(ChatError, match="one only"):
        template.render([{"role": "user"}, {"role": "user"}])


def test_an_answer_sent_back_as_history_has_the_tokens_it_was_said_in() -> None:
    chat = [{"role": "user", "content": "Tell me a story about the river."}]
    prompt = TOKENIZER.encode(TEMPLATE.render(chat))
    answer, _ = Speech(TOKENIZER).answer(prompt, Limits(40, ignore_end=True), room=1000)
    chat += [{"role": "assistant", "content": TOKENIZER.decode(answer)}, {"role": "user", "content": "More."}]
    following = TOKENIZER.encode(TEMPLATE.render(chat))
    assert following[: len(prompt) + len(answer)] == prompt + answer


def test_answers_depend_on_the_prompt_and_on_nothing_else() -> None:
    one, two = Speech(TOKENIZER), Speech(Tokenizer(DIRECTORY))
    assert one.answer([1, 2, 3], Limits(), room=500) == two.answer([1, 2, 3], Limits(), room=500)
    assert one.answer([1, 2, 3], Limits(), room=500) != one.answer([1, 2, 4], Limits(), room=500)
    assert one.answer([1, 2, 3], Limits(), room=500) != one.answer([1, 2, 3], Limits(), room=500, sample=1)


def test_limits_decide_how_an_answer_ends() -> None:
    speech = Speech(TOKENIZER)
    natural, ends_by = speech.answer([5], Limits(), room=10_000)
    assert ends_by == "stop"
    cut, ends_by = speech.answer([5], Limits(3), room=10_000)
    assert (len(cut), ends_by) == (3, "length")
    assert natural[:3] == cut
    exact, ends_by = speech.answer([5], Limits(700, ignore_end=True), room=10_000)
    assert (len(exact), ends_by) == (700, "length")
    assert len(speech.answer([5], Limits(700, least=650), room=10_000)[0]) == 650
    assert len(speech.answer([5], Limits(700, ignore_end=True), room=8)[0]) == 8
