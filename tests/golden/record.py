"""Record today's behaviour: `python tests/golden/record.py`. Only after a change that is meant."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.golden.comparison import signature
from tests.golden.helptext import every_help
from tests.golden.observations import observe
from tests.golden.workflow import run_workflow

EXPECTED = Path(__file__).with_name("expected")


def write(name: str, content: Any) -> None:
    """Write one expectation: text as it is, all else as JSON."""
    path = EXPECTED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Run everything and replace what was expected."""
    with tempfile.TemporaryDirectory() as folder:
        run_workflow(Path(folder))
        observed = observe(Path(folder))
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for name, content in observed.items():
        write(name, content)
    write("commands.json", {name: found.options for name, found in every_help()})
    write("signature.json", signature())


if __name__ == "__main__":
    main()
