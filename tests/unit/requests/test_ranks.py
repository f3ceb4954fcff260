"""Ranks files: read with what belongs to them, and refused in words."""

from __future__ import annotations

import base64
import builtins
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from picker.requests.coder import VocabularyError
from picker.requests.ranks import find_ranks, read_ranks
from picker.requests.vocabulary import load

PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TOKENS = [*(bytes((byte,)) for byte in range(256)), b"he", b"ll", b"hell", b"hello", b" w", "é".encode()]
MANNER: dict[str, Any] = {"pattern": PATTERN, "special_tokens": {"<s>": 300, "<end>": 301, "<end>x": 302}}


def save(directory: Path, manner: dict[str, Any] | None = MANNER, **config: Any) -> Path:
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(TOKENS)]
    (directory / "small.tiktoken").write_text("\n".join(lines) + "\n\n")
    if manner is not None:
        (directory / "tiktoken.json").write_text(json.dumps(manner))
    if config:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def ids(directory: Path, text: str, *, special: bool = False) -> list[int]:
    mine, into = load(directory), array("I")
    for _ in mine.encode(text, special=special, into=into):
        pass
    return list(into)


def test_words_and_special_tokens_get_their_ids(tmp_path: Path) -> None:
    save(tmp_path)
    assert ids(tmp_path, "hello<s>hell w") == [259, 300, 258, 260]
    assert load(tmp_path).size == len(TOKENS) + 3
    assert load(tmp_path).cuts


def test_of_special_tokens_that_begin_alike_the_longest_is_found(tmp_path: Path) -> None:
    assert ids(save(tmp_path), "<end>x<end>y") == [302, 301, ord("y")]


def test_text_between_special_tokens_is_normalised_and_they_are_not(tmp_path: Path) -> None:
    plain = ids(save(tmp_path), "e\u0301")
    assert plain == [ord("e"), *"\u0301".encode()]
    save(tmp_path, {**MANNER, "normalization": "NFC"})
    assert ids(tmp_path, "e\u0301") == [261]
    # "<end>" and the mark behind it would be one other letter.
    assert ids(tmp_path, "<end>\u0338") == [301, *"\u0338".encode()]


def test_completions_are_framed_where_the_files_say_so(tmp_path: Path) -> None:
    save(tmp_path, bos_token="<s>", add_bos_token=True, eos_token={"content": "<end>"}, add_eos_token=False)
    assert ids(tmp_path, "hello", special=True) == [300, 259]
    assert ids(tmp_path, "hello") == [259]


def test_special_tokens_are_read_from_the_tokenizers_configuration(tmp_path: Path) -> None:
    decoder = {"400": {"content": "<a>", "special": True}, "401": {"content": "<b>"}}
    save(tmp_path, {"pattern": PATTERN}, added_tokens_decoder=decoder)
    assert ids(tmp_path, "<a>x<b>") == [400, ord("x"), 401]
    save(tmp_path, None, added_tokens_decoder=decoder, pat_str=PATTERN)
    (tmp_path / "tiktoken.json").unlink()
    assert ids(tmp_path, "<a>x<b>") == [400, ord("x"), 401]


def test_a_template_beside_it_is_used_with_its_special_tokens(tmp_path: Path) -> None:
    save(tmp_path, {**MANNER, "bos_token": "<s>"})
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    template = load(tmp_path).template
    assert template is not None
    from picker.requests.ask import Chat

    assert template.render(Chat([{"role": "user", "content": "x"}]), limit=10).text == "<s>x"


def test_a_json_tokenizer_beside_it_wins(tmp_path: Path) -> None:
    from tests.unit.requests.conftest import byte_level
    from tests.unit.requests.conftest import save as save_json

    save_json(save(tmp_path), byte_level(), template=None)
    assert load(tmp_path).size == byte_level().get_vocab_size()


@pytest.mark.parametrize(
    ("manner", "says"),
    [
        (None, "must name the pattern"),
        ({"special_tokens": {}}, "must name the pattern"),
        ({"pattern": 3}, "must name the pattern"),
        ({"pattern": "(", "special_tokens": {}}, "small.tiktoken: "),
        ({"pattern": PATTERN, "special_tokens": []}, "must be an object"),
        ({"pattern": PATTERN, "special_tokens": {"<s>": "1"}}, "no id between"),
        ({"pattern": PATTERN, "special_tokens": {"<s>": -1}}, "no id between"),
        ({"pattern": PATTERN, "special_tokens": {"<s>": True}}, "no id between"),
        ({"pattern": PATTERN, "special_tokens": {"": 300}}, "no id between"),
        ({"pattern": PATTERN, "special_tokens": {"<s>": 7}}, "which a word has"),
        ({**MANNER, "normalization": "nfc"}, "allowed are NFC"),
        ({**MANNER, "add_bos_token": True, "bos_token": "<none>"}, "bos_token is no special token"),
        ({**MANNER, "add_eos_token": True}, "eos_token is no special token"),
    ],
)
def test_what_is_not_said_is_named(tmp_path: Path, manner: dict[str, Any] | None, says: str) -> None:
    with pytest.raises(VocabularyError, match=says):
        load(save(tmp_path, manner))


@pytest.mark.parametrize("line", ["x", "YQ== 1 2", "YQ== one", "Y?== 1"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    save(tmp_path)
    with (tmp_path / "small.tiktoken").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(VocabularyError, match=f"line {len(TOKENS) + 2}"):
        load(tmp_path)


def test_a_file_without_all_bytes_and_several_files_are_refused(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "small.tiktoken").write_text("YQ== 0\n")
    with pytest.raises(VocabularyError, match="255 of the 256"):
        load(tmp_path)
    (tmp_path / "tiktoken.model").write_text("")
    with pytest.raises(VocabularyError, match="one is needed"):
        find_ranks(tmp_path)


def test_without_the_library_it_says_which_one_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "tiktoken":
            raise ImportError("No module named 'tiktoken'")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(VocabularyError, match="needs the package tiktoken"):
        read_ranks(save(tmp_path) / "small.tiktoken")


def test_where_the_library_gives_up_it_is_an_error_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    def panic(_text: str) -> list[int]:
        raise PanicException("stack overflow")

    mine = read_ranks(save(tmp_path) / "small.tiktoken")
    monkeypatch.setattr(mine._encoding, "encode_ordinary", panic)
    with pytest.raises(RuntimeError, match="gave up: stack overflow"):
        mine.encode(["x"], special=False)
