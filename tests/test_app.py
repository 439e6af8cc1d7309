"""The app as a person's keys drive it: it shows the curve, follows edits, and survives those that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Select, Static

from simcore.errors import InputError
from simcore.scenario.load import load_scenario
from tui.app.edit import apply, what_if_of
from tui.app.explorer import Explorer
from tui.metric import Metric

ROOT = Path(__file__).parent.parent
RESNET = load_scenario(ROOT / "scenarios/8xA100.toml")


async def settled(pilot: Pilot[None]) -> None:
    """Wait until the workers have drawn."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def text_of(app: Explorer, widget: str) -> str:
    return str(app.query_one(widget, Static).render())


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_it_opens_on_the_curve_of_the_scenario(size: tuple[int, int]) -> None:
    app = Explorer(RESNET)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        assert app.prediction is not None
        assert [point.gpus for point in app.prediction.points] == [1, 2, 4, 8]
        assert "-2.0%" in text_of(app, "#points")
        assert "At 8 GPUs" in text_of(app, "#summary")


@pytest.mark.parametrize("name", ["three-axes", "fsdp-8xA100", "parameter-server", "hybrid-shards"])
async def test_any_strategy_is_explored_and_its_count_changed(name: str) -> None:
    scenario = load_scenario(ROOT / f"scenarios/{name}.toml")
    app = Explorer(scenario)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        most = max(scenario.sweep.gpus)
        assert f"At {most} GPUs" in text_of(app, "#summary")
        gpus = app.query_one("#gpus", Input)
        gpus.value = str(most // 2)
        await settled(pilot)
        assert f"At {most // 2} GPUs" in text_of(app, "#summary")


async def test_typing_recomputes_and_undo_takes_it_back() -> None:
    app = Explorer(RESNET)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        before = app.prediction
        batch = app.query_one("#batch", Input)
        batch.focus()
        batch.value = ""
        await pilot.press("1", "2", "8")
        await settled(pilot)
        assert app.prediction is not None and before is not None
        assert app.prediction.scenario.workload.batch_per_gpu == 128
        assert app.prediction.points[0].step_time_s.p50 < 0.6 * before.points[0].step_time_s.p50
        await pilot.press("ctrl+r")
        await settled(pilot)
        assert app.prediction.points == before.points
        assert batch.value == "256"


async def test_nonsense_shows_one_line_and_keeps_the_curve() -> None:
    app = Explorer(RESNET)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        before = app.prediction
        app.query_one("#batch", Input).value = "many"
        await settled(pilot)
        assert "batch: found 'many'" in text_of(app, "#fault")
        assert app.prediction is before
        app.query_one("#batch", Input).value = "64"
        await settled(pilot)
        assert text_of(app, "#fault") == ""
        assert app.prediction is not before


async def test_more_gpus_than_a_node_need_a_link_which_can_be_chosen() -> None:
    app = Explorer(RESNET)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.query_one("#gpus", Input).value = "64"
        await settled(pilot)
        assert "cluster.inter_node" in text_of(app, "#fault")
        app.query_one("#inter", Select).value = "eth-1g"
        await settled(pilot)
        assert app.prediction is not None
        assert app.prediction.points[-1].gpus == 64
        assert app.prediction.points[-1].bottleneck == "eth-1g"


async def test_metric_and_scale_turn_round() -> None:
    app = Explorer(RESNET)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        for expected in (Metric.STEP_TIME, Metric.EFFICIENCY, Metric.THROUGHPUT):
            await pilot.press("ctrl+t")
            assert app.metric is expected
        await pilot.press("ctrl+l")
        assert app.log_scale


def test_an_edit_drops_points_that_no_longer_hold_and_keeps_those_that_do() -> None:
    what_if = what_if_of(RESNET)
    assert len(apply(RESNET, what_if).measured) == 2
    assert len(apply(RESNET, what_if.with_value("gpus", "4")).measured) == 1
    assert apply(RESNET, what_if.with_value("batch", "128")).measured == ()


@pytest.mark.parametrize(
    ("name", "value"), [("gpus", "0"), ("gpus", ""), ("batch", "-1"), ("bucket_mb", "x"), ("bucket_mb", "0")]
)
def test_an_edit_that_is_no_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match="found"):
        apply(RESNET, what_if_of(RESNET).with_value(name, value))
