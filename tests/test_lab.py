"""The small lab: two real hosts on shaped links; what calibration there predicts is what paced training takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab.hosts import lab_hosts, why_unavailable
from tests.lab.rehearse import WORST_ERROR, Outcome, rehearse
from tests.lab.settings import SMALL

UNAVAILABLE = why_unavailable()

pytestmark = [pytest.mark.lab, pytest.mark.skipif(UNAVAILABLE is not None, reason=UNAVAILABLE or "")]


def test_hosts_reach_each_other_and_leave_nothing() -> None:
    with lab_hosts(2, 1.0) as hosts:
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
        assert all(host.namespace in listed for host in hosts)
        for host in hosts:
            links = subprocess.run(
                host.command(["ip", "-br", "addr"]), capture_output=True, text=True, check=True
            ).stdout
            assert host.address in links
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not any(host.namespace in left for host in hosts)


def test_the_small_lab_is_predicted(tmp_path: Path) -> None:
    outcomes = list(rehearse(SMALL, tmp_path))
    assert len(outcomes) == sum(map(len, SMALL.values()))
    for outcome in outcomes:
        assert isinstance(outcome, Outcome), outcome
        assert abs(outcome.error) <= WORST_ERROR, outcome
