"""The run that an edit makes: complete, and with its history in data.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch

from protopyramid import __version__
from protopyramid.inference.ood import digest_of
from protopyramid.inference.score_table import ScoreTable, write_scores
from protopyramid.model.network import PrototypeNetwork
from protopyramid.prototypes.editing import EditPlan
from protopyramid.prototypes.pruning import pruned_config, pruned_model
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import write_provenance
from protopyramid.runs.run import Run
from protopyramid.runs.tensor_file import tensor_bytes
from protopyramid.utils.opening import IMAGE, RECORDS, read_file


def write_edit(run: Run, plan: EditPlan, table: ScoreTable, folder: RunFolder) -> None:
    """Write the run that a plan describes; the caller finishes it as any other (`api.finish`).

    The remaining prototypes are numbered from 0 again; data.json tells their old indices.
    """
    model = edited_model(run, plan)
    config = pruned_config(run, plan.kept)
    digest = digest_of(_model_bytes(model), config)
    folder.begin(config)
    _write_prototypes(run, folder, plan.kept)
    _write_history(run, folder, plan)
    left = table.columns(plan.kept)
    splits = run.provenance.splits if _has_data(run) else {}
    write_scores(folder, left, digest, splits)
    # The model last: where it is, everything else is.
    folder.write_tensors(layout.MODEL, model.state_dict())


def edited_model(run: Run, plan: EditPlan) -> PrototypeNetwork:
    """The network with the prototypes that are kept and the head of the plan."""
    model = pruned_model(run, plan.kept)
    with torch.no_grad():
        model.head.weight.copy_(plan.weight)
    return model


def history_record(run: Run, plan: EditPlan) -> dict[str, Any]:
    """What data.json tells of an edit: what was done, to which run, when, and what it cost.

    `kept` are old indices: the place of one in the list is its new index. `requirements` are least weights
    by new index.
    """
    content = plan.to_json()
    changes = content.pop("changes")
    new = {old: place for place, old in enumerate(plan.kept)}
    return {
        "kind": "edit",
        "from": run.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        **content,
        "changed": len(changes),
        "requirements": {str(new[old]): least for old, least in plan.required.items()},
    }


def _model_bytes(model: PrototypeNetwork) -> bytes:
    """What model.safetensors will hold: scores and reference are written before it."""
    return tensor_bytes(model.state_dict())


def _write_prototypes(run: Run, folder: RunFolder, kept: Sequence[int]) -> None:
    """Write the prototypes and their pictures, renumbered; a run may be without pictures."""
    records = {record.index: record for record in run.prototypes}
    for new, old in enumerate(kept):
        picture = run.folder / layout.picture(old)
        if picture.is_file():
            folder.write_bytes(layout.picture(new), read_file(picture, IMAGE))
    content = [replace(records[old], index=new).to_json() for new, old in enumerate(kept)]
    folder.write_json(layout.PROTOTYPES, content)


def _write_history(run: Run, folder: RunFolder, plan: EditPlan) -> None:
    """Write where the run comes from: data.json with its edits, and the log of its training."""
    record = history_record(run, plan)
    if _has_data(run):
        origin = run.provenance.moved(run.folder.path, folder.path)
        history = [*origin.edits, record]
        write_provenance(folder, origin.model_copy(update={"edits": history}))
    if (run.folder / layout.METRICS).is_file():
        folder.write_bytes(layout.METRICS, read_file(run.folder / layout.METRICS, RECORDS))
    folder.append_line(layout.METRICS, json.dumps(record))


def _has_data(run: Run) -> bool:
    return (run.folder / layout.DATA).is_file()
