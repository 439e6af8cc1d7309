"""The README's picture of the explorer: ``python -m tests.screenshot`` writes ``docs/explorer.svg``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from simcore.scenario.load import load_scenario
from tui.app.explorer import Explorer

ROOT = Path(__file__).parent.parent


async def draw(path: Path) -> None:
    """Open the app without a terminal, let it draw, and save what it shows."""
    app = Explorer(load_scenario(ROOT / "scenarios/slow-ethernet.toml"))
    async with app.run_test(size=(110, 34)) as pilot:
        await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        path.write_text(app.export_screenshot(title="simscale explore scenarios/slow-ethernet.toml"), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(draw(ROOT / "docs/explorer.svg"))
