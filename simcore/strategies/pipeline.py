"""A pipeline on the task graph: each rank's actions in torch's order, joined by handovers between stages.

Sources: the runtime of ``torch.distributed.pipelining``. GPipe and 1F1B post a receive only when the action that needs
it is next, and both NCCL and gloo send only once it is posted; in its steady phase 1F1B also waits for its own send.
The other schedules post their receives early and wait for sends at the end of the step. A stage without one before it
does not split its backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simcore.graph.tasks import Kind, Overhead, Task, TaskGraph, Transfer
from simcore.scenario.strategy import ONE_STAGE, StrategyTable
from simcore.strategies.rank import Rank
from simcore.strategies.schedules import SCHEDULES as ORDERS
from simcore.strategies.schedules import Action, Pass, rank_of_stage
from simcore.strategies.stage import StageLayer
from simcore.strategies.widths import Widths
from simcore.workload.step import STEM, StepShape

SCHEDULES = {"layer-split": ORDERS["gpipe"], **ORDERS}
"""The order of actions by the name that a scenario gives a schedule; ``layer-split`` is one microbatch in GPipe's."""

BACKWARD_PART = {Pass.BACKWARD: 1.0, Pass.INPUT: 0.5, Pass.WEIGHT: 0.5}
"""What part of a backward an action computes: inputs' and weights' gradients cost alike (Qi et al. 2023)."""

Move = tuple[int, Pass, int]
"""What arrives: the stage it arrives at, whether an activation or a gradient, and its microbatch."""


def stage_blocks(shape: StepShape, strategy: StrategyTable) -> list[list[int]]:
    """The blocks of each stage, the stem with the first and the head with the last.

    Raises ``ValueError`` where the model has too few.
    """
    bounds = strategy.split_blocks(shape.blocks)
    stages = [list(range(*bound)) for bound in bounds]
    stages[0].insert(0, STEM)
    stages[-1].append(shape.blocks)
    return stages


def actions_of(strategy: StrategyTable) -> tuple[tuple[Action, ...], ...]:
    """The actions of each pipeline rank, in order."""
    return SCHEDULES[strategy.schedule](strategy.pipeline_parallel, strategy.chunks, strategy.passes)


def placed_on(strategy: StrategyTable, stage: int) -> int:
    """The pipeline rank that holds a stage."""
    name = "gpipe" if strategy.schedule == "layer-split" else strategy.schedule
    return rank_of_stage(name, strategy.pipeline_parallel, strategy.chunks, stage)


def lay_pipeline(graph: TaskGraph, shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths) -> None:
    """Lay one step of every pipeline rank; of the copies of the model one stands for all.

    Raises ``ValueError`` where the model cannot be cut into the stages.
    """
    blocks = stage_blocks(shape, strategy)
    ranks = [Rank(graph, backend, f"rank {number} ") for number in range(strategy.pipeline_parallel)]
    stages = [
        StageLayer(ranks[placed_on(strategy, number)], shape, own, strategy, widths)
        for number, own in enumerate(blocks)
    ]
    handed_on = [shape.handed_on(own[-1]) * widths.activation / strategy.context_parallel for own in blocks]
    _Pipeline(graph, strategy, ranks, stages, handed_on).lay()


@dataclass
class _Pipeline:
    """The state of laying a pipeline: how far each rank is, and what has been handed over."""

    graph: TaskGraph
    strategy: StrategyTable
    ranks: list[Rank]
    stages: list[StageLayer]
    handed_on: Sequence[float]
    _ranks_of_stages: list[int] = field(default_factory=list)
    _next: list[int] = field(default_factory=list)
    _last: list[int | None] = field(default_factory=list)
    _produced: dict[Move, int] = field(default_factory=dict)
    _arrived: dict[Move, int] = field(default_factory=dict)
    _backwards: Counter[int] = field(default_factory=Counter)

    def lay(self) -> None:
        """All actions, each as soon as what it waits for has been laid; then each rank's end of the step."""
        orders = actions_of(self.strategy)
        self._ranks_of_stages = [placed_on(self.strategy, stage) for stage in range(len(self.stages))]
        self._next = [0] * len(orders)
        self._last = [None] * len(orders)
        for rank in self.ranks:
            rank.run("pipeline host", Kind.HOST, (Overhead(steps=1, of="pipeline"),))
        for stage in self.stages:
            stage.open()
        moved = True
        while moved:
            moved = False
            for number, order in enumerate(orders):
                while self._next[number] < len(order) and self._lay(number, order):
                    self._next[number] += 1
                    moved = True
        assert all(done == len(order) for done, order in zip(self._next, orders, strict=True)), "the schedule deadlocks"
        for number in range(len(orders)):
            own = [stage for index, stage in enumerate(self.stages) if self._ranks_of_stages[index] == number]
            for stage in own:
                stage.finish()
            for stage in own:
                stage.update()

    def _lay(self, number: int, order: Sequence[Action]) -> bool:
        """Lay a rank's next action; False where something it waits for is still missing."""
        action = order[self._next[number]]
        after: list[int] = []
        if (needed := self._needs(action)) is not None:
            arrival = self._arrive(number, needed)
            if arrival is None:
                return False
            after.append(arrival)
        if (sent := self._waits_for_send(order, self._next[number])) is not None:
            if sent not in self._arrived:
                return False
            after.append(self._arrived[sent])
        self._last[number] = last = self._compute(action, after)
        if (made := self._makes(action)) is not None:
            self._produced[made] = last
        return True

    def _needs(self, action: Action) -> Move | None:
        """What an action must have received from another stage."""
        if action.kind is Pass.FORWARD:
            return (action.stage, Pass.FORWARD, action.microbatch) if action.stage else None
        if action.kind is Pass.WEIGHT or action.stage == len(self.stages) - 1:
            return None
        return (action.stage, Pass.BACKWARD, action.microbatch)

    def _makes(self, action: Action) -> Move | None:
        """What an action hands over to another stage."""
        if action.kind is Pass.FORWARD:
            last = action.stage == len(self.stages) - 1
            return None if last else (action.stage + 1, Pass.FORWARD, action.microbatch)
        if action.kind is Pass.WEIGHT or not action.stage:
            return None
        return (action.stage - 1, Pass.BACKWARD, action.microbatch)

    def _arrive(self, number: int, move: Move) -> int | None:
        """The task that brings ``move`` to a rank, laid once it is made and expected; None before."""
        if move in self._arrived or move not in self._produced:
            return self._arrived.get(move)
        stage, kind, _ = move
        sender = stage - 1 if kind is Pass.FORWARD else stage + 1
        source = self._ranks_of_stages[sender]
        produced = self._produced[move]
        if source == number:  # two stages of one rank share its memory
            self._arrived[move] = produced
            return produced
        size = self.handed_on[sender] if kind is Pass.FORWARD else self.handed_on[stage]
        transfer = Transfer("send_recv", size, "all", "pipeline", activations=True)
        after = [produced]
        if self.strategy.schedule in ONE_STAGE and (last := self._last[number]) is not None:
            after.append(last)
        name = f"{'activation' if kind is Pass.FORWARD else 'gradient'} {move[2]} to stage {stage}"
        task = Task(name, Kind.HANDOVER, f"link from rank {source} to rank {number}", (transfer,))
        self._arrived[move] = self.graph.add(task, after)
        return self._arrived[move]

    def _waits_for_send(self, order: Sequence[Action], place: int) -> Move | None:
        """What 1F1B must have sent before an action: it fuses a send with the receive of the other direction."""
        if self.strategy.schedule != "1f1b" or not place or order[place - 1].kind is order[place].kind:
            return None
        return self._makes(order[place - 1])

    def _compute(self, action: Action, after: list[int]) -> int:
        stage, whole = self.stages[action.stage], Overhead(tensors=1, of="pipeline")
        name = f"{action.kind.value}{action.microbatch} of stage {action.stage}"
        if action.kind is Pass.FORWARD:
            return stage.forward(name, whole, after)
        part = BACKWARD_PART[action.kind]
        if not action.stage and action.kind is not Pass.BACKWARD:
            part = 1.0 if action.kind is Pass.WEIGHT else 0.0
        self._backwards[action.stage] += action.kind is not Pass.INPUT
        last = self._backwards[action.stage] == self.strategy.passes
        first = self._backwards[action.stage] <= 1
        return stage.backward(name, whole, part, first, last and action.kind is not Pass.INPUT, after)
