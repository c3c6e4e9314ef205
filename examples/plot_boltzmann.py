"""
Hidden units of binary images
=============================

A restricted Boltzmann machine explains which pixels are on together by binary hidden units. Each has a
weight for every pixel.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.deep import RBM
from latently.plots import ImageGridDisplay

X = (load_digits().data > 7).astype(float)
model = RBM(30, batch_size=20, max_iter=30, random_state=0).fit(X)
drawn = model.sample(30, n_steps=500, random_state=0)[0]

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
pictures = {"digits": X[:30], "weights of 30 hidden units": model.components_, "digits drawn": drawn}
for ax, (title, images) in zip(axes, pictures.items(), strict=True):
    scale = "single" if title.startswith("weights") else None
    ImageGridDisplay(images, (8, 8), scale=scale, n_columns=6).plot(ax)
    ax.set_title(title)
