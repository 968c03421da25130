"""The objective: a weighted sum of terms, each recomputed here from the equations by loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.losses import build_objective, extent, objective
from protopyramid.losses.objective import Surroundings
from protopyramid.model.network import Evidence
from protopyramid.model.pooling import Pooling
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity

OUTSIDE = [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]
INSIDE = [[0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0]]
COUNTS = {0: {2: 1, 5: 2}, 1: {2: 2, 5: 1}, 2: {5: 1}, 3: {2: 1}}  # uneven, with gaps
CELLS = {2: (6, 5), 5: (3, 2)}
LABELS = torch.tensor([0, 1, 2, 3, 2, 0])
ANNOTATED = torch.tensor([True, True, True, True, False, False])


def config(classes=None, negative="negative", **loss) -> Config:
    data = {"classes": classes, "negative_class": negative} if classes else {}
    return Config.model_validate({"data": data, "loss": loss})


def batch(counts=COUNTS, number_of_classes=4, size=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    layer = PrototypeLayer(*classes_and_levels(counts), 4)
    with torch.no_grad():
        layer.vectors.copy_(torch.randn(layer.vectors.shape, generator=g))
    m = len(layer.vectors)
    evidence = Evidence(
        logits=torch.randn(size, number_of_classes, generator=g),
        scores=torch.randn(size, m, generator=g),
        maps={
            level: torch.rand(size, int((layer.levels == level).sum()), *cells, generator=g) * 2 - 1
            for level, cells in CELLS.items()
        },
        closeness=torch.rand(size, m, generator=g) * 2 - 1,
    )
    masks = (torch.rand(size, 16, 12, generator=g) > 0.5).to(torch.uint8)
    return evidence, masks, layer


def naive_terms(evidence, masks, layer, labels=LABELS, annotated=ANNOTATED) -> dict[str, float]:
    """Every term, one number at a time, for the defaults (paper's tables, scope level, class-level)."""
    classes, levels = layer.classes.tolist(), layer.levels.tolist()
    m = len(classes)
    places = {
        j: (level, [k for k in range(m) if levels[k] == level].index(j))
        for j, level in enumerate(levels)
    }
    ce, clust, sep = 0.0, 0.0, 0.0
    for i, label in enumerate(labels.tolist()):
        logits = evidence.logits[i].tolist()
        ce -= logits[label] - math.log(sum(math.exp(x) for x in logits))
        close = evidence.closeness[i].tolist()
        own, other = [], []
        for level in sorted(set(levels)):
            here = [j for j in range(m) if levels[j] == level]
            own.append([close[j] for j in here if classes[j] == label])
            other.append([close[j] for j in here if classes[j] != label])
        maxima = [max(group) for group in own if group]
        clust -= sum(maxima) / len(maxima)
        maxima = [max(group) for group in other if group]
        sep += sum(maxima) / len(maxima)
    n = len(labels)
    ortho = 0.0
    vectors = layer.vectors.tolist()
    for a in range(m):
        for b in range(m):
            if (classes[a], levels[a]) == (classes[b], levels[b]):
                dot = sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))
                norms = math.hypot(*vectors[a]) * math.hypot(*vectors[b])
                ortho += (dot / norms - (a == b)) ** 2
    per_image = []
    for i, label in enumerate(labels.tolist()):
        if label == 3 or not annotated[i]:
            continue
        total = 0.0
        for j, owner in enumerate(classes):
            level, place = places[j]
            pam = F.interpolate(
                evidence.maps[level][i, place][None, None].double(),
                masks.shape[-2:],
                mode="bilinear",
                align_corners=False,
            )[0, 0]
            weight = OUTSIDE[label][owner] * (1.0 - masks[i].double()) + INSIDE[label][owner]
            total += torch.linalg.vector_norm(weight * pam).item()
        per_image.append(total)
    fine = sum(per_image) / len(per_image) if per_image else 0.0
    return {
        "cross_entropy": ce / n,
        "cluster": clust / n,
        "separation": sep / n,
        "orthogonality": ortho,
        "fine": fine,
    }


def test_each_term_and_the_total_equal_a_computation_by_hand():
    evidence, masks, layer = batch()
    losses = build_objective(config())(evidence, LABELS, masks, ANNOTATED, layer)
    expected = naive_terms(evidence, masks, layer)
    assert {name: value.item() for name, value in losses.terms.items()} == pytest.approx(
        expected, rel=1e-5
    )
    weights = {
        "cross_entropy": 1,
        "cluster": 0.8,
        "separation": 0.08,
        "orthogonality": 0.01,
        "fine": 0.001,
    }
    total = sum(weights[name] * value for name, value in expected.items())
    assert losses.total.item() == pytest.approx(total, rel=1e-5)


def test_a_steps_own_weights_replace_the_configurations():
    evidence, masks, layer = batch()
    expected = naive_terms(evidence, masks, layer)
    overrides = {"cross_entropy": 2.0, "separation": 0.0, "fine": 0.5}
    losses = build_objective(config())(evidence, LABELS, masks, ANNOTATED, layer, overrides)
    total = (
        2 * expected["cross_entropy"]
        + 0.8 * expected["cluster"]
        + 0.01 * expected["orthogonality"]
        + 0.5 * expected["fine"]
    )
    assert losses.total.item() == pytest.approx(total, rel=1e-5)
    assert set(losses.terms) == {"cross_entropy", "cluster", "orthogonality", "fine"}


def test_a_term_of_weight_zero_is_not_computed(monkeypatch):
    def never(*arguments, **options):
        raise AssertionError("computed")

    parts = (
        "cluster",
        "separation",
        "orthogonality",
        "fine_annotation",
        "fine_grouped",
        "contrast",
    )
    for name in parts:
        monkeypatch.setattr(objective, name, never)
    evidence, masks, layer = batch()
    none = config(cluster=0, separation=0, orthogonality=0, fine={"weight": 0})
    losses = build_objective(none)(evidence, LABELS, masks, ANNOTATED, layer)
    assert set(losses.terms) == {"cross_entropy"}
    for name in ("cluster", "contrast"):
        with pytest.raises(AssertionError, match="computed"):
            build_objective(none)(evidence, LABELS, masks, ANNOTATED, layer, {name: 1.0})


def test_all_weights_zero_is_a_total_of_zero():
    evidence, masks, layer = batch()
    none = dict.fromkeys(objective.TERMS, 0.0)
    assert (
        build_objective(config())(evidence, LABELS, masks, ANNOTATED, layer, none).total.item()
        == 0.0
    )


@pytest.mark.parametrize("kind", ["class-pair", "grouped"])
def test_negatives_and_unannotated_images_do_not_reach_the_fine_loss(kind):
    evidence, masks, layer = batch()
    expected = build_objective(config(fine={"kind": kind}))(
        evidence, LABELS, masks, ANNOTATED, layer
    )
    left_out = ~ANNOTATED | (LABELS == 3)
    for by_level in evidence.maps.values():
        by_level[left_out] = torch.nan
    masks[left_out] = 1 - masks[left_out]
    losses = build_objective(config(fine={"kind": kind}))(evidence, LABELS, masks, ANNOTATED, layer)
    assert torch.isfinite(losses.terms["fine"])
    assert losses.terms["fine"].item() == expected.terms["fine"].item()


def test_a_batch_without_annotations_has_a_fine_loss_of_zero_that_can_be_differentiated():
    evidence, masks, layer = batch()
    evidence.closeness.requires_grad_()
    losses = build_objective(config())(
        evidence, LABELS, masks, torch.zeros(6, dtype=torch.bool), layer
    )
    assert losses.terms["fine"].item() == 0.0
    losses.total.backward()
    assert torch.isfinite(evidence.closeness.grad).all()


def test_without_prototypes_only_the_cross_entropy_is_left():
    evidence, masks, _ = batch()
    losses = build_objective(config())(evidence, LABELS, masks, ANNOTATED, None)
    assert set(losses.terms) == {"cross_entropy"}
    assert losses.total.item() == losses.terms["cross_entropy"].item()


def test_label_smoothing_mixes_in_the_uniform_distribution():
    evidence, masks, layer = batch()
    losses = build_objective(config(label_smoothing=0.2))(evidence, LABELS, masks, ANNOTATED, layer)
    logs = evidence.logits - evidence.logits.exp().sum(1, keepdim=True).log()
    hard = -sum(logs[i, label].item() for i, label in enumerate(LABELS.tolist())) / 6
    soft = -logs.mean().item()
    assert losses.terms["cross_entropy"].item() == pytest.approx(0.8 * hard + 0.2 * soft, rel=1e-5)


def test_grouped_fine_loss_sees_the_prototypes_of_all_levels_together():
    evidence, masks, layer = batch()
    losses = build_objective(config(fine={"kind": "grouped"}))(
        evidence, LABELS, masks, ANNOTATED, layer
    )
    per_image = []
    for i, label in enumerate([0, 1, 2]):
        squares = [0.0, 0.0, 0.0]
        owners = iter(layer.classes.tolist())
        for by_level in evidence.maps.values():
            for s in by_level[i].double():
                pam = F.interpolate(s[None, None], masks.shape[-2:], mode="bilinear")[0, 0]
                owner = next(owners)
                weight = 1.0 - masks[i].double() if owner == label else 1.0
                group = (owner > label) - (owner < label) + 1
                squares[group] += (weight * pam).square().sum().item()
        per_image.append(sum(math.sqrt(square) for square in squares))
    assert losses.terms["fine"].item() == pytest.approx(sum(per_image) / 3, rel=1e-5)


@pytest.mark.parametrize("transpose", [False, True])
def test_transpose_decides_which_of_spiculated_and_circumscribed_pays_inside(transpose):
    """An activation wholly inside: the table makes circumscribed-on-spiculated pay, the text the reverse."""
    objective_ = build_objective(config(fine={"transpose": transpose}))
    layer = PrototypeLayer([0, 2], [5, 5], 4)
    masks = torch.ones(1, 8, 8)
    paid = {}
    for label in (0, 2):
        maps = torch.zeros(1, 2, 4, 4)
        maps[:, 1 if label == 0 else 0] = 0.5  # the prototype of the other class
        evidence = Evidence(torch.zeros(1, 4), torch.zeros(1, 2), {5: maps}, torch.zeros(1, 2))
        losses = objective_(evidence, torch.tensor([label]), masks, torch.tensor([True]), layer)
        paid[label] = losses.terms["fine"].item() > 0
    assert paid == {0: transpose, 2: not transpose}


@pytest.mark.parametrize(
    ("classes", "negative"),
    [
        (["circumscribed", "obscured", "microlobulated", "indistinct", "spiculated"], ""),
        (["benign", "malignant", "normal"], "normal"),
        (["negative", "spiculated"], "negative"),
        (["cat", "dog"], ""),
    ],
)
def test_other_classes_work_with_no_change_of_code(classes, negative):
    n = len(classes)
    counts = {number: {2: 1, 5: 1} for number in range(n)}
    evidence, masks, layer = batch(counts, n)
    labels = torch.arange(6) % n
    losses = build_objective(config(classes, negative))(
        evidence, labels, masks, torch.ones(6, dtype=torch.bool), layer
    )
    off_by_default = {"contrast", "context", "extent"}  # ours
    assert set(losses.terms) == set(objective.TERMS) - off_by_default
    assert torch.isfinite(losses.total)
    assert losses.terms["fine"].item() > 0


def test_benign_malignant_normal_by_hand():
    classes, n = ["benign", "malignant", "normal"], 3
    evidence, masks, layer = batch({number: {2: 1, 5: 1} for number in range(n)}, n)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    losses = build_objective(config(classes, "normal"))(
        evidence, labels, masks, torch.ones(6, dtype=torch.bool), layer
    )
    per_image = []
    for i in (0, 1, 3, 4):
        total = 0.0
        for by_level in evidence.maps.values():
            for owner in range(n):
                pam = F.interpolate(
                    by_level[i, owner][None, None].double(), masks.shape[-2:], mode="bilinear"
                )[0, 0]
                within = 0.0 if owner == labels[i] else 1.0
                weight = (1.0 - masks[i].double()) + within
                total += torch.linalg.vector_norm(weight * pam).item()
        per_image.append(total)
    assert losses.terms["fine"].item() == pytest.approx(sum(per_image) / 4, rel=1e-5)


# The contrast loss, the share and the mean cluster, which are ours and not on by default.


def rectangles(masks: torch.Tensor) -> torch.Tensor:
    """Masks with an inside and an outside on both levels."""
    masks = torch.zeros_like(masks)
    masks[:, 3:9, 2:7] = 1
    return masks


def naive_contrast(evidence, masks, layer, k, margin) -> float:
    """Levels averaged; on each, images and own-class prototypes of D' without negatives averaged."""
    by_level = []
    for level, maps in evidence.maps.items():
        owners = layer.classes[layer.levels == level].tolist()
        height, width = maps.shape[-2:]
        down, across = masks.shape[-2] / height, masks.shape[-1] / width
        costs = []
        for i in (0, 1, 2):  # annotated and not negative
            for j, owner in enumerate(owners):
                if owner != LABELS[i]:
                    continue
                sides = {True: [], False: []}
                for y in range(height):
                    for x in range(width):
                        top, left = math.floor(y * down), math.floor(x * across)
                        bottom, right = math.ceil((y + 1) * down), math.ceil((x + 1) * across)
                        touches = bool(masks[i, top:bottom, left:right].any())
                        sides[touches].append(maps[i, j, y, x].item())
                inside, outside = (
                    sum(sorted(sides[side])[-k:]) / min(k, len(sides[side]))
                    for side in (True, False)
                )
                costs.append(max(0.0, margin + outside - inside))
        by_level.append(sum(costs) / len(costs) if costs else 0.0)
    return sum(by_level) / len(by_level)


@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_contrast_is_a_term_of_the_total(margin):
    evidence, masks, layer = batch()
    masks = rectangles(masks)
    ours = config(contrast=3.0, contrast_margin=margin)
    losses = build_objective(ours)(evidence, LABELS, masks, ANNOTATED, layer)
    # The k of pooling is 9, and all 6 cells of the coarse level.
    expected = naive_contrast(evidence, masks, layer, k=9, margin=margin)
    assert losses.terms["contrast"].item() == pytest.approx(expected, rel=1e-5)
    without = build_objective(config())(evidence, LABELS, masks, ANNOTATED, layer)
    assert losses.total.item() == pytest.approx(without.total.item() + 3.0 * expected, rel=1e-5)
    assert set(losses.terms) == set(objective.TERMS) - {"context", "extent"}


def test_contrast_takes_the_patches_that_pooling_takes():
    evidence, masks, layer = batch()
    masks = rectangles(masks)
    for pooling, k in ((Pooling(k=2), 2), (Pooling("max"), 1)):
        layer.pooling = pooling
        losses = build_objective(config(contrast=1.0))(evidence, LABELS, masks, ANNOTATED, layer)
        expected = naive_contrast(evidence, masks, layer, k, 0.5)
        assert losses.terms["contrast"].item() == pytest.approx(expected, rel=1e-5)


def test_a_step_may_switch_contrast_on_and_off():
    evidence, masks, layer = batch()
    arguments = (evidence, LABELS, rectangles(masks), ANNOTATED, layer)
    on = build_objective(config(contrast=1.0))(*arguments)
    assert (
        "contrast" not in build_objective(config(contrast=1.0))(*arguments, {"contrast": 0.0}).terms
    )
    switched = build_objective(config())(*arguments, {"contrast": 1.0})
    assert switched.total.item() == on.total.item()


def test_negatives_and_unannotated_images_do_not_reach_the_contrast_loss():
    evidence, masks, layer = batch()
    masks = rectangles(masks)
    ours = build_objective(config(contrast=1.0, fine={"weight": 0}))
    expected = ours(evidence, LABELS, masks, ANNOTATED, layer).terms["contrast"].item()
    left_out = ~ANNOTATED | (LABELS == 3)
    for by_level in evidence.maps.values():
        by_level[left_out] = torch.nan
    masks[left_out] = 1 - masks[left_out]
    assert ours(evidence, LABELS, masks, ANNOTATED, layer).terms["contrast"].item() == expected


def test_a_batch_without_annotations_has_a_contrast_of_zero_that_can_be_differentiated():
    evidence, masks, layer = batch()
    evidence.closeness.requires_grad_()
    nothing = torch.zeros(6, dtype=torch.bool)
    losses = build_objective(config(contrast=1.0))(evidence, LABELS, masks, nothing, layer)
    assert losses.terms["contrast"].item() == 0.0
    losses.total.backward()
    assert torch.isfinite(evidence.closeness.grad).all()


def test_the_fine_loss_may_be_of_shares():
    evidence, masks, layer = batch()
    ours = config(fine={"share": True, "combine": "disjoint"})
    losses = build_objective(ours)(evidence, LABELS, masks, ANNOTATED, layer)
    per_image = []
    for i, label in enumerate([0, 1, 2]):
        total = 0.0
        owners = iter(layer.classes.tolist())
        for by_level in evidence.maps.values():
            for s in by_level[i].double():
                pam = F.interpolate(s[None, None], masks.shape[-2:], mode="bilinear")[0, 0]
                owner, mask = next(owners), masks[i].double()
                weight = OUTSIDE[label][owner] * (1.0 - mask) + INSIDE[label][owner] * mask
                part = torch.linalg.vector_norm(weight * pam)
                floor = 0.01 * math.sqrt(pam.numel())
                total += (part / (torch.linalg.vector_norm(pam) + floor)).item()
        per_image.append(total)
    assert losses.terms["fine"].item() == pytest.approx(sum(per_image) / 3, rel=1e-5)


def test_cluster_may_be_over_the_mean():
    evidence, masks, layer = batch()
    losses = build_objective(config(cluster_over="mean"))(evidence, LABELS, masks, ANNOTATED, layer)
    expected = 0.0
    for i, label in enumerate(LABELS.tolist()):
        by_level = []
        for level in (2, 5):
            here = (layer.levels == level) & (layer.classes == label)
            if here.any():
                by_level.append(evidence.closeness[i, here].mean().item())
        expected -= sum(by_level) / len(by_level) / len(LABELS)
    assert losses.terms["cluster"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "log-l2"])
def test_ours_work_on_similarities_of_both_kinds(similarity):
    """Contrast and share act on similarity maps, whatever distance they come from."""
    layer = PrototypeLayer(*classes_and_levels(COUNTS), 4, Similarity(similarity), Pooling(k=2))
    torch.manual_seed(0)
    z = {level: torch.randn(6, 4, *cells, requires_grad=True) for level, cells in CELLS.items()}
    scores, closeness, maps = layer(z)
    evidence = Evidence(scores[:, :4], scores, maps, closeness)
    masks = rectangles(torch.zeros(6, 16, 12))
    ours = config(contrast=1.0, contrast_margin=2.0, fine={"share": True})
    losses = build_objective(ours)(evidence, LABELS, masks, ANNOTATED, layer)
    expected = naive_contrast(evidence, masks, layer, k=2, margin=2.0)
    assert losses.terms["contrast"].item() == pytest.approx(expected, rel=1e-5)
    # At most the largest pixel weight, 2, for each of the 8 prototypes.
    assert 0 < losses.terms["fine"].item() < 2 * len(layer.classes)
    losses.total.backward()
    assert all(torch.isfinite(x.grad).all() for x in z.values())
    assert torch.isfinite(layer.vectors.grad).all()


def test_the_objective_passes_gradcheck():
    evidence, masks, layer = batch()
    masks = rectangles(masks)  # random ones touch every coarse cell, and contrast would be silent
    layer = layer.double()
    inputs = [evidence.logits, evidence.closeness, *evidence.maps.values()]
    inputs = [x.double().requires_grad_() for x in inputs]
    # Weights of one, so that no term hides behind another. The context loss has no gradient for these maps.
    ones = {**dict.fromkeys(objective.TERMS, 1.0), "context": 0.0}

    def total(logits, closeness, fine_maps, coarse_maps):
        given = Evidence(logits, closeness, {2: fine_maps, 5: coarse_maps}, closeness)
        return build_objective(config())(given, LABELS, masks, ANNOTATED, layer, ones).total

    assert torch.autograd.gradcheck(total, inputs, fast_mode=True)


def test_an_objective_needs_a_weight_for_every_term():
    weights = dict.fromkeys(objective.TERMS, 1.0)
    tables = (torch.ones(2, 2), torch.ones(2, 2))
    objective.Objective(weights, *tables)
    for wrong in ({"cluster": 1.0}, {**weights, "clutser": 1.0}):
        with pytest.raises(UserError, match="expected a weight for each of"):
            objective.Objective(wrong, *tables)


def naive_extremes(values, layer, scope):
    """Cluster and separation of values (B, m), one image and group at a time."""
    groups = [[2], [5]] if scope == "level" else [[2, 5]]
    cluster, separation = 0.0, 0.0
    for i, label in enumerate(LABELS.tolist()):
        own, other = [], []
        for levels in groups:
            here = [j for j, level in enumerate(layer.levels.tolist()) if level in levels]
            mine = [values[i, j] for j in here if layer.classes[j] == label]
            others = [values[i, j] for j in here if layer.classes[j] != label]
            own += [max(mine)] if mine else []
            other += [max(others)] if others else []
        cluster = cluster - sum(own) / len(own) / len(LABELS)
        separation = separation + sum(other) / len(other) / len(LABELS)
    return cluster, separation


@pytest.mark.parametrize("scope", ["level", "all"])
@pytest.mark.parametrize("act_on", ["score", "closeness"])
def test_cluster_and_separation_act_on_the_score_or_on_the_closeness(act_on, scope):
    evidence, masks, layer = batch()
    settings = config(act_on=act_on, scope=scope)
    found = {}
    for name in ("ours", "naive"):
        scores = evidence.scores.double().requires_grad_()
        closeness = evidence.closeness.double().requires_grad_()
        given = evidence._replace(scores=scores, closeness=closeness)
        terms = build_objective(settings)(given, LABELS, masks, ANNOTATED, layer).terms
        pair = (terms["cluster"], terms["separation"])
        if name == "naive":
            pair = naive_extremes(scores if act_on == "score" else closeness, layer, scope)
        weighted = 0.8 * pair[0] + 0.08 * pair[1]
        slopes = torch.autograd.grad(weighted, [scores, closeness], allow_unused=True)
        found[name] = [pair[0].item(), pair[1].item(), slopes]
    assert found["ours"][:2] == pytest.approx(found["naive"][:2], rel=1e-6)
    for ours, naive in zip(found["ours"][2], found["naive"][2], strict=True):
        assert (ours is None) == (naive is None)
        if naive is not None:
            torch.testing.assert_close(ours, naive)


def test_with_focal_pooling_the_score_is_not_the_closeness():
    """On the network's own scores: top-k mean minus mean, by hand, is what cluster takes."""
    torch.manual_seed(0)
    layer = PrototypeLayer(*classes_and_levels(COUNTS), 4, Similarity(), Pooling("focal", 2))
    z = {level: torch.randn(6, 4, *cells) for level, cells in CELLS.items()}
    with torch.no_grad():
        scores, closeness, maps = layer(z)
    evidence = Evidence(scores[:, :4], scores, maps, closeness)
    masks = torch.zeros(6, 16, 12)
    settings = config(act_on="score", scope="all")
    terms = build_objective(settings)(evidence, LABELS, masks, ANNOTATED, layer).terms
    focal = torch.cat(
        [m.flatten(2).sort(-1).values[..., -2:].mean(-1) - m.mean((2, 3)) for m in maps.values()], 1
    )
    cluster, separation = naive_extremes(focal, layer, "all")
    assert terms["cluster"].item() == pytest.approx(float(cluster), rel=1e-5)
    assert terms["separation"].item() == pytest.approx(float(separation), rel=1e-5)
    assert terms["cluster"].item() != pytest.approx(
        float(naive_extremes(closeness, layer, "all")[0])
    )


@pytest.mark.parametrize("kind", ["class-pair", "grouped"])
def test_the_fine_loss_may_be_the_sum_over_the_annotated_images(kind):
    evidence, masks, layer = batch()
    fine = {"kind": kind, "reduce": "sum"}
    arguments = (LABELS, masks, ANNOTATED, layer)
    one_by_one = 0.0
    for i in (0, 1, 2):  # annotated and not negative
        alone = torch.zeros_like(ANNOTATED)
        alone[i] = True
        only = build_objective(config(fine={"kind": kind}))(evidence, LABELS, masks, alone, layer)
        one_by_one += only.terms["fine"].item()
    summed = build_objective(config(fine=fine))(evidence, *arguments).terms["fine"].item()
    assert summed == pytest.approx(one_by_one, rel=1e-5)
    if kind == "class-pair":
        assert summed == pytest.approx(3 * naive_terms(evidence, masks, layer)["fine"], rel=1e-5)


def test_the_sum_over_a_batch_is_that_of_all_processes_that_share_it():
    """Gradients are averaged over processes: the mean of their sums must be the sum over the batch."""
    evidence, masks, layer = batch()
    settings = config(fine={"reduce": "sum"})
    whole = build_objective(settings)(evidence, LABELS, masks, ANNOTATED, layer).terms["fine"]
    parts = []
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        maps = {level: by_level[rows] for level, by_level in evidence.maps.items()}
        share = Evidence(
            evidence.logits[rows], evidence.scores[rows], maps, evidence.closeness[rows]
        )
        given = (share, LABELS[rows], masks[rows], ANNOTATED[rows], layer)
        parts.append(build_objective(settings, processes=2)(*given).terms["fine"])
    assert (sum(parts) / 2).item() == pytest.approx(whole.item(), rel=1e-5)


def test_the_gradient_of_the_sum_is_that_of_the_mean_times_the_images():
    evidence, masks, layer = batch()
    slopes = {}
    for reduce in ("mean", "sum"):
        maps = {level: x.double().requires_grad_() for level, x in evidence.maps.items()}
        settings = config(fine={"kind": "grouped", "reduce": reduce})
        given = evidence._replace(maps=maps)
        term = build_objective(settings)(given, LABELS, masks, ANNOTATED, layer).terms["fine"]
        slopes[reduce] = torch.autograd.grad(term, list(maps.values()))
    for mean, total in zip(slopes["mean"], slopes["sum"], strict=True):
        torch.testing.assert_close(3 * mean, total)


def test_context_is_the_mean_over_levels_of_the_change_in_other_surroundings():
    evidence, masks, layer = batch()
    torch.manual_seed(3)
    seen = {level: torch.rand_like(maps) for level, maps in evidence.maps.items()}
    inner = {level: torch.rand(len(maps), *maps.shape[-2:]) > 0.3 for level, maps in seen.items()}
    losses = build_objective(config(context=2.0))(
        evidence, LABELS, masks, ANNOTATED, layer, None, Surroundings(seen, inner)
    )
    by_level = []
    for level, rows in layer.slices.items():
        owners, costs = layer.classes[rows].tolist(), []
        for i, label in enumerate(LABELS.tolist()):
            for j, owner in enumerate(owners):
                maps, other = evidence.maps[level][i, j].flatten(), seen[level][i, j].flatten()
                best = maps.argsort(descending=True)[
                    : layer.pooled_patches(level, evidence.maps[level])
                ]
                counted = [c for c in best.tolist() if inner[level][i].flatten()[c]]
                if owner == label and counted:
                    before = sum(maps[c] for c in counted) / len(counted)
                    after = sum(other[c] for c in counted) / len(counted)
                    costs.append(((before - after) / max(0.1, before - maps.mean())) ** 2)
        by_level.append(sum(costs) / len(costs))
    expected = (sum(by_level) / len(by_level)).item()
    assert losses.terms["context"].item() == pytest.approx(expected, rel=1e-5)
    without = build_objective(config())(evidence, LABELS, masks, ANNOTATED, layer)
    assert losses.total.item() == pytest.approx(without.total.item() + 2.0 * expected, rel=1e-5)


def test_extent_is_the_mean_over_the_limits_of_all_levels():
    evidence, masks, layer = batch()
    own = LABELS[:, None] == layer.classes[None, :]
    for shares in (({2: 0.1}, {}, {}), ({2: 0.1, 5: 0.5}, {4: 0.2}, {5: 0.2}), ({}, {}, {})):
        keys = ("extent_shares", "extent_around", "extent_least")
        ours = config(extent=1.0, **dict(zip(keys, shares, strict=True)))
        losses = build_objective(ours)(evidence, LABELS, masks, ANNOTATED, layer)
        terms = [
            extent(evidence.maps[level], own[:, layer.slices[level]], share, limit).item()
            for limit, by_level in zip(("most", "around", "least"), shares, strict=True)
            for level, share in by_level.items()
            if level in evidence.maps
        ]
        expected = sum(terms) / len(terms) if terms else 0.0
        assert losses.terms["extent"].item() == pytest.approx(expected, rel=1e-5)
