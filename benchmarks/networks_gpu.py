"""Hinton's 784-500-500-2000+10 deep belief net and a 784-200-200-50 VAE on MNIST, on a GPU in nine minutes.

    python benchmarks/networks_gpu.py [--data shared/data/mnist.npz] [--out FOLDER] [--minutes 8.5] [--quick]

One short fit of each model tells how long an epoch takes; numbers of epochs are what fits the time. Prints
and writes to FOLDER/networks_gpu.json: test errors before and after up-down training, bounds of ln p, the
share of generated digits that a support vector machine takes for what they were asked to be, ln p of the VAE
by importance sampling with a normal and a mixture prior, and seconds, those of an epoch beside the same epoch
on two CPU threads. Generated digits and samples are written as .npz.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from latently.deep import DBN, VAE  # noqa: E402
from latently.mixture import GaussianMixture  # noqa: E402

SIZES = [500, 500, 2000]
QUICK_SIZES = [30, 30, 50]
PUBLISHED = {"test error after up-down": 0.0125, "ln p of the VAE, 5000 draws": -86.76}


def seconds(call):
    began = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


def net(device, **options):
    settings = {"batch_size": 100, "random_state": 0, "learning_rate": 0.1, "weight_decay": 2e-4}
    return DBN(SIZES, device=device, **settings | options)


def epochs_of(X, y, n, device):
    """Seconds of an epoch of all layers, and of one of up-down, over all rows.

    They are differences of fits with more and fewer epochs on n rows, so that what is done once does not
    count; with device="cpu" and the same threads the ratio of two such measurements is about one.
    """
    fit = lambda layers, tuning: seconds(
        lambda: net(device, max_iter=layers, fine_tune=tuning).fit(X[:n], y[:n])
    )[0]
    few = fit(1, 1)
    layers, tuning = (fit(3, 1) - few) / 2, (fit(1, 3) - few) / 2
    return max(layers, 1e-4) * len(X) / n, max(tuning, 1e-4) * len(X) / n


def dbn(X, y, test, test_y, device, told, share, note):
    """Trains the net with and without fine-tuning."""
    n_few = min(len(X), 10000)
    seconds(lambda: net(device, max_iter=1, fine_tune=1).fit(X[:1000], y[:1000]))  # warms up
    epoch, tuning = epochs_of(X, y, n_few, device)
    told["seconds of an epoch of all three layers"], told["seconds of an epoch of up-down"] = epoch, tuning
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    on_cpu = sum(epochs_of(X, y, min(len(X), 3000), "cpu"))
    torch.set_num_threads(threads)
    told["seconds of an epoch of layers and up-down on two CPU threads"] = on_cpu
    told["CPU / device, an epoch of layers and up-down"] = on_cpu / (epoch + tuning)
    note()
    n_greedy = int(np.clip(0.4 * share / epoch, 1, 50))
    n_tuned = int(np.clip(0.5 * share / tuning, 1, 300))
    told["epochs"] = {"each layer": n_greedy, "up-down": n_tuned + 1}
    model = net(device, max_iter=n_greedy, fine_tune=1)
    told["seconds of the layers and one epoch of up-down"], _ = seconds(lambda: model.fit(X, y))
    history = model.history_
    told["test error, layers and one epoch of up-down"] = 1 - model.score(test, test_y)
    told["bound of ln p of test rows, the same"] = float(model.bound(test[:1000], n_samples=20).mean())
    note()
    model.set_params(max_iter=0, fine_tune=n_tuned, warm_start=True)
    told["seconds of up-down training"], _ = seconds(lambda: model.fit(X, y))
    told["test error, after up-down"] = 1 - model.score(test, test_y)
    told["training error, after up-down"] = 1 - model.score(X[:10000], y[:10000])
    told["bound of ln p of test rows, after up-down"] = float(model.bound(test[:1000], n_samples=20).mean())
    note()
    partition = model.layers_[-1].estimate_log_partition(random_state=0)
    told["ln Z of the last layer"] = [partition.value, partition.standard_error]
    wanted = np.repeat(np.arange(10), 20)
    made = model.generate(wanted, n_steps=1000, random_state=0)
    judge = SVC(C=5.0).fit(X[:5000].astype(np.float64), y[:5000])
    told["generated digits taken for what was asked"] = float(np.mean(judge.predict(made) == wanted))
    note()
    return {"generated": made.astype(np.float32), "labels": wanted, "history": history}


def vae(X, test, device, told, share, note):
    """Dynamically binarised rows; the test rows are binarised once."""
    settings = {
        "hidden_layer_sizes": (200, 200),
        "likelihood": "bernoulli",
        "binarize": True,
        "batch_size": 100,
        "learning_rate": 2e-3,
        "learning_rate_schedule": "cosine",
        "device": device,
        "random_state": 0,
        "block_size": 500,
    }
    test = (np.random.default_rng(0).random(test.shape) < test).astype(np.float32)
    seconds(lambda: VAE(50, max_iter=1, **settings).fit(X[:1000]))
    epoch, _ = seconds(lambda: VAE(50, max_iter=1, **settings).fit(X[:10000]))
    epoch *= len(X) / 10000
    told["seconds of an epoch"] = epoch
    n = int(np.clip(0.7 * share / epoch, 1, 500))
    told["epochs"] = n
    prior = GaussianMixture(50 if len(X) > 5000 else 2, max_iter=50, tol=1e-4, n_init=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fifty iterations are meant
        found, model = seconds(lambda: VAE(50, max_iter=n, prior=prior, **settings).fit(X))
    told["seconds of the fit"] = found
    note()
    mixture, model.prior_ = model.prior_, None
    for name, prior in (("normal prior", None), ("mixture prior", mixture)):
        model.prior_ = prior
        told[f"ELBO of test rows, {name}"] = float(model.bound(test, n_samples=20).mean())
        spent, estimate = seconds(
            lambda: model.estimate_log_density(test[:2000], n_samples=500 if len(test) > 1000 else 50)
        )
        told[f"ln p of 1000 test rows, 500 draws, {name}"] = [
            float(estimate.value.mean()),
            float(np.sqrt(np.mean(estimate.standard_error**2) / len(estimate.value))),
        ]
        told[f"seconds of that, {name}"] = spent
        note()
    model.prior_ = None
    n_draws = 5000 if len(test) > 1000 else 100
    spent, found = seconds(lambda: model.score_samples(test[:1000], n_samples=n_draws))
    told[f"ln p of 1000 test rows, {n_draws} draws, normal prior"] = float(found.mean())
    told["standard error over test rows"] = float(found.std() / np.sqrt(len(found)))
    told["seconds of these draws"] = spent
    note()
    model.prior_ = mixture
    return {
        "samples": model.sample(100, random_state=0)[0].astype(np.float32),
        "reconstructed": model.reconstruct(test[:100]).astype(np.float32),
        "history": model.history_,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=str(ROOT / "shared" / "data" / "mnist.npz"))
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", choices=("dbn", "vae"), help="one of the two models")
    parser.add_argument("--quick", action="store_true", help="few rows and units, to see that it runs")
    given = parser.parse_args()
    rows = np.load(given.data)
    n = 500 if given.quick else None
    if given.quick:
        SIZES[:] = QUICK_SIZES
    X, y = (rows["X_train"][:n] / np.float32(255)).astype(np.float32), rows["y_train"][:n]
    test, test_y = (rows["X_test"][:n] / np.float32(255)).astype(np.float32), rows["y_test"][:n]
    told = {
        "device": torch.cuda.get_device_name() if given.device == "cuda" else given.device,
        "torch": torch.__version__,
        "rows": len(X),
        "published": PUBLISHED,
        "DBN 784-500-500-2000+10": {},
        "VAE 784-200-200-50": {},
    }
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()

    def note():
        told["seconds in all"] = time.perf_counter() - began
        (out / "networks_gpu.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(told), flush=True)

    budget = 60.0 * given.minutes * (0.05 if given.quick else 1.0)
    arrays = {}
    if given.only != "vae":
        share = 0.55 * budget
        made = dbn(X, y, test, test_y, given.device, told["DBN 784-500-500-2000+10"], share, note)
        arrays |= {f"dbn_{name}": value for name, value in made.items()}
    if given.only != "dbn":
        share = 0.25 * budget
        made = vae(X, test, given.device, told["VAE 784-200-200-50"], share, note)
        arrays |= {f"vae_{name}": value for name, value in made.items()}
    np.savez_compressed(out / "networks_gpu.npz", **arrays)
    note()
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
