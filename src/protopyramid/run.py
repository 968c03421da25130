"""The run folder of a trained model: the only code that writes it or reads it.

    config.toml  model.safetensors  prototypes.json  prototypes/NNN.png  metrics.jsonl
    evaluation/SPLIT.json  report.html  MODEL_CARD.md  data.json  checkpoint/  format

Every write is atomic: a file is complete or it is not there. Nothing is pickled. `load_run` needs the
folder alone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.config import dump_config, load_config
from protopyramid.config.schema import Config
from protopyramid.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from protopyramid.explain.explanation import Explanation
    from protopyramid.model.network import PrototypeNetwork

FORMAT = 1
TEMPORARY = ".partial-"


@dataclass(frozen=True)
class PrototypeRecord:
    """Where a prototype comes from.

    `image` is the source image's name in its manifest; row and col its cell on the level's map;
    similarity that to the nearest patch just before projection; box the part of the source image that
    the prototype activates on, as fractions x0, y0, x1, y1.
    """

    index: int
    class_name: str
    level: int
    image: str
    row: int
    col: int
    similarity: float
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)

    def to_json(self) -> dict[str, Any]:
        """The record as it stands in prototypes.json, where the class is called `class`."""
        content = asdict(self)
        ordered = {"index": content.pop("index"), "class": content.pop("class_name")}
        return {**ordered, **content, "box": list(self.box)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PrototypeRecord:
        """The record of an entry of prototypes.json."""
        rest = {key: value for key, value in content.items() if key not in ("class", "box")}
        return cls(class_name=content["class"], box=tuple(content["box"]), **rest)


class RunFolder:
    """Paths, atomic writes and the lock of one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, relative: str) -> Path:
        return self.path / relative

    # -- writing ---------------------------------------------------------------------------------
    def write_bytes(self, relative: str, content: bytes) -> Path:
        """Write a file atomically: after a crash it holds the old bytes or the new ones, whole."""
        target = self.path / relative
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY)
            partial = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                partial.chmod(0o644)
                os.replace(partial, target)
            finally:
                partial.unlink(missing_ok=True)
            _sync_folder(target.parent)
        except OSError as error:
            raise _disk_error(target, error) from error
        return target

    def write_text(self, relative: str, content: str) -> Path:
        """Write text atomically, as UTF-8."""
        return self.write_bytes(relative, content.encode())

    def write_json(self, relative: str, content: object) -> Path:
        """Write JSON atomically; NaN and infinity are refused, since other readers do not know them."""
        return self.write_text(relative, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def write_tensors(
        self,
        relative: str,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a safetensors file atomically. The same tensors give the same bytes."""
        from safetensors.torch import save

        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        return self.write_bytes(relative, save(plain, dict(metadata or {})))

    def write_config(self, config: Config) -> Path:
        """Write the complete configuration."""
        return self.write_text("config.toml", dump_config(config))

    def append_line(self, relative: str, line: str) -> None:
        """Append a line to a log."""
        target = self.path / relative
        try:
            with target.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise _disk_error(target, error) from error

    # -- reading ---------------------------------------------------------------------------------
    def read_json(self, relative: str) -> Any:
        """The content of a JSON file."""
        target = self.path / relative
        try:
            return json.loads(target.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{target}: no such file; is this a finished run?") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{target}: cannot be read ({error}); the run is damaged") from error

    def read_tensors(self, relative: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors and the metadata of a safetensors file."""
        from safetensors import SafetensorError, safe_open

        target = self.path / relative
        try:
            with safe_open(target, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, file.metadata() or {}
        except FileNotFoundError as error:
            raise UserError(f"{target}: no such file; is this a finished run?") from error
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{target}: cannot be read ({error}); the file is damaged") from error

    def read_lines(self, relative: str) -> list[dict[str, Any]]:
        """The records of a JSON-lines log; a last line that was cut off is left out."""
        target = self.path / relative
        if not target.is_file():
            return []
        records = []
        for line in target.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                records.append(json.loads(line))
        return records

    # -- life ------------------------------------------------------------------------------------
    def begin(self, config: Config) -> None:
        """Make a new run folder."""
        self.write_text("format", f"{FORMAT}\n")
        self.write_config(config)

    def check_format(self) -> None:
        """Refuse a folder that is no run, or of another layout."""
        target = self.path / "format"
        try:
            found = target.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.path}: not a run folder (it has no readable file 'format')"
            ) from error
        if found != str(FORMAT):
            raise UserError(
                f"{self.path}: run folder of format {found!r}, this version reads format {FORMAT}; "
                "use the version of protopyramid that made it"
            )

    def remove_partial(self) -> None:
        """Remove what an earlier process left behind when it was killed while writing."""
        for partial in self.path.rglob(TEMPORARY + "*"):
            partial.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the system lets go of it when the process ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a")
        except OSError as error:
            raise _disk_error(self.path, error) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(
                    f"{self.path}: in use by another process; wait for it or choose another folder"
                ) from error
            self.remove_partial()
            yield


@dataclass
class Run:
    """A trained model with all that explaining and serving it needs."""

    folder: RunFolder
    config: Config
    model: PrototypeNetwork
    prototypes: list[PrototypeRecord] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.path.resolve().name

    def predict(self, images: Sequence[str | Path]) -> list[dict[str, Any]]:
        """Class probabilities and strongest prototypes of image files, one record an image."""
        from protopyramid.evaluation.prediction import predict_files

        return predict_files(self, images)

    def explain(self, image: str | Path) -> Explanation:
        """The case-based explanation of one image file."""
        from protopyramid.explain.explanation import explain_file

        return explain_file(self, image)


def load_run(path: str | Path) -> Run:
    """Load a finished run.

    Example: ``run = load_run("runs/demo"); run.explain("lesion.png").save("why.png")``
    """
    from protopyramid.model.network import build_model

    folder = RunFolder(path)
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: no such run folder")
    folder.check_format()
    config = load_config(folder / "config.toml")
    if not (folder / "model.safetensors").is_file():
        raise UserError(
            f"{folder.path}: training has not finished (no model.safetensors); go on with --resume"
        )
    model = build_model(config)
    tensors, _ = folder.read_tensors("model.safetensors")
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).strip().split("\n")[-1].strip()
        raise UserError(
            f"{folder / 'model.safetensors'}: does not fit config.toml: {first}"
        ) from error
    model.eval()
    records = [PrototypeRecord.from_json(entry) for entry in folder.read_json("prototypes.json")]
    return Run(folder, config, model, records)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; not every file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _disk_error(target: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"{target}: the disk is full; free some space, then go on with --resume")
    return UserError(f"{target}: cannot be written ({error.strerror or error})")
