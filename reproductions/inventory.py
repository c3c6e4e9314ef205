"""Every table and figure of the five documents, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

REPRODUCED, OTHER_DATA = "reproduced", "on other data"
NOT_POSSIBLE, LEFT_OUT, NOTHING = "not possible", "left out", "nothing to run"
STATES = (REPRODUCED, OTHER_DATA, NOT_POSSIBLE, LEFT_OUT, NOTHING)
DOCUMENTS = {
    "000": "M. Arngren, *Modelling cognitive representations* (2007)",
    "001": "D. Yus Lopez, *Machine learning: binary non-negative matrix factorization* (2015)",
    "002": "P. Tabaghi, *Mixture of factor models for joint dimensionality reduction and "
    "classification* (2016)",
    "003": "X. Yang, *Learning density models via structured latent variables*",
    "004": "lecture notes on matrix factorisation",
}
SKETCH, PSEUDOCODE, PICTURES = "sketches", "pseudocode", "pictures of the same fits, without numbers"


@dataclass(frozen=True)
class Item:
    """Tables or figures of a document that share their fate, and where ours are or why there are none."""

    document: str
    names: str
    state: str
    by: tuple[str, ...] = ()
    why: str = ""


def items_of(document, *lines):
    return [
        Item(document, names, state, tuple(f"{document}/{one}" for one in by), why)
        for names, state, by, why in lines
    ]


ITEMS = [
    *items_of(
        "000",
        ("Tables 2.1, 3.2, 4.1", NOTHING, (), PSEUDOCODE),
        ("Table 3.1", REPRODUCED, ("table-3.1",), "sizes of data; one misprint"),
        ("Table 4.2", NOTHING, (), "names of modules"),
        ("Table 5.1", REPRODUCED, ("table-5.1", "layers-over-draws"), ""),
        ("Tables 5.2, 5.3", REPRODUCED, ("tables-5.2-5.3", "layers-over-draws"), ""),
        ("Figs. 1.1-2.3, 4.1-4.8, A.1-A.5", NOTHING, (), SKETCH),
        ("Fig. 3.1", NOTHING, (), "pictures of the data"),
        ("Figs. 3.2-3.6", REPRODUCED, ("figures-3.2-3.6",), "no numbers printed"),
        ("Figs. 3.7-3.22", REPRODUCED, ("figures-3.7-3.22",), "no numbers printed"),
        ("Figs. 3.23-3.27", REPRODUCED, ("figures-3.23-3.27",), "no numbers printed"),
        ("Figs. 3.28-3.45", REPRODUCED, ("figures-3.28-3.45",), "no numbers printed"),
        ("Figs. 3.46-3.57", REPRODUCED, ("figures-3.46-3.57",), "no numbers printed"),
        ("Section 4.1", REPRODUCED, ("section-4.1",), "numbers of another paper, not counted"),
        (
            "Figs. 5.1, 5.6, 5.10-5.12, 5.16, 5.17, 5.19, 5.24, 5.28, 5.31, 5.34, 5.38",
            REPRODUCED,
            ("figures-5.6-5.34",),
            "curves without numbers, on fewer rows to save time",
        ),
        (
            "Figs. 5.2-5.5, 5.7-5.9, 5.13-5.15, 5.18, 5.20-5.23, 5.25-5.27, 5.29, 5.30, 5.32, 5.33, 5.36",
            LEFT_OUT,
            (),
            PICTURES,
        ),
        ("Figs. 5.35, 5.46, 5.47", REPRODUCED, ("figures-5.35-5.48",), "no numbers printed"),
        ("Figs. 5.37, 5.48", LEFT_OUT, (), "further sessions of the same, to save time"),
        (
            "Figs. 5.39-5.45",
            REPRODUCED,
            ("tables-5.2-5.3",),
            "their errors are those of the tables; of the pictures only weights are drawn",
        ),
        ("beyond the source", REPRODUCED, ("fine-tuned-layers",), "not counted"),
    ),
    *items_of(
        "001",
        ("Figs. 4.1-4.7", REPRODUCED, ("section-4.1",), "no numbers that can be read"),
        ("Section 4.1, shares of runs", REPRODUCED, ("success-rates",), ""),
        ("Figs. 4.8, 4.9", REPRODUCED, ("section-4.2",), "no numbers printed"),
        ("beyond the source", REPRODUCED, ("large-bars",), "not counted"),
    ),
    *items_of(
        "002",
        ("Tables 4.1-4.3", NOTHING, (), PSEUDOCODE),
        ("Table 5.1", NOTHING, (), "orders of growth, told in words"),
        (
            "Tables 5.2, 5.3, Figs. 5.1-5.18",
            OTHER_DATA,
            ("tables-5.2-5.3", "tables-5.2-5.3-sonar"),
            "the sonar images are not public",
        ),
        (
            "Tables 5.4, 5.5, Figs. 5.19-5.36",
            OTHER_DATA,
            ("tables-5.4-5.5",),
            "the faces (head poses) could not be had; levels compare with nothing",
        ),
        ("Figs. 3.1-3.4", NOTHING, (), SKETCH),
        ("beyond the source", OTHER_DATA, ("discriminative-weight",), "not counted"),
    ),
    *items_of(
        "003",
        ("Tables 2.1, 5.1, Figs. 1.1, 2.1-2.13", NOTHING, (), "kinds of models, settings and sketches"),
        ("Table 3.1, Fig. 3.1", REPRODUCED, ("table-3.1",), ""),
        ("Table 3.2", REPRODUCED, ("table-3.2",), "sizes of data"),
        ("Table 3.3, Fig. 3.2", REPRODUCED, ("table-3.3",), ""),
        ("Table 3.4, Fig. 3.3", REPRODUCED, ("table-3.4",), ""),
        ("Table 3.5, Fig. 3.4", REPRODUCED, ("table-3.5",), ""),
        ("Table 3.6, Fig. 3.5", REPRODUCED, ("table-3.6",), ""),
        ("Figs. 3.6, 3.7, 3.12", NOTHING, (), SKETCH),
        ("Table 3.7", REPRODUCED, ("table-3.7",), "formulas; weights are counted as free"),
        ("Figs. 3.8-3.11", REPRODUCED, ("figures-3.8-3.11",), "counted with Tables 5.2 to 5.4"),
        ("Table 3.8, Fig. 3.14", REPRODUCED, ("table-3.8",), ""),
        ("Table 3.9", REPRODUCED, ("table-3.9",), "sizes of data"),
        ("Table 3.10, Fig. 3.15", REPRODUCED, ("table-3.10",), ""),
        ("Table 3.11, Fig. 3.16", REPRODUCED, ("table-3.11",), ""),
        ("Table 3.12, Fig. 3.17", REPRODUCED, ("table-3.12",), ""),
        ("Fig. 3.13", REPRODUCED, ("figure-3.13",), "no numbers printed"),
        ("Table 3.13, Fig. 3.18", REPRODUCED, ("table-3.13",), ""),
        ("Table 3.14, Fig. 3.19", REPRODUCED, ("table-3.14",), ""),
        ("Table 4.1", REPRODUCED, ("table-4.1",), "sizes of data, those that are public"),
        ("Figs. 4.1, 4.2", NOTHING, (), SKETCH),
        (
            "Table 4.2, Figs. 4.3-4.8",
            OTHER_DATA,
            ("table-4.2",),
            "the sets are not public, and the embedding of images in the divergence is not stated",
        ),
        ("Fig. 4.9", NOT_POSSIBLE, (), "the images are not given; 6 numbers"),
        (
            "Figs. 4.10, 4.11",
            OTHER_DATA,
            ("figures-4.10-4.13",),
            "the erased images are not public; ours are made from the authors' training images",
        ),
        ("Table 4.3", REPRODUCED, ("table-4.3", "table-4.3-k-means"), ""),
        ("Table 4.4", REPRODUCED, ("table-4.4",), "orders of growth, measured as times"),
        ("Figs. 5.1, 5.2", NOTHING, (), SKETCH),
        ("Tables 5.2-5.4, Figs. 5.3-5.6", REPRODUCED, ("tables-5.2-5.4",), ""),
        ("Fig. 5.7", REPRODUCED, ("figure-5.7",), "no numbers printed"),
        ("Figs. 6.1, 6.2", NOTHING, (), SKETCH),
        (
            "Table 6.1, ULC and MNIST",
            REPRODUCED,
            ("table-6.1", "table-6.1-settings", "table-6.1-mjfa"),
            "",
        ),
        (
            "Table 6.1, HZ-20 and HZ-297",
            NOT_POSSIBLE,
            (),
            "the characters are not public; 4 numbers",
        ),
        (
            "Table 6.2",
            OTHER_DATA,
            ("table-6.2",),
            "other letters than EMNIST, and clothes in place of Chinese characters",
        ),
        ("Figs. 6.3-6.6", REPRODUCED, ("figures-6.3-6.6",), "one accuracy and pictures"),
        (
            "Sections 2.5.1, 2.5.2",
            REPRODUCED,
            ("section-2.5.1", "section-2.5.2", "section-2.5.2-spread", "section-2.5.2-as-published"),
            "numbers of other papers",
        ),
    ),
    *items_of("004", ("its pictures of parts", OTHER_DATA, ("features",), "of faces; ours are of digits")),
]
