"""The catalogue: every entry valid, sourced and plausible; names and aliases without a clash."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from simcore import catalog
from simcore.catalog.load import find_gpu, find_link, gpus, known_gpu, links
from simcore.errors import InputError
from simcore.files import Table

NVIDIA = [name for name in gpus() if not name.startswith(("MI", "CPU"))]


def test_names_and_aliases_are_unique_whatever_their_case() -> None:
    names = [known.lower() for name, gpu in gpus().items() for known in (name, *gpu.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", gpus())
def test_every_gpu_has_a_source_and_faster_types_that_are_faster(name: str) -> None:
    gpu = gpus()[name]
    assert len(gpu.source) > 10
    assert gpu.tflops["fp32"] <= gpu.tflops.get("fp16", gpu.tflops["fp32"])
    assert gpu.tflops.get("fp16", 0) <= gpu.tflops.get("fp8", gpu.tflops.get("fp16", 0))


@pytest.mark.parametrize("name", NVIDIA)
def test_fp32_peaks_are_cores_times_clock(name: str) -> None:
    """64 or 128 fp32 lanes an SM, two FLOPs each a cycle."""
    gpu = gpus()[name]
    per_lane = gpu.sm_count * gpu.boost_clock_mhz * 1e6 * 2 / 1e12
    assert min(abs(gpu.tflops["fp32"] / (lanes * per_lane) - 1) for lanes in (64, 128)) < 0.06


@pytest.mark.parametrize("name", links())
def test_every_link_has_a_source(name: str) -> None:
    assert len(links()[name].source) > 10


@pytest.mark.parametrize(("file", "known"), [("gpus.toml", gpus), ("links.toml", links)])
def test_tables_parsed_alone_are_those_of_the_whole_file(file: str, known: Callable[[], dict[str, Table]]) -> None:
    whole = tomllib.loads((Path(catalog.__file__).parent / file).read_text())
    assert whole.keys() == known().keys()
    for name, table in whole.items():
        assert type(known()[name]).model_validate(table) == known()[name]


def test_gpus_are_found_by_any_name() -> None:
    assert find_gpu("a100", "x")[0] == "A100-SXM4-40GB"
    assert known_gpu("NVIDIA A100-SXM4-80GB") == gpus()["A100-SXM4-80GB"]
    assert known_gpu("Something Else") is None


def test_a_link_of_the_scenario_hides_the_catalogues() -> None:
    own = {"eth-1g": links()["eth-1g"].model_copy(update={"bandwidth_gb_per_s": 0.5})}
    assert find_link("eth-1g", "inter", own, "x").bandwidth_gb_per_s == 0.5


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'h100"):
        find_gpu("H1000", "x")
