"""Options that several commands share, parsed alike and with faults in the house's words."""

from __future__ import annotations

import argparse


def counts(text: str) -> tuple[int, ...]:
    """``1,2,4`` as rising positive whole numbers. Raises ``argparse.ArgumentTypeError`` otherwise."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"found '{text}'; write whole numbers with commas between: 1,2,4,8") from None
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"found '{text}'; counts start at 1")
    return tuple(sorted(set(numbers)))


def devices(text: str) -> tuple[int, ...]:
    """``0,1`` as GPU numbers in the order given. Raises ``argparse.ArgumentTypeError`` otherwise."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"found '{text}'; write GPU numbers with commas between: 0,1") from None
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"found '{text}'; each GPU number is 0 or more and given once")
    return tuple(numbers)


def positive(text: str) -> int:
    """A whole number of at least 1. Raises ``argparse.ArgumentTypeError`` otherwise."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found '{text}'; a whole number of at least 1 is needed")
    return int(text)


def seconds(text: str) -> float:
    """A positive number of seconds. Raises ``argparse.ArgumentTypeError`` otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"found '{text}'; a positive number of seconds is needed")
    return value


def share(text: str) -> float:
    """A part of one, such as 0.1. Raises ``argparse.ArgumentTypeError`` otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10:
        raise argparse.ArgumentTypeError(f"found '{text}'; a fraction such as 0.1 is needed")
    return value
