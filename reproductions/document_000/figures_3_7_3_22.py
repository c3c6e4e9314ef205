"""Figures 3.7 to 3.22: digits as sums of parts, one of each group that k-means makes of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from latently.generate import CodebookGenerator
from reproductions.document_000._digits import (
    ABOUT_QUALITY,
    ABOUT_ROWS,
    IMAGE_SHAPE,
    QUALITY,
    TWO,
    as_shown,
    parts,
)
from reproductions.framework import Reproduction
from reproductions.told import listed, span

SPREAD = "+- over starts"
COLUMNS = {
    "groups of one": ".1f",
    "combinations": ".1e",
    "called a 2": ".3f",
    SPREAD: ".3f",
    **{name: spec for name, spec in QUALITY.items() if name not in ("called a 2", "classes")},
}


def measure(settings, seed):
    n_drawn, network_rows = settings["drawn"], settings["network_rows"]
    records = []
    for d, groups in settings["groups"]:
        its_parts = parts(TWO, d, settings["rows"], seed)
        for name, quality in its_parts.references(network_rows, seed).items():
            records.append({"parts": d, "groups": name} | quality)
        for K in groups:
            models = [generator(d, K, settings["rows"], seed, run) for run in range(settings["runs"])]
            drawn = [model.sample(n_drawn, random_state=seed)[0] for model in models]
            called = [its_parts.real.recognised(rows, network_rows)["called a 2"] for rows in drawn]
            pooled = np.concatenate([rows[: n_drawn // len(models)] for rows in drawn])
            pooled = np.random.default_rng(seed).permutation(pooled)
            records.append(
                {
                    "parts": d,
                    "groups": K,
                    **about_groups(models),
                    **its_parts.real.judge(pooled, network_rows),
                    "called a 2": float(np.mean(called)),
                    SPREAD: float(np.std(called)),
                }
            )
    return records


@lru_cache(maxsize=128)  # what is drawn is what was measured
def generator(d, K, n_rows, seed, run):
    # rounded, so that it is the seed and no last bit of an NMF that decides where k-means begins
    codebook = np.round(parts(TWO, d, n_rows, seed).factorizer.components_, 6)
    return CodebookGenerator(n_groups=K, init="rows", n_init=1, random_state=seed + run).fit(codebook)


def about_groups(models):
    """Means over groupings."""
    sizes = [[len(group) for group in model.groups_] for model in models]
    return {
        "groups of one": float(np.mean([each.count(1) for each in sizes])),
        "combinations": float(np.mean([model.n_combinations_ for model in models])),
    }


# -- pictures -----------------------------------------------------------------------------------------


def shown_groups(settings):
    """The groupings that the source shows: 30 parts in 5 and in 8 groups, 100 in 10; or what there is."""
    wanted = [(d, K) for d, groups in settings["groups"] for K in groups]
    return [one for one in wanted if one in ((30, 5), (30, 8), (100, 10))] or wanted[:1]


def draw_groups(result):
    """Figs. 3.7, 3.9, 3.10, 3.13, 3.14, 3.17, 3.19 and 3.20: centres of groups, and their parts."""
    from latently.plots import image_grid

    pictures, labels, groups = [], [], []
    for number, (d, K) in enumerate(shown_groups(result.settings)):
        model = generator(d, K, result.settings["rows"], result.seed, 0)
        pictures += [model.centers_, model.codebook_]
        labels += [f"d={d}, K={K}", *[""] * (K - 1), *[""] * d]
        groups += [*[100 * number] * K, *(100 * number + 1 + model.labels_)]
    return image_grid(
        np.concatenate(pictures),
        IMAGE_SHAPE,
        scale="single",
        labels=labels,
        groups=groups,
        n_columns=20,
        title="Means of groups, and the parts of each group",
    )


def draw_axes(result, number):
    """Figs. 3.8, 3.12 and 3.18."""
    from latently.plots import PrincipalAxesDisplay

    cases = shown_groups(result.settings)
    d, K = cases[min(number, len(cases) - 1)]
    display = PrincipalAxesDisplay.from_estimator(generator(d, K, result.settings["rows"], result.seed, 0))
    display.plot().axes_[0].set_title(f"{d} parts in {K} groups")
    return display.figure_


def draw_digits(result):
    """Figs. 3.11, 3.15, 3.16, 3.21 and 3.22."""
    from reproductions.plots.planes import image_lines

    lines = {}
    for d, groups in result.settings["groups"]:
        for K in groups:
            model = generator(d, K, result.settings["rows"], result.seed, 0)
            lines[f"d = {d}, K = {K}"] = as_shown(model.sample(20, random_state=result.seed)[0])
    return image_lines(lines, IMAGE_SHAPE, title="Sums of one part of each of K groups")


FEW = (3, 5, 8, 10, 15, 20)  # groups of 30 parts


def about_five(told):
    return f"""
        "Clearly 2s, but certainly not handwritten" (30 parts, K = 5): the network calls
        {told("called a 2", 30, 5):.3f} of them a 2, and {told("told apart", 30, 5):.3f} are told from real
        ones. To the eye some are 2s with missing entries, others loose strokes.
    """


def about_eight(told):
    return f"""
        "K = 8 may be worse": the network sees more 2s, {told("called a 2", 30, 8):.3f}, and more still up
        to K = 20, {told("called a 2", 30, 20):.3f}. That is no praise: with most parts in every sum,
        strokes lie side by side, and all images are one thick 2. They lie
        {span(told.all("distance", 30, FEW), ".1f")} times as far from any fitted 2 as new real ones do,
        whatever K is.
    """


def about_alike(told):
    return f"""
        "Images become alike as K grows": yes. With K = 20 of 30 parts, {told("groups of one", 30, 20):.0f}
        groups have one part, and there are {told("combinations", 30, 20):.0f} different images in the mean.
        With K = 8 the source has two groups of one; ours have {told("groups of one", 30, 8):.1f}.
    """


def about_many(told):
    few = (5, 10, 15, 20)
    return f"""
        "100 parts hardly resemble anything": yes. Up to K = 20 they are dots and dashes, of which
        {span(told.all("called a 2", 100, few), ".2f")} are called a 2, and which the network is seldom sure
        of ({span(told.all("like a digit", 100, few), ".2f")}). Groupings differ: from K = 30 on the share
        called a 2 varies by {min(told.all("+- over starts", 100, (30, 40, 50))):.2f} and more between
        starts.
    """


def about_weights(told):
    shuffled = told.all("called a 2", ..., "sources shuffled")
    return f"""
        Weights are missing more than groups that fit: sources with their right sizes, though shuffled, are
        called a 2 in {shuffled[0]:.3f} (30 parts) and {shuffled[1]:.3f} (100) of all cases, and lie nearer
        to real ones.
    """


def about_others(told):
    others = told.all("called a 2", ..., "other digits, rebuilt")
    return f"""
        Being called a 2 is not given by the parts of 2s alone: of other digits that are made of them,
        {listed(others, ".3f")} are.
    """


REPRODUCTION = Reproduction(
    id="000/figures-3.7-3.22",
    title="digits as sums of parts, one of each group",
    source="Document 000, section 3.3, Figs. 3.7 to 3.22, which have no numbers",
    data="MNIST, the 5958 training images of the 2, and 1000 of its test images, pixels from 0 to 1.",
    protocol=f"""
        The 2s are factorised by NMF; k-means from one start, at parts by chance, groups the parts, which
        have unit length; a digit is the sum of one part of each group. There are 40
        such groupings: 1000 images of each are shown to the network for "called a 2", and 25 of each are
        pooled for the other measures. "{SPREAD}" is the standard deviation of "called a 2" between them.
        {ABOUT_QUALITY} {ABOUT_ROWS}
    """,
    keys=("parts", "groups"),
    columns=COLUMNS,
    published=(),
    measure=measure,
    settings={
        "groups": ((30, (3, 5, 8, 10, 15, 20)), (100, (5, 10, 15, 20, 30, 40, 50))),
        "runs": 40,
        "rows": None,
        "drawn": 1000,
        "network_rows": 60000,
    },
    quick_settings={"groups": ((12, (3, 6)),), "runs": 2, "rows": 150, "drawn": 40, "network_rows": 500},
    remarks=(
        about_five,
        about_eight,
        about_alike,
        about_many,
        about_weights,
        about_others,
        """
        Captions of Figs. 3.19 and 3.20 have K = 5, the text and the figures about them K = 10, which is ours.
        """,
    ),
    figures={
        "-groups": draw_groups,
        "-axes-30-5": lambda result: draw_axes(result, 0),
        "-axes-30-8": lambda result: draw_axes(result, 1),
        "-axes-100-10": lambda result: draw_axes(result, 2),
        "-digits": draw_digits,
    },
)
