"""One measured point pulls the compute costs towards it: as far as they are unsure, and never past it."""

from __future__ import annotations

import math

import pytest

from simcore.evidence import MEASUREMENT_SPREAD, posterior_factor


def compute_only(factors):  # type: ignore[no-untyped-def]
    """A step that is all compute: one second at factor one."""
    return [[factor] for factor in factors]


def half_compute(factors):  # type: ignore[no-untyped-def]
    """A step that is compute and as much again of something else."""
    return [[factor + 1.0] for factor in factors]


def test_the_posterior_is_the_closed_form_of_two_normals() -> None:
    prior = 0.25
    factor, spread = posterior_factor(compute_only, [1.5], prior)
    weight = prior**2 / (prior**2 + MEASUREMENT_SPREAD**2)
    assert math.log(factor) == pytest.approx(weight * math.log(1.5), rel=1e-3)
    assert spread == pytest.approx((prior**-2 + MEASUREMENT_SPREAD**-2) ** -0.5, rel=1e-3)


def test_a_sure_cost_hardly_moves() -> None:
    assert posterior_factor(compute_only, [1.5], 0.002)[0] == pytest.approx(1.0, abs=0.005)


def test_no_prior_spread_means_no_movement() -> None:
    assert posterior_factor(compute_only, [1.5], 0.0) == (1.0, 0.0)


def test_a_step_that_is_half_compute_needs_twice_the_change() -> None:
    assert posterior_factor(half_compute, [2.2], 0.5)[0] == pytest.approx(1.2, rel=0.01)


def test_an_impossible_point_breaks_nothing() -> None:
    factor, spread = posterior_factor(half_compute, [0.01], 0.25)
    assert 0 < factor < 1
    assert math.isfinite(spread)


def test_points_that_disagree_meet_in_the_middle() -> None:
    def two(factors):  # type: ignore[no-untyped-def]
        return [[factor, factor] for factor in factors]

    assert posterior_factor(two, [1.0, 1.44], 1.0)[0] == pytest.approx(1.2, rel=0.01)
