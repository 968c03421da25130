"""Peak memory counts what is alive at the worst moment, and nothing else."""

import os
from pathlib import Path

import pytest
import torch

from protopyramid.benchmarks.fine import FineProblem
from protopyramid.benchmarks.memory import (
    GIVES_BACK,
    Peaks,
    can_measure_resident,
    peaks_in_child,
    peaks_of,
    python_peak,
    resident_peak,
    tensor_peak,
)
from protopyramid.benchmarks.settings import Settings

MB = 1_000_000


def floats(megabytes: float) -> torch.Tensor:
    return torch.zeros(int(megabytes * MB / 4))


def test_tensors_that_are_alive_together_are_added():
    def work():
        first = floats(2)
        second = floats(3)
        return first, second

    assert tensor_peak(work) == 5 * MB


def test_a_tensor_that_is_gone_before_the_next_comes_does_not_add():
    def work():
        first = floats(2)
        del first
        floats(3)

    assert tensor_peak(work) == 3 * MB


def test_inputs_are_no_part_of_the_work():
    given = floats(4)
    assert tensor_peak(lambda: given.add_(1.0)) < 100  # a number
    assert tensor_peak(lambda: given + 1.0) == pytest.approx(4 * MB, abs=100)


def test_what_is_kept_for_the_gradient_counts():
    given = floats(1).requires_grad_()
    # The first square is kept for the gradient while the second is made.
    assert tensor_peak(lambda: given.square().square()) == 2 * MB
    with torch.no_grad():
        assert tensor_peak(lambda: given.square().square().square()) == 2 * MB


def test_python_objects_are_counted_by_tracemalloc_and_tensors_are_not():
    assert python_peak(lambda: len(bytearray(2 * MB))) == pytest.approx(2 * MB, rel=0.05)
    assert python_peak(lambda: floats(8)) < MB


@pytest.mark.skipif(not can_measure_resident(), reason="needs /proc of Linux")
def test_resident_memory_is_that_of_the_work_not_what_is_left_of_it():
    megabytes = 64
    peak = resident_peak(lambda: len(bytearray(megabytes * 2**20)))
    assert megabytes * 0.9 < peak / 2**20 < megabytes * 1.5


def settings_of_the_child(*_: int) -> Peaks:
    return Peaks(*(int(os.environ[name]) for name in GIVES_BACK), python=0)


def test_a_child_gives_freed_memory_back_and_hands_over_what_it_found(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    found = peaks_in_child(f"{Path(__file__).stem}:settings_of_the_child", 1)
    assert found == Peaks(65536, 65536, 0)


def test_the_fine_loss_holds_less_than_four_times_its_finest_maps():
    """Gradients of all levels, stencils, and one temporary of the finest level; never a pixel map."""
    problem = FineProblem.of(Settings().config(**{"model.backbone.width": 0.125}), 16)
    finest = max(maps.nbytes for maps in problem.maps.values())
    problem.ours()
    assert tensor_peak(problem.ours) < 4 * finest
    pixels = problem.images * problem.prototypes * problem.masks[0].numel() * 4
    assert tensor_peak(problem.upsampled) > pixels


def test_all_three_ways_are_taken():
    found = peaks_of(lambda: floats(4))
    assert found.tensors == 4 * MB
    assert (found.resident is not None) == can_measure_resident()
    assert found.python >= 0
