"""A figure for the page: what Plotly's script draws in the browser, from the same data as the printed one."""

import math
from collections.abc import Mapping
from typing import Any

from reports.figures import MARKERS, Figure, Panel, Series

DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS = dict(zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"), strict=True))


def panels(figure: Figure) -> list[dict[str, Any]]:
    """A Plotly figure (data and layout, plain types) for each panel; what is no finite number is a gap."""
    return [_finite({"data": _traces(panel), "layout": _layout(panel)}) for panel in figure.panels]


def _finite(value: Any) -> Any:
    """JSON knows neither nan nor infinity."""
    if isinstance(value, Mapping):
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
    y_axis: dict[str, Any] = {"title": {"text": panel.y_label}, "type": "log" if panel.log_y else "linear"}
    if panel.y_range and not panel.log_y:
        y_axis["range"] = list(panel.y_range)
    x_axis: dict[str, Any] = {"title": {"text": panel.x_label}}
    if panel.categories:
        x_axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(panel.categories)}
    else:
        x_axis["type"] = "log" if panel.log_x else "linear"
    buttons = [
        {"method": "relayout", "label": f"y {kind}", "args": [{"yaxis.type": kind, "yaxis.autorange": True}]}
        for kind in (("log", "linear") if panel.log_y else ("linear", "log"))
    ]
    menu = {"type": "buttons", "direction": "right", "buttons": buttons, "x": 1, "xanchor": "right", "y": 1.14}
    return {
        "title": {"text": panel.title, "font": {"size": 13}},
        "xaxis": x_axis,
        "yaxis": y_axis,
        "barmode": "group",
        "hovermode": "closest",
        "height": 420,
        "margin": {"l": 60, "r": 10, "t": 60, "b": 50},
        "legend": {"orientation": "h", "y": -0.22},
        "updatemenus": [menu],
        "template": "none",
    }
