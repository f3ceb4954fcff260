"""What all parts share: the prefix, the habits of a model, the one error."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    AliasChoices,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "PICKER_"


Seconds = float


Words = Annotated[tuple[str, ...], NoDecode]
"""Several words in one variable, separated by commas."""


class SettingsError(Exception):
    """The environment cannot be used. ``lines`` holds one sentence per fault, each naming its variable."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Part(BaseSettings):
    """The habits that all parts share."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    title: ClassVar[str] = ""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given by name first, then the environment; files are never searched for."""
        return init_settings, env_settings

    @field_validator("*", mode="before")
    @classmethod
    def _split_words(cls, value: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        if isinstance(value, str) and field.annotation == tuple[str, ...]:
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value


def also(name: str, *others: str) -> AliasChoices:
    """Our name of a setting and the field's names for it, ours first."""
    return AliasChoices(PREFIX + name, *others)


def whole_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names; raises ValueError at one that is neither a SPIFFE id nor a whole DNS name."""
    for name in names:
        if "*" in name or ("://" in name and not name.startswith("spiffe://")):
            raise ValueError(f"{name!r} is neither a SPIFFE id (spiffe://...) nor a whole DNS name")
    return names
