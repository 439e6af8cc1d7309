"""The ways in which simscale fails, each with its exit code, so that every command ends alike."""

from __future__ import annotations


class SimscaleError(Exception):
    """A failure that a user can act on: its text is complete, one line a fault, and needs no traceback."""

    exit_code = 1

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class InputError(SimscaleError):
    """What the user gave is wrong (exit code 2). Each fault says where, what was found, the rule and the way out."""

    exit_code = 2


class MeasurementError(SimscaleError):
    """A measurement could not be finished (exit code 3): a rank died, hung, or the machine lacks what it needs."""

    exit_code = 3
