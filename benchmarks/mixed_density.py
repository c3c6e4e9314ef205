"""Chances that MixedMixture and one-hot Gaussian mixtures give to cells of rows that were not fitted.

    python benchmarks/mixed_density.py FOLDER [--seeds 3] [--out FILE]      every .csv of a folder

A Gaussian density over one-hot columns is no distribution of categories, so densities of rows do not compare.
What does is the distribution of one cell given the rest of its row, p(cell, rest) / p(rest): of a text cell
over its levels, for one-hot columns the density at the row with its level over the sum of those with each; of
a count over whole numbers, for one-hot columns the density integrated from half below to half above; of a
number a density, in units of the column's deviation. The table has mean logarithms, of 30 % of the rows.

    mixed       MixedMixture, components and factors by BIC
    one-hot     GaussianMixture of one-hot columns with diagonal covariances, components by BIC
    full        the same with full covariances
    hindsight   of all sizes and both kinds of covariances the one with the best scores of these rows
    alone       every column by itself: frequencies of levels, a normal distribution
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from mixed import GRID, table_of, text_columns
from scipy.special import logsumexp
from scipy.stats import norm

from latently.mixture import GaussianMixture, MixedMixture
from latently.selection import select

NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)  # of half a unit around a count


def mixed(train, test, kinds, seed):
    """log p (n, columns) of every cell given the rest of its row."""
    numbers = sum(kind == "number" for kind in kinds.values())
    grid = {**GRID, "n_factors": [q for q in (0, 1, 2) if q <= max(0, (numbers - 1) // 2)]}
    model = select(
        MixedMixture(columns=kinds, unseen="missing"), train, grid, criterion="bic", random_state=seed
    ).best_
    whole, found = model.score_samples(test), {}
    for name, kind in kinds.items():
        empty = [np.nan] * len(test) if kind != "category" else pd.Series([None] * len(test), dtype=object)
        found[name] = whole - model.score_samples(test.assign(**{name: empty}))
        if kind == "number":
            found[name] += np.log(train[name].std())
    return pd.DataFrame(found)


def one_hot(covariance_type):
    """With the number of components of the smallest BIC."""

    def scores(train, test, kinds, seed):
        code = Coded(train, kinds)
        model = GaussianMixture(covariance_type=covariance_type)
        sizes = {"n_components": GRID["n_components"]}
        best = select(model, code.rows(train), sizes, criterion="bic", random_state=seed).best_
        return of_one_hot(best, code, test)

    return scores


def in_hindsight(train, test, kinds, seed):
    """Of all sizes and both kinds of covariances the one with the best scores of these very rows."""
    code = Coded(train, kinds)
    models = (
        GaussianMixture(size, covariance_type=kind, random_state=seed).fit(code.rows(train))
        for kind in ("diag", "full")
        for size in GRID["n_components"]
    )
    return max((of_one_hot(model, code, test) for model in models), key=lambda found: found.to_numpy().sum())


def of_one_hot(model, code, test):
    rows, found = code.rows(test), {}
    whole = model.score_samples(rows)
    for name, kind in code.kinds.items():
        own = code.places[name]
        if kind == "category":
            at = [model.score_samples(code.with_level(rows, name, i)) for i in range(len(code.levels[name]))]
            found[name] = whole - logsumexp(at, axis=0)
            continue
        rest = rows.copy()
        rest[:, own] = np.nan
        without = model.score_samples(rest)
        found[name] = whole - without
        if kind == "count":
            half, at = 0.5 / code.scale[name], []
            for node in NODES:
                near = rows.copy()
                near[:, own] += half * node
                at.append(model.score_samples(near))
            found[name] = logsumexp(at, axis=0, b=(half * WEIGHTS)[:, None]) - without
    return pd.DataFrame(found)


class Coded:
    """One-hot columns with what the training rows say of them."""

    def __init__(self, train, kinds):
        self.kinds, self.levels, self.centre, self.scale, self.places = kinds, {}, {}, {}, {}
        start = 0
        for name, kind in kinds.items():
            if kind == "category":
                self.levels[name] = sorted(train[name].dropna().unique().tolist(), key=str)
            else:
                self.centre[name], self.scale[name] = train[name].mean(), train[name].std() or 1.0
            width = len(self.levels.get(name, [0]))
            self.places[name] = slice(start, start + width)
            start += width

    def rows(self, frame):
        parts = []
        for name, kind in self.kinds.items():
            if kind == "category":
                own = np.array(
                    [[cell == level for level in self.levels[name]] for cell in frame[name]], float
                )
                own[frame[name].isna()] = np.nan
                parts.append(own)
            else:
                parts.append(((frame[[name]] - self.centre[name]) / self.scale[name]).to_numpy(float))
        return np.concatenate(parts, axis=1)

    def with_level(self, rows, name, level):
        there = rows.copy()
        there[:, self.places[name]] = np.eye(len(self.levels[name]))[level]
        return there


def alone(train, test, kinds, seed):
    found = {}
    for name, kind in kinds.items():
        if kind == "category":
            count = train[name].value_counts()
            found[name] = np.log(test[name].map((count + 1) / (count.sum() + len(count))).astype(float))
            continue
        here = norm(train[name].mean(), train[name].std() or 1.0)
        if kind == "count":
            found[name] = np.log(here.cdf(test[name] + 0.5) - here.cdf(test[name] - 0.5))
        else:
            found[name] = here.logpdf(test[name]) + np.log(train[name].std())
    return pd.DataFrame(found)


METHODS = {
    "mixed": mixed,
    "one-hot": one_hot("diag"),
    "full": one_hot("full"),
    "hindsight": in_hindsight,
    "alone": alone,
}


def kinds_of(frame):
    """By column: text, and 0 and 1, are categories, whole numbers from 0 to 20 counts."""
    found = {}
    for name in frame:
        values = frame[name].dropna()
        if name in text_columns(frame) or set(values) <= {0, 1}:
            found[name] = "category"
        else:
            whole = bool(np.all(values == np.round(values)) and values.min() >= 0 and values.max() <= 20)
            found[name] = "count" if whole else "number"
    return found


def scored(path, seed):
    """By method: the mean log score of text cells, counts and numbers, of all cells of a row, and seconds."""
    rng = np.random.default_rng(seed)
    frame = table_of(path, rng)
    kinds = kinds_of(frame)
    order = rng.permutation(len(frame))
    train, test = (frame.iloc[part] for part in np.split(order, [int(0.7 * len(frame))]))
    varies = [name for name in frame if train[name].nunique() > 1]
    train, test = (part[varies].reset_index(drop=True) for part in (train, test))
    kinds = {name: kinds[name] for name in varies}
    known = test.notna()
    for name, kind in kinds.items():
        if kind == "category":
            known[name] &= test[name].isin(train[name].dropna().unique())
    results = {}
    for method, scores in METHODS.items():
        start = time.process_time()
        cells = scores(train, test, kinds, seed).where(known)
        took = time.process_time() - start
        of_kind = {
            kind: float(cells[[name for name in kinds if kinds[name] == kind]].stack().mean())
            for kind in ("category", "count", "number")
            if kind in kinds.values()
        }
        results[method] = {**of_kind, "row": float(cells.sum(axis=1).mean()), "seconds": took}
    return list(frame.shape), results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="a folder of .csv files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", help="a .json file for the results")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = {}
    for path in sorted(Path(given.folder).glob("*.csv")):
        runs = []
        for seed in range(given.seeds):
            shape, result = scored(path, seed)
            runs.append(result)
        kept[path.stem] = {"shape": shape, "runs": runs}
        for method in METHODS:
            mean = {
                key: round(float(np.mean([run[method][key] for run in runs])), 3) for key in runs[0][method]
            }
            print(f"{path.stem} {shape} {method}: {mean}", flush=True)
        if given.out:
            Path(given.out).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
