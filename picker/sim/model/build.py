"""
Train the demo tokenizer; run by hand: `python -m picker.sim.model.build`. The same source gives the same bytes.

The text it learns from is made here, out of `picker.sim.words`: sentences, some numbers, some JSON and some code.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from picker.sim.model import DIRECTORY
from picker.sim.words import WORDS

VOCABULARY = 3000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How text is cut into words before merging: letters with one leading mark, single digits, punctuation, white space."""

ROLES = ("system", "user", "assistant", "tool")
ENDINGS = ("s", "ed", "ing", "ly", "er", "ness", "")
SCRIPTS = (
    "größer über Straße été déjà",
    "año niño señor",
    "привет мир запрос",
    "你好 世界 请求",
    "こんにちは",
    "שלום",
    "مرحبا",
)


def text() -> Iterator[str]:
    """The training text, line by line."""
    rng = random.Random(20251)
    for word in WORDS:
        yield f"{word} {word} {word.capitalize()} " * 12
    for turn in range(6000):
        words = [
            rng.choice(WORDS) + rng.choice(ENDINGS) * (rng.random() < 0.15) for _ in range(rng.randint(5, 14))
        ]
        yield f"{words[0].capitalize()} {' '.join(words[1:])}{rng.choice(('.', '.', ',', '?', '!', ':'))}"
        if turn % 10 == 0:
            yield json.dumps(
                {"role": rng.choice(ROLES), "content": " ".join(words[:4]), "n": rng.randint(0, 9999)}
            )
        if turn % 25 == 0:
            yield f"def {words[0]}_{words[1]}(self, {words[2]}: int) -> None:\n    return {words[3]}[0]\n\n"
        if turn % 40 == 0:
            yield rng.choice(SCRIPTS)


def train() -> str:
    """Train, and return the text of `tokenizer.json`."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(text(), trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"


def build(directory: Path = DIRECTORY) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into `directory`."""
    directory.joinpath("tokenizer.json").write_text(train(), encoding="utf-8")
    config = {
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 32768,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    directory.joinpath("tokenizer_config.json").write_text(
        json.dumps(config, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    build()
