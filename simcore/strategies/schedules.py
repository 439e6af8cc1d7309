"""Pipeline schedules, as torch runs them.

Restates the action lists of ``torch.distributed.pipelining.schedules``; a test holds every list equal to torch's own.
An order says only what a rank does after what. Idle slots are left out, since they follow from what each action costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain


class Pass(StrEnum):
    """What an action runs; the letters are torch's."""

    FORWARD = "F"
    BACKWARD = "B"  # gradients of inputs and weights in one go
    INPUT = "I"  # gradients of the inputs alone, all that the previous stage waits for
    WEIGHT = "W"  # gradients of the weights alone, which no other stage waits for


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one microbatch through one stage, the unit in which schedules order work."""

    stage: int
    kind: Pass
    microbatch: int


Schedule = tuple[tuple[Action, ...], ...]

# Stages a rank that a schedule insists on; the others take any number.
_STAGES_PER_RANK = {"gpipe": 1, "1f1b": 1, "zbv": 2}
# Schedules that send microbatches through a rank's stages in rounds of equal size.
_IN_ROUNDS = ("interleaved", "zero-bubble")


def stages_of_rank(name: str, ranks: int, stages_per_rank: int, rank: int) -> tuple[int, ...]:
    """The stages that ``rank`` holds, ascending: those it meets going round the ranks, or down and up again for zbv."""
    _check_placement(name, ranks, stages_per_rank)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is not among the {ranks} ranks of the pipeline")
    if name == "zbv":
        return rank, 2 * ranks - 1 - rank
    return tuple(range(rank, ranks * stages_per_rank, ranks))


def rank_of_stage(name: str, ranks: int, stages_per_rank: int, stage: int) -> int:
    """The rank that holds ``stage``, the inverse of ``stages_of_rank``."""
    _check_placement(name, ranks, stages_per_rank)
    if not 0 <= stage < ranks * stages_per_rank:
        raise ValueError(f"stage {stage} is not among the {ranks * stages_per_rank} stages of the pipeline")
    return min(stage, 2 * ranks - 1 - stage) if name == "zbv" else stage % ranks


def _check_placement(name: str, ranks: int, stages_per_rank: int) -> None:
    """Refuses what has no placement, so that the arithmetic on stages holds."""
    if name not in _ORDERS:
        raise ValueError(f"there is no pipeline schedule {name!r}, only {', '.join(_ORDERS)}")
    if ranks < 1 or stages_per_rank < 1:
        raise ValueError(f"a pipeline needs ranks and stages, not {ranks} ranks with {stages_per_rank} stages each")
    required = _STAGES_PER_RANK.get(name, stages_per_rank)
    if stages_per_rank != required:
        raise ValueError(f"{name} needs exactly {required} stage(s) a rank, not {stages_per_rank}")


def _check(name: str, ranks: int, stages_per_rank: int, microbatches: int) -> None:
    """Refuses what torch's constructors refuse."""
    _check_placement(name, ranks, stages_per_rank)
    if microbatches < 1:
        raise ValueError(f"a pipeline needs at least one microbatch, not {microbatches}")
    if name == "1f1b" and microbatches < ranks:
        raise ValueError(f"1f1b needs at least as many microbatches as ranks, not {microbatches} for {ranks}")
    rounds = _rounds(ranks, microbatches)
    if name in _IN_ROUNDS and microbatches % rounds:
        raise ValueError(
            f"{name} on {ranks} ranks runs {microbatches} microbatches in {rounds} rounds, which must divide them"
        )


def _rounds(ranks: int, microbatches: int) -> int:
    """As many rounds as have a microbatch for every rank, but one at least: a round may hold more than ``ranks``."""
    return max(1, microbatches // ranks)


def _passes(stages: Iterable[int], kind: Pass, microbatches: Sequence[int]) -> Iterator[Action]:
    """All ``microbatches`` through one stage, then through the next."""
    return (Action(stage, kind, microbatch) for stage in stages for microbatch in microbatches)


def _in_rounds(stages: Sequence[int], kind: Pass, ranks: int, microbatches: int) -> list[Action]:
    """Each round through all ``stages`` before the next round starts."""
    size = microbatches // _rounds(ranks, microbatches)
    starts = range(0, microbatches, size)
    return list(chain.from_iterable(_passes(stages, kind, range(start, start + size)) for start in starts))


def _one_forward_one_backward(forwards: list[Action], backwards: list[Action], ahead: int) -> list[Action]:
    """Runs ``ahead`` forwards first, then forwards and backwards in turn, then the backwards left over."""
    paired = chain.from_iterable(zip(forwards[ahead:], backwards, strict=False))
    return [*forwards[:ahead], *paired, *backwards[max(0, len(forwards) - ahead) :]]


def _gpipe(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> Iterator[Action]:
    """All forwards, then all backwards, both from the first microbatch on."""
    every = range(microbatches)
    return chain(_passes((rank,), Pass.FORWARD, every), _passes((rank,), Pass.BACKWARD, every))


def _1f1b(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> list[Action]:
    """Ahead by one forward for each later rank, so that the last one can alternate from its first forward on."""
    forwards = list(_passes((rank,), Pass.FORWARD, range(microbatches)))
    backwards = list(_passes((rank,), Pass.BACKWARD, range(microbatches)))
    return _one_forward_one_backward(forwards, backwards, ranks - 1 - rank)


def _looped_bfs(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> Iterator[Action]:
    """All microbatches through one stage before the next; the backwards retrace the forwards, last microbatch first."""
    stages = range(rank, ranks * stages_per_rank, ranks)
    every = range(microbatches)
    return chain(_passes(stages, Pass.FORWARD, every), _passes(stages[::-1], Pass.BACKWARD, every[::-1]))


def _interleaved_with(
    backward: Pass, ahead_per_hop: int, rank: int, ranks: int, stages_per_rank: int, microbatches: int
) -> list[Action]:
    """Alternates over rounds: ahead by a round for each stage but the last, and ``ahead_per_hop`` per later rank."""
    stages = range(rank, ranks * stages_per_rank, ranks)
    forwards = _in_rounds(stages, Pass.FORWARD, ranks, microbatches)
    backwards = _in_rounds(stages[::-1], backward, ranks, microbatches)
    round_size = microbatches // _rounds(ranks, microbatches)
    ahead = (stages_per_rank - 1) * round_size + ahead_per_hop * (ranks - 1 - rank)
    return _one_forward_one_backward(forwards, backwards, ahead)


def _interleaved(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> list[Action]:
    """Two forwards ahead per later rank, as in Megatron-LM, also where there is but one stage a rank."""
    return _interleaved_with(Pass.BACKWARD, 2, rank, ranks, stages_per_rank, microbatches)


def _zero_bubble(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> Iterator[Action]:
    """ZB1P: each later rank puts off its weight gradients by one more, to fill the slots where it would wait."""
    order = _interleaved_with(Pass.INPUT, 1, rank, ranks, stages_per_rank, microbatches)
    due = (Action(action.stage, Pass.WEIGHT, action.microbatch) for action in order if action.kind is Pass.INPUT)
    put_off = 0
    for action in order:
        yield action
        if action.kind is Pass.INPUT and put_off < rank:
            put_off += 1
        elif action.kind is Pass.INPUT:
            yield next(due)
    yield from due


def _zbv(rank: int, ranks: int, stages_per_rank: int, microbatches: int) -> list[Action]:
    """ZB-V: phases that each repeat one turn over the passes of the rank's early and late stage.

    The phases fit together only from 2 * ranks - 1 microbatches on. For fewer torch plans that many and skips the
    actions of those that there are not.
    """
    planned = max(2 * ranks - 1, microbatches)

    def streams(stage: int) -> list[Iterator[Action]]:
        return [_passes((stage,), kind, range(planned)) for kind in (Pass.FORWARD, Pass.INPUT, Pass.WEIGHT)]

    f0, i0, w0 = streams(rank)
    f1, i1, w1 = streams(2 * ranks - 1 - rank)
    later = ranks - 1 - rank
    phases = (
        (2 * later + 1, (f0,)),
        (rank, (f1, f0)),
        (later + 1, (f1, i1, w1)),
        (planned - ranks - later, (f0, i0, w0, f1, i1, w1)),
        (later, (i0, w0, f1, i1, w1)),  # the early stage has no forwards left
        (rank, (i0, i1)),
        (later + 1, (i0, w0)),
        (rank, (w1,)),
        (rank, (w0,)),
    )
    order = (next(stream) for turns, turn in phases for _ in range(turns) for stream in turn)
    return [action for action in order if action.microbatch < microbatches]


# By name, what one rank does, from (rank, ranks, stages_per_rank, microbatches).
_ORDERS: dict[str, Callable[[int, int, int, int], Iterable[Action]]] = {
    "gpipe": _gpipe,
    "1f1b": _1f1b,
    "interleaved": _interleaved,
    "looped-bfs": _looped_bfs,
    "zero-bubble": _zero_bubble,
    "zbv": _zbv,
}


def _schedule(name: str) -> Callable[[int, int, int], Schedule]:
    """The orders of all ranks together, checked, since the order of one rank trusts its arguments."""

    def orders(ranks: int, stages_per_rank: int, microbatches: int) -> Schedule:
        _check(name, ranks, stages_per_rank, microbatches)
        return tuple(tuple(_ORDERS[name](rank, ranks, stages_per_rank, microbatches)) for rank in range(ranks))

    return orders


SCHEDULES: dict[str, Callable[[int, int, int], Schedule]] = {name: _schedule(name) for name in _ORDERS}


def ideal_bubble(name: str, ranks: int, stages_per_rank: int, microbatches: int) -> float:
    """The share of the step in which a rank idles: equal stages, F = I = W = 1, B = 2, communication free.

    With p ranks, v stages a rank and m microbatches this is (p-1)/(m+p-1) for gpipe (GPipe, arXiv:1811.06965, section
    2.3) and 1f1b (Megatron-LM, arXiv:2104.04473, section 2.2.1), and (p-1)/(v*m+p-1) for interleaved (section 2.2.2)
    and for looped-bfs (arXiv:2211.05953). The papers divide by the time without bubbles, here it is by the whole step.
    For zero-bubble it is (p-1)/(3*v*m+p-1): ZB-H1's bubble of (p-1)*(F+I-W) (Zero Bubble, arXiv:2401.10241, section 2)
    holds for torch's rounds over v stages too. For zbv it is (p-1)/(6*m+p-1): no rank waits once it has begun (section
    6), but each begins one forward after the one before it.

    Those hold from m = p on, zbv's from 2*m = 3*p-1 on, gpipe's always. What shorter steps idle on top is in no paper;
    it is fitted to simulated steps, and a test holds all of it equal to a simulation. So none lacks a closed form.
    """
    _check(name, ranks, stages_per_rank, microbatches)
    idle = _ideal_idle(name, ranks, stages_per_rank, microbatches)
    return idle / (3 * stages_per_rank * microbatches + idle)


def _ideal_idle(name: str, ranks: int, stages_per_rank: int, microbatches: int) -> int:
    """How long a rank idles in a step, in forwards of one stage; ``missing`` microbatches leave gaps at each stage."""
    if name == "zbv":
        return max(ranks - 1, 2 * (2 * ranks - 1 - microbatches))
    missing = max(0, ranks - microbatches)
    if name == "zero-bubble":
        # Weight gradients, one for each microbatch, fill the backward's share of a gap.
        gap = missing + max(0, missing - microbatches)
        return ranks - 1 + missing + (stages_per_rank - 1) * gap
    return 3 * (ranks - 1 + (stages_per_rank - 1) * missing)
