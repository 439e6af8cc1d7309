"""Kinds of values that the keys of files take, with their bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

PositiveInt = Annotated[int, Field(ge=1, le=10_000_000)]
Count = Annotated[int, Field(ge=0, le=10**13)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e15)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e15)]
Name = Annotated[str, Field(min_length=1)]
