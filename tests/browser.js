// What a reader sees of a page when all of it has been drawn: called in the page by browser.py, gives a View's fields.
async () => {
  const WAIT_MS = 5000; // for a drawing to appear, or to take a new width
  const SLACK = 1; // pixels: rounding, and the room about a letter

  async function until(condition) {
    const end = performance.now() + WAIT_MS;
    while (!condition() && performance.now() < end) await new Promise(requestAnimationFrame);
  }

  const figures = [...document.querySelectorAll("figure.figure")];
  const drawings = () => [...document.querySelectorAll(".panels .js-plotly-plot")];
  const svgOf = (drawing) => drawing.querySelector(".main-svg");
  const widthOf = (element) => element.getBoundingClientRect().width;
  const fits = (drawing) => svgOf(drawing) && Math.abs(widthOf(svgOf(drawing)) - widthOf(drawing)) < SLACK;

  for (const figure of figures) {
    figure.scrollIntoView();
    await until(() => !figure.querySelector(".panels").hidden);
  }
  await until(() => drawings().every(fits));

  // Corners on the screen, of turned text as well.
  function corners(element) {
    if (!(element instanceof SVGGraphicsElement) || element instanceof SVGSVGElement) {
      const { left, right, top, bottom } = element.getBoundingClientRect();
      return [[left, top], [right, top], [right, bottom], [left, bottom]];
    }
    const { x, y, width, height } = element.getBBox();
    const matrix = element.getScreenCTM();
    const places = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
    return places.map(([a, b]) => new DOMPoint(a, b).matrixTransform(matrix)).map((point) => [point.x, point.y]);
  }

  // Two convex shapes are apart where some side of one has the other beyond it (separating axes).
  function overlap(one, other) {
    return [one, other].every((shape) =>
      shape.every(([x, y], i) => {
        const [u, v] = shape[(i + 1) % shape.length];
        const length = Math.hypot(u - x, v - y);
        if (length === 0) return true;
        const along = ([a, b]) => (a * (v - y) - b * (u - x)) / length;
        const [ours, theirs] = [one.map(along), other.map(along)];
        const depth = Math.min(Math.max(...ours), Math.max(...theirs)) - Math.max(Math.min(...ours), Math.min(...theirs));
        return depth > SLACK;
      }));
  }

  const within = (shape, { left, right, top, bottom }) => shape.every(([x, y]) =>
    x >= left - SLACK && x <= right + SLACK && y >= top - SLACK && y <= bottom + SLACK);

  // What of a place its page and all that hold it let be seen, however far the window is scrolled down.
  function visible(element) {
    const page = document.documentElement;
    let { left, right, top, bottom } = { left: 0, right: page.clientWidth, top: -Infinity, bottom: Infinity };
    for (let place = element; place !== page; place = place.parentElement) {
      if (getComputedStyle(place).overflowX === "visible") continue;
      const room = place.getBoundingClientRect();
      left = Math.max(left, room.left);
      right = Math.min(right, room.right);
      top = Math.max(top, room.top);
      bottom = Math.min(bottom, room.bottom);
    }
    return { left, right, top, bottom };
  }

  const PARTS = {
    "tool bar": ".modebar",
    buttons: ".updatemenu-container",
    legend: ".legendtext, .legendsymbols",
    "drawing's title": ".g-gtitle",
    "title of x": ".g-xtitle",
    "title of y": ".g-ytitle",
    "number of x": ".xtick text",
    "number of y": ".ytick text",
    axes: ".nsewdrag",
  };

  function partsOf(panel) {
    const found = Object.entries(PARTS).flatMap(([name, selector]) =>
      [...panel.querySelectorAll(selector)].map((element) => ({ name, element, text: element.textContent.trim() })));
    const title = panel.querySelector(":scope > p");
    if (title) found.push({ name: "title", element: title, text: title.textContent });
    return found.map((part) => ({ ...part, shape: corners(part.element) })).filter(({ shape }) =>
      shape[0][0] !== shape[2][0] && shape[0][1] !== shape[2][1]);
  }

  const said = ({ name, text }) => (text && name !== "buttons" ? `${name} "${text}"` : name);
  const clipped = [];
  const overlaps = [];
  for (const figure of figures) {
    const caption = figure.querySelector("figcaption").textContent;
    for (const panel of figure.querySelectorAll(".panels > div")) {
      const drawing = panel.querySelector(".main-svg");
      if (!drawing) continue;
      const shape = corners(drawing);
      if (!within(shape, drawing.closest(".js-plotly-plot").getBoundingClientRect())) clipped.push(`${caption}: larger than its box`);
      if (!within(shape, visible(drawing.parentElement))) clipped.push(`${caption}: partly out of sight`);
      const parts = partsOf(panel);
      const room = panel.getBoundingClientRect();
      for (const part of parts) if (!within(part.shape, room)) clipped.push(`${caption}: ${said(part)}`);
      parts.forEach((one, i) => parts.slice(i + 1).forEach((other) => {
        if (overlap(one.shape, other.shape)) overlaps.push(`${caption}: ${said(one)} and ${said(other)}`);
      }));
    }
  }
  const images = [...document.images];
  const shown = images.filter((image) => image.getClientRects().length);
  clipped.push(...shown.filter((image) => !within(corners(image), visible(image.parentElement))).map((image) => image.src));

  const panels = figures.flatMap((figure) => {
    const place = figure.querySelector(".panels");
    return place.children.length ? [...place.children] : [place];
  });
  return {
    panels: panels.length,
    undrawn: panels.filter((panel) => !panel.querySelector(".main-svg")).length,
    broken_images: images.filter((image) => !(image.complete && image.naturalWidth > 0)).map((image) => image.src),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    clipped,
    overlaps,
  };
}
