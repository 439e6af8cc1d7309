"""Files in and out: read with faults that name file, key, finding and rule; written whole or not at all."""

from __future__ import annotations

import difflib
import json
import os
import tempfile
import tomllib
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from simcore.errors import InputError


class Table(BaseModel):
    """Base of every table a person or program may write: strict, immutable, no unknown key, no inf or nan."""

    # Built on first use: predicting without a profile need not build the profile's tables.
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


Model = TypeVar("Model", bound=BaseModel)


def read_text(path: Path) -> str:
    """The text of ``path``. Raises ``InputError`` where it is missing, unreadable or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{_neighbours(path)}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; a file is needed") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; is it the right file?") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file. Raises ``InputError`` with line and column where it does not parse."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ``InputError`` where it does not parse or is no object."""
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: is empty; a JSON object is needed")
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except _NotANumber as error:
        raise InputError(f"{path}: holds {error}; every number must be finite") from None
    except json.JSONDecodeError as error:
        cut = " (the file looks cut off)" if error.pos >= len(text.rstrip()) - 1 else ""
        raise InputError(
            f"{path}: is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}{cut}"
        ) from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: found a JSON {type(data).__name__}; a JSON object is needed")
    return data


def parse(model: type[Model], data: dict[str, Any], path: Path | str, *, from_json: bool = False) -> Model:
    """``data`` as a ``model``. Raises one ``InputError`` with every fault, each as ``file: key: finding; rule``."""
    try:
        # JSON has no tuples, so strict mode must know where the data came from.
        return model.model_validate_json(json.dumps(data)) if from_json else model.model_validate(data)
    except ValidationError as error:
        faults = dict.fromkeys(_fault(model, entry) for entry in error.errors(include_url=False))
        raise InputError(*(f"{path}: {fault}" for fault in faults)) from None


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old file or the new one, never a part.

    Raises ``InputError`` where the folder is missing or not writable.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; name a folder that exists and is yours"
        ) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class _NotANumber(ValueError):
    """A NaN or Infinity where JSON allows none."""


def _refuse_constant(name: str) -> float:
    raise _NotANumber(name)


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` where a known name is close, else nothing."""
    close = difflib.get_close_matches(name.lower(), {entry.lower(): entry for entry in known}, n=1, cutoff=0.6)
    match = {entry.lower(): entry for entry in known}.get(close[0]) if close else None
    return f"; did you mean '{match}'?" if match else ""


def _neighbours(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [entry.name for entry in folder.iterdir()]) if folder.is_dir() else ""


def _fault(model: type[BaseModel], entry: Any) -> str:
    """One pydantic error as ``dotted.key: what was found; what is allowed``."""
    location: tuple[int | str, ...] = entry["loc"]
    key = _dotted(location)
    found = entry["input"]
    match entry["type"]:
        case "extra_forbidden":
            known = _fields_at(model, location[:-1])
            return f"{key}: unknown key{nearest(str(location[-1]), known)}; known keys: {', '.join(sorted(known))}"
        case "missing":
            return f"{key}: is missing; it must be given"
        case "literal_error":
            allowed = entry["ctx"]["expected"]
            names = [word.strip(" '") for word in allowed.replace(" or ", ", ").split(",")]
            return f"{key}: found {found!r}; allowed: {allowed}{nearest(str(found), names)}"
        case "value_error":
            message = entry["msg"].removeprefix("Value error, ")
            return f"{key}: {message}" if key else message
        case _:
            rule = entry["msg"].replace("Input should be", "must be")
            return f"{key}: found {_short(found)}; {rule[0].lower()}{rule[1:]}"


def _dotted(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """The keys that the table at ``location`` may hold."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = _table_in(field.annotation) if field else None
    return set(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else set()


def _table_in(annotation: Any) -> Any:
    """The table class inside an annotation such as ``tuple[Layer, ...] | None``."""
    if (
        isinstance(annotation, type)
        and not isinstance(annotation, types.GenericAlias)
        and issubclass(annotation, BaseModel)
    ):
        return annotation
    return next((table for inner in typing.get_args(annotation) if (table := _table_in(inner)) is not None), None)
