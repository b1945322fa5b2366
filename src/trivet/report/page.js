"use strict";
// Draws every chart of the page and says on <html> how that went: data-charts (drawn), data-charts-total,
// data-chart-errors, and once all is done data-ready with the page's width beside the window's.
(async () => {
  const page = document.documentElement;
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const boxes = [...document.querySelectorAll(".chart[data-spec]")];
  let drawn = 0;
  let errors = 0;
  for (const box of boxes) {
    try {
      await vegaEmbed(box, specs[box.dataset.spec], { renderer: "svg", actions: false });
      drawn += 1;
    } catch (error) {
      errors += 1;
      box.classList.add("failed");
      box.textContent = "This chart could not be drawn (" + error + "). Its numbers are in the tables and in report.json.";
    }
  }
  page.dataset.charts = drawn;
  page.dataset.chartsTotal = boxes.length;
  page.dataset.chartErrors = errors;
  page.dataset.scrollWidth = page.scrollWidth;
  page.dataset.innerWidth = window.innerWidth;
  page.dataset.ready = "yes";
})();
