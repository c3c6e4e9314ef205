"""Prototypes, eigenvectors and parts: three readings of one product of matrices."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from latently.factorization import NMF, PCA, VectorQuantizer
from reproductions.document_000._digits import ALL, IMAGE_SHAPE, Real, as_shown, images
from reproductions.framework import Reproduction
from reproductions.told import listed

PROTOTYPES, AXES, PARTS, PARTS_KL = "prototypes", "eigenvectors", "parts", "parts by KL"


def measure(settings, seed):
    fitted, held_out = images(ALL, settings["rows"], seed)
    real, network_rows = Real(ALL, fitted, held_out), settings["network_rows"]
    records = []
    for (name, r), model in models(**settings, seed=seed).items():
        sources, rebuilt = model.transform(held_out), model.reconstruct(held_out)
        components = model.components_
        records.append(
            {
                "components": name,
                "r": r,
                "error": share_left(model.reconstruct(fitted), fitted),
                "error, held out": share_left(rebuilt, held_out),
                "sources not zero": float(np.mean(np.abs(sources) > 1e-9)),
                "negative entries": float(np.mean(components < 0)),
                "ink": float(np.mean(ink(components))),
                "like a digit": real.recognised(components, network_rows)["like a digit"],
                "rebuilt like a digit": real.recognised(rebuilt, network_rows)["like a digit"],
            }
        )
    return records


@lru_cache(maxsize=1)  # what is drawn is what was measured
def models(rows, sizes, network_rows, seed):
    fitted = images(ALL, rows, seed)[0]
    found = {}
    for r in sizes:
        found[PROTOTYPES, r] = VectorQuantizer(r, n_init=3, random_state=seed).fit(fitted)
        found[AXES, r] = PCA(r).fit(fitted)
        found[PARTS, r] = NMF(r, tol=1e-4, random_state=seed).fit(fitted)
        found[PARTS_KL, r] = NMF(r, loss="kl", tol=1e-4, random_state=seed).fit(fitted)
    return found


def share_left(rebuilt, rows):
    return float(np.sum((rows - rebuilt) ** 2) / np.sum(rows**2))


def ink(components):
    """The share of pixels a component would cover if it were even: 1 if all are equal in size."""
    size = np.abs(components)
    return size.sum(axis=1) ** 2 / (size.shape[1] * np.sum(size**2, axis=1))


def draw_components(result):
    """All in one picture."""
    from reproductions.plots.planes import image_lines

    lines = {}
    for (name, r), model in models(**result.settings, seed=result.seed).items():
        shown = model.components_[:16]
        if name == AXES:  # grey is zero
            shown = 0.5 + 0.5 * shown / np.abs(shown).max(axis=1, keepdims=True)
        else:
            shown = as_shown(shown)
        lines[f"{name}, r = {r}"] = shown
    title = "What rows of digits are made of; of eigenvectors grey is zero and black negative"
    return image_lines(lines, IMAGE_SHAPE, title=title)


def draw_reconstructions(result):
    from reproductions.plots.planes import image_lines

    held_out = images(ALL, result.settings["rows"], result.seed)[1][:16]
    lines = {"held out": held_out}
    for (name, r), model in models(**result.settings, seed=result.seed).items():
        lines[f"{name}, r = {r}"] = as_shown(model.reconstruct(held_out))
    return image_lines(lines, IMAGE_SHAPE, title="Held-out digits, and what is made of them")


def about_parts(told):
    like = told.all("like a digit", "prototypes")
    ink = told("ink", "parts", 49) / told("ink", "prototypes", 49)
    return f"""
        "Prototypes are typical wholes": yes, {listed(like, ".2f")} of them are like a digit to the network,
        and to the eye most are blurred digits. "Eigenvectors are gradients about the mean": they have both
        signs and cover most of the image, and look like no digit. "Parts are localised": with r = 49 they
        are dots and short strokes, with {ink:.2f} of the ink of prototypes; with r = 16 some are still half
        digits.
    """


REPRODUCTION = Reproduction(
    id="004/features",
    title="prototypes, eigenvectors and parts of digits",
    source="Document 004, matrix factorisation, which has no numbers and speaks of images of faces",
    data="MNIST, 5000 training and 1000 test images of all digits, pixels from 0 to 1.",
    protocol="""
        Images are sources times r components, in three ways: one source that is one (vector quantisation),
        orthonormal components about the mean (PCA), nothing negative (NMF, with squared error and, "by KL",
        with the Kullback-Leibler divergence). "Error" is what is left out, as a share of the squares of
        pixels. "Sources not zero" are of held-out images. "Ink" is (sum |a|)^2 over D sum a^2, the share of
        the pixels that a component would cover if it were even. "Like a digit" is the share of components,
        and of rebuilt held-out images, of which a network trained on real digits (0.973 of test digits
        right) is as sure as of 95% of real test digits.
    """,
    keys=("components", "r"),
    columns={
        "error": ".3f",
        "error, held out": ".3f",
        "sources not zero": ".3f",
        "negative entries": ".3f",
        "ink": ".3f",
        "like a digit": ".2f",
        "rebuilt like a digit": ".3f",
    },
    published=(),
    measure=measure,
    settings={"rows": 5000, "sizes": (16, 49), "network_rows": 60000},
    quick_settings={"rows": 100, "sizes": (9,), "network_rows": 500},
    remarks=(
        about_parts,
        """
        PCA leaves out least, as it must on fitted images, then NMF, then vector quantisation. The notes apply
        PCA to images as they are; the mean has to be taken off first, as here.
        """,
        """
        Parts by the divergence are about as small as those by squared error, with fewer sources that are not
        zero.
        """,
    ),
    figures={"-components": draw_components, "-rebuilt": draw_reconstructions},
)
