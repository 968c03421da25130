"""What pages and cards say of a run: its summary, its data, its stored results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protopyramid.config.differences import TITLES, differences, own_choices, reference_preset
from protopyramid.config.schema import MARGIN_CLASSES
from protopyramid.figures.text import counted, figure_text, listed
from protopyramid.runs import layout
from protopyramid.runs.provenance import Provenance
from protopyramid.runs.run import Run

# The publication of each system, by its preset.
PAPERS = {
    "fpn-iaia-bl": (
        'Yang et al., "FPN-IAIA-BL: A Multi-Scale Interpretable Deep Learning Model for Classification '
        'of Mass Margins in Digital Mammography", CVPR Workshops 2024'
    ),
    "iaia-bl": (
        'Barnett et al., "A Case-Based Interpretable Deep Learning Model for Classification of Mass '
        'Lesions in Digital Mammography", Nature Machine Intelligence 2021'
    ),
    "protopnet": (
        'Chen et al., "This Looks Like That: Deep Learning for Interpretable Image Recognition", '
        "NeurIPS 2019"
    ),
    "vgg16": (
        'Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", '
        "ICLR 2015"
    ),
}


def run_facts(run: Run) -> Provenance:
    """The run's provenance, empty if the run has none."""
    return run.provenance if (run.folder / layout.DATA).is_file() else Provenance()


def nested(content: Any, *keys: str) -> Any:
    """A nested value, or None where a key is missing.

    >>> nested({"a": {"b": 1}}, "a", "b"), nested({"a": None}, "a", "b")
    (1, None)
    """
    for key in keys:
        if not isinstance(content, Mapping):
            return None
        content = content.get(key)
    return content


def margins(run: Run) -> bool:
    """Whether the classes are mass margins."""
    return set(run.config.data.classes) <= set(MARGIN_CLASSES)


def summary(run: Run) -> str:
    """What this model is, in two sentences."""
    what = "mammogram patches by the margin of the mass" if margins(run) else "images"
    system, names = run.system_title, listed(_class_names(run))
    if not run.prototypes:
        return (
            f"This model classifies {what} as {names} with a conventional neural network ({system}). "
            "It is a black box: it names no case behind its answer, and heat maps only show where its "
            "prediction reacts to the image."
        )
    return (
        f"This model ({system}) classifies {what} as {names} by comparing parts of the image with parts "
        f"of known training images, its {counted(len(run.prototypes), 'prototype')}. Every prediction is "
        f"a sum of “this part looks like that part of a known case”, on {_levels(run)} "
        "(2 = fine detail, 5 = coarse), so that each step can be checked by eye."
    )


def difference_rows(run: Run) -> list[list[str]]:
    """Setting, the published value and the run's, for each setting that is not as published."""
    found = differences(run.config, run.start)
    return [[each.key, each.paper, each.run] for each in found]


def paper(run: Run) -> str:
    """The publication of the system that the run is or departs from."""
    return PAPERS[reference_preset(run.config)]


def difference_words(run: Run) -> str:
    """How the run stands to the published system, in a sentence or two."""
    preset = reference_preset(run.config)
    title, count = TITLES[preset], len(difference_rows(run))
    if not count:
        ours = "; ".join(f"`{key}` ({reason})" for key, reason in own_choices(preset).items())
        return (
            f"None: every setting is that of {title} as published or, where its paper is silent, of the "
            f"systems that it builds on, except for what the preset marks as ours: {ours}. What belongs "
            "to the data and the machine is not compared."
        )
    return (
        f"This is not {title} as published: {counted(count, 'setting')} differ, computed from `config.toml`. "
        "“Silent” marks what the paper leaves open, with the value that takes its place. What belongs to "
        "the data and the machine is not compared."
    )


def difference_title(run: Run) -> str:
    """The heading above the differences."""
    return f"Differences from {TITLES[reference_preset(run.config)]}"


def edit_history(run: Run) -> list[str]:
    """What was done to the run's prototypes since it was trained, one sentence per edit, oldest first."""
    return [_edit_words(record) for record in run_facts(run).history]


def _edit_words(record: Mapping[str, Any]) -> str:
    """One edit in words; records of earlier versions know of removed prototypes only."""
    removed, required = record.get("removed", []), record.get("required", {})
    parts = []
    if removed:
        noun = "prototype" if len(removed) == 1 else "prototypes"
        parts.append(f"{noun} {listed([str(index) for index in removed], 'and')} removed")
    parts += [
        f"prototype {index} required with a weight of at least {least:g} for its own class"
        for index, least in required.items()
    ]
    by_hand = record.get("by_hand")
    parts.append("weights chosen by hand, head not fitted" if by_hand else "head fitted again")
    day = record.get("at", "")[:10]
    made = "edited" if day else "pruned"
    line = f"{made} from the run `{record['from']}`{f' on {day}' if day else ''}: " + ", ".join(
        parts
    )
    loss = nested(record, "loss")
    if loss is not None:
        line += f"; loss of the head {figure_text(loss['before'])} before, {figure_text(loss['after'])} after"
    before, after = (nested(record, key, "auroc") for key in ("before", "validation"))
    if before is not None and after is not None:
        line += f"; validation AUROC {figure_text(before)} before, {figure_text(after)} after"
    return line


def _class_names(run: Run) -> list[str]:
    negative = run.config.data.negative_class
    return [
        f"{name} (no mass)" if margins(run) and name == negative else name
        for name in run.config.data.classes
    ]


def _levels(run: Run) -> str:
    levels = sorted({record.level for record in run.prototypes})
    return f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
