"""The public Python functions, called with what they do not take: each answers UserError or TypeError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import protopyramid as pp

Call = Callable[[Any], Any]
WRONG: dict[str, Any] = {
    "None": None,
    "a number": 3,
    "a fraction": 0.5,
    "not a number": float("nan"),
    "truth": True,
    "bytes": b"run",
    "an empty text": "",
    "an overlong name": "x" * 5000,
    "a NUL": "a\0b",
    "an empty list": [],
    "a list of numbers": [1, 2],
    "a list of None": [None],
    "a table": {"a": 1},
    "an object": object(),
    "a class": Path,
    "an array of nothing": np.zeros((0, 0), np.float32),
    "an array": np.zeros((4, 4), np.float32),
    "no pixels": torch.zeros(1, 3, 0, 0),
    "no images": torch.zeros(0, 3, 64, 64),
    "no batch": torch.zeros(3, 64, 64),
    "two channels": torch.zeros(1, 2, 64, 64),
    "integers": torch.zeros(1, 3, 64, 64, dtype=torch.int64),
    "doubles": torch.zeros(1, 3, 64, 64, dtype=torch.float64),
    "one pixel": torch.zeros(1, 3, 1, 1),
    "a folder": Path("data"),
    "a pipe": Path("pipe"),
}


def _run() -> Any:
    return pp.load_run("run")


def _model() -> Any:
    return _run().model


def _loss(**given: Any) -> Any:
    good = {
        "maps": torch.rand(2, 3, 4, 4),
        "masks": torch.ones(2, 8, 8),
        "inside": torch.ones(2, 3),
        "outside": torch.ones(2, 3),
    }
    return pp.losses.fine_annotation(**{**good, **given})


CALLS: dict[str, Call] = {
    "load_config(x)": lambda x: pp.load_config(x),
    "load_config(preset, x)": lambda x: pp.load_config("vgg16", x),
    "load_config(seed=x)": lambda x: pp.load_config("vgg16", {"train.seed": x}),
    "dump_config(x)": lambda x: pp.dump_config(x),
    "build_model(x)": lambda x: pp.build_model(x),
    "model(x)": lambda x: _model()(x),
    "model.pyramid(x)": lambda x: _model().pyramid(x),
    "load_run(x)": lambda x: pp.load_run(x),
    "train(x, data, out)": lambda x: pp.train(x, "data/manifest.csv", "new"),
    "train(config, x, out)": lambda x: pp.train(pp.load_config("tiny.toml"), x, "new"),
    "train(config, data, x)": lambda x: pp.train(pp.load_config("tiny.toml"), "nothing.csv", x),
    "train(backbone_from=x)": lambda x: pp.train(
        pp.load_config("tiny.toml"), "nothing.csv", "new", backbone_from=x
    ),
    "evaluate(x)": lambda x: pp.evaluate(x),
    "evaluate(run, x)": lambda x: pp.evaluate("run", x) if x is not None else None,
    "evaluate(split=x)": lambda x: pp.evaluate("run", split=x),
    "evaluate(bootstrap=x)": lambda x: pp.evaluate("run", bootstrap=x),
    "evaluate(seed=x)": lambda x: pp.evaluate("run", seed=x),
    "evaluate(colour_map=x)": lambda x: pp.evaluate("run", colour_map=x),
    "evaluate(source=x)": lambda x: pp.evaluate("run", source=x),
    "predict(regions=x)": lambda x: pp.predict("run", "pictures/a.png", regions=x),
    "predict(crop=x)": lambda x: pp.predict("run", "data/manifest.csv", crop=x),
    "predict(x, images)": lambda x: pp.predict(x, "pictures/a.png"),
    "predict(run, x)": lambda x: pp.predict("run", x),
    "run.predict(x)": lambda x: _run().predict(x),
    "run.predict(images, x)": lambda x: _run().predict(["pictures/a.png"], x),
    "explain(x, image)": lambda x: pp.explain(x, "pictures/a.png"),
    "explain(run, x)": lambda x: pp.explain("run", x),
    "explain(region=x)": lambda x: pp.explain("run", "pictures/a.png", region=x),
    "explain(name=x)": lambda x: pp.explain("run", "pictures/a.png", x),
    "explain(evidence=x)": lambda x: pp.explain("run", "pictures/a.png", evidence=x),
    "explain(against=x)": lambda x: pp.explain("run", "pictures/a.png", against=x),
    "explanation.strongest(x)": lambda x: pp.explain("run", "pictures/a.png").strongest(x),
    "explanation.region(x)": lambda x: pp.explain("run", "pictures/a.png").region(x),
    "run.edit(x)": lambda x: pp.load_run("judged").edit(remove=x),
    "explanation.save(x)": lambda x: pp.explain("run", "pictures/a.png").save(x),
    "compare(x)": lambda x: pp.compare(x),
    "compare(runs, x)": lambda x: pp.compare(["run", "other"], x) if x is not None else None,
    "export(x)": lambda x: pp.export(x),
    "compare(split=x)": lambda x: pp.compare(["run", "other"], split=x),
    "compare(bootstrap=x)": lambda x: pp.compare(["run", "other"], bootstrap=x),
    "export(out=x)": lambda x: pp.export("run", out=x),
    "export(run, x)": lambda x: pp.export("run", x),
    "losses.fine_annotation(maps=x)": lambda x: _loss(maps=x),
    "losses.fine_annotation(masks=x)": lambda x: _loss(masks=x),
    "losses.fine_annotation(inside=x)": lambda x: _loss(inside=x),
    "losses.fine_annotation(combine=x)": lambda x: _loss(combine=x),
}


def call(name: str, value: str) -> int:
    """Call a function with a wrong value, in a world; the exit code that the command line would give."""
    import sys
    import warnings

    warnings.simplefilter("ignore")  # of results; the command line shows them in lines of their own
    try:
        CALLS[name](WRONG[value])
    except pp.UserError as error:
        print(f"protopyramid: error: {error}", file=sys.stderr)
        return 2
    except TypeError as error:
        if "expected" not in str(error):
            raise
        print(f"protopyramid: error: {error}", file=sys.stderr)
        return 2
    return 0
