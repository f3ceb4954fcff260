"""Tokenizers made for these tests: small, but cut and framed as real ones are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\nTools: ' + tools | tojson + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- if message.tool_calls %}{{- message.tool_calls[0].function.arguments.city }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, the fox does not.",
    "def pick(workers): return min(workers, key=lambda worker: worker.price)  # a line of code",
    "Grüße aus Köln; 日本語のテキスト, 12345 67890 and {\"json\": [1, 2, 3]}",
    "user assistant system tool What is the weather in Paris? It is sunny in Paris today.",
] * 20  # fmt: skip


def byte_level(
    *, framed: bool = False, specials: tuple[str | AddedToken, ...] = tuple(SPECIALS)
) -> Tokenizer:
    """A byte-level BPE of 400 tokens, as GPT's and Qwen's are made."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(list(specials))
    if framed:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return tokenizer


def metaspace() -> Tokenizer:
    """A BPE with blanks made visible and one put in front, as SentencePiece models are."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def save(
    directory: Path,
    tokenizer: Tokenizer,
    *,
    template: str | list[dict[str, str]] | None = TEMPLATE,
    **config: Any,
) -> Path:
    """A model's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    whole = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}, **config}
    if template is not None:
        whole["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(whole))
    return directory


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer that frames completions, with a chat template."""
    return save(tmp_path_factory.mktemp("model"), byte_level(framed=True))


@pytest.fixture(scope="session")
def tokenizer(model_directory: Path) -> Tokenizer:
    """The same tokenizer, as its own library sees it."""
    return Tokenizer.from_file(str(model_directory / "tokenizer.json"))


@pytest.fixture(scope="session")
def ids_of(tokenizer: Tokenizer) -> Callable[..., list[int]]:
    """The ids that the library gives a whole text."""

    def ids(text: str, *, special: bool = False) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=special).ids)

    return ids
