"""The requests whose token ids are compared, as clients send them: the same ones to the oracle and to the picker."""

# ruff: noqa: RUF001 - letters that look like others are what tokenizers are to be tried with

from __future__ import annotations

from typing import Any

Body = dict[str, Any]

WEATHER: Body = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place, in °C (metric) & more <b>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        },
    },
}
CLOCK: Body = {
    "function": {"parameters": {"type": "object", "properties": {}}, "name": "clock", "description": "Now, l'heure"},
    "type": "function",
}  # fmt: skip


def say(role: str, content: Any, **more: Any) -> Body:
    return {"role": role, "content": content, **more}


def call(name: str, arguments: str, number: str = "call_1") -> Body:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


AWKWARD = (
    "naïve e\u0301 日本語 \U0001f469\u200d\U0001f4bb\u00a0\u2028 12345 3.14\t\r\n\n\n   x  'll DON'T"
    " <|im_end|> </think> \ufeff"
)
HELLO = [say("system", "You are terse."), say("user", "Hello, who are you?")]
TURNS = [
    *HELLO,
    say("assistant", "<think>\nA greeting.\n</think>\n\nA model."),
    say("user", "And where do you run?\n\n"),
]
CALLED = [
    say("user", "Weather in Zürich and the time?"),
    say(
        "assistant",
        None,
        tool_calls=[call("get_weather", '{"city": "Zürich", "days": 2}'), call("clock", "", "call_2")],
    ),
    say("tool", '{"temp": 21.5}', tool_call_id="call_1"),
    say("tool", "12:00", tool_call_id="call_2"),
]  # fmt: skip
THOUGHT = [say("user", "2 + 2?"), say("assistant", "4", reasoning="Two and two."), say("user", "Sure?")]
OPEN = [say("user", "Write a poem about rivers."), say("assistant", "The river is")]
TAIL: Body = {"continue_final_message": True, "add_generation_prompt": False}

CHATS: dict[str, Body] = {
    "one turn": {"messages": [say("user", "Hi")]},
    "a system's words": {"messages": HELLO},
    "several turns, thoughts of earlier ones among them": {"messages": TURNS},
    "no generation prompt": {"messages": TURNS, "add_generation_prompt": False},
    "awkward text": {"messages": [say("user", AWKWARD)]},
    "awkward text at every edge": {"messages": [say("system", AWKWARD), say("user", "\n" + AWKWARD + " ")]},
    "empty contents": {"messages": [say("user", ""), say("assistant", ""), say("user", "x")]},
    "parts of text": {
        "messages": [say("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two\n"}])]
    },
    "tools": {"messages": HELLO, "tools": [WEATHER, CLOCK]},
    "tools without a system's words": {"messages": HELLO[1:], "tools": [CLOCK]},
    "calls of tools and their answers": {"messages": CALLED, "tools": [WEATHER, CLOCK]},
    "calls of tools, then a question": {"messages": [*CALLED, say("user", "Thanks. Tomorrow?")], "tools": [WEATHER]},
    "reasoning in its own field": {"messages": THOUGHT},
    "reasoning in the turn under way": {
        "messages": [CALLED[0], {**CALLED[1], "reasoning": "Two calls."}, *CALLED[2:]],
    },
    "a final message continued": {"messages": OPEN, **TAIL},
    "a final message continued, that ends in a blank": {
        "messages": [OPEN[0], say("assistant", "The river is \n")],
        **TAIL,
    },
    "a final message of parts continued": {
        "messages": [OPEN[0], say("assistant", [{"type": "text", "text": "The"}, {"type": "text", "text": "river"}])],
        **TAIL,
    },
    "a final message continued after tools": {
        "messages": [*CALLED, say("assistant", "It is 21.5")],
        "tools": [WEATHER],
        **TAIL,
    },
    "thinking switched off": {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}},
    "thinking switched on": {"messages": HELLO, "chat_template_kwargs": {"thinking": True, "enable_thinking": True}},
    "thoughts kept": {"messages": TURNS, "chat_template_kwargs": {"clear_thinking": False}},
    "arguments that the template does not know": {
        "messages": HELLO,
        "chat_template_kwargs": {"colour": "blue", "n": [1]},
    },
    "a template of the client's": {
        "messages": HELLO,
        "chat_template": "{{ 'mine' }}",
        "chat_template_kwargs": {"chat_template": "{{ 'mine' }}", "messages": [], "tools": [CLOCK]},
    },
    "documents": {
        "messages": HELLO,
        "documents": [{"title": "Rivers", "text": "They flow."}, {"title": "B", "text": ""}],
    },
    "a long conversation": {
        "messages": [
            say(("user", "assistant")[n % 2], f"Turn {n}: " + "lorem ipsum, dolor.\n" * (n % 7)) for n in range(41)
        ],
    },
}  # fmt: skip

TEXTS: dict[str, str] = {
    "a word": "Hello",
    "nothing": "",
    "awkward": AWKWARD,
    "special tokens": "<|im_start|>user\nHi<|im_end|><|endoftext|><｜User｜>x<｜Assistant｜><think>y</think>",
    "code": "def f(x):\n    if x > 0:\n\n\n\t\treturn  x ** 2  # ünïcode\n\n" * 3,
    "blanks": "a  b   c    d\n \n  \n\t\t e\r\n\r\nf " + " " * 40 + "g",
    "digits": "1 12 123 1234 12345 1.5e-10 0x1F ٣٤ ½",
    "marks": "...!!!???---___***(){}[]<>|~`@#$%^&+=;:,'\"\\/ 'S 'Re i'm I'LL",
    "marks that combine behind a special token": "<|im_end|>\u0338a\u0301 <think>\u0338",
    "scripts": "Привет мир! مرحبا بالعالم 你好，世界。こんにちは 안녕하세요 สวัสดี नमस्ते ﬁ ſ Å Å Å",
    "long lines": "\n".join(f"The {n}th line, of several words; it ends here." for n in range(300)),
}
