"""An evaluation as it looks in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protopyramid.figures.text import counted, figure_text
from protopyramid.utils.html import Cell, html_of, matrix, table

if TYPE_CHECKING:
    from protopyramid.evaluation.results import Evaluation


def evaluation_html(found: Evaluation) -> str:
    """AUROC, sensitivity and specificity of every class, the confusion matrix, and all warnings."""
    auroc = found.auroc
    kinds = {f"AUROC, {found.negative_class} left out": auroc} if found.negative_class else {}
    columns = {**kinds, f"AUROC{', with it' if kinds else ''}": auroc.with_negative}
    rows: list[list[Cell]] = [
        [
            name,
            str(found.per_class_n.get(name, 0)),
            *(
                figure_text(kind.per_class.get(name), kind.ci95_per_class.get(name))
                for kind in columns.values()
            ),
            figure_text(found.sensitivity.get(name)),
            figure_text(found.specificity.get(name)),
        ]
        for name in found.classes
    ]
    means = (figure_text(kind.mean, kind.ci95) for kind in columns.values())
    rows.append(["mean / all", str(found.n), *means, "", ""])
    header = ["class", "images", *columns, "sensitivity", "specificity"]
    images = f"{counted(found.n, 'image')} of {counted(found.patients, 'patient')}"
    warnings = [
        *(["LEAKED: trained on some of these images"] if found.leaked else []),
        *found.warnings,
    ]
    return (
        f"<h3>{html_of(found.title)} on {html_of(found.split)}</h3>"
        f"<p>{images}; accuracy {figure_text(found.accuracy, found.accuracy_ci95)}</p>"
        + "".join(f"<p><b>Warning:</b> {html_of(text)}</p>" for text in warnings)
        + table(header, rows, total=True)
        + matrix(found.classes, found.confusion_matrix)
        + _where_prototypes_look(found)
    )


def _where_prototypes_look(found: Evaluation) -> str:
    """Activation precision beside its chance level, by level; nothing without prototypes or annotations."""
    scales = {
        "inside the annotation": found.activation_precision.fine,
        "inside the lesion box": found.activation_precision.lesion,
    }
    known = {name: scale for name, scale in scales.items() if scale.mean is not None}
    levels = sorted({level for scale in known.values() for level in scale.per_level})
    rows: list[list[Cell]] = [
        [
            name,
            figure_text(scale.mean, scale.ci95),
            figure_text(scale.chance),
            *(figure_text(scale.per_level.get(level)) for level in levels),
        ]
        for name, scale in known.items()
    ]
    header = [
        "strongest 5 % of maps",
        "share",
        "by chance",
        *(f"level {level}" for level in levels),
    ]
    return f"<p>Where the prototypes look:</p>{table(header, rows)}" if rows else ""
