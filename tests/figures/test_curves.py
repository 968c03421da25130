"""Curves of a training."""

from protopyramid.figures.curves import Curve, Plot, curves_figure

from .examples import drawn


def test_curves_of_one_epoch_no_epoch_and_gaps() -> None:
    lone = Plot("loss", [Curve("x", [1.0], [2.0])], None, [(0.5, "A")])
    gap = Plot("gap", [Curve("y", [1.0, 2.0], [float("nan"), 1.0])], (0.0, 1.0))
    assert drawn(curves_figure([lone, gap, Plot("none", [])]))
    assert drawn(curves_figure([]))
