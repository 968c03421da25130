"""Health findings on prototypes whose illness is known."""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.metrics import prototype_health as prototype_health_module
from protopyramid.metrics.prototype_health import (
    Finding,
    health_lines,
    prototype_health,
    times_decisive,
    times_leading,
    unused,
)

NAMES = ("circumscribed", "spiculated")
CLASSES = torch.tensor([0, 0, 1, 1])
LEVELS = torch.tensor([3, 3, 3, 5])


def healthy() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.where(torch.arange(2)[:, None] == CLASSES, 1.0, -0.5)
    return torch.eye(4), weight, torch.rand(20, 4, generator=generator)


def test_healthy_prototypes_have_no_findings() -> None:
    vectors, weight, scores = healthy()
    nearest = torch.full((4,), 0.95)
    for kind in ("cosine", "log-l2"):
        assert not prototype_health(vectors, CLASSES, LEVELS, kind, weight, scores, nearest, NAMES)


def test_duplicates_are_named_within_a_class_and_level_only() -> None:
    vectors, weight, scores = healthy()
    vectors[1] = 3 * vectors[0]  # same direction, another length
    vectors[3] = vectors[2]  # another level
    (found,) = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores, None, NAMES)
    assert found.kind == "duplicate" and found.indices == (0, 1)
    assert found.message.startswith("prototype 1 (circumscribed, level 3)")
    assert not prototype_health(vectors, CLASSES, LEVELS, "log-l2", weight, scores)
    vectors[1] = vectors[0] + 1e-4
    (found,) = prototype_health(vectors, CLASSES, LEVELS, "log-l2", weight, scores)
    assert found.kind == "duplicate"


def test_a_constant_score_and_a_weightless_prototype_are_dead() -> None:
    vectors, weight, scores = healthy()
    scores[:, 2] = 0.25
    weight[:, 3] = 0
    found = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores, None, NAMES)
    assert {(f.kind, f.indices) for f in found} == {("dead", (2,)), ("dead", (3,))}
    assert len(prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, None, None)) == 1


def test_a_prototype_against_its_own_class_is_named() -> None:
    vectors, weight, scores = healthy()
    weight[1, 2] = -0.2
    (found,) = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores, None, NAMES)
    assert (found.kind, found.indices) == ("sign", (2,))
    assert "prototype 2 (spiculated, level 3)" in found.message and "-0.2" in found.message


def test_a_prototype_far_from_every_patch_is_named_for_cosine() -> None:
    vectors, weight, scores = healthy()
    nearest = torch.tensor([0.9, 0.9, 0.31, 0.9])
    (found,) = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores, nearest, NAMES)
    assert found.kind == "far" and found.indices == (2,) and "0.31" in found.message
    assert not prototype_health(vectors, CLASSES, LEVELS, "log-l2", weight, scores, nearest, NAMES)


def test_a_prototype_without_weight_is_dead_and_not_also_of_the_wrong_sign() -> None:
    vectors, weight, scores = healthy()
    weight[:, 3] = 0
    weight[1, 2] = 0
    found = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores, None, NAMES)
    assert [(f.kind, f.indices) for f in found] == [("dead", (3,)), ("sign", (2,))]


def test_every_kind_of_finding_has_a_line() -> None:
    kinds = ("duplicate", "dead", "sign", "far")
    findings = [Finding(kind, (0,), f"{kind} {n}") for n in (1, 2) for kind in kinds]
    assert health_lines(findings) == [f"{kind} 1; {kind} 2" for kind in kinds]


def test_nearly_equal_directions_count_as_duplicates() -> None:
    vectors, weight, scores = healthy()
    for cosine, expected in ((0.9905, 1), (0.985, 0)):
        vectors[1] = torch.tensor([cosine, (1 - cosine**2) ** 0.5, 0.0, 0.0])
        found = prototype_health(vectors, CLASSES, LEVELS, "cosine", weight, scores)
        assert len(found) == expected


def test_prototypes_that_are_shown_or_decide_are_those_of_plain_loops(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(4)
    weight, scores = (
        torch.randn(3, 12, generator=generator),
        torch.randn(4, 12, generator=generator),
    )
    logits = scores @ weight.T
    shown, decisive = [0] * 12, [0] * 12
    for image in range(4):
        winner = int(logits[image].argmax())
        parts = [float(weight[winner, j] * scores[image, j]) for j in range(12)]
        for j in sorted(range(12), key=lambda j: -abs(parts[j]))[:5]:
            shown[j] += 1
        for j in range(12):
            kept = [k for k in range(12) if k != j]
            without = [sum(float(weight[c, k] * scores[image, k]) for k in kept) for c in range(3)]
            decisive[j] += without.index(max(without)) != winner
    assert times_leading(weight, logits, scores).tolist() == shown
    for at_once in (10_000_000, 50):
        monkeypatch.setattr(prototype_health_module, "MOST_NUMBERS", at_once)
        assert times_decisive(weight, scores).tolist() == decisive
        assert times_decisive(weight, scores, [7, 2]).tolist() == [decisive[7], decisive[2]]
    neither = [j for j in range(12) if not shown[j] and not decisive[j]]
    assert unused(weight, logits, scores) == neither
    assert neither and any(shown[j] and not decisive[j] for j in range(12))


def test_a_prototype_that_no_figure_shows_but_that_decides_is_used() -> None:
    """Six contributions for the winner: the sixth is in no row, and decides. The seventh does neither."""
    weight = torch.tensor([[1.0] * 6 + [0.0], [0.0] * 6 + [1.0]])
    scores = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 5.5]])
    logits = scores @ weight.T
    assert times_leading(weight, logits, scores).tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert times_decisive(weight, scores)[5] == 1
    assert unused(weight, logits, scores) == [6]
