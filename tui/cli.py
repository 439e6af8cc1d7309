"""The entry point: picks the command, loads only that one, and turns failures into one line and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from simcore.errors import SimscaleError

COMMANDS = {
    "calibrate": "measure this machine's compute, collectives and contention into a profile",
    "measure": "run a scenario's real training and record its step times",
    "predict": "predict a scenario's scaling curve, with a band, beside its measured points",
    "validate": "predict published runs and score the predictions, beside naive linear scaling",
    "explore": "the terminal app: the curve, live, as the scenario is edited",
    "import": "turn what nccl-tests or nvidia-smi printed into a profile or a type of node",
    "catalog": "list the GPUs, links, nodes and models that are known, with their sources",
}

LASTING = {"calibrate", "measure", "explore"}
"""Commands that run for long, and so need their garbage collected."""

INTERRUPTED = 130
USAGE = 2


class _Parser(argparse.ArgumentParser):
    """argparse with mistakes answered in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 good, 1 check failed, 2 wrong input, 3 failed measurement, 130."""
    collecting = gc.isenabled()
    gc.disable()  # loading modules makes objects that stay: looking through them for garbage is a tenth of a cold start
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    finally:
        if arguments is None:
            gc.freeze()  # the process ends here: nor is there anything to find on the way out
        if collecting:
            gc.enable()


def _run(words: list[str]) -> int:
    parser = _Parser(
        prog="simscale",
        description="How will my PyTorch training scale on GPUs I do not have yet, and how sure are we?",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name == chosen:
            _module(name).add_arguments(command)
    parsed = parser.parse_args(words)
    if parsed.command in LASTING:
        gc.enable()
    try:
        code: int = _module(parsed.command).run(parsed)
        sys.stdout.flush()
        return code
    except SimscaleError as error:
        for fault in error.faults:
            print(f"simscale {parsed.command}: {fault}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"simscale {parsed.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _module(command: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"tui.commands.{'import_' if command == 'import' else command}")


if __name__ == "__main__":
    sys.exit(main())
