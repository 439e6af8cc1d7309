"""Units: keys in files carry theirs, the code works in SI, and this is where one becomes the other."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3
GB = 1e9

MS = 1e-3
US = 1e-6
TERA = 1e12

BYTES_PER_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "amp-fp16": 2, "amp-bf16": 2}
"""Bytes of one activation element in each training precision; parameters and gradients stay fp32 under amp."""


def format_seconds(seconds: float) -> str:
    """``seconds`` with three significant digits in the unit that a reader expects: ``1.23 s``, ``45.6 ms``."""
    for factor, unit in ((1.0, "s"), (MS, "ms"), (US, "µs")):
        if abs(seconds) >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def format_bytes(size_bytes: float) -> str:
    """``size_bytes`` with three significant digits in binary units: ``25.0 MiB``."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def format_count(value: float) -> str:
    """``value`` with three significant digits and a metric suffix: ``16.6k``, ``2.47M``."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)}{suffix}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
