"""Non-linear factorisation on torch tensors against NumPy: costs, sources, and the ratio of times.

    python benchmarks/nlmf_gpu.py [--device cuda] [--quick] [--output benchmarks/results/nlmf_gpu.json]

The same rows are fitted twice, with as many sweeps: as a NumPy array and as a tensor on the device. Prints a
JSON object; for each model it has the largest relative difference of the cost over all sweeps, that of f(s)
of sources inferred by one model on both devices, the share of rows of the same class, and the seconds of the
fit and of inference on both (the ratio is NumPy's over the device's). Exit code 1 if they differ by more than
rounding. Rows are sums of random strokes, so no file is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from latently.factorization import NLMF, DeepNLMF, NLMFClassifier

NEAR_COST, NEAR_FEATURES = 1e-6, 1e-6  # fits add up the rounding of their sweeps, inference does not
NON_NEGATIVE = {"mapping": "ratio", "constraint": "non_negative"}


def strokes(n_rows, D, n_classes, seed=0):
    """Non-negative rows of a few strokes each, more of some strokes in each class, and the classes."""
    rng = np.random.default_rng(seed)
    parts = np.abs(rng.standard_normal((60, D))) * (rng.random((60, D)) < 0.1)
    y = rng.integers(n_classes, size=n_rows)
    likely = 0.08 + 0.4 * (rng.random((n_classes, 60)) < 0.2)
    on = rng.random((n_rows, 60)) * (rng.random((n_rows, 60)) < likely[y])
    return on @ parts + 0.01 * rng.random((n_rows, D)), y


def models(r, sweeps):
    common = {"max_iter": sweeps, "tol": 0.0, "sigma2": 0.05, "random_state": 0}
    return {
        "NLMF": NLMF(r, **common),
        "NLMF, alpha and beta": NLMF(r, alpha=0.05, beta=0.05, **common),
        "NLMF, non-negative": NLMF(r, **NON_NEGATIVE, **common),
        "NLMFClassifier": NLMFClassifier(r, gamma=1.0, **common),
        "NLMFClassifier, non-negative": NLMFClassifier(r, gamma=1.0, **NON_NEGATIVE, **common),
        "DeepNLMF, fine-tuned": DeepNLMF(
            (r, r // 2), alpha=0.05, beta=0.05, fine_tune=True, fine_tune_iter=sweeps, **common
        ),
    }


def timed(device, fn):
    """The result and the seconds it took."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    wait()
    began = time.perf_counter()
    result = fn()
    wait()
    return result, time.perf_counter() - began


def history(model):
    return np.concatenate([_numpy(model.history_), _numpy(getattr(model, "fine_tune_history_", ()))])


def features(model, X):
    """f(s) of the (top) sources of rows."""
    top = getattr(model, "layers_", [model])[-1]
    return _numpy(top.map_sources(model.transform(X)))


def _numpy(array):
    return array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def compared(model, X, y, device):
    """Fits of NumPy and of the device side by side."""
    labels = () if isinstance(model, NLMF) else (y,)
    tensor = torch.asarray(X, device=device)
    other = type(model)(**model.get_params())
    _, seconds = timed("cpu", lambda: model.fit(X, *labels))
    _, seconds_there = timed(device, lambda: other.fit(tensor, *labels))
    ours, theirs = history(model), history(other)
    same = model.to(device)
    here, infer = timed("cpu", lambda: features(model, X))
    there, infer_there = timed(device, lambda: features(same, tensor))
    found = {
        "cost, largest relative difference": float(np.max(np.abs(ours - theirs) / np.abs(ours))),
        "cost never rises": bool(np.all(np.diff(_numpy(other.history_)) <= 0)),
        "f(s) of one model, largest difference": float(np.max(np.abs(here - there))),
        "seconds of fit": [round(seconds, 3), round(seconds_there, 3)],
        "seconds of inference": [round(infer, 3), round(infer_there, 3)],
        "ratio of fit": round(seconds / seconds_there, 2),
        "ratio of inference": round(infer / infer_there, 2),
    }
    if labels:
        found["same class"] = float(np.mean(_numpy(model.predict(X)) == _numpy(same.predict(tensor))))
    near = found["cost, largest relative difference"] <= NEAR_COST
    found["agrees"] = (
        near and found["cost never rises"] and found["f(s) of one model, largest difference"] <= NEAR_FEATURES
    )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--output", help="write the JSON to this file too")
    options = parser.parse_args()
    n_rows, D, r, sweeps = (400, 40, 8, 4) if options.quick else (20000, 784, 100, 8)
    X, y = strokes(n_rows, D, 10)
    warm = torch.ones((64, 64), dtype=torch.float64, device=options.device)
    (warm @ warm).sum().item()  # so that the first fit does not pay for starting the device
    name = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else "cpu"
    result = {"device": name, "rows": n_rows, "features": D, "components": r, "sweeps": sweeps, "models": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for title, model in models(r, sweeps).items():
            result["models"][title] = compared(model, X, y, options.device)
            print(f"{title}: {result['models'][title]}", file=sys.stderr, flush=True)
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        Path(options.output).parent.mkdir(parents=True, exist_ok=True)
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    return 0 if all(found["agrees"] for found in result["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
