"""Progress of long work: a bar with what is done and the time left, on stderr; silent where that is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from measure.pulse import Beat


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float, str], None]]:
    """A function that shows the part done (0 to 1) and what is being done."""
    if not sys.stderr.isatty():
        yield lambda done, label: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(24), TextColumn("{task.percentage:>3.0f} %"),
               TimeRemainingColumn(), TextColumn("[dim]{task.description}"))  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=1.0, title=title)
        yield lambda done, label: progress.update(task, completed=done, description=label)


class ShownBeat(Beat):
    """The pulse of a rank that draws its own progress, as rank 0 does in a world that torchrun started."""

    def __init__(self, show: Callable[[float, str], None]) -> None:
        super().__init__()
        self._show = show
        self._shown = 0.0

    def move(self, label: str, done: float | None = None) -> None:
        """Say what comes next, drawn at most ten times a second."""
        super().move(label, done)
        if time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._show(self.done, label)
