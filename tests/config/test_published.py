"""The presets of published systems have the published values, and name every value that is theirs alone.

PUBLISHED holds what the papers and their public code say, with where they say it; DEVIATIONS what our preset
does otherwise, with the word in the preset's file that says so.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from protopyramid.config import load_config
from protopyramid.config.catalogue import preset_text
from protopyramid.config.schema import Config, TrainPhaseConfig, prototype_counts, unrolled


class Value(NamedTuple):
    """A published value of a key, and its source in words."""

    key: str
    value: Any
    source: str


class Deviation(NamedTuple):
    """What is published, what the preset has, and words of the preset's comment on it."""

    key: str
    published: str
    ours: Any
    comment: str


SCALES = "code: L2 distance to similarity log((d + 1) / (d + 1e-4))"
LOSSES = "code: coefficients of cluster, separation and L1"
# What IAIA-BL has kept of ProtoPNet.
SHARED = [
    Value("model.prototypes.init", "random", "code: prototypes start uniform in [0, 1]"),
    Value("model.similarity.kind", "log-l2", SCALES),
    Value("loss.cluster", 0.8, LOSSES),
    Value("loss.separation", 0.08, LOSSES),
    Value("loss.scope", "all", "code: one minimum over all prototypes of the class"),
    Value("loss.cluster_over", "max", "code: the nearest prototype of the class"),
    Value("loss.orthogonality", 0, "paper: no such term"),
    Value("loss.contrast", 0, "paper: no such term"),
    Value("head_fit.l1", 1e-4, LOSSES),
    Value("head_fit.ridge", 0, "code: cross entropy and L1, no other penalty"),
    Value("head_fit.balance", False, "code: no class weights"),
]
PUBLISHED = {
    "iaia-bl": [
        *SHARED,
        Value("data.image_size", 224, "code: input of 224 px"),
        Value("model.backbone.name", "vgg16", "paper: VGG-16"),
        Value("model.backbone.last_pool", False, "paper: VGG-16 without last pool, 14x14x512"),
        Value("model.neck.kind", "add-on", "code: 1x1 convolution, ReLU, 1x1 convolution, sigmoid"),
        Value("model.neck.dim", 512, "code: d = 512"),
        Value("model.prototypes.counts", {5: 5}, "paper: 5 prototypes per class"),
        Value("model.similarity.squared", False, "code: distance not squared"),
        Value("model.pooling.kind", "topk", "paper: mean of the top 9 of 196"),
        Value("model.pooling.k", 9, "paper: mean of the top 9 of 196"),
        Value("model.head.own", 1, "code: last layer starts at +1 / -1"),
        Value("model.head.other", -1, "code: last layer starts at +1 / -1"),
        Value("loss.act_on", "closeness", "code: cluster and separation on top-k mean distance"),
        Value("loss.label_smoothing", 0, "code: plain cross entropy"),
        Value("loss.fine.weight", 0.001, "code: fine annotation .001"),
        Value("loss.fine.kind", "grouped", "code: one norm for lower classes, own, higher classes"),
        Value("loss.fine.reduce", "sum", "code: .001 acts on the sum over a batch"),
        Value("loss.fine.per_pixel", False, "code: plain norms"),
        Value("projection.source", "class", "code: images of the prototype's own class"),
        Value("projection.unique", "none", "code: single best patch, no de-duplication"),
        Value("projection.annotated_only", True, "code: onto finely annotated images only"),
        Value("projection.inside_annotation", False, "code: any patch of those images"),
        Value("train.optimizer", "adam", "code: Adam with coupled weight decay"),
        Value("train.batch_size", 75, "code: batches of 75"),
        Value("data.balance", "class", "paper: augmented to 5,000 images per class"),
        Value("model.tta", 1, "paper: one view"),
    ],
    "protopnet": [
        *SHARED,
        Value("data.image_size", 224, "code: input of 224 px"),
        Value("model.backbone.last_pool", True, "code: VGG-16 keeps its last max-pool, map 7x7"),
        Value(
            "model.neck.kind", "add-on", "paper: 1x1 convolution, ReLU, 1x1 convolution, sigmoid"
        ),
        Value("model.neck.dim", 128, "paper: d = 128"),
        Value("model.prototypes.counts", {5: 10}, "paper: 10 prototypes per class"),
        Value("model.similarity.squared", True, "paper: squared L2 distance"),
        Value("model.pooling.kind", "max", "paper: maximum over the map"),
        Value("model.head.own", 1, "paper: last layer starts at +1 / -0.5"),
        Value("model.head.other", -0.5, "paper: last layer starts at +1 / -0.5"),
        Value("loss.act_on", "closeness", "code: cluster and separation on the smallest distance"),
        Value("loss.fine.weight", 0, "paper: no annotations"),
        Value("projection.source", "class", "paper: images of the prototype's own class"),
        Value("projection.unique", "none", "code: no de-duplication"),
        Value("projection.annotated_only", False, "paper: no annotations"),
        Value("projection.inside_annotation", False, "paper: no annotations"),
        Value("data.mean", (0.485, 0.456, 0.406), "code: ImageNet mean and deviation"),
        Value("data.std", (0.229, 0.224, 0.225), "code: ImageNet mean and deviation"),
        Value("train.optimizer", "adam", "code: Adam with coupled weight decay"),
        Value("train.batch_size", 80, "code: batches of 80"),
        Value("model.tta", 1, "paper: one view"),
    ],
    "vgg16": [
        Value("model.backbone.name", "vgg16", "IAIA-BL, paper: VGG-16 baseline"),
        Value("loss.cross_entropy", 1, "IAIA-BL, paper: cross entropy alone"),
        Value("loss.cluster", 0, "IAIA-BL, paper: cross entropy alone"),
        Value("loss.separation", 0, "IAIA-BL, paper: cross entropy alone"),
        Value("loss.orthogonality", 0, "IAIA-BL, paper: cross entropy alone"),
        Value("loss.fine.weight", 0, "IAIA-BL, paper: cross entropy alone"),
    ],
}
DEVIATIONS = {
    "iaia-bl": [
        Deviation(
            "data.mean",
            "none in training, ImageNet's in projection",
            (0.485, 0.456, 0.406),
            "input normalisation is that of all presets",
        ),
        Deviation(
            "data.annotated_share", "10 added to 75", 0.12, "Ours: they are counted among the 75"
        ),
        Deviation(
            "model.prototypes.negative_counts",
            "no negative class",
            {5: 5},
            "Ours: the published system has no negative class",
        ),
        Deviation(
            "augmentation.rotation",
            "0 to 89 degrees, offline",
            45.0,
            "Ours: drawn again for every image",
        ),
        Deviation(
            "augmentation.zoom", "90 % crops, p .8", (1.0, 1.11), "Ours: drawn again for every"
        ),
    ],
    "protopnet": [
        Deviation("model.backbone.name", "VGG-19 and others", "vgg16", "Ours: VGG-16"),
        Deviation("augmentation.flip", "horizontal only", True, "Ours: .* with vertical flips"),
        Deviation(
            "augmentation.rotation", "15 degrees, skew, shear", 15.0, "Ours: .* without skew"
        ),
    ],
    "vgg16": [
        Deviation("model.head.hidden", "[4096, 4096]", [], "Ours: one linear layer"),
        Deviation("model.head.dropout", "0.5", 0.0, "Ours: one linear layer"),
        Deviation(
            "model.pooling.kind", "7x7 cells, flattened", "average", "Ours: .*pooled channels"
        ),
        Deviation("model.backbone.last_pool", "kept", False, "baseline of IAIA-BL is VGG-16 with"),
    ],
}
# Of each train phase: parts that learn and their rates; decay and weight decay are the same in all.
RATES = {
    "iaia-bl": {
        "warm": {"neck": 2e-3, "prototypes": 3e-3},
        "joint": {"backbone": 2e-4, "neck": 3e-3, "prototypes": 3e-3},
    },
    "protopnet": {
        "warm": {"neck": 3e-3, "prototypes": 3e-3},
        "joint": {"backbone": 1e-4, "neck": 3e-3, "prototypes": 3e-3},
    },
}
WARM_EPOCHS = {"iaia-bl": 10, "protopnet": 5}
# Epochs done at each projection: the code counts from 0 and projects after epochs 10, 20 and so on; of
# ProtoPNet's, up to epoch 1000, the first four are kept (ours).
PROJECTED = {"iaia-bl": list(range(11, 132, 10)), "protopnet": [11, 21, 31, 41]}
ROWS = [(name, row) for name, rows in PUBLISHED.items() for row in rows]
OURS = [(name, row) for name, rows in DEVIATIONS.items() for row in rows]


def value_of(config: Config, key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    return found


def phases(config: Config) -> list[TrainPhaseConfig]:
    return [step for step in unrolled(config.train.schedule) if isinstance(step, TrainPhaseConfig)]


def comments(name: str) -> str:
    """The comments of a preset's file as one line of text."""
    found = re.findall(r"#\s?(.*)", preset_text(name))
    return re.sub(r"\s+", " ", " ".join(found))


@pytest.mark.parametrize(("name", "row"), ROWS, ids=lambda x: getattr(x, "key", x))
def test_a_preset_has_the_published_value(name: str, row: Value) -> None:
    assert row.source
    found = value_of(load_config(name), row.key)
    assert found == row.value, (
        f"{row.key}: published {row.value} ({row.source}), the preset has {found}"
    )


@pytest.mark.parametrize(("name", "row"), OURS, ids=lambda x: getattr(x, "key", x))
def test_what_is_not_published_is_marked_in_the_preset(name: str, row: Deviation) -> None:
    assert value_of(load_config(name), row.key) == row.ours
    assert row.ours != row.published
    assert re.search(row.comment, comments(name)), row.comment
    assert "ours" in comments(name).lower()


@pytest.mark.parametrize("name", RATES)
def test_the_published_rates_and_decay(name: str) -> None:
    config = load_config(name)
    for phase in phases(config):
        rates = RATES[name][phase.name]
        assert phase.learning_rates == rates
        assert set(phase.learns) == set(rates)  # the last layer is fixed but in its own step
        assert phase.weight_decay == 1e-3
        if phase.name == "joint":
            assert (phase.decay, phase.decay_every, phase.decay_factor) == ("step", 5, 0.1)
        else:
            assert phase.decay == "constant"
    assert [phase.epochs for phase in phases(config) if phase.name == "warm"] == [WARM_EPOCHS[name]]


@pytest.mark.parametrize("name", PROJECTED)
def test_the_published_epochs_of_projection(name: str) -> None:
    done, found, kinds = 0.0, [], []
    for step in unrolled(load_config(name).train.schedule):
        kinds.append(step.step)
        if isinstance(step, TrainPhaseConfig):
            done += step.epochs
        elif step.step == "project":
            found.append(done)
    assert found == PROJECTED[name]
    assert done == found[-1]  # nothing is trained after the last projection
    assert all(kinds[i + 1] == "fit-head" for i, kind in enumerate(kinds) if kind == "project")


def test_iaia_bl_projects_thirteen_times() -> None:
    kinds = [step.step for step in unrolled(load_config("iaia-bl").train.schedule)]
    assert kinds.count("project") == kinds.count("fit-head") == 13


@pytest.mark.parametrize(("name", "total"), [("iaia-bl", 15), ("protopnet", 30)])
def test_the_published_number_of_prototypes_beside_the_negative_class(
    name: str, total: int
) -> None:
    counts = prototype_counts(load_config(name))
    assert (
        sum(n for owner, by in counts.items() if owner != "negative" for n in by.values()) == total
    )


def test_the_share_of_annotated_images_is_that_of_a_published_step() -> None:
    assert load_config("iaia-bl").data.annotated_share == pytest.approx(10 / 85, abs=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_value_is_both_published_and_ours(name: str) -> None:
    published, ours = ({row.key for row in rows[name]} for rows in (PUBLISHED, DEVIATIONS))
    assert not published & ours


@pytest.mark.parametrize("name", ["iaia-bl", "protopnet"])
def test_no_preset_claims_to_solve_the_published_head_problem_exactly(name: str) -> None:
    assert "exactly" not in comments(name)
    assert "that problem is solved instead" in comments(name)
