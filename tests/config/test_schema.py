"""Every setting is described, every dotted key is found, impossible settings are refused."""

from collections.abc import Iterator
from typing import get_args

import pytest
from pydantic import ValidationError

from protopyramid.config.keys import nearest_key, section_keys, valid_keys
from protopyramid.config.schema import Config, Section


def sections(model: type[Section]) -> Iterator[type[Section]]:
    """A section and every section that its fields may hold, however deep."""
    yield model
    for field in model.model_fields.values():
        for kind in leaves(field.annotation):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from sections(kind)


def leaves(annotation: object) -> Iterator[object]:
    yield annotation
    for argument in get_args(annotation):
        yield from leaves(argument)


def test_every_setting_has_a_description() -> None:
    found = set(sections(Config))
    assert len(found) >= 20
    bare = [
        f"{section.__name__}.{name}"
        for section in found
        for name, field in section.model_fields.items()
        if not (field.description or "").strip().endswith(".")
    ]
    assert bare == []


def test_every_section_has_a_docstring() -> None:
    assert all(section.__doc__ for section in sections(Config))


def test_keys_are_known_by_their_dotted_name() -> None:
    assert {"system", "model.neck.dim", "loss.fine.inside", "data.negatives.count"} <= set(
        valid_keys()
    )
    assert "model.neck" in section_keys()
    assert "model.prototypes.counts" not in section_keys()


@pytest.mark.parametrize("key", valid_keys())
def test_a_key_with_a_typing_slip_is_recognised(key: str) -> None:
    assert nearest_key(key[:-1] + "~") is not None


def test_a_schedule_must_end_projected_and_fitted() -> None:
    with pytest.raises(ValidationError, match="must end with project and fit-head"):
        Config.model_validate({"train": {"schedule": [{"step": "train"}]}})


def test_a_head_without_prototypes_may_be_fitted_but_nothing_projected() -> None:
    none = {"neck": {"kind": "none"}}
    fitted = [{"step": "train"}, {"step": "fit-head"}]
    assert Config.model_validate({"model": none, "train": {"schedule": fitted}})
    projected = [{"step": "train"}, {"step": "project"}]
    with pytest.raises(ValidationError, match="has project, but the model has no prototypes"):
        Config.model_validate({"model": none, "train": {"schedule": projected}})


def test_an_add_on_has_level_five_alone() -> None:
    with pytest.raises(ValidationError, match="has level 5 only"):
        Config.model_validate({"model": {"neck": {"kind": "add-on"}}})


def test_a_share_is_of_the_loss_by_class_pair_alone() -> None:
    fine = {"kind": "grouped", "share": True}
    with pytest.raises(ValidationError, match=r'share needs kind "class-pair"'):
        Config.model_validate({"loss": {"fine": fine}})
    assert Config.model_validate({"loss": {"fine": {"share": True}}}).loss.fine.share


def test_what_is_ours_beside_the_papers_losses_and_layers_is_off() -> None:
    """The start of the pyramid alone is on; it changes where training begins, not the model."""
    config = Config()
    assert not config.loss.contrast
    assert not config.loss.fine.share
    assert config.loss.cluster_over == "max"
    assert (config.model.backbone.padding, config.model.neck.padding) == ("zeros", "zeros")
    assert not config.model.neck.batch_norm
    assert config.model.neck.start == "centred"


@pytest.mark.parametrize(
    "loss", [{"contrast": -1}, {"contrast_margin": 0}, {"cluster_over": "median"}], ids=str
)
def test_impossible_settings_of_our_losses_are_refused(loss: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"loss": loss})


def test_a_step_may_weigh_the_contrast_loss() -> None:
    step = {"step": "train", "losses": {"contrast": 2.0}}
    schedule = [step, {"step": "project"}, {"step": "fit-head"}]
    config = Config.model_validate({"train": {"schedule": schedule}})
    assert config.train.schedule[0].losses == {"contrast": 2.0}  # type: ignore[union-attr]


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().train.seed = 3  # type: ignore[misc]
