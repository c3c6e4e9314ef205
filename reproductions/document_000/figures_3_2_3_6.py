"""Figures 3.2 to 3.6: parts of all ten digits, and what is left out over their number."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from latently.factorization import NMF, PCA
from reproductions.document_000._digits import IMAGE_SHAPE, TWO, Real, as_shown, fitted_quietly, images
from reproductions.framework import Reproduction
from reproductions.told import listed, span

UPDATES = {"mu": "multiplicative updates, as in the source", "hals": "coordinate descent"}
SWEEPS = 60  # shown
EMPTY = 0.05  # of the largest pixel of a part


def measure(settings, seed):
    records = []
    for digit in settings["digits"]:
        fitted, held_out = images(digit, settings["rows"], seed)
        numbers = settings["parts"] + (settings["more_of_two"] if digit == TWO else ())
        axes = PCA(max(numbers)).fit(fitted)
        for d in numbers:
            model = nmf(digit, d, settings["rows"], seed)
            left, rebuilt = model.squared_error(fitted), model.reconstruct(held_out)
            about_digit = Real(digit, fitted, held_out)
            right = about_digit.recognised(rebuilt, settings["network_rows"])[f"called a {digit}"]
            before = about_digit.recognised(held_out, settings["network_rows"])[f"called a {digit}"]
            parts = model.components_
            records.append(
                {
                    "digit": digit,
                    "parts": d,
                    "error": left / np.sum(fitted**2),
                    "error, held out": float(np.sum((held_out - rebuilt) ** 2) / np.sum(held_out**2)),
                    "error of PCA, held out": left_by_axes(axes, held_out, d) / np.sum(held_out**2),
                    "per image": left / (2 * len(fitted)),
                    "called right": right,
                    "originals called right": before,
                    "empty": float(np.mean(parts < EMPTY * parts.max(axis=1, keepdims=True))),
                }
            )
    return records


@lru_cache(maxsize=128)  # what is drawn is what was measured
def nmf(digit, d, n_rows, seed, solver="hals"):
    how = {"accelerate": None, "tol": 0, "max_iter": SWEEPS} if solver == "mu" else {"tol": 1e-4}
    return fitted_quietly(NMF(d, solver=solver, random_state=seed, **how), images(digit, n_rows, seed)[0])


def left_by_axes(axes, rows, d):
    """What the first d principal axes leave out of rows, squared."""
    return float(np.sum((rows - axes.mean_) ** 2) - np.sum(axes.transform(rows)[:, :d] ** 2))


def summary(rows):
    """Means over digits, and the digits of largest error; nothing of numbers that one digit alone has."""
    short = []
    n_digits = len({row["digit"] for row in rows})
    for d in sorted({row["parts"] for row in rows}):
        own = [row for row in rows if row["parts"] == d]
        if len(own) < n_digits:
            continue
        worst = sorted(own, key=lambda row: -row["error, held out"])[:3]
        names = ("error", "error, held out", "error of PCA, held out", "per image")
        names += ("called right", "originals called right", "empty")
        means = {name: float(np.mean([row[name] for row in own])) for name in names}
        listed = ", ".join(str(row["digit"]) for row in worst)
        short.append({"parts": d, **means, "largest error, held out": listed})
    return short


# -- pictures -----------------------------------------------------------------------------------------


def draw_convergence(result):
    """Fig. 3.2."""
    from reproductions.plots.curves import curve_panels

    d, n_rows = min(result.settings["parts"]), result.settings["rows"]
    panels = {}
    for solver, name in UPDATES.items():
        fits = {digit: nmf(digit, d, n_rows, result.seed, solver) for digit in result.settings["digits"]}
        panels[name] = {str(digit): fit.history_[:SWEEPS] / n_rows for digit, fit in fits.items()}
    return curve_panels(panels, y="cost per image", title=f"NMF of each digit with {d} parts")


def draw_parts(result):
    """Figs. 3.3 and 3.4: ten parts of each digit, then some of more parts of one digit."""
    from latently.plots import image_grid

    settings = result.settings
    few, *more = settings["parts"] + settings["more_of_two"]
    models = [(f"{digit}", nmf(digit, few, settings["rows"], result.seed)) for digit in settings["digits"]]
    models += [(f"{TWO}, d={d}", nmf(TWO, d, settings["rows"], result.seed)) for d in more]
    pictures = np.concatenate([model.components_[:10] for _, model in models])
    labels = [name if i == 0 else "" for name, _ in models for i in range(10)]
    title = f"{few} parts of each digit, and some of more parts of the {TWO}"
    return image_grid(pictures, IMAGE_SHAPE, scale="single", labels=labels, title=title)


def draw_reconstructions(result):
    """Fig. 3.5."""
    from reproductions.plots.planes import image_lines

    settings = result.settings
    held_out = {digit: images(digit, settings["rows"], result.seed)[1][:2] for digit in settings["digits"]}
    lines = {"held out": np.concatenate(list(held_out.values()))}
    for d in settings["parts"]:
        rebuilt = [nmf(k, d, settings["rows"], result.seed).reconstruct(rows) for k, rows in held_out.items()]
        lines[f"{d} parts"] = as_shown(np.concatenate(rebuilt))
    return image_lines(lines, IMAGE_SHAPE, title="Held-out digits, made of parts of their own digit")


def draw_errors(result):
    """Fig. 3.6."""
    from reproductions.plots.planes import two_measures

    lines = {}
    for row in result.records:
        lines.setdefault(f"{row['digit']}", []).append((row["parts"], row["error, held out"], ""))
    return two_measures(
        lines, x="parts", y="error, held out", title="What is left out, as a share of the squares"
    )


def mean(values):
    return sum(values) / len(values)


def about_parts(told):
    few, some, many = (mean(told.all("empty", ..., parts)) for parts in (10, 30, 100))
    return f"""
        "With ten parts these resemble the digit": yes, most of all for 0, 1, 8 and 9; those of 4 and 7 are
        strokes already. "More parts are sparser, and 30 are like strokes": yes. The share of empty pixels
        rises from {few:.2f} (10 parts) to {some:.2f} (30) and {many:.2f} (100), where they are dots.
    """


def about_errors(told):
    product = {parts: parts * mean(told.all("error", ..., parts)) for parts in (10, 40, 50, 100)}
    of_pca = told.by_key("error of PCA, held out")
    less = [1 - of_pca[key] / value for key, value in told.by_key("error, held out").items()]
    return f"""
        "The error is inversely proportional to d": about, from 40 parts on, where error times d is
        {span([product[parts] for parts in (40, 50, 100)], ".1f")}; it is {product[10]:.1f} with 10. PCA
        leaves out {mean(less):.0%} less in the mean.
    """


def about_digits(told):
    def worst_of(measure, n):
        errors = told.by_key(measure, ..., 10)
        return [key[0] for key in sorted(errors, key=errors.get, reverse=True)[:n]]

    first, *others = worst_of("per image", 4)
    return f"""
        "2 and 3 have the largest errors": by squared error the {first} has
        ({told("per image", first, 10):.2f} per image with 10 parts); then {listed(others, "d")}. As a share
        of the squares it is the {worst_of("error", 2)[0]}, then the {worst_of("error", 2)[1]}.
    """


def about_network(told):
    few, many = (mean(told.all("called right", ..., parts)) for parts in (10, 100))
    return f"""
        "The error is too small to misclassify any digit": rebuilt digits are called right more often than
        the originals, {few:.3f} with 10 parts and {many:.3f} with 100, where originals have
        {mean(told.all("originals called right", ..., 10)):.3f}. That is no merit: the parts are those of
        the right digit, and the fewer they are, the less can they make anything else.
    """


REPRODUCTION = Reproduction(
    id="000/figures-3.2-3.6",
    title="parts of digits, and what they leave out",
    source="Document 000, section 3.2, Figs. 3.2 to 3.6, which have no numbers",
    data="""
        MNIST, 1000 training images of each digit and as many test images (where there are fewer, all of
        them), pixels from 0 to 1. The source takes all training images.
    """,
    protocol=f"""
        One NMF for each digit and number of parts, by coordinate descent; Fig. 3.2 also with the
        multiplicative updates of the source. "Error" is |X - AS|^2 over |X|^2, of fitted and of held-out
        images; that of PCA about the mean stands beside; "per image" is the source's E_LS, half the
        squared error, with a variance of one. "Called right" is the share of rebuilt held-out images for
        which a network trained on real digits (128 hidden units, 60,000 digits, 0.973 of all test digits
        right) says the digit it was. "Empty" is the share of the pixels of a part below {EMPTY:.0%} of
        its largest.
    """,
    keys=("digit", "parts"),
    other_numbers=dict.fromkeys(("5241", "5421", "59,820", "60,000"), "Table 3.1 of the source"),
    columns={
        "error": ".4f",
        "error, held out": ".4f",
        "error of PCA, held out": ".4f",
        "per image": ".2f",
        "called right": ".3f",
        "originals called right": ".3f",
        "empty": ".3f",
    },
    published=(),
    measure=measure,
    settings={
        "digits": tuple(range(10)),
        "parts": (10, 20, 30, 40, 50, 100),
        "more_of_two": (200,),
        "rows": 1000,
        "network_rows": 60000,
    },
    quick_settings={
        "digits": (2, 7),
        "parts": (10, 20),
        "more_of_two": (25,),
        "rows": 100,
        "network_rows": 500,
    },
    summary=summary,
    remarks=(
        """
        "NMF converges": yes. Multiplicative updates still fall after 60 sweeps, where coordinate descent ends
        after 13 to 30 with a lower cost.
        """,
        about_parts,
        about_errors,
        about_digits,
        about_network,
        """
        Table 3.1 of the source has 5241 training images of the 5, where there are 5421; the printed numbers
        add up to 59,820, not to 60,000.
        """,
    ),
    figures={
        "-convergence": draw_convergence,
        "-parts": draw_parts,
        "-rebuilt": draw_reconstructions,
        "-errors": draw_errors,
    },
)
