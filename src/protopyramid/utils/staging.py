"""A folder of many files that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protopyramid.utils.files import (
    TEMPORARY,
    check_output_folder,
    disk_error,
    make_folder,
    sync_folder,
)
from protopyramid.utils.locks import in_use, locked


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A folder to fill, of the same name, that becomes `folder` when the block ends without an error.

    `folder` must be new or empty. What a killed process leaves is beside it, in a hidden folder, and goes
    when the same folder is built again.

    Examples:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "run"
        >>> with building(target) as stage:
        ...     _ = (stage / "model").write_text("whole")
        ...     target.exists()
        False
        >>> (target / "model").read_text()
        'whole'
    """
    check_output_folder(folder, empty=True)
    workshop = folder.parent / f"{TEMPORARY}{folder.name}"
    stage = workshop / folder.name

    def busy() -> None:
        raise in_use(folder)

    with locked(workshop, busy):
        try:
            shutil.rmtree(stage, ignore_errors=True)
            yield make_folder(stage)
            _move(stage, folder)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def _move(stage: Path, folder: Path) -> None:
    try:
        if folder.is_dir():
            folder.rmdir()  # empty: Windows does not replace it
        os.replace(stage, folder)
    except OSError as error:
        raise disk_error(folder, error) from error
    sync_folder(folder.parent)
