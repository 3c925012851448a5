"""Policies of runs, without the run.

load_policy   a `Policy` that acts on single or batched observations
load_model    an `OnnxModel` that `arena export` has written: the same without torch
"""

from arena.records.formats import EngineReport, ExportReport, OutputFigures
from arena.serving.export import Export
from arena.serving.onnx_model import OnnxModel, load_model
from arena.serving.policy import Policy, load_policy

__all__ = [
    "EngineReport",
    "Export",
    "ExportReport",
    "OnnxModel",
    "OutputFigures",
    "Policy",
    "load_model",
    "load_policy",
]
