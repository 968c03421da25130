"""How a configuration differs from the published system, and what a run may be called.

The list is computed by comparing settings with the preset of the published system and the marks in its file
(origins.py), never written by hand. Settings that belong to the data at hand or to the machine do not count.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from protopyramid.config.catalogue import preset_names
from protopyramid.config.loading import load_config
from protopyramid.config.origins import origins_below, preset_origins
from protopyramid.config.overrides import flat
from protopyramid.config.schema import Config, RepeatConfig, Step, TrainConfig, TrainPhaseConfig

PAPER = "fpn-iaia-bl"
# As their papers write them.
TITLES = {
    PAPER: "FPN-IAIA-BL",
    "iaia-bl": "IAIA-BL",
    "protopnet": "ProtoPNet",
    "vgg16": "VGG-16",
}
NETWORK = "vgg16"  # the name of a network, whatever it is trained for; its settings are ours
MODIFIED = ", modified"
VARIANT = "protopyramid"  # ours; its file gives the reason for each departure from the paper
WEIGHTS, SCHEDULE = "model.backbone.weights", "train.schedule"
# What depends on the data at hand: its classes, its files, and how patients are held out.
DATA_KEYS = (
    "data.classes",
    "data.negative_class",
    "data.crop",
    "data.region",
    "data.dicom",
    "data.validation_fraction",
)
# What depends on the machine, and what changes no method: speed, memory, the seed, the system's name.
ENGINE_KEYS = (
    "system",
    "data.memory_budget",
    "train.seed",
    "train.eval_batch_size",
    "train.precision",
    "train.channels_last",
    "train.threads",
    "train.validate_every",
    "train.cache",
)
# Reasons of values that change nothing in the preset that has them.
WITHOUT_EFFECT = re.compile("without effect|belongs to|changes no weight|the schedule as it is")


@dataclass(frozen=True)
class SettingDifference:
    """A setting that is not as in the published system: what its paper has, and what this run has.

    Where the paper is silent, `paper` says so and names the ancestor whose value takes its place.
    """

    key: str
    paper: str
    run: str

    def to_json(self) -> dict[str, str]:
        """The entry in data.json."""
        return asdict(self)


def differences(config: Config, start: str = "") -> list[SettingDifference]:
    """How a configuration differs from the published system that it stands for, in the order of settings.

    That is FPN-IAIA-BL, unless the configuration's system is another published one. `start` is what a run
    records of its starting weights (`backbone` of data.json): a backbone from another run is the paper's way,
    whatever weights the configuration names.

    >>> differences(load_config("fpn-iaia-bl", {"train.seed": 1}))
    []
    >>> differences(load_config("fpn-iaia-bl", {"model.pooling.k": 5}))
    [SettingDifference(key='model.pooling.k', paper="silent; ancestor's 9 (IAIA-BL)", run='5')]
    """
    reference = reference_preset(config)
    return [
        SettingDifference(key, _paper_text(reference, key, paper), _text(key, run))
        for key, paper, run in _changes(reference, config, start)
    ]


def reference_preset(config: Config) -> str:
    """The preset of the published system that a configuration is compared with."""
    return config.system if config.system in TITLES else PAPER


def system_title(config: Config, start: str = "") -> str:
    """What a run is called in tables, figures and reports.

    A published system has its published name only with its preset's settings; data and engine aside.

    >>> system_title(load_config("fpn-iaia-bl")), system_title(load_config("demo"))
    ('FPN-IAIA-BL', 'protopyramid')
    >>> system_title(load_config("fpn-iaia-bl", {"model.pooling.k": 5}))
    'FPN-IAIA-BL, modified'
    """
    if config.system not in TITLES or config.system == NETWORK:
        return TITLES.get(config.system, config.system)
    modified = _changes(config.system, config, start)
    return TITLES[config.system] + (MODIFIED if modified else "")


def difference_summary(config: Config) -> str:
    """How a configuration stands to the published system, in a few words.

    >>> difference_summary(load_config("fpn-iaia-bl"))
    'paper to the letter'
    >>> difference_summary(load_config("fpn-iaia-bl", {"model.pooling.k": 5}))
    '1 difference from FPN-IAIA-BL'
    """
    count, reference = len(differences(config)), reference_preset(config)
    if count:
        return f"{count} difference{'s' * (count > 1)} from {TITLES[reference]}"
    if reference == PAPER:
        return "paper to the letter"
    ours = len(own_choices(reference))
    return f"as published except for {ours} setting{'s' * (ours > 1)} of ours"


def own_choices(preset: str) -> dict[str, str]:
    """What a published system's preset has of ours and that counts: the reason by key.

    Its file marks these values: the paper and its ancestors give none, or another one.

    >>> own_choices("protopnet")["model.backbone.name"]
    'the same for all systems; published are VGG-19 and others'
    """
    found: dict[str, list[str]] = {}
    for key, origin in preset_origins(preset).items():
        if origin is None or origin.kind != "ours" or WITHOUT_EFFECT.match(origin.text):
            continue
        name = SCHEDULE if key.startswith(f"{SCHEDULE}.") else key
        if _counts(name):
            note = f"; {origin.note}" if origin.note else ""
            found.setdefault(name, []).append(origin.text + note)
    return {key: ", ".join(dict.fromkeys(reasons)) for key, reasons in found.items()}


def departure_reason(config: Config, key: str) -> str:
    """Why our variant, or the recipe that a configuration follows, has its value; "" where it is another.

    >>> departure_reason(load_config("protopyramid"), "loss.fine.reduce")
    'the batch size does not rescale the weight; no ablation'
    """
    if config.system != VARIANT:
        return ""
    value = _values(config)[key]
    for preset in (*_recipes_followed(config), VARIANT):
        origins = origins_below(key, preset_origins(preset))
        if origins and _preset_values(preset)[key] == value:
            reasons = [f"{each.text}; {each.note}" if each.note else each.text for each in origins]
            return ", ".join(dict.fromkeys(reasons))
    return ""


def _recipes_followed(config: Config) -> list[str]:
    """The recipes whose own settings, those that count, a configuration has all of."""
    here = _values(config)
    return [
        name
        for name in preset_names("recipe")
        if all(
            here[key] == _preset_values(name)[key] for key in preset_origins(name) if key in here
        )
    ]


def _changes(preset: str, config: Config, start: str) -> list[tuple[str, Any, Any]]:
    """Each setting that differs from a preset's, with its value there and here."""
    found = []
    here = _values(config)
    for key, there in _preset_values(preset).items():
        if key == WEIGHTS and _is_a_start(there, here[key], start):
            continue
        if here[key] != there:
            found.append((key, there, here[key]))
    return found


def _is_a_start(there: str, here: str, start: str) -> bool:
    """Whether weights come from somewhere, as the preset's do.

    A file may be the same weights under another name, or a published IAIA-BL's, as in the paper.
    """
    return bool(there) and (bool(here) or start.startswith("run "))


@cache
def _preset_values(name: str) -> dict[str, Any]:
    assert name in preset_names()
    return _values(load_config(name))


def _values(config: Config) -> dict[str, Any]:
    """The settings that count, by dotted key."""
    return {
        key: value for key, value in flat(config.model_dump(mode="json")).items() if _counts(key)
    }


def _counts(key: str) -> bool:
    """Whether a setting belongs to the method, and neither to the data nor to the machine."""
    return not any(key == each or key.startswith(f"{each}.") for each in DATA_KEYS + ENGINE_KEYS)


def _paper_text(preset: str, key: str, value: Any) -> str:
    """The value that a paper has, or what stands in for it where the paper is silent."""
    text = _text(key, value)
    origins = origins_below(key, preset_origins(preset))
    ancestors = list(dict.fromkeys(each.text for each in origins if each.kind == "ancestor"))
    if ancestors:
        silent = "in part silent" if any(each.kind == "paper" for each in origins) else "silent"
        return f"{silent}; ancestor's {text} ({', '.join(ancestors)})"
    if any(each.kind == "paper" for each in origins):
        return text
    return f"silent; ours {text}"


def _text(key: str, value: Any) -> str:
    """A value in one line."""
    if key == SCHEDULE:
        return schedule_text(TrainConfig(schedule=value).schedule)
    if key == WEIGHTS and not value:
        return "none (random)"
    return value if isinstance(value, str) else json.dumps(value)


def schedule_text(schedule: list[Step]) -> str:
    """A schedule in one line.

    >>> from protopyramid.config.schema import FitHeadPhaseConfig, ProjectPhaseConfig
    >>> schedule_text([ProjectPhaseConfig(), FitHeadPhaseConfig()])
    'project; fit-head'
    """
    return "; ".join(_step_text(step) for step in schedule)


def _step_text(step: Step) -> str:
    if isinstance(step, RepeatConfig):
        return f"{step.times} x [{schedule_text(list(step.steps))}]"
    if not isinstance(step, TrainPhaseConfig):
        return step.step
    rates = ", ".join(f"{part} {_rate(step, part):g}" for part in step.learns)
    parts = [f"{step.epochs:g} epochs at rates {rates}", f"weight decay {step.weight_decay:g}"]
    if step.warmup:
        parts.append(f"warm-up {step.warmup:g}")
    if step.decay == "step":
        parts.append(f"x {step.decay_factor:g} every {step.decay_every:g}")
    elif step.decay == "cosine":
        parts.append(f"cosine to {step.decay_factor:g}")
    if step.clip:
        parts.append(f"gradients clipped at {step.clip:g}")
    if step.views:
        parts.append(f"{step.views} fixed copies")
    if step.losses:
        parts.append(f"losses {json.dumps(step.losses)}")
    return f"{step.name}: {', '.join(parts)}"


def _rate(step: TrainPhaseConfig, part: str) -> float:
    return step.learning_rates.get(part.partition(".")[0], step.learning_rate)
