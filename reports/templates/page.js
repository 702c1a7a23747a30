// Draws a figure's panels in place of its picture when it comes near the window.
"use strict";
const config = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["zoomIn2d", "zoomOut2d", "autoScale2d", "lasso2d", "select2d"],
};

// A panel's title, which wraps, and the box that Plotly draws into.
function addBox(place, title) {
  const cell = document.createElement("div");
  const box = document.createElement("div");
  const heading = document.createElement("p");
  heading.textContent = title;
  cell.append(heading, box);
  place.append(cell);
  return box;
}

function draw(figure) {
  const panels = JSON.parse(figure.querySelector("script").textContent);
  const place = figure.querySelector(".panels");
  place.hidden = false;
  // Plotly takes the width that a box has when it draws: all boxes must share their row before the first drawing.
  const boxes = panels.map((panel) => addBox(place, panel.title));
  panels.forEach((panel, i) => Plotly.newPlot(boxes[i], panel.data, panel.layout, config));
  figure.querySelector(".still").style.display = "none";
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    near.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });

document.querySelectorAll("figure.figure").forEach((figure) => near.observe(figure));
