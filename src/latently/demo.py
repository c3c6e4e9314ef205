"""The main job on embedded data: a mixture of factor analysers of handwritten digits.

python -m latently.demo --output demo-output
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from latently.mixture import MFA, GaussianMixture

IMAGE_SHAPE = (8, 8)


def digits(seed=0):
    """scikit-learn's 1797 digits in [0, 1].

    The 17 grey levels are spread evenly over their steps: a density of data that take a few exact values
    can grow without bound, one of data that fill their range cannot.
    """
    from sklearn.datasets import load_digits

    levels = load_digits().data
    return (levels + np.random.default_rng(seed).random(levels.shape)) / 17


def best_by_bic(title, candidates, X):
    """The candidate of lowest BIC; every one is printed as it is fitted."""
    best, lowest = None, np.inf
    for size, candidate in candidates.items():
        bic = candidate.fit(X).bic(X)
        print(f"  {title}, {size}: BIC {bic:.0f}", flush=True)
        if bic < lowest:
            best, lowest = candidate, bic
    return best


def run(output):
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    X = digits()
    print(f"{X.shape[0]} digits of {X.shape[1]} pixels. Choosing models by BIC, lower is better.")

    sizes = [(K, q) for K in (10, 20, 30) for q in (1, 2, 4)]
    chosen = best_by_bic(
        "mixture of factor analysers", {f"K={K}, q={q}": MFA(K, q, random_state=0) for K, q in sizes}, X
    )
    plain = {
        kind: best_by_bic(
            f"Gaussian mixture ({kind})",
            {f"K={K}": GaussianMixture(K, covariance_type=kind, random_state=0) for K in components},
            X,
        )
        for kind, components in {"full": (1, 2, 3, 5), "diag": (20, 30, 40, 50)}.items()
    }

    print("The MFA of lowest BIC, run on to a finer tolerance:")
    model = MFA(chosen.n_components, chosen.n_factors, tol=1e-8, random_state=0, verbose=1).fit(X)
    print(f"{'model':34}{'parameters':>12}{'log-likelihood per row':>24}{'BIC':>12}")
    rows = {f"MFA, K={model.n_components}, q={model.n_factors}": model}
    rows |= {f"Gaussian mixture ({kind}), K={m.n_components}": m for kind, m in plain.items()}
    for name, m in rows.items():
        print(f"{name:34}{m.n_parameters():>12}{m.score(X):>24.3f}{m.bic(X):>12.0f}")

    path = output / "digits-mfa.latently"
    model.save(path)
    picture = output / "digits.png"
    draw(model, picture)
    print(f"Wrote {picture} (means and generated digits) and {path} (read it with latently.load).")
    print(f"Done in {time.perf_counter() - began:.1f} s.")


def draw(model, path):
    """Component means, largest first, above digits drawn from the model."""
    from latently.plots import image_grid

    order = np.argsort(-model.weights_)
    generated, _ = model.sample(5 * 15, random_state=0)
    shares = [f"{100 * model.weights_[k]:.1f} %" for k in order]
    rows = np.concatenate([model.means_[order], np.clip(generated, 0, 1)])
    figure = image_grid(
        rows,
        IMAGE_SHAPE,
        title=f"MFA of digits: means of {len(order)} components with their shares, then generated digits",
        labels=shares + [""] * len(generated),
        n_columns=15,
    )
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(prog="python -m latently.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--output", default="demo-output", help="folder for the picture and the model")
    run(parser.parse_args().output)


if __name__ == "__main__":
    main()
