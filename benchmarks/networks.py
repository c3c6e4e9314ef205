"""Networks beside their peers, in one run, as ratios.

    python benchmarks/networks.py [--quick] [--data mnist.npz]

RBM 784-100 by CD-1 beside scikit-learn's BernoulliRBM: CPU seconds per epoch, and the pseudo-log-likelihood
of held-out rows after ten epochs. VAE 784-400-20 beside a bare torch loop of the same model: CPU seconds per
epoch. Annealed importance sampling beside the exact log partition function. MNIST if it is among the data
sets, else rows of that size with a few patterns. Both sides take turns, and medians are compared: of CPU
seconds, as other programs may run on the machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from sklearn.neural_network import BernoulliRBM
from torch import nn

from latently.datasets import load
from latently.deep import RBM, VAE

LIMITS = {
    "RBM / BernoulliRBM, seconds of an epoch": 0.7,
    "VAE / bare loop, seconds of an epoch": 1.1,
    "error of annealed ln Z": 0.1,
}


def rows(n, path):
    """Rows to learn from, and others."""
    try:
        digits = np.load(path) if path else load("mnist")
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        patterns = rng.random((20, 784)) ** 3
        drawn = [patterns[rng.integers(20, size=m)] for m in (n, 1000)]
        return [(rng.random(X.shape) < X).astype(np.float64) for X in drawn]
    parts = (digits["X_train"][:n], digits["X_test"][:1000])
    return [part.reshape(len(part), -1) / 255.0 for part in parts]


def seconds(call):
    began = time.process_time()
    call()
    return time.process_time() - began


def in_turn(ours, theirs, n):
    """Medians of both."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(n)]
    return np.median(pairs, axis=0)


def machines(X, held_out, n_turns, n_epochs):
    settings = {"batch_size": 100, "random_state": 0}
    ours = lambda n: RBM(100, max_iter=n, **settings).fit(X)
    theirs = lambda n: BernoulliRBM(100, learning_rate=0.1, n_iter=n, **settings).fit(X)
    # two lengths, so that what is done once does not count
    long, short = (
        in_turn(lambda: ours(6), lambda: theirs(6), n_turns),
        in_turn(lambda: ours(1), lambda: theirs(1), n_turns),
    )
    epoch = (long - short) / 5
    model, peer = ours(n_epochs), theirs(n_epochs)
    copied = RBM.from_parameters(
        components=peer.components_,
        intercept_visible=peer.intercept_visible_,
        intercept_hidden=peer.intercept_hidden_,
    )
    held = {
        name: np.mean([one.pseudo_log_likelihood(held_out, random_state=seed).mean() for seed in range(20)])
        for name, one in (("RBM", model), ("BernoulliRBM", copied))
    }
    return {
        "RBM, seconds of an epoch": epoch[0],
        "BernoulliRBM, seconds of an epoch": epoch[1],
        "RBM / BernoulliRBM, seconds of an epoch": epoch[0] / epoch[1],
        **{f"{name}, held-out pseudo-log-likelihood": value for name, value in held.items()},
    }


def bare_loop(X, n_epochs):
    """What a VAE in a few lines of torch does."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(784, 400), nn.Tanh(), nn.Linear(400, 40))
    decoder = nn.Sequential(nn.Linear(20, 400), nn.Tanh(), nn.Linear(400, 784))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    X = torch.from_numpy(X).float()
    for _ in range(n_epochs):
        for index in torch.randperm(len(X)).split(128):
            rows = X[index]
            m, log_v = encoder(rows).chunk(2, dim=1)
            logits = decoder(m + torch.exp(0.5 * log_v) * torch.randn_like(m))
            error = nn.functional.binary_cross_entropy_with_logits(logits, rows, reduction="sum")
            kl = 0.5 * (m**2 + torch.exp(log_v) - 1 - log_v).sum()
            loss = (error + kl) / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def autoencoders(X, n_turns):
    settings = {"hidden_layer_sizes": (400,), "likelihood": "bernoulli", "batch_size": 128, "random_state": 0}
    ours = lambda n: VAE(20, learning_rate=1e-3, max_iter=n, **settings).fit(X)
    long = in_turn(lambda: ours(4), lambda: bare_loop(X, 4), n_turns)
    short = in_turn(lambda: ours(1), lambda: bare_loop(X, 1), n_turns)
    epoch = (long - short) / 3
    return {
        "VAE, seconds of an epoch": epoch[0],
        "bare loop, seconds of an epoch": epoch[1],
        "VAE / bare loop, seconds of an epoch": epoch[0] / epoch[1],
    }


def partition(X):
    """The largest error of ten seeds, for a trained machine with 2^15 hidden states."""
    model = RBM(15, max_iter=5, random_state=0).fit(X)
    exact = model.log_partition("exact")
    found = [model.estimate_log_partition("ais", random_state=seed) for seed in range(10)]
    return {
        "exact ln Z": exact,
        "error of annealed ln Z": max(abs(one.value - exact) for one in found),
        "mean standard error of annealed ln Z": float(np.mean([one.standard_error for one in found])),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows and turns, to see that it runs")
    parser.add_argument("--data", help="an .npz file with X_train and X_test in place of the data set")
    given = parser.parse_args()
    X, held_out = rows(1000 if given.quick else 5000, given.data)
    n_turns = 1 if given.quick else 3
    print(f"{len(X)} rows, torch {torch.__version__}, {torch.get_num_threads()} thread(s)", flush=True)
    for measured in (
        lambda: machines(X, held_out, n_turns, 2 if given.quick else 10),
        lambda: autoencoders(X, n_turns),
        lambda: partition(X),
    ):
        for name, value in measured().items():
            limit = f"  (at most {LIMITS[name]:g})" if name in LIMITS else ""
            print(f"{name:48s} {value:10.4g}{limit}", flush=True)


if __name__ == "__main__":
    main()
