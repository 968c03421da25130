"""The presets state the published numbers of their systems."""

import pytest

from protopyramid.config import (
    load_config,
    load_overlay,
    preset_kind,
    preset_names,
    preset_summary,
)
from protopyramid.config.overrides import flat
from protopyramid.config.schema import Config, TrainPhaseConfig, prototype_counts, unrolled


def train_steps(config: Config) -> list[TrainPhaseConfig]:
    return [step for step in unrolled(config.train.schedule) if isinstance(step, TrainPhaseConfig)]


def kinds(config: Config) -> list[str]:
    return [step.step for step in unrolled(config.train.schedule)]


def test_systems_come_first() -> None:
    systems = ["fpn-iaia-bl", "iaia-bl", "protopnet", "protopyramid", "vgg16"]
    assert preset_names("system") == systems
    assert preset_names() == [*systems, "demo", "demo-iaia-bl", "cbis-margins", "margins"]
    assert [preset_kind(name) for name in preset_names()[5:]] == [
        "demo",
        "demo",
        "recipe",
        "recipe",
    ]


@pytest.mark.parametrize("name", preset_names("system"))
def test_a_system_names_itself(name: str) -> None:
    assert load_config(name).system == name


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_what_it_is_in_a_line(name: str) -> None:
    assert 20 < len(preset_summary(name)) < 110


@pytest.mark.parametrize("name", ["demo", "cbis-margins", "margins"])
def test_the_demo_and_the_recipe_are_our_variant_and_say_so(name: str) -> None:
    assert load_config(name).system == "protopyramid"
    assert "protopyramid" in preset_summary(name)


@pytest.mark.parametrize("name", preset_names("system"))
def test_every_system_starts_from_imagenet(name: str) -> None:
    assert load_config(name).model.backbone.weights == "imagenet"


@pytest.mark.parametrize("name", preset_names("system"))
def test_made_small_a_system_starts_from_nothing(name: str) -> None:
    assert load_config(name, load_overlay("small")).model.backbone.weights == ""


@pytest.mark.parametrize("name", ["demo", "demo-iaia-bl", "cbis-margins", "margins"])
def test_what_builds_on_a_system_is_that_system_with_its_own_settings_on_top(name: str) -> None:
    config = load_config(name)
    own = load_overlay(name)
    assert config == load_config(config.system, own)
    assert config != load_config(config.system)


def test_the_demo_is_small() -> None:
    small = load_overlay("small")
    assert small.items() <= load_overlay("demo").items()
    first = load_overlay("demo-iaia-bl")
    assert {key for key in small if first[key] != small[key]} == {"model.neck.dim"}


@pytest.mark.parametrize("name", preset_names("system"))
def test_a_system_can_be_made_small(name: str) -> None:
    config = load_config(name, load_overlay("small"))
    assert config.model.backbone.width < 1
    assert config.system == name


def test_fpn_iaia_bl_has_prototypes_of_every_margin_on_every_level() -> None:
    config = load_config("fpn-iaia-bl")
    counts = prototype_counts(config)
    assert all(counts[margin] == {2: 3, 3: 3, 4: 3, 5: 3} for margin in config.data.classes[:3])
    assert counts["negative"] == {2: 1, 3: 1, 4: 1, 5: 1}
    assert config.model.similarity.kind == "cosine"
    assert config.model.pooling.kind == "focal"
    assert (config.data.negatives.count, config.data.negatives.resample) == (200, "once")


def test_fpn_iaia_bl_freezes_the_backbone_in_stage_a_and_not_in_stage_c() -> None:
    steps = train_steps(load_config("fpn-iaia-bl"))
    assert [step.name for step in steps] == ["A", *["C"] * 12]
    assert steps[0].learns == ["neck", "prototypes", "head"]
    assert all(step.learns == ["backbone", "neck", "prototypes", "head"] for step in steps[1:])
    assert kinds(load_config("fpn-iaia-bl")) == ["train", "project", "fit-head"] * 13


# What the paper, or the system that it cites for it, has published.
PUBLISHED = {
    "model.tta": (1, "the paper's figure 2"),
    "model.backbone.name": ("vgg16", "section 3"),
    "model.backbone.weights": ("imagenet", "IAIA-BL"),
    "model.neck.kind": ("pyramid", "equation 1"),
    "model.neck.batch_norm": (False, "equation 1"),
    "model.neck.upsample": ("nearest", "FPN"),
    "model.neck.start": ("random", "IAIA-BL"),
    "model.neck.padding": ("zeros", "FPN"),
    "model.prototypes.init": ("random", "IAIA-BL"),
    "model.similarity.kind": ("cosine", "equation 2"),
    "model.similarity.relu": (False, "equation 2"),
    "model.pooling.kind": ("focal", "equation 3"),
    "model.pooling.k": (9, "IAIA-BL: 9 of 196"),
    "model.head.own": (1.0, "Deformable ProtoPNet"),
    "model.head.other": (-0.5, "Deformable ProtoPNet"),
    "model.head.scale": (1.0, "Deformable ProtoPNet"),
    "loss.cluster": (0.8, "Deformable ProtoPNet"),
    "loss.separation": (0.08, "Deformable ProtoPNet"),
    "loss.act_on": ("score", "Deformable ProtoPNet"),
    "loss.scope": ("all", "Deformable ProtoPNet"),
    "loss.cluster_over": ("max", "Deformable ProtoPNet"),
    "loss.orthogonality": (0.1, "Deformable ProtoPNet"),
    "loss.group": ("class", "Deformable ProtoPNet"),
    "loss.contrast": (0.0, "equation 4 has none"),
    "loss.fine.weight": (0.001, "IAIA-BL"),
    "loss.fine.kind": ("class-pair", "supplement B"),
    "loss.fine.combine": ("paper", "supplement B"),
    "loss.fine.reduce": ("sum", "supplement B; IAIA-BL"),
    "loss.fine.per_pixel": (False, "supplement B"),
    "loss.fine.transpose": (False, "supplement B, the table"),
    "projection.source": ("any", "section 4: any input image"),
    "projection.unique": ("none", "IAIA-BL"),
    "projection.inside_annotation": (False, "IAIA-BL"),
    "head_fit.l1": (1e-4, "IAIA-BL"),
    "data.image_size": (224, "section 3.1: maps of 14 x 14 to 56 x 56"),
    "data.negatives.count": (200, "supplement C"),
    "data.negatives.resample": ("once", "supplement C"),
    "data.balance": ("class", "IAIA-BL: 5,000 images per class"),
    "data.annotated_share": (0.12, "IAIA-BL: 10 of 85"),
    "augmentation.rotation": (45.0, "IAIA-BL"),
    "augmentation.zoom": ([1.0, 1.11], "IAIA-BL: 90 % crops"),
    "augmentation.brightness": (0.0, "IAIA-BL"),
    "augmentation.contrast": (0.0, "IAIA-BL"),
    "train.batch_size": (75, "IAIA-BL"),
    "train.optimizer": ("adam", "IAIA-BL"),
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_fpn_iaia_bl_has_the_published_value(key: str) -> None:
    value, _source = PUBLISHED[key]
    assert flat(load_config("fpn-iaia-bl").model_dump(mode="json"))[key] == value


def test_fpn_iaia_bl_has_the_rates_and_epochs_of_iaia_bl() -> None:
    warm, *joint = train_steps(load_config("fpn-iaia-bl"))
    assert (warm.epochs, warm.weight_decay) == (10, 1e-3)
    assert warm.learning_rates == {"neck": 2e-3, "prototypes": 3e-3, "head": 1e-3}
    for step in joint:
        assert (step.epochs, step.weight_decay) == (10, 1e-3)
        assert (step.decay, step.decay_every, step.decay_factor) == ("step", 5, 0.1)
        rates = {"backbone": 2e-4, "neck": 3e-3, "prototypes": 3e-3, "head": 1e-3}
        assert step.learning_rates == rates


def test_protopyramid_is_fpn_iaia_bl_with_what_its_file_says() -> None:
    """Every departure is in the file, and every value in the file is a departure."""
    own = load_overlay("protopyramid")
    assert load_config("protopyramid") == load_config("fpn-iaia-bl", own)
    paper = flat(load_config("fpn-iaia-bl").model_dump(mode="json"))
    assert not [key for key, value in own.items() if paper[key] == value]


def test_the_papers_fine_tables_are_those_of_its_captions() -> None:
    fine = load_config("fpn-iaia-bl").loss.fine
    order = ["circumscribed", "indistinct", "spiculated", "negative"]
    inside = [[fine.inside[row][column] for column in order] for row in order]
    outside = [[fine.outside[row][column] for column in order] for row in order]
    assert inside == [[0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0]]
    assert outside == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]


def test_vgg16_is_plain_fine_tuning() -> None:
    config = load_config("vgg16")
    loss = config.loss
    assert (config.model.neck.kind, config.model.pooling.kind) == ("none", "average")
    assert (loss.cross_entropy, loss.cluster, loss.separation) == (1, 0, 0)
    assert (loss.orthogonality, loss.fine.weight) == (0, 0)
    (step,) = train_steps(config)
    assert (step.learns, step.decay) == (["backbone", "head"], "cosine")
    assert step.warmup > 0
