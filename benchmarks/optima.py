"""How often a default fit finds the best optimum, and what that costs.

    python benchmarks/optima.py --reference 40 --processes 16    # the best optima known, kept in optima.json
    python benchmarks/optima.py --seeds 20 --processes 16 [--data DIRECTORY] [--output FILE.json]

Likelihoods of mixtures have many local maxima. For every data set and model, the reference is the best
objective ever seen: by restarts of every kind, each carried to convergence, and by all fits that this
benchmark has made, without those that have degenerate components, which a search avoids. A fit is a hit if it
ends within 0.01 nats a row of the reference. The tables tell the share of hits by model and by data set, and
CPU seconds. To compare two versions of the library, run it with both, then print both files against the
common reference: `--compare BEFORE.json AFTER.json`.

Data sets of scikit-learn are always there; those of `--data` (one .npz file each, with X or X_train) are left
out where the file is missing. Columns are standardised, but pixels and principal scores are not.
`--data-sets wide` are tables with many features, for which starts are annealed and the search is longer, and
`--data-sets packages` are those of package_tables.py, which chose nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets

from latently.mixture import MCFA, MFA, MPPCA, GaussianMixture

HERE = Path(__file__).parent
REFERENCE = HERE / "optima.json"
CLOSE = 0.01  # nats a row from the best that still count as the same optimum
DATA = Path(os.environ.get("LATENTLY_DATA", HERE.parent / "shared" / "data"))


# -- data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A data set, and the sizes of the models fitted to it."""

    rows: object  # callable that returns X
    K: int
    q: int
    full: bool = True  # whether there are enough rows for full covariances
    units: bool = False  # whether the units of the columns are kept


def stored(name, key="X"):
    with np.load(DATA / f"{name}.npz") as arrays:
        return np.asarray(arrays[key], dtype=float)


def every(rows, n):
    """About n rows, evenly spaced."""
    return rows[:: max(1, len(rows) // n)][:n]


def scores(X, n_dimensions):
    """Scores of the leading principal components, in units of their common scale."""
    X = X - X.mean(axis=0)
    _, s, right = np.linalg.svd(X, full_matrices=False)
    return X @ right[:n_dimensions].T / (s[0] / np.sqrt(len(X)))


def usps_pixels(n):
    """The first n images of each of the digits 1 to 4."""
    with np.load(DATA / "usps.npz") as arrays:
        X, y = arrays["X_train"].astype(float), arrays["y_train"]
    return np.concatenate([X[y == digit][:n] for digit in (1, 2, 3, 4)])


def usps_1_to_4():
    return scores(usps_pixels(200), 16)


def pooled(images, shape, size):
    """Images whose pixels are the means of `size` x `size` old ones; what is left at the edges is unused."""
    height, width = (length // size for length in shape)
    images = images.reshape(-1, *shape)[:, : height * size, : width * size]
    return images.reshape(-1, height, size, width, size).mean(axis=(2, 4)).reshape(-1, height * width)


def usps_patches():
    """3000 patches of 6 x 6 pixels: many rows of smooth, strongly dependent columns."""
    X = stored("usps", "X_train").reshape(-1, 16, 16)
    rng = np.random.default_rng(0)
    corners = rng.integers(3, 8, size=(3000, 2))
    images = rng.choice(len(X), size=3000, replace=False)
    patches = [X[i, a : a + 6, b : b + 6].ravel() for i, (a, b) in zip(images, corners, strict=True)]
    return np.array(patches) + 0.05 * rng.standard_normal((3000, 36))


def kdd():
    X = every(stored("kddcup99_10pct", "X_num"), 4000)
    return np.log1p(X[:, [0, 4, 5, 22, 23, 31, 32, 33, 35]])


CASES = {
    "iris": Case(lambda: datasets.load_iris().data, 3, 2),
    "wine": Case(lambda: datasets.load_wine().data, 3, 2),
    "diabetes": Case(lambda: datasets.load_diabetes().data[:, [0, 2, 3, 4, 5, 6, 8, 9]], 3, 2),
    "breast cancer": Case(lambda: datasets.load_breast_cancer().data, 3, 3),
    "digits": Case(lambda: scores(datasets.load_digits().data, 20), 8, 4, units=True),
    "linnerud": Case(lambda: datasets.load_linnerud().data, 2, 1, full=False),
    "seeds": Case(lambda: stored("seeds"), 3, 2),
    "user knowledge": Case(lambda: stored("user_knowledge"), 4, 2),
    "breast tissue": Case(lambda: np.log(np.abs(stored("breast_tissue")) + 1), 4, 2, full=False),
    "prognostic": Case(lambda: stored("wpbc"), 2, 3, full=False),
    "sonar": Case(lambda: stored("sonar"), 2, 4, full=False),
    "thyroid": Case(lambda: stored("thyroid_odds"), 4, 2),
    "land cover": Case(lambda: scores(stored("urban_land_cover", "X_test"), 12), 5, 3, units=True),
    "usps 1-4": Case(usps_1_to_4, 4, 4, units=True),
    "usps patches": Case(usps_patches, 6, 4),
    "kdd": Case(kdd, 5, 2),
    "faces": Case(lambda: scores(stored("cbcl_faces"), 15), 5, 4, units=True),
}


WIDE = {  # many features
    "usps pixels": Case(lambda: usps_pixels(100), 4, 3, full=False, units=True),
    "many usps pixels": Case(lambda: usps_pixels(300), 4, 3, full=False, units=True),
    "usps 0-3": Case(lambda: stored("inbmt_pre_usps"), 4, 3, full=False, units=True),
    "land cover features": Case(lambda: stored("urban_land_cover", "X_test"), 4, 3, full=False),
    "arrhythmia": Case(lambda: stored("arrhythmia_odds"), 4, 3, full=False),
    "fashion": Case(
        lambda: pooled(stored("fashion_mnist", "X_train")[:1000], (28, 28), 2) / 255, 4, 3, False, True
    ),
    "olivetti": Case(lambda: pooled(stored("olivetti"), (64, 64), 4) / 255, 4, 3, full=False, units=True),
    "persons": Case(lambda: pooled(stored("umist"), (28, 23), 2) / 255, 4, 3, full=False, units=True),
    "objects": Case(lambda: pooled(stored("coil20")[:576], (32, 32), 2) / 255, 4, 3, full=False, units=True),
    "face pixels": Case(lambda: stored("cbcl_faces")[::4] / 255, 4, 3, full=False, units=True),
    "few land covers": Case(lambda: stored("urban_land_cover", "X_train"), 4, 3, full=False),
}

PACKAGES = {  # many features too, by package_tables.py: they chose nothing
    "osuleaf": Case(lambda: stored("osuleaf"), 4, 3, full=False),
    "arrowhead": Case(lambda: stored("arrowhead"), 3, 3, full=False),
    "gunpoint": Case(lambda: stored("gunpoint"), 2, 4, full=False),
    "tecator": Case(lambda: stored("tecator"), 3, 3, full=False),
    "movement_libras": Case(lambda: stored("movement_libras"), 5, 3, full=False),
    "optdigits": Case(lambda: stored("optdigits"), 8, 4, full=False),
    "satimage": Case(lambda: stored("satimage"), 6, 4),
    "spambase": Case(lambda: stored("spambase"), 3, 3),
    "texture": Case(lambda: stored("texture"), 6, 4),
    "ionosphere": Case(lambda: stored("ionosphere"), 2, 3, full=False),
    "brown": Case(lambda: stored("brown"), 3, 4, full=False),
}
ALL = CASES | WIDE | PACKAGES


def rows_of(name):
    """The standardised rows; principal scores and images keep their units."""
    case = ALL[name]
    X = case.rows()
    if case.units:
        return X
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def here(name):
    try:
        ALL[name].rows()
    except FileNotFoundError:
        return False
    return True


MODELS = {
    "GMM full": lambda case, **options: GaussianMixture(case.K, covariance_type="full", **options),
    "GMM tied": lambda case, **options: GaussianMixture(case.K, covariance_type="tied", **options),
    "GMM diag": lambda case, **options: GaussianMixture(case.K, covariance_type="diag", **options),
    "GMM spherical": lambda case, **options: GaussianMixture(case.K, covariance_type="spherical", **options),
    "MFA": lambda case, **options: MFA(case.K, case.q, **options),
    "MPPCA": lambda case, **options: MPPCA(case.K, case.q, **options),
    "MCFA": lambda case, **options: MCFA(case.K, case.q, **options),
}


def pairs(of_data, of_models):
    return [
        (name, model)
        for name in of_data
        for model in of_models
        if ALL[name].full or model not in ("GMM full",)
    ]


# -- fits ---------------------------------------------------------------------------------------------


def fitted(task):
    """One fit: (data set, model, seed, options) -> final objective and CPU seconds."""
    name, model, seed, options = task
    X = rows_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.process_time()
        fit = MODELS[model](ALL[name], random_state=seed, **options).fit(X)
        seconds = time.process_time() - begun
    return {
        "data": name,
        "model": model,
        "seed": seed,
        "objective": float(fit.history_[-1]),
        "cpu": seconds,
        "n_iter": int(fit.n_iter_),
        "degenerate": len(fit.degenerate_components_) > 0,
    }


def restarts(task):
    """The best of many starts of every kind, each carried to convergence on its own."""
    name, model, number, options = task
    found = [
        fitted((name, model, number, {**options, "n_init": 1, "init": init}))
        for init in ("kmeans", "k-means++", "random")
    ]
    found.append(fitted((name, model, 1000 + number, options)))
    return max(found, key=lambda fit: (not fit["degenerate"], fit["objective"]))


def mapped(function, tasks, processes):
    """The results in order, from processes that use one thread each, so that CPU seconds tell the work."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, tasks)


# -- the best known -----------------------------------------------------------------------------------


def key(fit):
    return f"{fit['data']} / {fit['model']}"


def best_known(setting, fits=(), path=REFERENCE):
    """The best objective of every case; `fits` that are better become the reference.

    Objectives of different options (a prior, a floor) cannot be compared, so each setting has its own.
    """
    known = json.loads(path.read_text()) if path.exists() else {}
    best = dict(known.get(setting, {}))
    for fit in fits:
        if np.isfinite(fit["objective"]) and not fit.get("degenerate"):
            best[key(fit)] = max(best.get(key(fit), -np.inf), round(fit["objective"], 6))
    if best != known.get(setting, {}):
        known[setting] = dict(sorted(best.items()))
        path.write_text(json.dumps(known, indent=1) + "\n")
    return best


# -- tables -------------------------------------------------------------------------------------------


def summary(fits, best, of):
    """Share of hits and CPU seconds a fit, grouped by "data" or "model", then of all."""
    groups = {}
    for fit in fits:
        groups.setdefault(fit[of], []).append(fit)
    return {name: numbers(own, best) for name, own in groups.items()} | {"all": numbers(fits, best)}


def numbers(fits, best):
    lag = np.array([best[key(fit)] - fit["objective"] for fit in fits])
    return {
        "hits": float(np.mean(lag <= CLOSE)),
        "lag": float(np.mean(lag)),
        "cpu": float(np.mean([f["cpu"] for f in fits])),
    }


def print_tables(runs, best):
    titles = list(runs)
    for of in ("model", "data"):
        tables = [summary(fits, best, of) for fits in runs.values()]
        print(f"\n{of:16}" + "".join(f"{title:>27}" for title in titles))
        print(" " * 16 + "     hits  mean lag   CPU s" * len(titles))
        for name in tables[0]:
            cells = [table.get(name) for table in tables]
            print(
                f"{name:16}"
                + "".join(
                    f"{c['hits']:9.0%}{c['lag']:10.4f}{c['cpu']:8.3f}" if c else " " * 27 for c in cells
                )
            )
    seconds = ", ".join(f"{title} {sum(f['cpu'] for f in fits):.0f}" for title, fits in runs.items())
    print(f"\nCPU seconds in total: {seconds}")


def misses(fits, best):
    """Where fits miss: case, share of hits, and the median lag of the misses."""
    for case in sorted({key(fit) for fit in fits}):
        lags = [best[case] - fit["objective"] for fit in fits if key(fit) == case]
        missed = [lag for lag in lags if lag > CLOSE]
        if missed:
            print(f"  {case:32} {1 - len(missed) / len(lags):5.0%} hits; misses lag {np.median(missed):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="default fits of every case")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--reference", type=int, default=0, help="restarts of every kind for the reference")
    parser.add_argument(
        "--data-sets",
        default=",".join(CASES),
        help='names, separated by commas, or "wide" for those of many features, or "packages" for others',
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", type=Path, help="directory of the .npz files")
    parser.add_argument(
        "--options", default="{}", help='options of all models, as JSON: {"noise_floor": 0.01}'
    )
    parser.add_argument("--output", type=Path, help="write all fits to this JSON file")
    parser.add_argument("--compare", nargs="+", type=Path, help="print such files side by side; fit nothing")
    given = parser.parse_args()
    if given.data:
        global DATA
        DATA = given.data
        os.environ["LATENTLY_DATA"] = str(given.data)  # for the processes
    options = json.loads(given.options)
    setting = json.dumps(options, sort_keys=True)
    if given.compare:
        files = [json.loads(path.read_text()) for path in given.compare]
        if len({file["setting"] for file in files}) > 1:
            raise SystemExit("these files were made with different options")
        runs = {path.stem: file["fits"] for path, file in zip(given.compare, files, strict=True)}
        best = best_known(files[0]["setting"], [fit for fits in runs.values() for fit in fits])
        print_tables(runs, best)
        return
    groups = {"wide": WIDE, "packages": PACKAGES}
    wanted = list(groups.get(given.data_sets, given.data_sets.split(",")))
    names = [name for name in wanted if here(name)]
    cases = pairs(names, given.models.split(","))
    if given.reference:
        tasks = [(*case, number, options) for number in range(given.reference) for case in cases]
        for done, fit in enumerate(mapped(restarts, tasks, given.processes), 1):
            best_known(setting, [fit])
            if done % len(cases) == 0:
                print(f"{done // len(cases)} of {given.reference} restarts", flush=True)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    tasks = [(*case, seed, options) for seed in seeds for case in cases]
    fits = list(mapped(fitted, tasks, given.processes))
    if given.output:
        given.output.write_text(json.dumps({"setting": setting, "fits": fits}))
    if fits:
        best = best_known(setting, fits)
        misses(fits, best)
        print_tables({"default": fits}, best)


if __name__ == "__main__":
    main()
