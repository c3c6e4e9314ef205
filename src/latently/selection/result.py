"""The result of a search: the best model, the table of all models, a plot and an HTML page."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

from latently.selection.criteria import CRITERIA, OF_ALL_ROWS

_OF_LIKELIHOODS = ("log_likelihood", "n_parameters", *(criterion.column for criterion in OF_ALL_ROWS))
_SHOWN = 5  # models listed by repr

_STYLE = """
.latently-selection { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9em; }
.latently-selection th, .latently-selection td { padding: 0.3em 0.7em; text-align: right; color: inherit;
  border-bottom: 1px solid rgba(128, 128, 128, 0.35); }
.latently-selection td.text, .latently-selection th.text { text-align: left; }
.latently-selection tr.best td { background: rgba(0, 158, 115, 0.22); font-weight: 600; }
.latently-selection tr.failed td { opacity: 0.65; }
"""
_PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; line-height: 1.45; margin: 2em auto; max-width: 72em;
  padding: 0 1em; color: #1b1f24; background: #ffffff; }
h1 { font-size: 1.35em; }
img { max-width: 100%; background: #ffffff; border-radius: 6px; }
.wide { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { color: #e6e8ea; background: #16191d; } }
"""


class Selection:
    """The result of :func:`select`.

    Attributes
    ----------
    best_ : estimator
        The best model, fitted to all rows.
    best_params_ : dict
        Its parameters in the grid.
    best_score_ : float
        Its value of the criterion.
    table_ : pandas.DataFrame
        One row per cell, in the order of the grid: its parameters, then

        - `log_likelihood` per training row, `n_parameters`, `bic`, `aic`, `icl`: missing for models without a
          density;
        - `n_iter` and `converged` of the fit, and how many components are `degenerate`: not determined by the
          rows;
        - `held_out_log_likelihood` or `held_out_error`, with the `held_out_standard_error` over folds, if
          this was the criterion;
        - `seconds`, the time of all fits of the cell;
        - `refits`, how often it was refitted because a smaller model had a higher likelihood, and
          `started_from`, the starting point of the fit that was kept: empty if that is the first fit;
        - `error`, the error message: empty if the fit succeeded;
        - `rank` by the criterion, 1 for the best: missing if the fit failed. Models with degenerate
          components come after all others, because their likelihood says little.
    estimators_ : list
        The models fitted to all rows, in the order of the table; None where the fit failed.
    criterion : str
    cells : list of dict
        The parameters of the grid, in the order of the table.
    """

    def __init__(self, criterion, table, cells, estimators):
        self.criterion = criterion
        self.cells, self.estimators_ = cells, estimators
        score = table[self._kind.column].where(table["error"] == "").dropna()
        keys = table.loc[score.index, ["n_parameters"]]
        keys["degenerate"] = table.loc[score.index, "degenerate"].fillna(0) > 0
        keys["loss"] = -score if self._kind.higher_is_better else score
        order = keys.sort_values(
            ["degenerate", "loss", "n_parameters"], kind="stable"
        ).index  # ties: the smaller model first
        ranks = {row: rank for rank, row in enumerate(order, 1)}
        self.table_ = table.assign(rank=[ranks.get(row) for row in table.index]).astype({"rank": "Int64"})
        self.best_, self.best_params_ = estimators[order[0]], cells[order[0]]
        self.best_score_ = float(score[order[0]])

    def plot(self, ax=None):
        """Plot the criterion over the grid.

        Two numeric parameters give a heat map, one for every combination of the others. Otherwise curves are
        drawn, one for every combination of the parameters that are not on the axis.

        Parameters
        ----------
        ax : matplotlib Axes, or one for each heat map, optional
            Axes to draw on; by default of a new figure.

        Returns
        -------
        latently.plots.selection.SelectionDisplay
            The plotted numbers, with `axes_` and `figure_`.
        """
        return self._display().plot(ax)

    def to_html(self, path=None):
        """Self-contained HTML page with the plot and the table, best models first.

        Parameters
        ----------
        path : path, optional
            File to write it to as well.

        Returns
        -------
        str
        """
        kind = self._kind
        title = f"{type(self.best_).__name__}: {len(self.table_)} models compared by {kind.label}"
        picture = base64.b64encode(self._display().svg()).decode("ascii")
        page = (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{escape(title)}</h1>\n<p>{escape(self._sentence())}</p>\n"
            f'<img src="data:image/svg+xml;base64,{picture}" alt="{escape(kind.label)} over the grid">\n'
            f'<div class="wide">{self._html_table()}</div>\n</body>\n</html>\n'
        )
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def __repr__(self):
        shown = self.table_.sort_values("rank").head(_SHOWN)
        columns = [*self._parameters, "log_likelihood", "n_parameters", self._kind.column, "rank"]
        told = [name for name in columns if name not in self._untold]
        return f"{self._sentence()}\n{shown[told].to_string(index=False)}"

    def _repr_html_(self):
        return f"<p>{escape(self._sentence())}</p>{self._html_table()}"

    @property
    def _kind(self):
        return CRITERIA[self.criterion]

    @property
    def _parameters(self):
        """The columns of the table with the parameters of the grid."""
        return list(self.table_.columns[: self.table_.columns.get_loc("log_likelihood")])

    @property
    def _untold(self):
        """Columns without values for these models."""
        return [name for name in _OF_LIKELIHOODS if self.table_[name].isna().all()]

    def _display(self):
        try:
            from latently.plots.selection import SelectionDisplay
        except ImportError as error:
            raise ImportError("plots need matplotlib: pip install 'latently[plots]'") from error
        return SelectionDisplay(
            self.table_[self.table_["rank"].notna()],
            self._parameters,
            self._kind.column,
            label=self._kind.label,
            higher_is_better=self._kind.higher_is_better,
            error_column="held_out_standard_error" if "held_out_standard_error" in self.table_ else None,
        )

    def _sentence(self):
        table, kind = self.table_, self._kind
        text = (
            f"The best of {len(table)} {type(self.best_).__name__} models has "
            f"{cell_name(self.best_params_)}: {kind.label} {shown(self.best_score_)} ({kind.direction})."
        )
        for number, what in (
            ((table["started_from"] != "").sum(), "restarted from a smaller model of higher likelihood"),
            ((~table["converged"].fillna(True)).sum(), "did not converge"),
            ((table["degenerate"].fillna(0) > 0).sum(), "with degenerate components came last"),
            ((table["error"] != "").sum(), "failed, see the column error"),
        ):
            text += f" {number} {what}." if number else ""
        return text

    def _html_table(self):
        """The table by rank, failed fits last, without empty columns."""
        silent = [
            name for name in ("degenerate", "refits", "started_from", "error") if not self.table_[name].any()
        ]
        table = self.table_.sort_values("rank", kind="stable", na_position="last")
        table = table.drop(columns=[*silent, *self._untold])
        table = table[["rank", *table.columns.drop("rank")]].astype(object)
        names = "".join(f"<th>{escape(str(name).replace('_', ' '))}</th>" for name in table.columns)
        lines = []
        for (_, row), missing in zip(table.iterrows(), table.isna().to_numpy(), strict=True):
            kind = ' class="failed"' if missing[0] else ' class="best"' if row["rank"] == 1 else ""
            texts = [
                shown(value, empty=hidden and name not in self._parameters)
                for (name, value), hidden in zip(row.items(), missing, strict=True)
            ]
            sides = [' class="text"' if isinstance(value, str) else "" for value in row]
            cells = (f"<td{side}>{escape(text)}</td>" for side, text in zip(sides, texts, strict=True))
            lines.append(f"<tr{kind}>{''.join(cells)}</tr>")
        return (
            f'<style>{_STYLE}</style><table class="latently-selection">\n<thead><tr>{names}</tr></thead>\n'
            "<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"
        )


def cell_name(params):
    """The parameters of a cell, formatted as keyword arguments."""
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


def shown(value, empty=False):
    """Short text for a value of the table."""
    if empty:
        return ""
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 1000 else f"{value:.4f}"
    return str(value)
