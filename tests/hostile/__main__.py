"""All hostile cases: python -m tests.hostile [--seeds N] [--part I/N] [--only WORDS] [--sample N]."""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from zlib import crc32

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="Draws of each kind that is random.")
    parser.add_argument("--part", default="1/1", help="Only the cases of one part, as in 2/3.")
    parser.add_argument(
        "--only", action="append", help="Only cases whose entry point or kind has these words."
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="Only this many cases, drawn at random."
    )
    parser.add_argument("--verbose", action="store_true", help="Print the stderr of what fails.")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    from .runner import Runner, all_cases

    chosen = [case for case in all_cases(options.seeds) if _is_wanted(case.name, options.only)]
    part, parts = map(int, options.part.split("/"))
    chosen = [case for case in chosen if crc32(case.name.encode()) % parts == part - 1]
    random.Random(0).shuffle(chosen)
    chosen = chosen[: options.sample] if options.sample else chosen
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hostile-", dir=_quick_folder()) as folder:
        runner = Runner(Path(folder))
        print(f"{len(chosen)} cases; ready after {time.monotonic() - start:.0f} s", flush=True)
        failed = []
        counts: dict[str, collections.Counter[str]] = {
            "entry point": collections.Counter(),
            "kind": collections.Counter(),
        }
        codes: collections.Counter[int] = collections.Counter()
        spent: dict[str, float] = {}
        slowest: list[tuple[float, str]] = []
        for number, case in enumerate(chosen, 1):
            outcome = runner.run(case)
            counts["entry point"][case.entry] += 1
            counts["kind"][case.kind] += 1
            codes[outcome.code] += 1
            spent[case.entry] = spent.get(case.entry, 0.0) + outcome.seconds
            slowest = sorted([*slowest, (outcome.seconds, case.name)], reverse=True)[:5]
            if outcome.problems:
                failed.append(outcome)
                print(f"FAILED {case.name}: {'; '.join(outcome.problems)}", flush=True)
                if options.verbose:
                    print("   ", outcome.arguments, "\n", outcome.stderr[-3000:], flush=True)
            if number % 1000 == 0:
                print(f"{number} cases, {len(failed)} failed", flush=True)
    for what, numbers in counts.items():
        print(f"\ncases by {what}")
        for name, count in sorted(numbers.items()):
            mean = f"  {spent[name] / count:.2f} s" if name in spent else ""
            print(f"{count:6d}  {name}{mean}")
    print(f"\nexit codes: {dict(codes)}; slowest: {slowest[0] if slowest else ''}")
    print(f"{len(chosen)} cases in {time.monotonic() - start:.0f} s, {len(failed)} failed")
    return 1 if failed else 0


def _quick_folder() -> Path | None:
    """A folder in memory where there is one: a case copies a few hundred files and syncs what it writes."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


def _is_wanted(name: str, only: list[str] | None) -> bool:
    return not only or any(words in name for words in only)


if __name__ == "__main__":
    sys.exit(main())
