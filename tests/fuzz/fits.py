"""Fits of every estimator of the contract list to hostile rows, and what must not change them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

import latently
from latently.estimators.checks import check_flag
from latently.estimators.weights import weights_in_rows
from latently.factorization import NMF
from latently.mixture import MixedMixture
from latently.selection import bootstrap, standard_errors
from latently.selection.information import METHODS
from tests.contracts.cases import CASES, answers
from tests.fuzz.attack import Finding, chosen, expect, quiet, within

SMALL = {"max_iter": 12}


def hostile_rows(rng, case):
    """Rows that somebody may have, with classes if the case has any."""
    n, D = int(rng.integers(2, 60)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, D))
    if rng.random() < 0.3:
        X[: n // 2] += 10 ** rng.uniform(0, 4)
    if rng.random() < 0.15:
        X[:] = X[:1]
    if rng.random() < 0.2:
        X = X[rng.integers(max(1, n // 5), size=n)]
    if rng.random() < 0.25:
        X[:, rng.integers(D)] = chosen(rng, [0.0, 1.0, 1e9, -1e-9])
    if rng.random() < 0.15:
        X[:, rng.integers(D)] = 5 + 10 ** rng.uniform(-17, -5) * rng.normal(size=n)
    if rng.random() < 0.15:
        X[:, -1] = X[:, 0]
    if rng.random() < 0.1:
        X = np.round(X)
    if rng.random() < 0.2:
        X[rng.integers(n)] = chosen(rng, [1e3, 1e6, 1e12, -1e12, 1e80, 0.0])
    if rng.random() < 0.3:
        X *= 10 ** rng.uniform(-12, 12, size=D if rng.random() < 0.5 else 1)
    if rng.random() < 0.25:
        X += 10 ** rng.uniform(0, 12)
    if rng.random() < 0.05:
        X.flat[rng.integers(X.size)] = chosen(rng, [np.inf, -np.inf, 1e300, 1e-310, 5e-324])
    X, y = case.like(X, int(rng.integers(1000)))
    if rng.random() < (0.25 if case.takes_nan else 0.03):
        X = np.where(rng.random(X.shape) < rng.uniform(0, 0.6), np.nan, X)
    if rng.random() < 0.15:
        with quiet():
            X = X.astype(np.float32)
    if y is not None and rng.random() < 0.1:
        y = np.where(rng.random(n) < 0.2, y[0], y)
    return X, y


def hostile_weights(rng, n):
    kind = int(rng.integers(6))
    weight = rng.uniform(0.1, 3, n) if kind < 3 else rng.integers(0, 4, n) + 0.0
    if kind == 2:
        weight[rng.integers(n)] = chosen(rng, [1e-17, 1e-300, 1e17])
    if kind == 5:
        weight[:] = 0
        weight[: 1 + rng.integers(3)] = 1
    return weight * chosen(rng, [1.0, 1e-60, 1e36, 1e6])


def other_choices(rng, case):
    """Other words and flags for some options of the estimator, which may contradict each other."""
    options = {}
    for entry in dataclasses.fields(case.cls):
        check = entry.metadata.get("check")
        words = getattr(check, "keywords", {}).get("choices") or (
            (False, True) if getattr(check, "func", check) is check_flag else ()
        )
        if words and entry.name not in ("warm_start", "architecture") and rng.random() < 0.4:
            options[entry.name] = chosen(rng, words)
    if case.cls is NMF and rng.random() < 0.5:
        options["loss"] = chosen(rng, ["kl", "itakura-saito", -0.5, 0.5, 1.5, 3.0])
    return options


def weighted_entries(rng, folder):
    """NMF with weights of entries and given components: the cost falls, and weight zero is missing."""
    case = next(case for case in CASES if case.name == "NMF")
    X, _ = hostile_rows(rng, case)
    weight = rng.uniform(0.1, 3, X.shape) * chosen(rng, [1.0, 1e-30, 1e30])
    weight[rng.random(X.shape) < rng.uniform(0, 0.5)] = 0.0
    options = SMALL | other_choices(rng, case) | {"random_state": int(rng.integers(1000))}
    if rng.random() < 0.3:
        options["fixed_components"] = rng.uniform(0, 2, (1, X.shape[1]))
    (folder / "case.txt").write_text(f"{options}")
    np.savez(folder / "rows.npz", X=X, weight=weight)
    hidden = np.where(weight > 0, X, np.nan)
    with within(120), quiet():
        try:
            model = case.make(**options).fit(X, entry_weight=weight)
        except ValueError as error:
            expect(type(error) is not np.linalg.LinAlgError, f"{options}: {error!r}")
            return "refused"
        first = model.history_[0] + (weight * np.nan_to_num(X) ** 2).sum()
        rises = np.diff(model.history_) > (1e-6 if X.dtype == np.float32 else 1e-9) * first
        expect(not rises.any(), f"{options}: the cost rose: {model.history_}")
        other = case.make(**options).fit(hidden, entry_weight=weight)
        for name, array in answers(model, hidden).items():
            same = np.allclose(array, answers(other, hidden)[name], rtol=1e-6, atol=1e-9)
            expect(same, f"{options}: {name} depends on entries of weight zero")
        _sound(case, model, hidden, folder)
    return "fitted"


def random_fit(rng, folder):
    """Finite and never worse from step to step, or a ValueError; what it says is finite, saved as well."""
    case = chosen(rng, CASES)
    X, y = hostile_rows(rng, case)
    weight = hostile_weights(rng, len(X)) if case.takes_weights and rng.random() < 0.4 else None
    np.savez(folder / "rows.npz", X=X, **{k: v for k, v in (("y", y), ("weight", weight)) if v is not None})
    options = {name: value for name, value in SMALL.items() if name in case.options and not case.trained}
    if rng.random() < 0.5:
        options |= other_choices(rng, case)
    if "noise_floor" in case.options and rng.random() < 0.2:
        options["noise_floor"] = chosen(rng, [0.0, 1e-12, 1e-2])
    if "random_state" in case.options:
        options["random_state"] = int(rng.integers(1000))
    (folder / "case.txt").write_text(f"{case.name} {options}")
    with within(120), quiet():
        try:
            model = case.fit(X, y, weight, **options)
        except ValueError as error:
            expect(type(error) is not np.linalg.LinAlgError, f"{case}: {error!r}")
            return "refused"
        except Exception as error:
            raise Finding(f"{case}: {error!r}") from error
        # rows without weight are no part of the fit, and may be what it would refuse
        _sound(case, model, X if weight is None else X[weight > 0], folder)
    return "fitted"


def _sound(case, model, X, folder):
    for name, array in model._fitted_arrays().items():
        expect(np.all(np.isfinite(np.asarray(array, dtype=float))), f"{case}: {name}_ is not finite")
    if hasattr(model, "history_"):
        expect(np.all(np.isfinite(model.history_)), f"{case}: a history that is not finite")
    try:
        said = answers(model, X)
    except Exception as error:
        if "as many sources as features" in str(error):  # no density, which it says
            return
        raise Finding(f"{case}, after a fit: {error!r}") from error
    for name, array in said.items():
        odd = array.dtype.kind == "f" and np.isnan(array).any()
        expect(not odd, f"{case}: {name} gave NaN for rows of the fit")
        if name.startswith("predict_proba"):
            expect(np.allclose(array.sum(axis=-1), 1, atol=1e-9), f"{case}: probabilities do not sum to one")
    try:
        model.save(folder / "model.latently")
        again = answers(latently.load(folder / "model.latently"), X)
    except Exception as error:
        raise Finding(f"{case}, saved and loaded: {error!r}") from error
    for name, array in said.items():
        expect(np.array_equal(array, again[name]), f"{case}: {name} of the loaded model differs")


# -- tables and standard errors ---------------------------------------------------------------------------


def hostile_column(rng, n):
    """Cells of one kind that a column of a table may have."""
    kind = int(rng.integers(11))
    words = ["a", "b", "", " ", "nan", "<b>", "-1", "Ünï", "x" * 300, "1e5"]
    if kind == 0:
        return rng.normal(size=n) * 10 ** rng.uniform(-12, 12) + chosen(rng, [0.0, 0.0, 1e6, -1e9])
    if kind == 1:
        return rng.poisson(10 ** rng.uniform(-1, 2), size=n)
    if kind == 2:
        return rng.choice(words[: int(rng.integers(1, 11))], size=n)
    if kind == 3:
        return rng.random(n) < chosen(rng, [0.5, 0.0, 0.02])
    if kind == 4:
        levels = ["low", "mid", "high", "never seen"][: int(rng.integers(2, 5))]
        return pd.Categorical(rng.choice(levels[:2], size=n), levels, ordered=bool(rng.random() < 0.7))
    if kind == 5:
        return pd.Timestamp("1677-09-23") + pd.to_timedelta(
            rng.integers(0, chosen(rng, [9, 10**5]), n), unit="D"
        )
    if kind == 6:
        return np.full(n, chosen(rng, [0, 1, 7.5, "same", True, None]))
    if kind == 7:
        return np.arange(n)
    if kind == 8:
        return [f"row {i}" for i in range(n)]
    if kind == 9:
        return pd.array(rng.integers(0, 5, n), dtype=chosen(rng, ["Int64", "UInt8", "Float64", "string"]))
    return np.where(rng.random(n) < 0.8, rng.integers(0, 3, n), 10 ** rng.uniform(0, 15, n))


def mixed_table(rng, folder):
    """A mixed mixture of any table: sound, the same after saving, and able to impute and to draw rows."""
    n, options = int(rng.integers(2, 60)), {"random_state": 0, **SMALL}
    table = pd.DataFrame({f"c{j}": hostile_column(rng, n) for j in range(int(rng.integers(1, 6)))})
    share = chosen(rng, [0.0, 0.0, 0.1, 0.5])
    holed = table.mask(rng.random(table.shape) < share) if share else table
    options["n_components"] = int(rng.integers(1, 4))
    options["n_factors"] = int(rng.integers(0, 2))
    options["count_model"] = chosen(rng, ["negative_binomial", "poisson"])
    options["unseen"] = chosen(rng, ["error", "missing"])
    if rng.random() < 0.3:
        options["columns"] = {"c0": chosen(rng, ["number", "category", "ordinal", "count", [0, 1]])}
    weight = hostile_weights(rng, n) if rng.random() < 0.3 else None
    (folder / "case.txt").write_text(f"{options}\n{holed.dtypes}\n{weight}")
    holed.to_pickle(folder / "table.pickle")
    with within(120), quiet():
        try:
            model = MixedMixture(**options).fit(holed, sample_weight=weight)
        except ValueError as error:
            expect(type(error) is not np.linalg.LinAlgError, f"{options}: {error!r}")
            return "refused"
        _sound("MixedMixture", model, holed if weight is None else holed[weight > 0], folder)
        if weight is None:
            whole = model.impute(holed)
            expect(not pd.isna(whole).any(axis=None), "imputed cells are missing")
            for name, own in holed.items():
                same = whole[name][own.notna()].astype(object) == own.dropna().astype(object)
                expect(same.all(), f"imputing changed cells of {name} that are there")
        drawn = model.sample(3, random_state=0)
        expect(
            np.isfinite(model.score_samples(drawn[0] if isinstance(drawn, tuple) else drawn)).all(), "drawn"
        )
    return "fitted"


DESCRIBED = ("GaussianMixture", "FactorAnalysis", "PPCA", "MFA", "MPPCA", "MCFA")


def uncertain_fit(rng, folder):
    """Standard errors of fits to hostile rows: none below zero, none infinite, or a refusal."""
    case = chosen(rng, [case for case in CASES if case.cls.__name__ in DESCRIBED])
    X, _ = hostile_rows(rng, case)
    weight = hostile_weights(rng, len(X)) if rng.random() < 0.3 else None
    np.savez(folder / "rows.npz", X=X, **({} if weight is None else {"weight": weight}))
    way = chosen(rng, ["sandwich", "hessian", "scores", "weighted", "parametric"])
    options = {"max_iter": chosen(rng, [2, 50]), "prior": chosen(rng, ["auto", None])}
    (folder / "case.txt").write_text(f"{case.name} {way} {options}")
    with within(120), quiet():
        try:
            model = case.fit(X, None, weight, **options)
        except ValueError:
            return "not fitted"
        try:
            if way in ("weighted", "parametric"):
                draws = {"n_draws": 4, "random_state": 0}
                found = bootstrap(model, X, method=way, sample_weight=weight, **draws).intervals_
            else:
                found = standard_errors(model, X, method=way, sample_weight=weight).intervals_
        except (ValueError, TypeError) as error:
            expect(type(error) is not np.linalg.LinAlgError, f"{case} {way}: {error!r}")
            return "refused"
    error = found["standard_error"].to_numpy(float)
    odd = np.isinf(error).any() or (error < 0).any() or np.isnan(error).any() > (way in METHODS)
    expect(not odd, f"{case} {way}: standard errors {error}")
    ordered = found["low"] <= found["high"]
    expect(ordered[~np.isnan(error)].all(), f"{case} {way}: an interval that ends before it begins")
    return way


# -- what must not change a fit ---------------------------------------------------------------------------

ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
# Four steps of a fit whose rows have several local optima each: the last digit may decide between them.
KNOWN = {("NLMF-holes", "transform.0"), ("NLMF-holes", "reconstruct.0")}
# Not those that visit rows in order: another order is another fit, as their pages say.
STEADY = [case for case in CASES if not (case.trained or case.layered or case.counted)]


def same_fit(rng, folder):
    """The order of rows, blocks, units of weights, copies and names of classes do not change a fit."""
    case = chosen(rng, STEADY)
    seed = int(rng.integers(10**6))
    X, y = case.data(n=int(rng.integers(40, 90)), seed=seed)
    changes = ["order", *(["block"] if "block_size" in case.options else [])]
    changes += ["scaled", "copies"] if case.takes_weights else []
    changes += ["labels"] if case.is_classifier and not case.unlabelled else []
    change = chosen(rng, changes)
    weight = None
    if change in ("scaled", "copies"):
        weight = rng.uniform(0.2, 3, len(X)) if change == "scaled" else rng.integers(1, 4, len(X)) + 0.0
    (folder / "case.txt").write_text(f"{case.name} {change} {seed}")
    with within(120), quiet():
        model = case.fit(X, y, weight)
        rows, labels = X, y
        if change == "order":
            order = rng.permutation(len(X))
            other = case.fit(X[order], None if y is None else y[order])
        elif change == "block":
            other = case.fit(X, y, block_size=int(rng.integers(1, 20)))
        elif change == "scaled":
            other = case.fit(X, y, weight * 10 ** rng.uniform(-60, 36))
        elif change == "copies":
            copies = np.asarray(weights_in_rows(weight, len(X))).astype(int)
            other = case.fit(*(None if a is None else np.repeat(a, copies, axis=0) for a in (X, y)))
        else:
            labels = np.array(["ash", "birch", "cedar", "dogwood"])[y]
            other = case.fit(rows, labels)
        said, again = (answers(one, X, case.settled) for one in (model, other))
    for name, array in said.items():
        if array.dtype.kind == "f":
            size = np.abs(array).max(initial=1.0)
            close = np.allclose(array, again[name], rtol=ROUNDING["rtol"], atol=ROUNDING["atol"] * size)
            if not close and (case.name, name) in KNOWN:
                return f"{change}: known limit"
            expect(close, f"{case}: {change} changes {name} by {np.abs(array - again[name]).max():.3g}")
    return change


# Densities whose parameters take up the unit of every feature.
IN_ANY_UNIT = (
    *("GaussianMixture", "FactorAnalysis", "MFA", "Bayesian", "MixedMixture", "NestedMixture"),
    *("MJFAClassifier", "PerClass"),
)


def same_columns(rng, folder):
    """Columns in another order, or in units that are powers of two: counted, where the optimum is another.

    Starts are searched among rows, and which of several optima is found may hang on rounding.
    """
    case = chosen(rng, [case for case in STEADY if case.has("score_samples") and not case.holes])
    seed = int(rng.integers(10**6))
    X, y = case.data(n=int(rng.integers(60, 120)), seed=seed)
    if rng.random() < 0.5 or not case.name.startswith(IN_ANY_UNIT) or "spherical" in case.name:
        order, scale, what = rng.permutation(X.shape[1]), np.ones(X.shape[1]), "order"
    else:
        order, scale, what = np.arange(X.shape[1]), 2.0 ** rng.integers(-20, 20, X.shape[1]), "scale"
    options = {"max_iter": 300, "tol": 1e-9, "n_init": 3}
    options = {name: value for name, value in options.items() if name in case.options}
    with within(200), quiet():
        one = case.fit(X, y, **options).score_samples(X).mean()
        other = case.fit((X * scale)[:, order], y, **options).score_samples((X * scale)[:, order]).mean()
    lag = other + np.log(scale).sum() - one
    expect(abs(lag) < 5.0, f"{case}: {what} of columns changes the score by {lag:.3g}")
    return f"{what}: same" if abs(lag) < 1e-4 else f"{what}: another optimum"


ATTACKS = {
    attack.__name__: attack
    for attack in (random_fit, mixed_table, uncertain_fit, weighted_entries, same_fit, same_columns)
}
