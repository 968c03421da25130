"""A run folder on disk: paths, atomic writes, checked reads and the lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.config import dump_config
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.tensor_file import tensor_bytes
from protopyramid.utils import files
from protopyramid.utils.locks import locked
from protopyramid.utils.opening import MARK, RECORDS, WEIGHTS, checked, read_file, read_text
from protopyramid.utils.typed_json import parse_json, read_json

if TYPE_CHECKING:
    from torch import Tensor


class RunFolder:
    """Paths, atomic writes and the lock of one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, relative: str) -> Path:
        return self.path / relative

    # -- writing ---------------------------------------------------------------------------------
    def write_bytes(self, relative: str, content: bytes) -> Path:
        """Write a file atomically: after a crash it holds the old bytes or the new ones, whole."""
        return files.write_bytes(files.inside(self.path, relative), content)

    def write_text(self, relative: str, content: str) -> Path:
        """Write text atomically, as UTF-8."""
        return files.write_text(files.inside(self.path, relative), content)

    def write_json(self, relative: str, content: object) -> Path:
        """Write JSON atomically; NaN and infinity are refused: other readers do not know them."""
        return files.write_json(files.inside(self.path, relative), content)

    def write_tensors(
        self,
        relative: str,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a safetensors file atomically. The same content gives the same bytes."""
        return self.write_bytes(relative, tensor_bytes(tensors, metadata))

    def write_config(self, config: Config) -> Path:
        """Write the complete configuration."""
        return self.write_text(layout.CONFIG, dump_config(config))

    def append_line(self, relative: str, line: str) -> None:
        """Append a line to a log."""
        files.append_line(files.inside(self.path, relative), line)

    # -- reading ---------------------------------------------------------------------------------
    def read_json(self, relative: str) -> Any:
        """The content of a JSON file."""
        target = self.path / relative
        try:
            return read_json(target)
        except FileNotFoundError as error:
            raise UserError(f"{target}: no such file; is this a finished run?") from error
        except (OSError, ValueError) as error:
            raise _unreadable(target, error, "the run is damaged") from error

    def read_tensors(self, relative: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors and the metadata of a safetensors file."""
        from safetensors import SafetensorError, safe_open

        target = self.path / relative
        try:
            with safe_open(checked(target, WEIGHTS), framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, file.metadata() or {}
        except FileNotFoundError as error:
            raise UserError(f"{target}: no such file; is this a finished run?") from error
        except (SafetensorError, OSError, ValueError) as error:
            raise _unreadable(target, error, "the file is damaged") from error

    def read_weights(self) -> dict[str, Tensor]:
        """The weights of the model, as floats however they are stored."""
        from protopyramid.runs.eight_bit import to_floats

        tensors, _ = self.read_tensors(layout.MODEL)
        return to_floats(tensors, str(self.path / layout.MODEL))

    def read_lines(self, relative: str) -> list[dict[str, Any]]:
        """The records of a JSON-lines log; a last line that was cut off is left out."""
        target = self.path / relative
        try:
            content = read_file(target, RECORDS)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(target, error, "the run is damaged") from error
        records = []
        for line in content.splitlines():
            with suppress(ValueError):
                records.append(parse_json(line))
        return [record for record in records if isinstance(record, dict)]

    # -- life ------------------------------------------------------------------------------------
    def begin(self, config: Config) -> None:
        """Make a new run folder."""
        self.write_text(layout.FORMAT, f"{layout.FORMAT_VERSION}\n")
        self.write_config(config)

    def check_format(self) -> None:
        """Refuse a folder that is not a run, or has another layout."""
        target = self.path / layout.FORMAT
        try:
            found = read_text(target, MARK).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.path}: not a run folder (it has no readable file 'format')"
            ) from error
        known = (layout.FORMAT_VERSION, layout.PACKED_VERSION)
        if found not in map(str, known):
            raise UserError(
                f"{self.path}: a run folder of format {found!r}, but this version reads format "
                f"{known[0]} or {known[1]}; use the version of protopyramid that made it"
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the system releases it when the process ends."""

        def busy() -> None:
            raise UserError(
                f"{self.path}: in use by another process; wait for it or choose another folder"
            )

        with locked(self.path, busy):
            files.remove_partial(self.path)
            yield


def _unreadable(target: Path, error: Exception, remedy: str) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"{target}: cannot be read ({reason}); {remedy}")
