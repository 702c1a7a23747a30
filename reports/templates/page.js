// Draws a figure's panels in place of its picture when it comes near the window.
"use strict";
const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

function draw(figure) {
  const panels = JSON.parse(figure.querySelector("script").textContent);
  const place = figure.querySelector(".panels");
  place.hidden = false;
  for (const panel of panels) {
    const element = document.createElement("div");
    place.append(element);
    Plotly.newPlot(element, panel.data, panel.layout, config);
  }
  figure.querySelector(".still").style.display = "none";
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    near.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "400px" });

document.querySelectorAll("figure.figure").forEach((figure) => near.observe(figure));
