"""The model of a form, whatever else the form holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests.ask import Api
from picker.requests.multipart import model_of
from picker.requests.reading import read

TYPE = "multipart/form-data; boundary=----x7"


def field(name: str, value: bytes, more: str = "") -> bytes:
    return (
        f'------x7\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"
    )


FILE = field("file", b"\x00\r\n\xff" * 200_000, '; filename="a.wav"\r\nContent-Type: audio/wav')
MODEL = field("model", b"whisper")
END = b"------x7--\r\n"


@pytest.mark.parametrize("body", [MODEL + FILE, FILE + MODEL, field("language", b"de") + MODEL + FILE])
def test_the_model_is_found_before_and_behind_a_long_file(body: bytes) -> None:
    for path, api in (("/v1/audio/transcriptions", Api.AUDIO), ("/v1/images/edits", Api.IMAGES)):
        asked = read(path, {"content-type": TYPE}, body + END, loras=("whisper",), base_model="b")
        assert (asked.api, asked.model, asked.lora) == (api, "whisper", "whisper")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (TYPE, FILE + END),
        (TYPE, field("model_name", b"x") + END),
        (TYPE, field("model", b"") + END),
        (TYPE, field("model", b"x" * 2000) + END),
        ("multipart/form-data", MODEL + END),
        ("multipart/form-data; boundary=", MODEL + END),
        ("multipart/form-data; boundary=other", MODEL + END),
        ("multipart/mixed; boundary=----x7", MODEL + END),
        ("multipart/form-data; boundary=" + "y" * 2000, MODEL + END),
    ],
)
def test_a_form_that_does_not_tell_names_no_model(content_type: str, body: bytes) -> None:
    assert read("/v1/audio/transcriptions", {"content-type": content_type}, body).model == ""


def test_a_quoted_boundary_is_read() -> None:
    assert model_of('multipart/form-data; charset=utf-8; boundary="----x7"', MODEL + END) == "whisper"


@given(st.text(max_size=60), st.binary(max_size=200), st.binary(max_size=40))
def test_any_form_is_read(boundary: str, body: bytes, value: bytes) -> None:
    assert isinstance(model_of(f"multipart/form-data; boundary={boundary}", body), str)
    assert isinstance(model_of(TYPE, field("model", value) + body), str)
