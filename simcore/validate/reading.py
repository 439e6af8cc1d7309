"""The words of a runs table as a scenario: which model, GPU, link and strategy a row means.

What a row does not say is assumed here, in one place: fp32 where no precision is stated, torch's defaults where no
option is. A row that means something not known is refused with the reason, and counted.
"""

from __future__ import annotations

import re
from typing import Any

from simcore.catalog.load import find_gpu
from simcore.errors import InputError
from simcore.files import parse
from simcore.scenario.schema import Scenario
from simcore.validate.runs import Run
from simcore.workload.models import MODELS, TRANSFORMERS

MODEL_WORDS = {"resnext50 32x4d": "resnext50", "gpt2 small": "gpt2", "gpt2 (small)": "gpt2"}
GPU_WORDS = {"V100": "V100-SXM2-32GB", "TITAN RTX": "TitanRTX"}

INTRA_LINKS: tuple[tuple[str, str, str], ...] = (
    # (what the link says, what the GPU says, the catalogue's link), the first that fits
    ("nvswitch", "V100", "nvswitch-v100"),
    ("nvlink", "V100", "nvlink-v100-mesh"),
    ("", "A100-SXM", "nvswitch-a100"),
    ("nvlink", "RTX-3090", "nvlink-bridge-3090"),
    ("nvlink", "TitanRTX", "nvlink-bridge-titan"),
    ("disable", "RTX-3090", "pcie4-x8-host"),
    ("pcie", "RTX-3090", "pcie4-x8-host"),
    ("disable", "TitanRTX", "pcie3-host"),
    ("pcie", "TitanRTX", "pcie3-host"),
)
INTER_LINKS: tuple[tuple[str, str], ...] = (
    (r"4x\s*100 gb/s infiniband", "ib-edr-4x100"),
    (r"p3dn.*100 gb/s", "efa-p3dn-100"),
    (r"25 gb/s", "eth-25g-tcp"),
)
OLD_TORCH = re.compile(r"pytorch[ -]1\.[0-8]\b|transformers 4\.[0-3]\b")
"""DDP before torch 1.9, and frameworks from before it."""

PRECISIONS = {"": "fp32", "fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16"}
"""Autocast is known by ``amp`` in the cell."""


class NotUnderstood(Exception):
    """A row that says something not known, or not enough."""


def scenario_of(run: Run) -> Scenario:
    """The scenario that a row measured, at its own count of GPUs. Raises ``NotUnderstood`` with the reason."""
    if run.batch is None:
        raise NotUnderstood("no batch is stated")
    gpu = _gpu(run)
    model, tokens = _model(run)
    table: dict[str, Any] = {
        "title": run.name,
        "workload": {"model": model, "global_batch": run.batch, "precision": _precision(run)}
        | ({"sequence_length": tokens} if tokens else {}),
        "cluster": {"gpu": gpu, "gpus_per_node": run.count("gpus_per_node") or min(run.gpus, 8)}
        | ({"intra_node": _intra_link(run, gpu)} if run.gpus > 1 else {})
        | ({"inter_node": _inter_link(run)} if run.gpus > (run.count("gpus_per_node") or run.gpus) else {}),
        "strategy": _strategy(run),
        "sweep": {"gpus": [run.gpus]},
    }
    try:
        return parse(Scenario, table, run.name)
    except InputError as error:
        raise NotUnderstood(str(error)) from None


def _model(run: Run) -> tuple[str, int | None]:
    words = run.text("model").lower().replace("_", " ").strip()
    name = MODEL_WORDS.get(words, words.replace(" ", "-"))
    name = name if name in MODELS else name.replace("-", "")
    if name not in MODELS:
        raise NotUnderstood(f"the model '{run.text('model')}' is not in the catalogue")
    sequence = run.number("seq_len") or (
        _leading_number(run.text("seq_len_or_image")) if name in TRANSFORMERS else None
    )
    return name, round(sequence) if sequence else None


def _leading_number(text: str) -> float | None:
    found = re.match(r"\d+", text)
    return float(found.group()) if found else None


def _gpu(run: Run) -> str:
    words = run.text("gpu")
    memory = run.count("gpu_mem_gb")
    for name in (GPU_WORDS.get(words, words), f"{words}-{memory}GB", words.replace(" ", "-")):
        try:
            return find_gpu(name, run.name)[0]
        except InputError:
            continue
    raise NotUnderstood(f"the GPU '{words}' is not in the catalogue")


def _intra_link(run: Run, gpu: str) -> str:
    words = run.text("intra_link").lower()
    words = "disable" if "disable" in words else words
    for said, device, link in INTRA_LINKS:
        if said in words and device in gpu:
            return link
    raise NotUnderstood(f"the link '{run.text('intra_link')}' between {gpu}s is not known")


def _inter_link(run: Run) -> str:
    words = run.text("inter_link").lower()
    for pattern, link in INTER_LINKS:
        if re.search(pattern, words):
            return link
    raise NotUnderstood(f"the link '{run.text('inter_link')}' between nodes is not known")


def _precision(run: Run) -> str:
    words = run.text("precision").lower()
    if "amp" in words:
        return "amp-bf16" if "bf16" in words else "amp-fp16"
    if words not in PRECISIONS:
        raise NotUnderstood(f"the precision '{words}' is not known")
    return PRECISIONS[words]


def _strategy(run: Run) -> dict[str, Any]:
    words = run.text("strategy").lower()
    kind = re.match(r"[a-z0-9-]+", words)
    name = kind.group() if kind else ""
    if name in ("single-gpu", "none", "") and run.gpus == 1:
        return {"data": "ddp"}
    if name not in ("dp", "ddp"):
        raise NotUnderstood(f"the strategy '{words}' is not known")
    table: dict[str, Any] = {"data": name}
    if cap := re.search(r"bucket_cap_mb\s*=\s*([\d.]+)", words):
        table["bucket_cap_mb"] = float(cap.group(1))
    framework = run.text("framework_version").lower()
    if name == "ddp":
        # Hugging Face's Trainer of that time asked for unused parameters to be found unless told otherwise.
        table["find_unused_parameters"] = "transformers 4." in framework
        table["tied_weights_twice"] = bool(OLD_TORCH.search(framework))
    return table
