"""Edits of a scenario: what the controls hold, as text, turned into a new scenario or into one line of fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simcore.errors import InputError
from simcore.files import parse
from simcore.scenario.schema import Scenario

WHERE = "what if"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the controls say; each is the text of one control, empty where the scenario leaves it to a default."""

    gpus: str
    batch: str
    bucket_mb: str
    gpu: str
    intra: str
    inter: str

    def changed(self, other: WhatIf) -> int:
        """How many controls differ from ``other``."""
        return sum(getattr(self, name) != getattr(other, name) for name in self.__slots__)

    def with_value(self, name: str, value: str) -> WhatIf:
        """The same with one control changed."""
        return replace(self, **{name: value.strip()})


def what_if_of(scenario: Scenario) -> WhatIf:
    """The controls as the scenario sets them."""
    workload, cluster, strategy = scenario.workload, scenario.cluster, scenario.strategy
    return WhatIf(
        gpus=str(max(scenario.sweep.gpus)),
        batch=str(workload.batch_per_gpu or workload.global_batch),
        bucket_mb="" if strategy.bucket_cap_mb is None else f"{strategy.bucket_cap_mb:g}",
        gpu=cluster.gpu or "",
        intra=cluster.intra_node or "",
        inter=cluster.inter_node or "",
    )


def apply(scenario: Scenario, what_if: WhatIf) -> Scenario:
    """``scenario`` as the controls would have it. Raises ``InputError`` with one line a fault.

    Points measured on the scenario as it was hold only while nothing but the counts differs.
    """
    table: dict[str, Any] = scenario.model_dump(exclude_none=True)
    batch_key = "global_batch" if scenario.strong_scaling else "batch_per_gpu"
    most = _whole(what_if.gpus, "GPUs")
    table["sweep"] = {"gpus": _counts(scenario, most)}
    table["workload"][batch_key] = _whole(what_if.batch, "batch")
    cap = _number(what_if.bucket_mb, "bucket") if what_if.bucket_mb else None
    table["strategy"] = _without_none({**table["strategy"], "bucket_cap_mb": cap})
    cluster = {"gpu": what_if.gpu, "intra_node": what_if.intra, "inter_node": what_if.inter}
    table["cluster"] = _without_none({**table["cluster"], **{key: value or None for key, value in cluster.items()}})
    keeps = replace(what_if, gpus="") == replace(what_if_of(scenario), gpus="")
    table["measured"] = [point for point in table["measured"] if keeps and point["gpus"] <= most]
    return parse(Scenario, table, WHERE)


def _counts(scenario: Scenario, most: int) -> list[int]:
    """Doubling copies of the model on up to ``most`` GPUs, with the counts of the scenario's own sweep.

    Counts that hold no whole copies or do not divide the batch are left out, unless there are no others.
    """
    copy = scenario.strategy.gpus_per_copy
    doubling = [copy * 2**power for power in range(most.bit_length()) if copy * 2**power <= most]
    counts = sorted({*doubling, most, *(count for count in scenario.sweep.gpus if count <= most)})
    return [count for count in counts if _divides(scenario, count)] or counts


def _divides(scenario: Scenario, gpus: int) -> bool:
    try:
        scenario.local_batch(gpus)
    except ValueError:
        return False
    return True


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _whole(text: str, name: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{name}: found '{text}'; a whole number of at least 1 is needed")
    return int(text)


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{name}: found '{text}'; a number is needed") from None
    if not value > 0:
        raise InputError(f"{name}: found '{text}'; a number above 0 is needed")
    return value
