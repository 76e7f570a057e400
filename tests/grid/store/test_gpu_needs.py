"""GPU memory: shares of a device from what was measured on it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid.grid.store import gpu_needs
from goalgrid.grid.store.gpu_needs import Need
from goalgrid.grid.store.home import Home

GB = 1e9
MARGIN, RESERVED = 1.15, 2**30
"""As docs/gpu.md says them."""
A100 = Need("NVIDIA A100-SXM4-40GB", 40 * GB, 0.5 * GB, 3 * GB)


def test_a_share_is_the_peak_with_its_margin_and_the_context_rounded_up() -> None:
    exact = (MARGIN * 3 * GB + 0.5 * GB) / (40 * GB - RESERVED)
    assert exact < A100.share() == pytest.approx(exact, abs=0.01)
    assert A100.share() == 0.11


@pytest.mark.parametrize(("percent", "share"), [(12.1, 0.13), (12.0, 0.12), (30.0, 0.3)])
def test_a_share_is_rounded_up_to_a_hundredth(percent: float, share: float) -> None:
    assert Need("any", RESERVED + 100.0, context=percent, alone=0.0).share() == share


def test_what_fits_without_all_of_the_margin_has_the_device_for_itself() -> None:
    assert Need("small", 4 * GB, 0.5 * GB, 3.4 * GB).share() == 1.0


@given(
    total=st.floats(4 * GB, 200 * GB),
    context=st.floats(0, GB),
    peaks=st.lists(st.floats(GB / 100, 50 * GB), min_size=1, max_size=30),
)
def test_jobs_whose_shares_fit_on_a_device_never_exceed_its_memory(
    total: float, context: float, peaks: list[float]
) -> None:
    needs = [Need("any", total, context, peak) for peak in peaks if MARGIN * peak + context <= total - RESERVED]
    placed, left = [], 1.0
    for need in needs:
        if need.share() <= left + 1e-9:
            placed.append(need)
            left -= need.share()
    room = [need.bound(need.share()) * total for need in placed]
    assert all(need.alone <= bound for need, bound in zip(placed, room, strict=True))
    if len(placed) > 1:
        assert sum(bound + context for bound in room) <= total - RESERVED + 1


def test_what_is_measured_is_remembered_by_kind_and_device(tmp_path: Path) -> None:
    home, other = Home(tmp_path), Need("NVIDIA H100", 80 * GB, 0.5 * GB, 3 * GB)
    gpu_needs.remember(home, "kind", A100)
    gpu_needs.remember(home, "kind", other)
    assert gpu_needs.read(home, "kind") == {A100.device: A100, other.device: other}
    assert gpu_needs.read(home, "another") == {}
    assert gpu_needs.smallest([other, A100]) == A100


def test_a_trial_that_is_too_large_is_told_what_it_needs_what_there_is_and_what_helps() -> None:
    error = str(gpu_needs.too_large("vse-inf-wsl", 128, "NVIDIA T4", taken=15.2 * GB, free=15.5 * GB, total=15.8 * GB))
    assert "vse-inf-wsl at a batch of 128 needs more than 15.2 GB" in error
    assert "NVIDIA T4 has 15.8 GB, 15.5 GB were free" in error
    assert "train.batch_size" in error
    assert "resources.replicas" in error


def test_a_need_says_its_share_and_its_bytes() -> None:
    assert A100.text() == "0.11 of NVIDIA A100-SXM4-40GB: 3.9 of 40 GB"
