"""Seconds of whole default fits and searches of grids, beside those of scikit-learn and mclust.

    python benchmarks/fits.py [--quick] [--device cuda] [--data DIRECTORY] [--output FILE.json]

Everything is default: `fit()` with its search for starts against scikit-learn's single start, and `select`
against a loop over scikit-learn's fits. Where R has mclust, its fit and its search by BIC are run as well, on
sets of less than 10000 rows. Likelihoods are those of rows that were left out, costs of NMF those of all
rows. Times are CPU seconds and told as ratios; on a device they are seconds by the clock, and the others stay
on the CPU. Sets of `--data` that are missing are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.decomposition import NMF as PeerNMF
from sklearn.mixture import GaussianMixture as PeerGaussianMixture
from sklearn.model_selection import ParameterGrid
from sklearn.preprocessing import scale

from latently.factorization import NMF
from latently.mixture import MFA, GaussianMixture
from latently.selection import select

DATA = Path(os.environ.get("LATENTLY_DATA", Path(__file__).parent.parent / "shared" / "data"))
KINDS = ("full", "tied", "diag", "spherical")
OF_MCLUST = {"full": "VVV", "tied": "EEE", "diag": "VVI", "spherical": "VII"}
MCLUST = """
suppressMessages(library(mclust))
given <- commandArgs(trailingOnly = TRUE)
X <- as.matrix(read.csv(given[1], header = FALSE))
rest <- as.matrix(read.csv(given[2], header = FALSE))
begun <- proc.time()
fit <- Mclust(X, G = eval(parse(text = given[3])), modelNames = strsplit(given[4], ",")[[1]], verbose = FALSE)
took <- proc.time() - begun
found <- mean(dens(rest, fit$modelName, fit$parameters, logarithm = TRUE))
cat(sprintf("%.17g", c(took[1] + took[2], found, fit$bic)))
"""


def stored(name, key="X_train"):
    with np.load(DATA / f"{name}.npz") as arrays:
        return np.asarray(arrays[key], dtype=float)


def patches():
    """6435 patches of 6 x 6 pixels of handwritten digits."""
    X, rng = stored("usps").reshape(-1, 16, 16), np.random.default_rng(0)
    corners, images = rng.integers(3, 8, size=(6435, 2)), rng.integers(len(X), size=6435)
    found = [X[i, a : a + 6, b : b + 6].ravel() for i, (a, b) in zip(images, corners, strict=True)]
    return np.array(found) + 0.05 * rng.standard_normal((6435, 36))


def small_images():
    """100000 images of digits and clothes in 7 x 7 pixels."""
    X = np.concatenate([stored("mnist"), stored("fashion_mnist")[:40_000]])
    return X.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) / 255


def pixels():
    return stored("mnist") / 255


SETS = {  # rows, components of a mixture, of NMF
    "150 x 4": (lambda: load_iris().data, 3, 2),
    "569 x 8": (lambda: scale(np.log1p(load_breast_cancer().data[:, :8])), 3, None),
    "6435 x 36": (patches, 6, None),
    "100000 x 49": (small_images, 10, 10),
    "60000 x 784": (pixels, None, 10),
}
QUICK = ("150 x 4", "569 x 8")


def timed(work, device):
    """Seconds, and the result."""
    clock = time.process_time if device is None else time.perf_counter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = clock()
        result = work()
        return clock() - begun, result


def on(device, X):
    if device is None:
        return X
    import torch

    return torch.asarray(X, device=device)


def mclust(X, rest, sizes, kinds):
    """CPU seconds of mclust, the log density of other rows, and its criterion; None without R and mclust."""
    R = shutil.which("Rscript")
    if R is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("seen.csv", "rest.csv")]
        for name, rows in zip(names, (X, rest), strict=True):
            np.savetxt(name, rows, delimiter=",", fmt="%.17g")
        call = [R, "-e", MCLUST, *names, sizes, ",".join(OF_MCLUST[kind] for kind in kinds)]
        told = subprocess.run(call, capture_output=True, text=True, check=False)
    return [float(word) for word in told.stdout.split()] if told.returncode == 0 else None


def beside_mclust(case, X, K):
    """Seconds and what mclust reaches, in a case that it has as well."""
    left_out = np.random.default_rng(0).permutation(len(X)) < len(X) // 5
    if case.startswith("GMM"):
        told = mclust(X[~left_out], X[left_out], str(K), [case.split()[1].strip(",")])
        return told and {"seconds": told[0], "reached": told[1]}
    told = mclust(X, X, "1:6", KINDS) if case == "select, 24 GMM" else None
    return told and {"seconds": told[0], "reached": told[2]}


def cases_of(X, K, r, device):
    """What is compared on a set: name, our fit, theirs (None if there is none), and what a model reached."""
    left_out = np.random.default_rng(0).permutation(len(X)) < len(X) // 5
    seen, rest = X[~left_out], X[left_out]
    there = on(device, seen)

    def score(model):
        return float(model.score(rest if isinstance(model, PeerGaussianMixture) else on(device, rest)))

    def cost(model):
        rows = X[:: max(1, len(X) // 5000)]
        activations = model.transform(rows if isinstance(model, PeerNMF) else on(device, rows))
        fitted = np.asarray(on_cpu(activations)) @ np.asarray(on_cpu(model.components_))
        return -float(np.mean(np.sum((rows - fitted) ** 2, axis=1)))

    if K is not None:
        for kind in ("full", "diag"):
            yield (
                f"GMM {kind}, K={K}",
                lambda seed, kind=kind: GaussianMixture(K, covariance_type=kind, random_state=seed).fit(
                    there
                ),
                lambda seed, kind=kind: PeerGaussianMixture(K, covariance_type=kind, random_state=seed).fit(
                    seen
                ),
                score,
            )
        yield f"MFA, K={K}, q=2", lambda seed: MFA(K, 2, random_state=seed).fit(there), None, score
    if r is not None:
        yield (
            f"NMF, r={r}",
            lambda seed: NMF(r, random_state=seed).fit(there),
            lambda seed: PeerNMF(r, random_state=seed).fit(seen),
            cost,
        )
    if K is not None and len(X) < 10_000:
        grid = {"n_components": range(1, 7), "covariance_type": KINDS}
        yield (
            "select, 24 GMM",
            lambda seed: select(GaussianMixture(), X, grid, n_jobs=1, random_state=seed).best_score_,
            lambda seed: min(
                PeerGaussianMixture(
                    cell["n_components"], covariance_type=cell["covariance_type"], random_state=seed
                )
                .fit(X)
                .bic(X)
                for cell in ParameterGrid(grid)
            ),
            lambda bic: -float(bic),
        )
        factors = {"n_components": range(1, 10), "n_factors": range(1, 5)}
        yield (
            "select, 36 MFA",
            lambda seed: select(MFA(), X, factors, n_jobs=1, random_state=seed).best_score_,
            None,
            lambda bic: -float(bic),
        )


def on_cpu(array):
    return array.cpu() if hasattr(array, "cpu") else array


def compared(ours, theirs, reached, seeds, device):
    """Medians over seeds: seconds of both and what they reached."""
    found = {}
    for side, fit in (("ours", ours), ("theirs", theirs)):
        if fit is None:
            continue
        runs = [
            timed(lambda fit=fit, seed=seed: fit(seed), device if side == "ours" else None)
            for seed in range(seeds)
        ]
        found[side] = {
            "seconds": float(np.median([seconds for seconds, _ in runs])),
            "reached": float(np.median([reached(result) for _, result in runs])),
        }
    return found


def printed(name, case, found):
    ours = found["ours"]
    times, reached = [], [f"{ours['reached']:.4f}"]
    for peer in ("theirs", "mclust"):
        told = found.get(peer)
        times.append(f"{ours['seconds'] / told['seconds']:.1f}" if told else "")
        reached.append(f"{told['reached']:.4f}" if told else "-")
    columns = [name, case, f"{ours['seconds']:.3f}", *times, " / ".join(reached)]
    print("|", " | ".join(columns), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the small sets")
    parser.add_argument("--sets", help="their names, separated by commas")
    parser.add_argument("--cases", default="", help="only cases whose names begin so")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", help="of torch, such as cuda; by default NumPy")
    parser.add_argument("--data", type=Path, help="directory of the .npz files")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/fits.json"))
    given = parser.parse_args()
    if given.data:
        global DATA
        DATA = given.data
    names = given.sets.split(",") if given.sets else QUICK if given.quick else tuple(SETS)
    results = {}
    print("| set | default | s | times scikit-learn | times mclust | reached, ours / scikit-learn / mclust |")
    print("|---|---|---|---|---|---|")
    for name in names:
        rows, K, r = SETS[name]
        try:
            X = rows()
        except FileNotFoundError:
            continue
        for case, ours, theirs, reached in cases_of(X, K, r, given.device):
            if case.startswith(given.cases):
                found = compared(ours, theirs, reached, 1 if len(X) > 50_000 else given.seeds, given.device)
                if len(X) < 10_000 and (told := beside_mclust(case, X, K)):
                    found["mclust"] = told
                results[f"{name}: {case}"] = found
                printed(name, case, found)
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    about = {"device": given.device or "cpu", "versions": versions, "results": results}
    given.output.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
