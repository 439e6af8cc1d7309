"""Schedules are torch's own, both as listed and as run, and their bubbles are those that running them leaves."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from torch.distributed.pipelining import schedules as torchs
from torch.distributed.pipelining._utils import generate_rank_to_stage_mapping, generate_stage_to_rank_mapping

from simcore.strategies.schedules import SCHEDULES, Action, Pass, Schedule, ideal_bubble, rank_of_stage, stages_of_rank

SINGLE = {"gpipe": torchs.ScheduleGPipe, "1f1b": torchs.Schedule1F1B}
MULTI = {
    "interleaved": torchs.ScheduleInterleaved1F1B,
    "looped-bfs": torchs.ScheduleLoopedBFS,
    "zero-bubble": torchs.ScheduleInterleavedZeroBubble,
    "zbv": torchs.ScheduleZBVZeroBubble,
}
COST = {Pass.FORWARD: 1, Pass.BACKWARD: 2, Pass.INPUT: 1, Pass.WEIGHT: 1}

Combination = tuple[int, int, int]


def stage_choices(name: str) -> tuple[int, ...]:
    return (1,) if name in SINGLE else (2,) if name == "zbv" else (1, 2, 3)


def valid_grid(name: str, ranks: range = range(1, 8), microbatches: range = range(1, 22)) -> Iterator[Combination]:
    """The combinations that ``name`` takes, stated apart from the code under test."""
    for p, v, m in product(ranks, stage_choices(name), microbatches):
        uneven = name in ("interleaved", "zero-bubble") and m % max(1, m // p)
        if not uneven and not (name == "1f1b" and m < p):
            yield p, v, m


class RecordingStage:
    """Stands in for a stage and notes what torch has it compute; whatever else torch has it do, it does nothing."""

    def __init__(self, index: int, stages: int, rank: int, ranks: int, ran: list[Action]) -> None:
        self.stage_index, self.num_stages = index, stages
        self.group_rank, self.group_size = rank, ranks
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.ran = ran

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: []

    def forward_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.ran.append(Action(self.stage_index, Pass.FORWARD, microbatch))

    def backward_one_chunk(self, microbatch: int, *_: Any, full_backward: bool = True, **__: Any) -> None:
        self.ran.append(Action(self.stage_index, Pass.BACKWARD if full_backward else Pass.INPUT, microbatch))

    def backward_weight_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.ran.append(Action(self.stage_index, Pass.WEIGHT, microbatch))


def torchs_schedule(
    name: str, ranks: int, stages_per_rank: int, microbatches: int, rank: int = 0
) -> tuple[Any, list[Action]]:
    """Torch's schedule as ``rank`` builds it, and where its stages note what they compute."""
    ran: list[Action] = []
    count = ranks * stages_per_rank
    held = generate_rank_to_stage_mapping(ranks, count, "v" if name == "zbv" else "loop")
    stages = [RecordingStage(index, count, rank, ranks, ran) for index in held[rank]]
    return (SINGLE[name](stages[0], microbatches) if name in SINGLE else MULTI[name](stages, microbatches)), ran


def torch_lists(name: str, ranks: int, stages_per_rank: int, microbatches: int) -> Schedule:
    """The compute actions of torch's ``pipeline_order``, which lists every rank whatever the own one."""
    order = torchs_schedule(name, ranks, stages_per_rank, microbatches)[0].pipeline_order
    compute = {kind.value for kind in Pass}
    return tuple(
        tuple(
            Action(action.stage_index, Pass(action.computation_type.value), action.microbatch_index)
            for action in order[rank]
            if action is not None and action.computation_type.value in compute
        )
        for rank in range(ranks)
    )


def torch_runs(name: str, ranks: int, stages_per_rank: int, microbatches: int) -> Schedule:
    """What torch has the stages of each rank compute when it steps."""
    orders = []
    for rank in range(ranks):
        schedule, ran = torchs_schedule(name, ranks, stages_per_rank, microbatches, rank)
        schedule._initialize_stage = schedule._initialize_stages = lambda *_, **__: None  # would allocate and talk
        schedule._step_microbatches()
        orders.append(tuple(ran))
    return tuple(orders)


@pytest.mark.parametrize("name", ["gpipe", *MULTI])  # 1f1b's list is not what it runs, see below
def test_orders_are_those_torch_lists(name: str) -> None:
    for combination in valid_grid(name):
        assert SCHEDULES[name](*combination) == torch_lists(name, *combination), combination


@pytest.mark.parametrize("name", SCHEDULES)
def test_orders_are_those_torch_runs(name: str) -> None:
    for combination in valid_grid(name, range(1, 5), range(1, 13)):
        assert SCHEDULES[name](*combination) == torch_runs(name, *combination), combination


@pytest.mark.parametrize(
    ("name", "combination"), [("1f1b", (8, 1, 32)), ("interleaved", (8, 2, 20)), ("zbv", (8, 2, 9))]
)
def test_orders_of_a_larger_pipeline_are_those_torch_runs(name: str, combination: Combination) -> None:
    assert SCHEDULES[name](*combination) == torch_runs(name, *combination)


def test_1f1bs_last_rank_starts_with_the_first_microbatch_though_torch_lists_it_from_the_second_on() -> None:
    """Torch only draws from that list, and starts it one too late on the rank that has no forwards ahead."""
    for combination in valid_grid("1f1b"):
        *earlier, last = SCHEDULES["1f1b"](*combination)
        *listed, listed_last = torch_lists("1f1b", *combination)
        assert earlier == listed
        forwards, listed_forwards = (
            [action.microbatch for action in order if action.kind is Pass.FORWARD] for order in (last, listed_last)
        )
        assert forwards == list(range(combination[2]))
        assert listed_forwards == [microbatch + 1 for microbatch in forwards]


@pytest.mark.parametrize("name", SCHEDULES)
def test_stages_lie_where_torch_puts_them(name: str) -> None:
    for ranks, stages_per_rank in product(range(1, 8), stage_choices(name)):
        stages = ranks * stages_per_rank
        expected = generate_stage_to_rank_mapping(ranks, stages, "v" if name == "zbv" else "loop")
        assert {stage: rank_of_stage(name, ranks, stages_per_rank, stage) for stage in range(stages)} == expected
        for rank in range(ranks):
            held = tuple(stage for stage in range(stages) if expected[stage] == rank)
            assert stages_of_rank(name, ranks, stages_per_rank, rank) == held


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_stage_runs_each_microbatch_once_forward_then_once_backward(name: str) -> None:
    for ranks, stages_per_rank, microbatches in valid_grid(name):
        for rank, order in enumerate(SCHEDULES[name](ranks, stages_per_rank, microbatches)):
            passes: dict[tuple[int, int], str] = {}
            for action in order:
                key = action.stage, action.microbatch
                passes[key] = passes.get(key, "") + action.kind
            held = stages_of_rank(name, ranks, stages_per_rank, rank)
            assert set(passes) == set(product(held, range(microbatches)))
            assert set(passes.values()) == ({"FIW"} if name.startswith("z") else {"FB"})


def awaited(action: Action, stages: int) -> list[tuple[int, str, int]]:
    """What must have ended before ``action`` starts, where ``I`` and ``B`` alike end a stage's "backward"."""
    if action.kind is Pass.FORWARD:
        return [(action.stage - 1, "forward", action.microbatch)] if action.stage else []
    if action.kind is Pass.WEIGHT:
        return [(action.stage, "backward", action.microbatch)]
    later = [(action.stage + 1, "backward", action.microbatch)] if action.stage < stages - 1 else []
    return [(action.stage, "forward", action.microbatch), *later]


NAME_OF_END = {Pass.FORWARD: "forward", Pass.BACKWARD: "backward", Pass.INPUT: "backward", Pass.WEIGHT: "weights"}


def makespan(schedule: Schedule, stages: int) -> int:
    """Runs all ranks, each in its order and as soon as it can; fails where they wait for each other."""
    ends: dict[tuple[int, str, int], int] = {}
    free = [0] * len(schedule)
    left = [iter(order) for order in schedule]
    heads = [next(order, None) for order in left]
    while any(heads):
        progressed = False
        for rank in range(len(schedule)):
            while (head := heads[rank]) and all(needed in ends for needed in awaited(head, stages)):
                start = max([free[rank], *(ends[needed] for needed in awaited(head, stages))])
                free[rank] = ends[head.stage, NAME_OF_END[head.kind], head.microbatch] = start + COST[head.kind]
                heads[rank] = next(left[rank], None)
                progressed = True
        assert progressed, f"ranks wait for each other: {heads}"
    return max(free)


@pytest.mark.parametrize("name", SCHEDULES)
def test_running_the_orders_ends_and_leaves_the_ideal_bubble(name: str) -> None:
    for ranks, stages_per_rank, microbatches in valid_grid(name):
        stages = ranks * stages_per_rank
        step = makespan(SCHEDULES[name](ranks, stages_per_rank, microbatches), stages)
        bubble = ideal_bubble(name, ranks, stages_per_rank, microbatches)
        assert bubble == pytest.approx(1 - 3 * stages_per_rank * microbatches / step), (ranks, microbatches)


@pytest.mark.parametrize(
    ("name", "combination", "published"),
    [
        ("gpipe", (4, 1, 8), 3 / 11),
        ("gpipe", (4, 1, 2), 3 / 5),
        ("1f1b", (4, 1, 8), 3 / 11),
        ("interleaved", (4, 2, 8), 3 / 19),
        ("interleaved", (4, 2, 10), 3 / 23),
        ("looped-bfs", (4, 3, 5), 3 / 18),
        ("zero-bubble", (4, 1, 8), 3 / 27),
        ("zbv", (4, 2, 8), 3 / 51),
        ("1f1b", (1, 1, 8), 0),
    ],
)
def test_the_ideal_bubble_is_the_published_one(name: str, combination: Combination, published: float) -> None:
    assert ideal_bubble(name, *combination) == pytest.approx(published)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_torch_refuses_is_refused(name: str) -> None:
    """Torch's classes of one stage a rank cannot be asked for more, so those are held to that separately."""
    choices = (1,) if name in SINGLE else (1, 2, 3)
    for combination in product(range(1, 7), choices, range(1, 16)):
        try:
            torchs_schedule(name, *combination)
        except ValueError:
            with pytest.raises(ValueError):
                SCHEDULES[name](*combination)
            with pytest.raises(ValueError):
                ideal_bubble(name, *combination)
        else:
            assert SCHEDULES[name](*combination)


@pytest.mark.parametrize(
    ("name", "combination", "reason"),
    [
        ("gpipe", (4, 2, 8), r"gpipe needs exactly 1 stage\(s\) a rank, not 2"),
        ("1f1b", (4, 2, 8), r"1f1b needs exactly 1 stage\(s\) a rank, not 2"),
        ("1f1b", (4, 1, 3), "1f1b needs at least as many microbatches as ranks, not 3 for 4"),
        ("zbv", (4, 1, 8), r"zbv needs exactly 2 stage\(s\) a rank, not 1"),
        ("interleaved", (4, 2, 9), "interleaved on 4 ranks runs 9 microbatches in 2 rounds, which must divide them"),
        ("zero-bubble", (2, 2, 5), "zero-bubble on 2 ranks runs 5 microbatches in 2 rounds, which must divide them"),
        ("looped-bfs", (4, 2, 0), "a pipeline needs at least one microbatch, not 0"),
        ("looped-bfs", (0, 2, 4), "a pipeline needs ranks and stages, not 0 ranks with 2 stages each"),
        ("looped-bfs", (2, 0, 4), "a pipeline needs ranks and stages, not 2 ranks with 0 stages each"),
    ],
)
def test_a_refusal_gives_its_reason(name: str, combination: Combination, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        SCHEDULES[name](*combination)
    with pytest.raises(ValueError, match=f"^{reason}$"):
        ideal_bubble(name, *combination)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no pipeline schedule 'dualpipe'"):
        ideal_bubble("dualpipe", 4, 2, 8)
    with pytest.raises(ValueError, match="no pipeline schedule 'dualpipe'"):
        stages_of_rank("dualpipe", 4, 2, 0)
    with pytest.raises(ValueError, match="rank 4 is not among the 4 ranks"):
        stages_of_rank("zbv", 4, 2, 4)
    with pytest.raises(ValueError, match="stage -1 is not among the 8 stages"):
        rank_of_stage("interleaved", 4, 2, -1)
