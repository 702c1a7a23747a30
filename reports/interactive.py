"""A figure for the page: data and layout for Plotly's script, from the same values as the printed figure."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures import MARKERS, Figure, Panel, Series

DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS = dict(zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"), strict=True))
LABEL_WIDTH = 36  # characters of an axis's title in one line: Plotly does not wrap, and a narrow page has no more room
AXIS = {"automargin": True, "ticks": "outside"}


def panels(figure: Figure) -> list[dict[str, Any]]:
    """Each panel's title and Plotly figure (data and layout, plain types); a value that is not finite is a gap.

    The page shows the title: Plotly would neither wrap it nor keep it clear of its tool bar.
    """
    drawn = [{"title": panel.title, "data": _traces(panel), "layout": _layout(panel)} for panel in figure.panels]
    return list(map(_finite, drawn))


def _finite(value: Any) -> Any:
    """JSON knows neither nan nor infinity."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _traces(panel: Panel) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    for number, series in enumerate(panel.series):
        group = f"{number}"
        if series.kind == "line" and series.low is not None and series.high is not None:
            traces.append(_band(series, group))
        x = [panel.categories[round(x)] for x in series.x] if panel.categories else list(series.x)
        common = {"x": x, "y": list(series.y), "name": series.label, "legendgroup": group}
        traces.append(common | {"showlegend": bool(series.label)} | _look(series))
    return traces


def _look(series: Series) -> dict[str, Any]:
    if series.kind == "line":
        return {"type": "scatter", "mode": "lines", "line": {"color": series.hex, "dash": DASHES[series.dash]}}
    whiskers = _whiskers(series)
    if series.kind == "points":
        symbol = "star" if series.published else f"{SYMBOLS[MARKERS[series.colour % len(MARKERS)]]}-open"
        marker: dict[str, Any] = {"color": series.hex, "symbol": symbol, "size": 9}
        return {"type": "scatter", "mode": "markers", "marker": marker, "error_y": whiskers}
    marker = {"color": series.hex}
    if series.published:
        marker = {"color": "#ffffff", "line": {"color": series.hex, "width": 1}, "pattern": {"shape": "/"}}
    return {"type": "bar", "marker": marker, "error_y": whiskers}


def _band(series: Series, group: str) -> dict[str, Any]:
    """Along the lower edge and back along the upper one."""
    assert series.low is not None
    assert series.high is not None
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*series.x, *reversed(series.x)],
        "y": [*series.low, *reversed(series.high)],
        "fill": "toself",
        "fillcolor": series.hex,
        "opacity": 0.15,
        "line": {"width": 0},
        "legendgroup": group,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _whiskers(series: Series) -> Mapping[str, Any] | None:
    if series.low is None or series.high is None:
        return None
    up = [high - y for high, y in zip(series.high, series.y, strict=True)]
    down = [y - low for low, y in zip(series.low, series.y, strict=True)]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2, "width": 3}


def _layout(panel: Panel) -> dict[str, Any]:
    y_axis = {"title": _title(panel.y_label)} | AXIS | _scale(panel.log_y, _heights(panel))
    if panel.y_range and not panel.log_y:
        y_axis["range"] = list(panel.y_range)
    x_axis = {"title": _title(panel.x_label)} | AXIS
    if panel.categories:
        x_axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(panel.categories)}
    else:
        x_axis |= _scale(panel.log_x, [x for series in panel.series for x in series.x])
    return {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "barmode": "group",
        "hovermode": "closest",
        "height": 420,
        "margin": {"l": 60, "r": 10, "t": 44, "b": 50},  # on top: buttons on the left, Plotly's tool bar on the right
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "updatemenus": [_menu(panel)],
        "template": "none",
    }


def _title(label: str) -> dict[str, str]:
    return {"text": "<br>".join(textwrap.wrap(label, LABEL_WIDTH))}


def _heights(panel: Panel) -> list[float]:
    """All that is drawn, spreads included."""
    return [y for series in panel.series for side in (series.y, series.low, series.high) for y in side or ()]


def _scale(is_log: bool, values: Sequence[float]) -> dict[str, Any]:
    """A linear or logarithmic axis for these values.

    On a logarithmic one Plotly labels every digit of a decade, one over another, where it may set more than 3.3 ticks a
    decade; with fewer than one, powers of ten are left out.
    """
    if not is_log:
        return {"type": "linear", "nticks": 0}
    shown = [value for value in values if 0.0 < value < math.inf]
    decades = math.log10(max(shown) / min(shown)) if shown else 0.0
    return {"type": "log", "nticks": min(max(3, math.ceil(1.1 * decades)), 9)}


def _menu(panel: Panel) -> dict[str, Any]:
    """Two buttons, that of the scale as drawn first."""
    scales = [_scale(is_log, _heights(panel)) | {"autorange": True} for is_log in (panel.log_y, not panel.log_y)]
    buttons = [
        {"method": "relayout", "label": f"y {scale['type']}", "args": [{f"yaxis.{key}": scale[key] for key in scale}]}
        for scale in scales
    ]
    look = {"type": "buttons", "direction": "right", "font": {"size": 11}, "pad": {"b": 8}}
    return look | {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
