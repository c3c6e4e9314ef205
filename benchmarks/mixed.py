"""MixedMixture on tables with columns of several kinds: imputation beside other methods, and time.

    python benchmarks/mixed.py FOLDER [--seeds 3] [--out FILE]      imputation on every .csv of a folder
    python benchmarks/mixed.py --rows 1000000                       passes over a large file

15 % of the cells are hidden. Errors of numbers are root mean squares in units of the column's deviation,
errors of text are shares of wrong levels; the table shows their mean over columns. Beside MixedMixture
(components and factors by BIC): the mean or most frequent level; a Gaussian mixture of one-hot columns
(components by BIC); scikit-learn's IterativeImputer of one-hot columns, with ridge regression and with random
forests (as missForest); and mice of R, if it is installed.
"""

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from latently.mixture import GaussianMixture, MixedMixture
from latently.selection import select

MOST_ROWS = 600
GRID = {"n_components": [1, 2, 4, 6, 8]}


def table_of(path, rng):
    """The table of a file without row numbers, identifiers and columns of many levels."""
    frame = pd.read_csv(path)
    frame = frame.drop(columns=[name for name in frame if name.startswith("Unnamed") or name == ""])
    frame = frame.loc[:, frame.nunique() > 1]
    text = [name for name in frame if frame[name].dtype.kind not in "biuf"]
    frame = frame.drop(columns=[name for name in text if frame[name].nunique() > 20])
    if len(frame) > MOST_ROWS:
        frame = frame.iloc[np.sort(rng.choice(len(frame), MOST_ROWS, replace=False))]
    return frame.reset_index(drop=True)


def text_columns(frame):
    return [name for name in frame if frame[name].dtype.kind not in "iuf"]


def one_hot(frame):
    """Columns of numbers, standardised, and one column per level; NaN where a cell is empty."""
    parts, places = [], {}
    for name in frame:
        start = sum(part.shape[1] for part in parts)
        if name in text_columns(frame):
            levels = sorted(frame[name].dropna().unique().tolist(), key=str)
            own = np.array([[cell == level for level in levels] for cell in frame[name]], dtype=float)
            own[frame[name].isna()] = np.nan
        else:
            levels = None
            own = frame[[name]].to_numpy(dtype=float)
            own = (own - np.nanmean(own)) / (np.nanstd(own) or 1.0)
        parts.append(own)
        places[name] = (slice(start, start + own.shape[1]), levels)
    return np.concatenate(parts, axis=1), places


def from_one_hot(rows, places, frame):
    made = {}
    for name, (place, levels) in places.items():
        own = rows[:, place]
        if levels is None:
            column = frame[name].to_numpy(dtype=float)
            made[name] = own[:, 0] * (np.nanstd(column) or 1.0) + np.nanmean(column)
        else:
            made[name] = np.array(levels, dtype=object)[own.argmax(axis=1)]
    return pd.DataFrame(made)


def by_means(frame, seed):
    filled = {
        name: frame[name].mode()[0] if name in text_columns(frame) else frame[name].mean() for name in frame
    }
    return frame.astype({name: float for name in frame if name not in text_columns(frame)}).fillna(filled)


def by_mixed(frame, seed):
    numbers = len(frame.columns) - len(text_columns(frame))
    grid = {**GRID, "n_factors": [q for q in (0, 1, 2) if q <= max(0, (numbers - 1) // 2)]}
    columns = {
        name: "number" for name in frame if name not in text_columns(frame) and frame[name].nunique() > 20
    }
    best = select(MixedMixture(columns=columns, unseen="missing"), frame, grid, random_state=seed).best_
    return best.impute(frame)


def by_one_hot(imputer):
    def impute(frame, seed):
        rows, places = one_hot(frame)
        return from_one_hot(imputer(rows, seed), places, frame)

    return impute


MICE = """
suppressMessages(library(mice))
given <- commandArgs(trailingOnly = TRUE)
shown <- read.csv(given[1], stringsAsFactors = TRUE, na.strings = "", check.names = FALSE)
made <- mice(shown, m = 5, printFlag = FALSE, seed = as.integer(given[3]))
for (i in 1:5) write.csv(complete(made, i), paste0(given[2], i), row.names = FALSE, na = "")
"""


def by_mice(frame, seed):
    """mice of R with its defaults: means of five imputations, and their most frequent levels."""
    text = text_columns(frame)
    with tempfile.TemporaryDirectory() as folder:
        script, shown = Path(folder) / "mice.R", Path(folder) / "shown.csv"
        script.write_text(MICE)
        frame.to_csv(shown, index=False)
        done = subprocess.run(["Rscript", script, shown, Path(folder) / "made", str(seed)], check=False)
        if done.returncode:  # its regressions may be singular
            return None
        made = [pd.read_csv(Path(folder) / f"made{i}", keep_default_na=False) for i in range(1, 6)]
    return pd.DataFrame(
        {
            name: pd.concat([one[name].astype(str) for one in made], axis=1).mode(axis=1)[0]
            if name in text
            else np.mean([pd.to_numeric(one[name]) for one in made], axis=0)
            for name in frame
        }
    )


METHODS = {
    "mean, most frequent": by_means,
    "MixedMixture": by_mixed,
    "GaussianMixture, one-hot": by_one_hot(
        lambda X, seed: select(
            GaussianMixture(covariance_type="diag"), X, GRID, random_state=seed
        ).best_.impute(X)
    ),
    "IterativeImputer, one-hot": by_one_hot(
        lambda X, seed: IterativeImputer(random_state=seed).fit_transform(X)
    ),
    "forests, one-hot": by_one_hot(
        lambda X, seed: IterativeImputer(
            ExtraTreesRegressor(50, random_state=seed), max_iter=5, random_state=seed
        ).fit_transform(X)
    ),
}


if shutil.which("Rscript"):
    METHODS["mice"] = by_mice


def errors(made, frame, hidden):
    if made is None:
        return np.nan
    found = []
    for j, name in enumerate(frame):
        own = hidden[:, j] & frame[name].notna().to_numpy()
        if own.sum() < 5:
            continue
        if name in text_columns(frame):
            found.append(np.mean(made[name].astype(str)[own] != frame[name].astype(str)[own]))
        else:
            difference = made[name].to_numpy(dtype=float)[own] - frame[name].to_numpy(dtype=float)[own]
            found.append(np.sqrt(np.mean(difference**2)) / frame[name].std())
    return float(np.mean(found))


def imputation(folder, n_seeds):
    results = {}
    for path in sorted(Path(folder).glob("*.csv")):
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            frame = table_of(path, rng)
            hidden = rng.random(frame.shape) < 0.15
            hidden[hidden.all(axis=1), 0] = False
            shown = frame.mask(hidden)
            for name, method in METHODS.items():
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    error = errors(method(shown, seed), frame, hidden)
                took = time.process_time() - start
                of_table = results.setdefault(path.stem, {"shape": list(frame.shape), "methods": {}})
                of_table["methods"].setdefault(name, []).append([error, took])
        line = ", ".join(
            f"{name} {np.mean([e for e, _ in runs]):.3f} ({np.mean([s for _, s in runs]):.1f} s)"
            for name, runs in results[path.stem]["methods"].items()
        )
        print(f"{path.stem} {results[path.stem]['shape']}: {line}", flush=True)
    return results


def large(n):
    """Seconds of a short fit to n rows of 20 columns in a Parquet file, and the largest memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "rows.parquet", None
        for _ in range(0, n, 50_000):
            z = rng.integers(4, size=50_000)
            columns = {f"number{j}": rng.normal(z * (j % 3), 1.0) for j in range(8)}
            columns |= {f"count{j}": rng.poisson(1.0 + z).astype(np.int64) for j in range(4)}
            columns |= {
                f"text{j}": np.array(list("abcdef"))[(z + rng.integers(3, size=len(z))) % 6] for j in range(8)
            }
            part = pa.table(columns)
            writer = writer or pq.ParquetWriter(path, part.schema)
            writer.write_table(part)
        writer.close()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, process = time.perf_counter(), time.process_time()
        model = MixedMixture(4, n_init=1, max_iter=5, tol=0.0, accelerate=None, random_state=0).fit(path)
        seconds, cpu = time.perf_counter() - start, time.process_time() - process
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{n} rows x 20: {seconds:.1f} s ({cpu:.1f} CPU-s), {model.n_passes_} passes")
    print(f"memory: {before / 1024:.0f} MB before, at most {after / 1024:.0f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="a folder of .csv files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--out", help="a .json file for the results")
    given = parser.parse_args()
    if given.rows:
        large(given.rows)
    if given.folder:
        results = imputation(given.folder, given.seeds)
        if given.out:
            Path(given.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
