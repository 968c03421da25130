"""The presets state the published numbers of their systems."""

import pytest

from protopyramid.config import (
    load_config,
    load_overlay,
    preset_kind,
    preset_names,
    preset_summary,
)
from protopyramid.config.schema import Config, TrainPhaseConfig, prototype_counts, unrolled


def train_steps(config: Config) -> list[TrainPhaseConfig]:
    return [step for step in unrolled(config.train.schedule) if isinstance(step, TrainPhaseConfig)]


def kinds(config: Config) -> list[str]:
    return [step.step for step in unrolled(config.train.schedule)]


def test_the_four_systems_of_the_comparison_come_first() -> None:
    systems = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"]
    assert preset_names("system") == systems
    assert preset_names() == [*systems, "demo", "demo-iaia-bl", "cbis-margins"]
    assert [preset_kind(name) for name in preset_names()[4:]] == ["demo", "demo", "recipe"]


@pytest.mark.parametrize("name", preset_names("system"))
def test_a_system_names_itself(name: str) -> None:
    assert load_config(name).system == name


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_what_it_is_in_a_line(name: str) -> None:
    assert 20 < len(preset_summary(name)) < 110


@pytest.mark.parametrize("name", ["demo", "demo-iaia-bl", "cbis-margins"])
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


def test_the_defaults_of_the_schema_are_the_papers_system() -> None:
    assert load_config("fpn-iaia-bl") == Config()


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
    assert [step.name for step in steps] == ["A", "C", "C", "C"]
    assert "backbone" not in steps[0].learns
    assert all("backbone" in step.learns for step in steps[1:])
    assert kinds(load_config("fpn-iaia-bl")) == ["train", "project", "fit-head"] * 4


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
