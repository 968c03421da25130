"""The whole model as one file that runs without protopyramid: ONNX, or torch's own export.

The file takes images in [0, 1], normalises them as in training, and returns the evidence: `logits`,
`scores` and similarity maps `map_LEVEL` for each level with prototypes, for any number of images. A JSON
file beside it says how an image file becomes the input, and what the outputs mean. Nothing is written
unless the outputs agree with torch's.
"""

from protopyramid.exporting.formats import EvidenceModule, Format, to_onnx
from protopyramid.exporting.write import Exported, export_run

__all__ = ["EvidenceModule", "Exported", "Format", "export_run", "to_onnx"]
